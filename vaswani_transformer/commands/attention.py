"""`vaswani-transformer attention`: draw what a translation attends to."""

from __future__ import annotations

from pathlib import Path

from ..training_arguments import ArgumentParser
from .options import MODEL_HELP, add_search_options, positive, say, search_settings


def create_parser() -> ArgumentParser:
    """The parser of this command."""
    from ..attention_picture import KINDS

    parser = ArgumentParser(
        prog="vaswani-transformer attention",
        description="Translate a sentence and draw what its words attend to. Needs matplotlib.",
    )
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument("sentence", metavar="SENTENCE", help="What to translate, in quotes.")
    parser.add_argument("--output", required=True, metavar="FILE", help="The picture: a .png, .svg or .html.")
    parser.add_argument(
        "--kind",
        choices=KINDS,
        default=KINDS[0],
        help="The alignment of the words of translation and source; or, by layer and head, the attention of the "
        "encoder, of the decoder to what it has written, or across to the source.",
    )
    parser.add_argument("--layers", nargs="+", type=positive, default=[], help="Layers to show, from 1; or all.")
    parser.add_argument("--heads", nargs="+", type=positive, default=[], help="Heads to show, from 1; or all.")
    parser.add_argument("--average", action="store_true", help="Show the mean of the heads, not each.")
    parser.add_argument("--words", action="store_true", help="Words in place of their pieces, as in an alignment.")
    add_search_options(parser)
    return parser


def run(arguments: list[str]) -> int:
    """Draw what the words of a sentence and of its translation attend to."""
    options = create_parser().parse_strictly(arguments)

    from ..attention import read_attention
    from ..attention_picture import FORMATS_AND_PAGES, AttentionPicture
    from ..pictures import check_picture
    from ..translation import load_pipeline

    output = Path(options.output)
    check_picture(output, FORMATS_AND_PAGES)
    pipeline = load_pipeline(options.model)
    words = options.words or options.kind == "alignment"
    weights = read_attention(pipeline, options.sentence, words=words, **search_settings(options))
    AttentionPicture(weights, options.kind, layers=options.layers, heads=options.heads, average=options.average).save(
        output
    )
    print(weights.translation)
    say(f"The picture is in {output}")
    return 0
