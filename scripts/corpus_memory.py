"""Memory and time of preparing a generated corpus and of training on it, each in a process of its own."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from datasets import disable_progress_bars
from transformers import PreTrainedTokenizerFast

from peak_memory import resident_memory
from vaswani_transformer.corpora import open_corpus
from vaswani_transformer.encoded_corpus import EncodedCorpus
from vaswani_transformer.errors import InputError
from vaswani_transformer.preprocessing import learn_tokenizer, tokenize_corpus
from vaswani_transformer.training import TranslationTrainer, build_model, create_accelerator
from vaswani_transformer.training_arguments import TranslationTrainingArguments, parse_training_arguments

RECIPE = Path(__file__).parent / "recipes" / "tatoeba-en-de.yaml"
WORDS = 50_000
VALIDATION_PAIRS = 100

Figures = dict[str, float]


def write_pairs(path: Path, pairs: int, seed: int = 0) -> None:
    """Write pairs of made-up words, as often as Zipf's law has them, with the lengths of everyday sentences."""
    generator = np.random.default_rng(seed)
    syllables = np.array([first + second for first in "bdfgklmnprst" for second in "aeiou"])
    counts = generator.integers(1, 5, WORDS)
    words = np.array(["".join(generator.choice(syllables, count)) for count in counts], dtype=object)
    frequencies = np.cumsum(1 / np.arange(1, WORDS + 1))
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for start in range(0, pairs, 10_000):
            size = min(10_000, pairs - start)
            common = generator.lognormal(2.0, 0.45, size)
            sides = (common, common * generator.lognormal(0.05, 0.15, size))
            lengths = np.stack(sides, axis=1).round().astype(int).clip(1, 80)
            text = words[frequencies.searchsorted(generator.random(lengths.sum()) * frequencies[-1])].tolist()
            ends = lengths.ravel().cumsum().tolist()
            sentences = [" ".join(text[begin:end]) for begin, end in zip([0, *ends], ends, strict=False)]
            file.writelines(f"{source}\t{target}\n" for source, target in zip(*[iter(sentences)] * 2, strict=True))


def training_settings(folder: Path, pairs: int) -> TranslationTrainingArguments:
    """The recipe for the files in `folder`."""
    files = [f"--train-file={folder / f'{pairs}.tsv'}", f"--validation-file={folder / 'validation.tsv'}"]
    places = [f"--cache-dir={folder / 'cache'}", f"--output-dir={folder / 'run'}"]
    return parse_training_arguments([f"--config={RECIPE}", *files, *places])


def prepared(
    settings: TranslationTrainingArguments,
) -> tuple[PreTrainedTokenizerFast, EncodedCorpus, EncodedCorpus]:
    """The tokenizer, the training pairs and the validation pairs, as the command `train` makes or finds them."""
    if not sys.stderr.isatty():
        disable_progress_bars()
    text, held_out = open_corpus(settings.train_file), open_corpus(settings.validation_file)
    tokenizer = learn_tokenizer(text, settings.model_config().vocab_size, settings.cache_dir)
    limits = {"max_length": settings.max_length, "cache_dir": settings.cache_dir}
    validation, _ = tokenize_corpus(held_out, tokenizer, **limits)
    pairs, _ = tokenize_corpus(
        text, tokenizer, **limits, max_length_ratio=settings.max_length_ratio, drop_duplicates=True
    )
    return tokenizer, pairs, validation


def prepare(folder: Path, pairs: int) -> Figures:
    """Seconds and peak memory of preparing the corpus for the first time."""
    started = time.perf_counter()
    prepared(training_settings(folder, pairs))
    return {"seconds": time.perf_counter() - started, **resident_memory()}


def train(folder: Path, pairs: int, updates: int) -> Figures:
    """Seconds from a warm cache to the first batch, and peak memory after some updates."""
    settings = training_settings(folder, pairs)
    started = time.perf_counter()
    tokenizer, corpus, validation = prepared(settings)
    loaded = time.perf_counter() - started
    model = build_model(settings, tokenizer)
    trainer = TranslationTrainer(settings, create_accelerator(settings), model, tokenizer, corpus, validation)
    started = time.perf_counter()
    epoch = trainer.epoch(0)
    drawn = time.perf_counter() - started
    trainer.model.train()
    for index in range(min(updates, len(epoch.batches))):
        trainer.state.step += 1
        trainer.update(*trainer.prepare(epoch, epoch.batches[index]))
    shares = {"padding_share": epoch.batches.padding_share(), "batches": len(epoch.batches)}
    return {"seconds": loaded, "epoch_seconds": drawn, **shares, **resident_memory()}


def corpus(options: argparse.Namespace) -> dict:
    """Memory and time of preparing and of training, for each number of pairs."""
    if not resident_memory():
        raise InputError("the memory of a process cannot be measured here; it needs Linux")
    rows = {}
    print(f"{'pairs':>12}{'':14}{'peak MiB':>10}{'own MiB':>10}{'seconds':>10}{'an epoch':>10}{'padding':>10}")
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        write_pairs(folder / "validation.tsv", VALIDATION_PAIRS, seed=1)
        for pairs in options.pairs:
            write_pairs(folder / f"{pairs}.tsv", pairs)
            rows[pairs] = row = {
                "prepare": _alone(prepare, folder, pairs),
                "train": _alone(train, folder, pairs, options.updates),
            }
            (folder / f"{pairs}.tsv").unlink()
            for work, figures in row.items():
                line = f"{pairs:12,}  {work:12}{figures['peak'] / 2**20:10,.0f}{figures['anonymous'] / 2**20:10,.0f}"
                line += f"{figures['seconds']:10,.1f}"
                if work == "train":
                    line += f"{figures['epoch_seconds']:10.2f}{figures['padding_share']:10.1%}"
                print(line, flush=True)
    print("peak: resident memory, mapped files included; own: without them, at the end; seconds: to prepare, and to")
    print("open what is prepared; an epoch: seconds to draw its batches; padding: share of the positions")
    first, last = rows[options.pairs[0]], rows[options.pairs[-1]]
    ratios = {work: last[work]["peak"] / first[work]["peak"] for work in first}
    print(f"peak of the last to the first: {', '.join(f'{work} {ratio:.2f}' for work, ratio in ratios.items())}")
    return {"rows": rows, "ratios": ratios, "updates": options.updates}


def _alone(work: Callable[..., Figures], *arguments: object) -> Figures:
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()
