"""Benchmarks, both sides of each in one run: `python scripts/benchmark.py train --help`."""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from datasets import Dataset
from transformers import MarianConfig, MarianMTModel, PreTrainedTokenizerBase

from vaswani_transformer.batching import TranslationCollator
from vaswani_transformer.corpora import load_corpus, pair_lengths, sentences, tokenize_corpus
from vaswani_transformer.errors import InputError
from vaswani_transformer.tokenization import train_tokenizer
from vaswani_transformer.training import TranslationTrainer, build_model, create_accelerator
from vaswani_transformer.training_arguments import TranslationTrainingArguments, parse_training_arguments

RECIPE = Path(__file__).parent / "recipes" / "tatoeba-en-de.yaml"


def our_updates(
    settings: TranslationTrainingArguments, pairs: Dataset, tokenizer: PreTrainedTokenizerBase
) -> Callable[[], int]:
    """An update of this package's training; each call returns its target tokens."""
    accelerator = create_accelerator(settings)
    trainer = TranslationTrainer(settings, accelerator, build_model(settings, tokenizer), tokenizer, pairs, pairs)
    trainer.model.train()
    batches = iter(trainer.sampler.epoch(0))

    def update() -> int:
        trainer.state.step += 1
        return trainer.update(next(batches))[1]

    return update


def marian_updates(settings: TranslationTrainingArguments, pairs: Dataset) -> Callable[[], int]:
    """An update of a plain float32 loop over `MarianMTModel` of the same shape, on padded random batches."""
    ours = settings.model_config()
    config = MarianConfig(
        vocab_size=ours.vocab_size,
        d_model=ours.d_model,
        encoder_layers=ours.encoder_layers,
        decoder_layers=ours.decoder_layers,
        encoder_attention_heads=ours.num_attention_heads,
        decoder_attention_heads=ours.num_attention_heads,
        encoder_ffn_dim=ours.d_ff,
        decoder_ffn_dim=ours.d_ff,
        dropout=ours.dropout,
        activation_function=ours.activation_function,
        scale_embedding=True,
        pad_token_id=0,
        eos_token_id=2,
        decoder_start_token_id=1,
        forced_eos_token_id=None,
    )
    model = MarianMTModel(config).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
    collate = TranslationCollator(0)
    # As many sentences as hold the recipe's tokens on average.
    size = round(settings.batch_tokens / pair_lengths(pairs)[:, 1].mean())
    generator = random.Random(1)

    def update() -> int:
        columns = pairs[generator.sample(range(len(pairs)), size)]
        inputs = collate(columns["input_ids"], columns["labels"])
        model(**inputs).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return int(inputs["labels"].ne(-100).sum())

    return update


def train(options: argparse.Namespace) -> dict:
    """Target tokens a second of both, in turns."""
    with tempfile.TemporaryDirectory() as folder:
        files = ["--train-file", options.train_file, "--validation-file", options.train_file]
        settings = parse_training_arguments(["--config", options.config, *files, "--output-dir", folder])
        languages = (settings.source_lang, settings.target_lang)
        corpus = load_corpus([options.train_file], source_lang=languages[0], target_lang=languages[1])
        tokenizer = train_tokenizer(sentences(corpus, *languages), settings.model_config().vocab_size)
        pairs, _ = tokenize_corpus(corpus, tokenizer, *languages, max_length=settings.max_length)
        sides = {
            "vaswani_transformer": our_updates(settings, pairs, tokenizer),
            "MarianMTModel, float32": marian_updates(settings, pairs),
        }
    speeds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(options.rounds + 1):
        for name, update in sides.items():
            started = time.perf_counter()
            tokens = sum(update() for _ in range(options.updates))
            if turn:  # the first turn warms up
                speeds[name].append(tokens / (time.perf_counter() - started))
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    ratio = medians["vaswani_transformer"] / medians["MarianMTModel, float32"]
    for name, median in medians.items():
        spread = f"{min(speeds[name]):,.0f} to {max(speeds[name]):,.0f}"
        print(f"{name:24}  {median:8,.0f} target tokens/s  ({spread})")
    print(f"ratio of the medians      {ratio:8.2f}")
    return {"target_tokens_per_second": speeds, "ratio": ratio, "threads": torch.get_num_threads()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    benchmarks = parser.add_subparsers(required=True)
    training = benchmarks.add_parser("train", help="training speed against a plain MarianMTModel loop")
    training.add_argument("--train-file", required=True, help="a table of sentence pairs")
    training.add_argument("--config", default=str(RECIPE), help="the recipe that gives model and batches")
    training.add_argument("--updates", type=int, default=20, help="updates of each side in a turn")
    training.add_argument("--rounds", type=int, default=7, help="turns that count")
    training.add_argument("--json", metavar="FILE", help="also write the figures to this file")
    training.set_defaults(run=train)
    options = parser.parse_args()
    try:
        figures = options.run(options)
    except InputError as error:
        parser.error(str(error))
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
