"""The command `vaswani-transformer`: train, translate, evaluate, average, push."""

from __future__ import annotations

import argparse
import json
import logging
import math
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import InputError

if TYPE_CHECKING:
    from accelerate import Accelerator
    from transformers import PreTrainedTokenizerBase

    from .checkpoints import RunFolder
    from .corpora import ParallelCorpus
    from .encoded_corpus import EncodedCorpus, EpochCorpus
    from .modeling_vaswani import VaswaniForConditionalGeneration
    from .preprocessing import CleaningReport
    from .training import Evaluate, TranslationTrainer
    from .training_arguments import ArgumentParser, TranslationTrainingArguments

MODEL_HELP = "A run folder, a model on the Hub, or the name of a checkpoint that ships with the package."


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
    """Train a model: corpora, tokenizer, model, loop."""
    from .training_arguments import MAY_CHANGE, parse_training_arguments

    settings = parse_training_arguments(arguments)

    from .checkpoints import RunFolder
    from .corpora import open_corpora
    from .preprocessing import learn_tokenizer, tokenize_corpus
    from .streaming import StreamedCorpus
    from .training import TranslationTrainer, build_model, create_accelerator

    accelerator = create_accelerator(settings)
    say = accelerator.on_main_process(_say)
    folder = RunFolder(settings.output_dir)
    folder.check(asdict(settings), MAY_CHANGE, settings.resume)
    train_text, validation_text = open_corpora(settings)
    held_out = list(islice(validation_text, settings.eval_sentences))

    model = tokenizer = None
    if settings.init_from:
        model, tokenizer = _initial_model(settings)
    # Each process looks into the cache: one makes what is not there yet, and the others on its machine wait.
    if settings.resume:
        tokenizer = folder.load_tokenizer()
    elif tokenizer is None:
        vocab_size = settings.model_config().vocab_size
        tokenizer = learn_tokenizer(train_text, vocab_size, settings.cache_dir, settings.streaming)
    limits = {"max_length": settings.max_length, "cache_dir": settings.cache_dir}
    validation_pairs, validation_report = tokenize_corpus(validation_text, tokenizer, **limits)
    say(f"Validation text: {validation_report}")
    train_pairs = _prepare_training_text(train_text, tokenizer, settings, accelerator)
    if not validation_report.kept:
        raise InputError("no pairs are left to validate on: look at the counts above, and at max_length")

    score = None
    if held_out:
        sources, references = map(list, zip(*held_out, strict=True))
        score = _scorer(tokenizer, sources, references, settings)
    if model is None:
        model = build_model(settings, tokenizer)
    trainer = TranslationTrainer(settings, accelerator, model, tokenizer, train_pairs, validation_pairs, score)
    try:
        return _run_training(trainer, folder, settings)
    finally:
        if isinstance(train_pairs, StreamedCorpus):
            train_pairs.close()


def _run_training(trainer: TranslationTrainer, folder: RunFolder, settings: TranslationTrainingArguments) -> int:
    """Make or go on with the run folder, and train; the exit code."""
    from .model_card import update_card
    from .streaming import StreamedCorpus
    from .training import TrainingInterrupted

    accelerator, model = trainer.accelerator, trainer.bare_model
    say = accelerator.on_main_process(_say)
    if not settings.resume:
        say(f"Batches: {trainer.epoch(0).batches}")  # what is wrong with them is found before there is a folder
    if accelerator.is_main_process and settings.resume:
        folder.save_settings(asdict(settings))
    elif accelerator.is_main_process:
        folder.create(asdict(settings), trainer.tokenizer)
    accelerator.wait_for_everyone()
    say(
        f"Model: {model.num_parameters():,} parameters on {accelerator.num_processes} × {accelerator.device.type}, "
        f"precision {accelerator.mixed_precision}"
    )
    try:
        trainer.train()
    except TrainingInterrupted as interruption:
        say(f"Stopped after update {trainer.state.step}. To go on, give the same command with --resume.")
        return 128 + interruption.signal_number
    except KeyboardInterrupt:
        last = folder.steps()[-1].name if folder.steps() else "the beginning"
        say(f"Stopped at once. To go on from {last}, give the same command with --resume.")
        return 130
    finally:
        if accelerator.is_main_process and folder.weights.is_file():
            _draw_training_curve(folder)
            update_card(folder.path)
    if isinstance(trainer.train_dataset, StreamedCorpus) and accelerator.is_local_main_process:
        trainer.train_dataset.remove()
    say(f"The best model, of update {trainer.state.best_step}, is in {folder.path}")
    return 0


def _prepare_training_text(
    text: ParallelCorpus,
    tokenizer: PreTrainedTokenizerBase,
    settings: TranslationTrainingArguments,
    accelerator: Accelerator,
) -> EncodedCorpus | EpochCorpus:
    """Clean and encode the training text, or the first window of it."""
    import datasets
    import xxhash

    from .bpe_dropout import apply_bpe_dropout
    from .corpus_cache import cache_root
    from .preprocessing import tokenize_corpus
    from .streaming import StreamedCorpus

    say = accelerator.on_main_process(_say)

    def prepare(
        text: ParallelCorpus, cache_dir: str | Path | None
    ) -> tuple[EncodedCorpus | EpochCorpus, CleaningReport]:
        pairs, report = tokenize_corpus(
            text,
            tokenizer,
            max_length=settings.max_length,
            max_length_ratio=settings.max_length_ratio,
            # To know of duplicates a text must be read twice.
            drop_duplicates=not settings.streaming,
            cache_dir=cache_dir,
        )
        if not settings.bpe_dropout:
            return pairs, report
        corpus = apply_bpe_dropout(
            pairs,
            tokenizer,
            settings.bpe_dropout,
            seed=settings.seed,
            max_length=min(settings.max_length, settings.batch_tokens),
            cache_dir=cache_dir,
        )
        return corpus, report

    if settings.streaming:
        datasets.disable_progress_bars()  # those of the windows would cross that of the training
        say(f"Training text: in windows of {settings.streaming_window:,} pairs, duplicates among them")
        run = xxhash.xxh3_128_hexdigest(str(Path(settings.output_dir).resolve()).encode())
        folder = cache_root(settings.cache_dir) / f"stream-{run}"
        return StreamedCorpus(text, settings.streaming_window, prepare, folder, accelerator.is_local_main_process)
    prepared, report = prepare(text, settings.cache_dir)
    say(f"Training text: {report}")
    if not report.kept:
        raise InputError("no pairs are left to train on: look at the counts above, at max_length and max_length_ratio")
    return prepared


def _draw_training_curve(folder: RunFolder) -> None:
    from .training_curve import draw_training_curve

    try:
        draw_training_curve(folder.read_records(folder.metrics), folder.curve)
    except ImportError:
        _say(f"Without matplotlib there is no {folder.curve.name}; pip install matplotlib")
    except (InputError, OSError) as error:
        _say(f"{folder.curve.name} is not drawn: {error}")


def _initial_model(
    settings: TranslationTrainingArguments,
) -> tuple[VaswaniForConditionalGeneration, PreTrainedTokenizerBase]:
    """The model that `init_from` names, with the dropout of `settings`, and its tokenizer."""
    from .modeling_vaswani import VaswaniForConditionalGeneration
    from .training import set_seed
    from .translation import load_model

    set_seed(settings.seed)
    loaded, tokenizer = load_model(settings.init_from)
    config = settings.continue_config(loaded.config)
    model = VaswaniForConditionalGeneration(config)
    model.load_state_dict(loaded.state_dict())
    return model, tokenizer


def _scorer(
    tokenizer: PreTrainedTokenizerBase,
    sources: list[str],
    references: list[str],
    settings: TranslationTrainingArguments,
) -> Evaluate:
    from .evaluation import score_translations
    from .pipeline_vaswani import TranslationPipeline
    from .translation import translate

    def score(model: VaswaniForConditionalGeneration) -> dict[str, float]:
        pipeline = TranslationPipeline(model, tokenizer=tokenizer, device=model.device)
        predictions = list(translate(pipeline, sources, num_beams=settings.eval_num_beams))
        scores = score_translations(predictions, references)
        return {"bleu": scores["bleu"], "chrf++": scores["chrf++"]}

    return score


def _create_decoding_parser(name: str, description: str) -> ArgumentParser:
    from .training_arguments import ArgumentParser

    parser = ArgumentParser(prog=f"vaswani-transformer {name}", description=description)
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument("--num-beams", type=_positive, default=4, help="Width of the beam; 1 is greedy.")
    parser.add_argument(
        "--batch-tokens", type=_positive, default=2048, help="Most source positions in a batch, with padding."
    )
    parser.add_argument(
        "--length-penalty",
        type=_exponent,
        metavar="ALPHA",
        help="Exponent of the length penalty; the model's own if not given.",
    )
    parser.add_argument(
        "--dtype",
        choices=["float32", "bfloat16"],
        default="float32",
        help="Precision of the weights; bfloat16 is faster on GPUs and on CPUs with AVX512-BF16 or AMX.",
    )
    return parser


def _decoding_settings(options: argparse.Namespace) -> dict[str, int | float]:
    settings = {"batch_tokens": options.batch_tokens, "num_beams": options.num_beams}
    if options.length_penalty is not None:
        settings["length_penalty"] = options.length_penalty
    return settings


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

    from .checkpoints import RunFolder
    from .corpora import load_corpus, sentences
    from .evaluation import check_tokenizer, score_translations
    from .model_card import is_for_everyone, public_name, update_card, weights_digest
    from .translation import load_pipeline, translate

    if options.json and not Path(options.json).absolute().parent.is_dir():
        raise InputError(f"{options.json}: there is no folder {Path(options.json).absolute().parent} to write to")
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


COMMANDS = {
    "train": Command("train a model on parallel text", _create_training_parser, train),
    "translate": Command("translate lines of text", _create_translation_parser, translate),
    "evaluate": Command("score translations of a test set: BLEU and chrF++", _create_evaluation_parser, evaluate),
    "average": Command("average the last checkpoints of a run", _create_averaging_parser, average),
    "push": Command("publish a model on the Hub", _create_push_parser, push),
}
