"""`vaswani-transformer translate`: translate lines of text."""

from __future__ import annotations

import sys
from pathlib import Path

from ..errors import InputError
from ..training_arguments import ArgumentParser
from .options import create_decoding_parser, decoding_settings


def create_parser() -> ArgumentParser:
    """The parser of this command."""
    parser = create_decoding_parser(
        "translate", "Translate UTF-8 text, a sentence a line: one line in, one line out, in order."
    )
    parser.add_argument("--input", metavar="FILE", help="Text to translate; standard input if not given.")
    parser.add_argument("--output", metavar="FILE", help="Where to write; standard output if not given.")
    parser.add_argument(
        "--split-sentences",
        metavar="CODE",
        help="Lines hold several sentences: translate them one by one, split by the rules of this language (en, de, "
        "…). Needs the package sentencex.",
    )
    return parser


def run(arguments: list[str]) -> int:
    """Translate a file or standard input."""
    options = create_parser().parse_strictly(arguments)

    from contextlib import ExitStack
    from importlib.util import find_spec

    from ..corpora import decode_lines, read_lines
    from ..translation import WINDOW, load_pipeline, translate

    if options.input and options.output and Path(options.input).resolve() == Path(options.output).resolve():
        raise InputError(f"{options.output}: is the input too; give another --output")
    if options.input:
        lines = iter(list(read_lines(Path(options.input))))
    else:
        lines = decode_lines(sys.stdin.buffer, "standard input")
    if options.split_sentences and find_spec("sentencex") is None:
        raise InputError("--split-sentences needs the package sentencex: pip install sentencex")
    pipeline = load_pipeline(options.model, options.dtype)
    with ExitStack() as stack:
        output = sys.stdout
        if options.output:
            output = stack.enter_context(open(options.output, "w", encoding="utf-8", newline="\n"))
        else:
            sys.stdout.reconfigure(encoding="utf-8")
        # Who types wants an answer to each line.
        window = 1 if not options.input and sys.stdin.isatty() else WINDOW
        settings = {"split_sentences": options.split_sentences, **decoding_settings(options)}
        for translation in translate(pipeline, lines, window=window, **settings):
            print(translation, file=output, flush=window == 1)
    return 0
