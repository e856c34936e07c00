"""The Transformer against the recurrent encoder-decoders with attention that came before it.

Each is trained on the same text, tokenizer and batches, for the same time or updates, in a run folder of its own under
`--output-dir`, and translates the same test set. Beside the options below this takes those of `vaswani-transformer
train`. Given again, the same command goes on where it was stopped, and does not train again what is trained.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import datasets
import torch
import transformers
from accelerate.utils import set_seed
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from benchmark import positive
from recurrent import RecurrentConfig, RecurrentForConditionalGeneration
from reproduce import PLACES, run_script
from vaswani_transformer import VaswaniForConditionalGeneration
from vaswani_transformer.checkpoints import RunFolder, check_output, write_atomically
from vaswani_transformer.corpora import load_corpus, open_corpora, sentences
from vaswani_transformer.encoded_corpus import EncodedCorpus
from vaswani_transformer.errors import InputError
from vaswani_transformer.evaluation import TOKENIZERS, check_tokenizer, score_translations
from vaswani_transformer.pipeline_vaswani import TranslationPipeline
from vaswani_transformer.preprocessing import learn_tokenizer, tokenize_corpus
from vaswani_transformer.training import TranslationTrainer, create_accelerator
from vaswani_transformer.training_arguments import (
    ArgumentParser,
    TranslationTrainingArguments,
    parse_training_arguments,
)
from vaswani_transformer.training_run import create_scorer
from vaswani_transformer.translation import load_model, translate

MODELS = ("transformer", "additive", "multiplicative")
# Settings of `train` that not all models have, or that this decides itself.
REFUSED = ("streaming", "bpe_dropout", "init_from", "freeze", "resume", "gradient_checkpointing")
# What a run that goes on may change beside its place.
LIMITS = ("max_steps", "num_train_epochs", "max_minutes", "early_stopping_patience")
# Recurrent gradients explode now and then: what Bahdanau et al. clip the norm to (section B.2).
MAX_GRAD_NORM = 1.0
# Widths of recurrent layers to choose from: multiples that suit processors.
WIDTHS = range(8, 8192, 8)

Figures = dict[str, Any]


@dataclass(frozen=True)
class Text:
    """What the models are trained on and validated with, the same for all."""

    tokenizer: PreTrainedTokenizerBase
    pairs: EncodedCorpus
    validation_pairs: EncodedCorpus
    sources: list[str]
    """To translate at each validation."""
    references: list[str]


def prepare(settings: TranslationTrainingArguments) -> Text:
    """The text that `settings` name, cleaned, encoded and cached as the command `train` does.

    Raises:
        InputError: If it is missing or malformed, or nothing is left of it.
    """
    text, held_out = open_corpora(settings)
    tokenizer = learn_tokenizer(text, settings.model_config().vocab_size, settings.cache_dir)
    limits = {"max_length": settings.max_length, "cache_dir": settings.cache_dir}
    pairs, _ = tokenize_corpus(
        text, tokenizer, **limits, max_length_ratio=settings.max_length_ratio, drop_duplicates=True
    )
    validation_pairs, _ = tokenize_corpus(held_out, tokenizer, **limits)
    if not (len(pairs) and len(validation_pairs)):
        raise InputError("no pairs are left to train or to validate on; look at max_length and max_length_ratio")
    to_translate = list(islice(held_out, settings.eval_sentences))
    sources, references = ([pair[side] for pair in to_translate] for side in (0, 1))
    return Text(tokenizer, pairs, validation_pairs, sources, references)


def settings_of(
    name: str, settings: TranslationTrainingArguments, options: argparse.Namespace
) -> TranslationTrainingArguments:
    """The settings of one model's run: its folder, and what differs with recurrent layers."""
    # None ends before the others because it has stopped improving.
    settings = replace(settings, output_dir=str(Path(settings.output_dir) / name), early_stopping_patience=None)
    if name == "transformer":
        return settings
    return replace(
        settings,
        learning_rate=options.recurrent_learning_rate,
        max_grad_norm=settings.max_grad_norm or MAX_GRAD_NORM,
    )


def recurrent_shape(name: str, settings: TranslationTrainingArguments, options: argparse.Namespace) -> Figures:
    """What the configuration of a recurrent model has beside what it shares with the Transformer's."""
    shape = {
        "attention": name,
        "input_feeding": options.input_feeding and name == "multiplicative",
        "encoder_layers": options.recurrent_layers,
        "decoder_layers": options.recurrent_layers,
        "hidden_size": options.hidden_size,
    }
    if options.hidden_size is None:

        def parameters(width: int) -> int:
            return create_model(name, settings, {**shape, "hidden_size": width}).num_parameters()

        with torch.device("meta"):
            most = create_model("transformer", settings, {}).num_parameters()
            shape["hidden_size"] = WIDTHS[max(0, bisect_right(WIDTHS, most, key=parameters) - 1)]
    return shape


def create_model(name: str, settings: TranslationTrainingArguments, shape: Figures) -> PreTrainedModel:
    """A freshly initialised model, drawn from the seed of `settings`."""
    set_seed(settings.seed)
    config = settings.model_config()
    if name == "transformer":
        return VaswaniForConditionalGeneration(config)
    shared = ("vocab_size", "d_model", "dropout", "max_position_embeddings")
    return RecurrentForConditionalGeneration(
        RecurrentConfig(**shape, **{field: getattr(config, field) for field in shared})
    )


def train(name: str, settings: TranslationTrainingArguments, shape: Figures, text: Text) -> None:
    """Train a model in its folder, or go on with it there.

    Raises:
        InputError: If the folder holds something else, or the training cannot go on.
        TrainingInterrupted: On Ctrl-C or SIGTERM, after a checkpoint.
    """
    folder = RunFolder(settings.output_dir)
    settings = replace(settings, resume=folder.is_run())
    record = asdict(settings) | shape
    folder.check(record, (*PLACES, *LIMITS), settings.resume)
    accelerator = create_accelerator(settings)
    model = create_model(name, settings, shape)
    trainer = TranslationTrainer(
        settings,
        accelerator,
        model,
        text.tokenizer,
        text.pairs,
        text.validation_pairs,
        create_scorer(text.tokenizer, text.sources, text.references, settings) if text.sources else None,
    )
    if settings.resume:
        folder.save_settings(record)
    else:
        folder.create(record, text.tokenizer)
    print(
        f"{name}: {model.num_parameters():,} parameters, {accelerator.device.type}, {accelerator.mixed_precision}",
        file=sys.stderr,
    )
    trainer.train()


def load(name: str, folder: str) -> TranslationPipeline:
    """A pipeline of the best model of a run."""
    if name == "transformer":
        model, tokenizer = load_model(folder)
    else:
        model = RecurrentForConditionalGeneration.from_pretrained(folder).eval()
        tokenizer = RunFolder(folder).load_tokenizer()
    return TranslationPipeline(model, tokenizer=tokenizer)


def length_groups(sources: Sequence[str], limits: Sequence[int]) -> dict[str, list[int]]:
    """The indices of `sources` by their words: up to the first of `limits`, from there to the next, and beyond."""
    edges = [0, *limits, math.inf]
    groups = {}
    for low, high in pairwise(edges):
        label = f"{low + 1}+" if high == math.inf else f"{low + 1}–{high}"
        groups[label] = [index for index, text in enumerate(sources) if low < len(text.split()) <= high]
    return groups


def figures_of(
    folder: str,
    pipeline: TranslationPipeline,
    test: tuple[list[str], list[str]],
    language: str,
    options: argparse.Namespace,
) -> Figures:
    """What a run's records tell, and the scores of its best model on `test`, sources and references in `language`.

    Raises:
        InputError: If the records are damaged.
    """
    sources, references = test
    run = RunFolder(folder)
    records = run.read_records(run.metrics)
    speeds = [record["target_tokens_per_second"] for record in records if "target_tokens_per_second" in record]
    validations = [record for record in records if "validation_loss" in record]
    if not validations:
        raise InputError(f"{folder}: no validation is recorded; remove the folder to train the model again")
    translations = list(translate(pipeline, sources, num_beams=options.num_beams))

    def bleu(indices: Sequence[int]) -> float | None:
        if not indices:
            return None
        chosen = ([texts[index] for index in indices] for texts in (translations, references))
        return score_translations(*chosen, options.tokenize, language)["bleu"]

    groups = length_groups(sources, options.length_limits)
    return {
        "parameters": pipeline.model.num_parameters(),
        "updates": max(record["step"] for record in records),
        "target_tokens_per_second": statistics.median(speeds) if speeds else None,
        "validations": [
            {"minutes": record["seconds"] / 60, "loss": record["validation_loss"]} for record in validations
        ],
        "validation_loss": validations[-1]["validation_loss"],
        "bleu": bleu(range(len(sources))),
        "bleu_by_length": {label: bleu(indices) for label, indices in groups.items()},
    }


def compare(settings: TranslationTrainingArguments, options: argparse.Namespace) -> Figures:
    """Train what is not trained yet, translate the test set with every model, and print the table."""
    languages = (settings.source_lang, settings.target_lang)
    corpus = load_corpus(
        options.test_file,
        source_lang=languages[0],
        target_lang=languages[1],
        tsv_columns=settings.tsv_columns,
    )
    test = tuple(list(sentences(corpus, language)) for language in languages)
    text, rows = None, {}
    for name in options.models:
        own = settings_of(name, settings, options)
        shape = {} if name == "transformer" else recurrent_shape(name, settings, options)
        finished = Path(own.output_dir) / "finished.json"
        asked = json.dumps(asdict(own) | shape, indent=2) + "\n"
        if not (finished.is_file() and finished.read_text(encoding="utf-8") == asked):
            text = text or prepare(settings)
            train(name, own, shape, text)
            write_atomically(finished, lambda path, asked=asked: path.write_text(asked, encoding="utf-8"))
        rows[name] = figures_of(own.output_dir, load(name, own.output_dir), test, languages[1], options) | shape
    target_loss = options.target_loss
    if target_loss is None:  # the lowest that all have reached
        target_loss = max(min(each["loss"] for each in row["validations"]) for row in rows.values())
    for row in rows.values():
        reached = [each["minutes"] for each in row["validations"] if each["loss"] <= target_loss]
        row["minutes_to_target_loss"] = min(reached, default=None)
    groups = length_groups(test[0], options.length_limits)
    counts = {label: len(indices) for label, indices in groups.items()}
    tabulate(rows, counts, target_loss, settings.max_grad_norm or MAX_GRAD_NORM, options)
    return {
        "test_file": options.test_file,
        "num_beams": options.num_beams,
        "tokenize": options.tokenize,
        "target_loss": target_loss,
        "sentences_by_length": counts,
        "rows": rows,
    }


def tabulate(
    rows: dict[str, Figures],
    counts: dict[str, int],
    target_loss: float,
    clipped: float,
    options: argparse.Namespace,
) -> None:
    """Print the table: a row for each model, and the sentences of each length."""
    print(f"{sum(counts.values()):,} sentences of {', '.join(options.test_file)}, beam {options.num_beams}")
    print(
        f"{'':16}{'parameters':>12}{'updates':>9}{'tokens/s':>10}{'minutes':>9}{'loss':>8}{'BLEU':>8}"
        + "".join(f"{label:>8}" for label in counts)
    )
    for name, row in rows.items():
        print(
            f"{name:16}{row['parameters']:12,}{row['updates']:9,}{shown(row['target_tokens_per_second'], 0):>10}"
            f"{shown(row['minutes_to_target_loss'], 1):>9}{row['validation_loss']:8.3f}{shown(row['bleu']):>8}"
            + "".join(f"{shown(score):>8}" for score in row["bleu_by_length"].values())
        )
    print(f"{'sentences':72}" + "".join(f"{count:8,}" for count in counts.values()))
    print("tokens/s: target tokens in training, median of the records; loss: of the last validation")
    print(f"minutes: of training and validating until the validation loss was {target_loss:.3f}")
    print(f"BLEU: of the best model, words cut by {options.tokenize}; then by the words of the source")
    print(
        f"one seed each; recurrent: learning rate {options.recurrent_learning_rate}, gradient norms clipped to "
        f"{clipped}, input feeding {'of the multiplicative' if options.input_feeding else 'of none'}"
    )


def shown(figure: float | None, digits: int = 2) -> str:
    """`figure` for the table, or a dash where there is none."""
    return "-" if figure is None else f"{figure:,.{digits}f}"


def create_parser() -> ArgumentParser:
    """The parser of the options that are not those of `vaswani-transformer train`."""
    parser = ArgumentParser(prog="compare_recurrent.py", description=__doc__)
    parser.add_argument("--test-file", nargs="+", required=True, help="a table of pairs, or a source and a target")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="which to compare")
    parser.add_argument("--num-beams", type=positive, default=4, help="width of the beam; 1 is greedy")
    parser.add_argument("--tokenize", choices=TOKENIZERS, default="13a", help="how BLEU cuts text into words")
    parser.add_argument("--target-loss", type=float, help="a validation loss; the lowest that all reach if not given")
    parser.add_argument(
        "--length-limits", type=positive, nargs="+", default=[8, 12, 16], help="most words of a source in each group"
    )
    parser.add_argument(
        "--recurrent-learning-rate", type=float, default=0.001, help="rate of the recurrent models after warm-up"
    )
    parser.add_argument(
        "--hidden-size",
        type=positive,
        help="width of recurrent layers; that of as many parameters as the Transformer's if not given",
    )
    parser.add_argument("--recurrent-layers", type=positive, default=1, help="layers of the encoder and the decoder")
    parser.add_argument("--input-feeding", action="store_true", help="feed the input of multiplicative attention")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    return parser


def run(options: argparse.Namespace, flags: list[str]) -> None:
    """Check what was given, compare, and write the figures."""
    settings = parse_training_arguments(flags)
    for name in REFUSED:
        if getattr(settings, name):
            raise InputError(f"{name}: the comparison has none; leave it out")
    if options.length_limits != sorted(set(options.length_limits)):
        raise InputError("--length-limits must rise from each to the next")
    if options.json:
        check_output(options.json)
    check_tokenizer(options.tokenize)
    transformers.utils.logging.disable_progress_bar()
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    figures = compare(settings, options)
    if options.json:
        figures |= {"device": "cuda" if torch.cuda.is_available() else "cpu", "threads": torch.get_num_threads()}
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison; 0, 2 for a mistake in what was given, told in one line, or 128 and the signal."""
    return run_script(create_parser(), run, arguments)


if __name__ == "__main__":
    sys.exit(main())
