"""The command `vaswani-transformer`: train, translate, evaluate, average, push, export, and draw."""

from __future__ import annotations

import argparse
import json
import logging
import math
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import InputError

if TYPE_CHECKING:
    from .training_arguments import ArgumentParser

MODEL_HELP = "A run folder, a model on the Hub, or the name of a checkpoint that ships with the package."
TRANSLATOR_HELP = "A run folder, a model on the Hub, a checkpoint that ships with the package, or what `export` wrote."


@dataclass
class Command:
    """What a command is for, its parser, and what runs it and returns the exit code."""

    summary: str
    create_parser: Callable[[], ArgumentParser]
    run: Callable[[list[str]], int]


class MessageHandler(logging.Handler):
    """Tells the package's messages to the person who waits."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print the message of `record`."""
        _say(record.getMessage())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        0; 2 for a mistake in what was given, told in one line; 130 after Ctrl-C.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    logger = logging.getLogger(__package__)
    if not logger.handlers:
        logger.addHandler(MessageHandler())
        logger.setLevel(logging.INFO)
    try:
        if not arguments or arguments[0] in ("-h", "--help"):
            print(usage())
            return 0
        if arguments[0] == "--version":
            from . import __version__

            print(f"vaswani-transformer {__version__}")
            return 0
        if arguments[0] not in COMMANDS:
            from .training_arguments import nearest

            raise InputError(
                f"unknown command {arguments[0]}{nearest(arguments[0], COMMANDS)}; there are {', '.join(COMMANDS)}"
            )
        _quieten_libraries()
        return COMMANDS[arguments[0]].run(arguments[1:])
    except InputError as error:
        print(f"vaswani-transformer: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader of our output, such as `head`, has seen enough; Python's own flush at exit must not complain.
        sys.stdout = None
        return 0
    except OSError as error:
        print(f"vaswani-transformer: {error.filename or 'system'}: {error.strerror or error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("vaswani-transformer: interrupted", file=sys.stderr)
        return 130


def usage() -> str:
    """What `vaswani-transformer --help` prints."""
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:{width}}  {command.summary}" for name, command in COMMANDS.items())
    return (
        "usage: vaswani-transformer COMMAND [options]\n\n"
        "The Transformer of 2017 for translation.\n\n"
        f"{commands}\n\n"
        "`vaswani-transformer COMMAND --help` tells the options of one."
    )


def _quieten_libraries() -> None:
    """No reports of loading, saving and retrying; progress bars only where a person sees them."""
    import datasets
    import huggingface_hub
    import transformers

    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    huggingface_hub.utils.logging.set_verbosity_error()
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
        huggingface_hub.utils.disable_progress_bars()


def _say(text: str) -> None:
    """Tell the person who waits; results alone go to standard output."""
    print(text, file=sys.stderr, flush=True)


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text}")
    return number


def _exponent(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not -10 <= number <= 10:
        raise argparse.ArgumentTypeError(f"expected a number from -10 to 10, got {text}")
    return number


def _create_training_parser() -> ArgumentParser:
    from .training_arguments import create_training_parser

    return create_training_parser()


def train(arguments: list[str]) -> int:
    """Train a model."""
    from .training_arguments import parse_training_arguments

    settings = parse_training_arguments(arguments)

    from .training_run import run_training

    return run_training(settings)


def _create_decoding_parser(name: str, description: str) -> ArgumentParser:
    from .training_arguments import ArgumentParser

    parser = ArgumentParser(prog=f"vaswani-transformer {name}", description=description)
    parser.add_argument("model", metavar="MODEL", help=TRANSLATOR_HELP)
    _add_search_options(parser)
    parser.add_argument(
        "--batch-tokens", type=_positive, default=2048, help="Most source positions in a batch, with padding."
    )
    parser.add_argument(
        "--dtype",
        choices=["float32", "bfloat16"],
        default="float32",
        help="Precision of the weights; bfloat16 is faster on GPUs and on CPUs with AVX512-BF16 or AMX.",
    )
    return parser


def _add_search_options(parser: ArgumentParser) -> None:
    parser.add_argument("--num-beams", type=_positive, default=4, help="Width of the beam; 1 is greedy.")
    parser.add_argument(
        "--length-penalty",
        type=_exponent,
        metavar="ALPHA",
        help="Exponent of the length penalty; the model's own if not given.",
    )


def _search_settings(options: argparse.Namespace) -> dict[str, int | float]:
    settings = {"num_beams": options.num_beams}
    if options.length_penalty is not None:
        settings["length_penalty"] = options.length_penalty
    return settings


def _decoding_settings(options: argparse.Namespace) -> dict[str, int | float]:
    return {"batch_tokens": options.batch_tokens, **_search_settings(options)}


def _create_translation_parser() -> ArgumentParser:
    parser = _create_decoding_parser(
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


def translate(arguments: list[str]) -> int:
    """Translate a file or standard input."""
    options = _create_translation_parser().parse_strictly(arguments)

    from contextlib import ExitStack
    from importlib.util import find_spec

    from .corpora import decode_lines, read_lines
    from .translation import WINDOW, load_pipeline, translate

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
        settings = {"split_sentences": options.split_sentences, **_decoding_settings(options)}
        for translation in translate(pipeline, lines, window=window, **settings):
            print(translation, file=output, flush=window == 1)
    return 0


def _create_evaluation_parser() -> ArgumentParser:
    from .evaluation import TOKENIZERS

    parser = _create_decoding_parser(
        "evaluate", "Translate a test set and score it with sacreBLEU's BLEU and chrF++, signatures included."
    )
    parser.add_argument("--test-file", nargs="+", metavar="FILE", help="A table of pairs, or a source and a target.")
    parser.add_argument(
        "--tsv-columns",
        nargs=2,
        metavar="CODE",
        help="Languages of a .tsv table's two columns; source and target if not given.",
    )
    parser.add_argument("--dataset-name", metavar="NAME", help="builtin:en-de, or a data set on the Hub.")
    parser.add_argument("--dataset-config-name", metavar="NAME", help="Configuration of the Hub's data set.")
    parser.add_argument("--test-split", default="test", metavar="NAME", help="Split of the data set.")
    parser.add_argument("--source-lang", default="en", metavar="CODE", help="Source language.")
    parser.add_argument("--target-lang", default="de", metavar="CODE", help="Target language.")
    parser.add_argument(
        "--tokenize",
        choices=TOKENIZERS,
        default="13a",
        help="How BLEU cuts text into words: none for text that is tokenised, compound as the paper on WMT14.",
    )
    parser.add_argument("--json", metavar="FILE", help="Also write the scores to this file.")
    return parser


def _public_flags(parser: ArgumentParser, options: argparse.Namespace) -> str:
    """The flags that differ from the defaults, to repeat an evaluation elsewhere: of paths, only their last part."""
    from .model_card import public_name

    words = []
    for action in parser._actions:
        value = getattr(options, action.dest, action.default)
        if not action.option_strings or action.dest == "json" or value == action.default:
            continue
        if action.dest == "test_file":
            value = [Path(file).name for file in value]
        elif action.dest == "dataset_name":
            value = public_name(value)
        words += [action.option_strings[0], *map(str, value if isinstance(value, list) else [value])]
    return shlex.join(words)


def evaluate(arguments: list[str]) -> int:
    """Translate a test set and print its scores."""
    parser = _create_evaluation_parser()
    options = parser.parse_strictly(arguments)

    from .checkpoints import RunFolder, check_output
    from .corpora import load_corpus, sentences
    from .evaluation import check_tokenizer, score_translations
    from .model_card import is_for_everyone, public_name, update_card, weights_digest
    from .translation import load_pipeline, translate

    if options.json:
        check_output(options.json)
    check_tokenizer(options.tokenize)
    corpus = load_corpus(
        options.test_file,
        dataset_name=options.dataset_name,
        dataset_config_name=options.dataset_config_name,
        split=options.test_split,
        source_lang=options.source_lang,
        target_lang=options.target_lang,
        tsv_columns=options.tsv_columns,
    )
    run = RunFolder(options.model)
    # Taken before the weights are read: a training that goes on may replace them meanwhile.
    weights = weights_digest(run.path) if run.is_run() and run.weights.is_file() else None
    pipeline = load_pipeline(options.model, options.dtype)
    started = time.monotonic()
    settings = _decoding_settings(options)
    predictions = list(translate(pipeline, sentences(corpus, options.source_lang), **settings))
    seconds = time.monotonic() - started
    references = list(sentences(corpus, options.target_lang))
    scores = score_translations(predictions, references, options.tokenize, options.target_lang)
    print(f"BLEU    {scores['bleu']:.2f}  {scores['bleu_signature']}")
    print(f"chrF++  {scores['chrf++']:.2f}  {scores['chrf++_signature']}")
    print(f"{scores['sentences']:,} sentences, beam {options.num_beams}, {seconds:.1f} seconds")
    if options.json:
        record = {
            "model": options.model,
            **settings,
            "dtype": options.dtype,
            "tokenize": options.tokenize,
            **scores,
            "seconds": round(seconds, 1),
        }
        Path(options.json).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    if weights:
        files = ", ".join(Path(file).name for file in options.test_file or [])
        dataset = options.dataset_name and public_name(options.dataset_name)
        try:
            run.record_evaluation(
                weights=weights,
                data=files or dataset,
                dataset_name=dataset if dataset and is_for_everyone(options.dataset_name) else None,
                dataset_config_name=options.dataset_config_name,
                split=options.test_split if dataset else None,
                source_lang=options.source_lang,
                target_lang=options.target_lang,
                num_beams=options.num_beams,
                length_penalty=options.length_penalty,
                dtype=options.dtype,
                tokenize=options.tokenize,
                flags=_public_flags(parser, options),
                **scores,
            )
        except OSError as error:
            _say(f"The evaluation is not recorded: {run.evaluations}: {error.strerror}")
        else:
            update_card(run.path)
    return 0


def _create_averaging_parser() -> ArgumentParser:
    from .training_arguments import ArgumentParser

    parser = ArgumentParser(
        prog="vaswani-transformer average",
        description="Save the mean of a run's last checkpoints (section 6.1 of the paper) as a model folder.",
    )
    parser.add_argument("run", metavar="RUN", help="A run folder.")
    parser.add_argument("--last", type=_positive, default=5, help="How many of the newest checkpoints.")
    parser.add_argument("--output", required=True, metavar="FOLDER", help="New folder for the averaged model.")
    parser.add_argument(
        "--dtype", default="float32", choices=["float32", "float16", "bfloat16"], help="Precision on disk."
    )
    return parser


def average(arguments: list[str]) -> int:
    """Save the mean of a run's last checkpoints as a model folder."""
    options = _create_averaging_parser().parse_strictly(arguments)

    import torch

    from .checkpoints import RunFolder, average_weights, read_weights
    from .model_card import update_card
    from .translation import load_model

    output = Path(options.output)
    if output.exists():
        raise InputError(f"{output}: exists already; choose another --output")
    run = RunFolder(options.run)
    steps = run.steps()
    if len(steps) < options.last:
        raise InputError(f"{options.run}: has {len(steps)} checkpoints, --last {options.last} asks for more")
    steps = steps[-options.last :]
    model, tokenizer = load_model(options.run)
    weights = average_weights(map(read_weights, steps))
    # The configuration keeps float32, so that half precision saves space on the disk and costs none in memory.
    dtype = getattr(torch, options.dtype)
    model.save_pretrained(output, state_dict={name: weight.to(dtype) for name, weight in weights.items()})
    tokenizer.save_pretrained(output)
    RunFolder(output).save_averaged(run, steps)
    update_card(output)
    _say(f"The mean of {', '.join(step.name for step in steps)} is in {output}")
    return 0


def _create_push_parser() -> ArgumentParser:
    from .training_arguments import ArgumentParser

    parser = ArgumentParser(
        prog="vaswani-transformer push",
        description="Publish a model on the Hub: weights, configuration, tokenizer, card and the code to run it "
        "without this package. Nothing else leaves the machine.",
    )
    parser.add_argument("model", metavar="RUN_OR_MODEL", help="A run or model folder, or a checkpoint that ships.")
    parser.add_argument("repo_id", metavar="USER/NAME", help="The repository; it is made where there is none.")
    parser.add_argument("--private", action="store_true", help="Make the repository private.")
    parser.add_argument("--revision", metavar="BRANCH", help="Branch to push to; it is made where there is none.")
    parser.add_argument("--create-pr", action="store_true", help="Propose the push as a pull request.")
    parser.add_argument("--license", metavar="ID", help="Licence of the weights for the card, such as cc-by-4.0.")
    parser.add_argument("--dry-run", action="store_true", help="List what would leave, and use no network.")
    return parser


def push(arguments: list[str]) -> int:
    """Publish a model on the Hub, or list what would be published."""
    options = _create_push_parser().parse_strictly(arguments)

    from .sharing import prepare, push_to_hub

    if options.dry_run:
        files = prepare(options.model, options.repo_id, options.license)
        sizes = {name: len(file) if isinstance(file, bytes) else file.stat().st_size for name, file in files.items()}
        place = f"{'the private ' if options.private else ''}{options.repo_id}, {options.revision or 'main'}"
        print(f"Would leave for {place}{', as a pull request' if options.create_pr else ''}:")
        for name, size in sorted(sizes.items()):
            print(f"{size:>15,}  {name}")
        return 0
    done = push_to_hub(
        options.model,
        options.repo_id,
        private=options.private,
        revision=options.revision,
        create_pr=options.create_pr,
        license=options.license,
    )
    _say("Pushed:" if done.changed else "Nothing has changed since the last push:")
    print(done.url)
    return 0


def _create_export_parser() -> ArgumentParser:
    from .ctranslate2_export import QUANTIZATIONS
    from .training_arguments import ArgumentParser

    parser = ArgumentParser(
        prog="vaswani-transformer export",
        description="Write a model for an engine that runs without PyTorch: CTranslate2, or ONNX Runtime. The folder "
        "holds all that the engine needs, the tokenizer too; `translate` and `evaluate` take it as any other model.",
    )
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument(
        "--format",
        required=True,
        choices=["ctranslate2", "onnx"],
        help="ctranslate2: the fastest on a CPU; onnx: an encoder and a decoder for every runtime that reads ONNX.",
    )
    parser.add_argument("--output", required=True, metavar="FOLDER", help="New folder for the exported model.")
    parser.add_argument(
        "--quantization",
        choices=QUANTIZATIONS,
        help="How CTranslate2 stores the weights, and computes where the machine can; float32 if not given.",
    )
    return parser


def export(arguments: list[str]) -> int:
    """Write a model for another engine."""
    options = _create_export_parser().parse_strictly(arguments)

    from .ctranslate2_export import ctranslate2_length_penalty, export_ctranslate2
    from .onnx_export import export_onnx
    from .translation import load_model

    if options.format == "onnx" and options.quantization:
        raise InputError("--quantization is CTranslate2's; leave it out, or choose --format ctranslate2")
    if Path(options.output).exists():
        raise InputError(f"{options.output}: exists already; choose another --output")
    model, tokenizer = load_model(options.model)
    if options.format == "onnx":
        export_onnx(model, tokenizer, options.output)
    else:
        export_ctranslate2(model, tokenizer, options.output, options.quantization)
    _say(f"The model is in {options.output}: vaswani-transformer translate {shlex.quote(options.output)}")
    if options.format == "ctranslate2":
        alpha = model.generation_config.length_penalty
        _say(
            f"There `translate` keeps the paper's length penalty, ((5 + n) / 6)^{alpha:g}. CTranslate2 itself divides "
            f"by n^length_penalty: give it length_penalty={ctranslate2_length_penalty(alpha):.2g}, and "
            f"beam_size={model.generation_config.num_beams}"
        )
    return 0


def _create_attention_parser() -> ArgumentParser:
    from .attention_picture import KINDS
    from .training_arguments import ArgumentParser

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
    parser.add_argument("--layers", nargs="+", type=_positive, default=[], help="Layers to show, from 1; or all.")
    parser.add_argument("--heads", nargs="+", type=_positive, default=[], help="Heads to show, from 1; or all.")
    parser.add_argument("--average", action="store_true", help="Show the mean of the heads, not each.")
    parser.add_argument("--words", action="store_true", help="Words in place of their pieces, as in an alignment.")
    _add_search_options(parser)
    return parser


def attention(arguments: list[str]) -> int:
    """Draw what the words of a sentence and of its translation attend to."""
    options = _create_attention_parser().parse_strictly(arguments)

    from .attention import read_attention
    from .attention_picture import FORMATS_AND_PAGES, AttentionPicture
    from .pictures import check_picture
    from .translation import load_pipeline

    output = Path(options.output)
    check_picture(output, FORMATS_AND_PAGES)
    pipeline = load_pipeline(options.model)
    words = options.words or options.kind == "alignment"
    weights = read_attention(pipeline, options.sentence, words=words, **_search_settings(options))
    AttentionPicture(weights, options.kind, layers=options.layers, heads=options.heads, average=options.average).save(
        output
    )
    print(weights.translation)
    _say(f"The picture is in {output}")
    return 0


def _create_positions_parser() -> ArgumentParser:
    from .training_arguments import ArgumentParser

    parser = ArgumentParser(
        prog="vaswani-transformer positions",
        description="Draw the encodings of a model's positions (section 3.5 of the paper). Needs matplotlib.",
    )
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument("--output", required=True, metavar="FILE", help="The picture: a .png or .svg.")
    parser.add_argument(
        "--length", type=_positive, help="Positions to show; those of its longest sentence if not given."
    )
    return parser


def positions(arguments: list[str]) -> int:
    """Draw the encodings of a model's positions."""
    options = _create_positions_parser().parse_strictly(arguments)

    from .paper_pictures import draw_positions, read_positions
    from .pictures import check_picture, save_figure
    from .translation import load_model

    output = Path(options.output)
    check_picture(output)
    model, _ = load_model(options.model)
    save_figure(draw_positions(read_positions(model, options.length)), output)
    _say(f"The picture is in {output}")
    return 0


def _create_schedule_parser() -> ArgumentParser:
    from .training_arguments import ArgumentParser

    parser = ArgumentParser(
        prog="vaswani-transformer schedule",
        description="Draw the learning rate over the updates of recipes (equation 3 of the paper). Needs matplotlib.",
    )
    parser.add_argument("recipes", nargs="+", metavar="RECIPE", help="A YAML recipe, or a run's training_args.yaml.")
    parser.add_argument("--output", required=True, metavar="FILE", help="The picture: a .png or .svg.")
    return parser


def schedule(arguments: list[str]) -> int:
    """Draw the learning rate over the updates of recipes."""
    options = _create_schedule_parser().parse_strictly(arguments)

    from .paper_pictures import draw_schedules, read_schedule
    from .pictures import check_picture, save_figure

    output = Path(options.output)
    check_picture(output)
    save_figure(draw_schedules({recipe: read_schedule(recipe) for recipe in options.recipes}), output)
    _say(f"The picture is in {output}")
    return 0


COMMANDS = {
    "train": Command("train a model on parallel text", _create_training_parser, train),
    "translate": Command("translate lines of text", _create_translation_parser, translate),
    "evaluate": Command("score translations of a test set: BLEU and chrF++", _create_evaluation_parser, evaluate),
    "average": Command("average the last checkpoints of a run", _create_averaging_parser, average),
    "push": Command("publish a model on the Hub", _create_push_parser, push),
    "export": Command("write a model for CTranslate2 or ONNX Runtime", _create_export_parser, export),
    "attention": Command("draw what a translation attends to", _create_attention_parser, attention),
    "positions": Command("draw the encodings of a model's positions", _create_positions_parser, positions),
    "schedule": Command("draw the learning rate of recipes", _create_schedule_parser, schedule),
}
