"""From parallel text to what training reads: the vocabulary, cleaning and encoding, each done once and cached."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np
import tokenizers
import xxhash
from datasets.utils import tqdm
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from .corpora import Pair, ParallelCorpus, pair_key
from .corpus_cache import cached
from .encoded_corpus import EncodedCorpus, EncodedCorpusWriter
from .tokenization import plain_backend, train_tokenizer, wrap_tokenizer

logger = logging.getLogger(__name__)

# A vocabulary is learned from so many pairs at most, spread evenly over the corpus: more take memory, and gain little.
VOCABULARY_PAIRS = 1_000_000
BATCH = 1_000


@dataclass
class CleaningReport:
    """How many pairs were read, dropped for each reason, and kept."""

    read: int = 0
    empty: int = 0
    duplicate: int = 0
    too_long: int = 0
    uneven: int = 0

    @property
    def kept(self) -> int:
        """Pairs that are left."""
        return self.read - self.empty - self.duplicate - self.too_long - self.uneven

    def __str__(self) -> str:
        return (
            f"{self.read:,} pairs read; dropped {self.empty:,} with an empty side, {self.duplicate:,} duplicates, "
            f"{self.too_long:,} too long, {self.uneven:,} beyond the length ratio; {self.kept:,} kept"
        )


def learn_tokenizer(
    corpus: ParallelCorpus, vocab_size: int, cache_dir: str | Path | None = None, streaming: bool = False
) -> PreTrainedTokenizerFast:
    """The byte-pair tokenizer of a corpus, by [`train_tokenizer`] from `VOCABULARY_PAIRS` pairs at most.

    Args:
        corpus: The training text.
        vocab_size: Entries of the vocabulary.
        streaming: Take the first pairs, and not some from everywhere, for which all must be read.
        cache_dir: Folder of the cache; the user's if `None`.

    Raises:
        InputError: As [`train_tokenizer`] and the corpus raise it, or if the cache cannot be written.
    """

    def make(folder: Path) -> None:
        logger.info(f"Learning a vocabulary of {vocab_size:,} byte pairs")
        step = 1 if streaming else -(-sum(1 for _ in _progress(corpus, "Reading")) // VOCABULARY_PAIRS)
        learned = train_tokenizer(chain.from_iterable(islice(corpus, 0, step * VOCABULARY_PAIRS, step)), vocab_size)
        (folder / "tokenizer.json").write_text(learned.backend_tokenizer.to_str(), encoding="utf-8")

    def read(folder: Path) -> PreTrainedTokenizerFast:
        return wrap_tokenizer(Tokenizer.from_file(str(folder / "tokenizer.json")))

    key = {
        "corpus": corpus.identity,
        "vocab_size": vocab_size,
        "pairs": VOCABULARY_PAIRS,
        "streaming": streaming,
        "tokenizers": tokenizers.__version__,
    }
    return cached(cache_dir, "tokenizer", key, make, read)


def tokenize_corpus(
    corpus: ParallelCorpus,
    tokenizer: PreTrainedTokenizerFast,
    *,
    max_length: int | None = None,
    max_length_ratio: float | None = None,
    drop_duplicates: bool = False,
    cache_dir: str | Path | None = None,
) -> tuple[EncodedCorpus, CleaningReport]:
    """Clean and encode a corpus, in memory that does not grow with it but for 8 bytes a pair.

    Args:
        corpus: What [`open_corpus`] returns.
        tokenizer: Encodes both sides; its encodings end in `</s>`.
        max_length: Drop pairs with a longer side, in tokens; `None` keeps every length.
        max_length_ratio: Drop pairs whose longer side has more than this many times the tokens of the shorter.
        drop_duplicates: Drop all but the first of equal pairs.
        cache_dir: Folder of the cache; the user's if `None`. What is there for the same text, tokenizer and
            settings is read and not made again.

    Returns:
        The encoded pairs, in their order, and the count of what was dropped.

    Raises:
        InputError: If the text is malformed or empty, or the cache cannot be written.
    """
    backend = plain_backend(tokenizer)
    key = {
        "corpus": corpus.identity,
        "tokenizer": xxhash.xxh3_128_hexdigest(backend.to_str().encode()),
        "tokenizers": tokenizers.__version__,
        "split_special_tokens": tokenizer.split_special_tokens,
        "max_length": max_length,
        "max_length_ratio": max_length_ratio,
        "drop_duplicates": drop_duplicates,
    }

    def make(folder: Path) -> None:
        report = CleaningReport()
        is_duplicate, total = _duplicates(corpus) if drop_duplicates else (None, None)
        with EncodedCorpusWriter(folder, len(tokenizer)) as writer:
            pairs = _progress(corpus, "Tokenizing", total)
            while batch := list(islice(pairs, BATCH)):
                report.read += len(batch)
                batch = _clean_text(batch, is_duplicate, report)
                input_ids, labels = _encode(backend, batch)
                lengths = np.array([[*map(len, input_ids)], [*map(len, labels)]])
                kept = _clean_lengths(lengths, max_length, max_length_ratio, report)
                writer.add([input_ids[index] for index in kept], [labels[index] for index in kept])
            writer.finish(report=asdict(report))

    encoded = cached(cache_dir, "pairs", key, make, EncodedCorpus)
    return encoded, CleaningReport(**encoded.description["report"])


def _progress(corpus: ParallelCorpus, what: str, total: int | None = None) -> Iterator[Pair]:
    return iter(tqdm(corpus, desc=what, total=total, unit=" pairs", unit_scale=True))


def _duplicates(corpus: ParallelCorpus) -> tuple[Callable[[Pair], bool], int]:
    """What tells of each pair, asked in the corpus's order, whether an equal one came before; and how many there are.

    Pairs are equal where their 64-bit keys are. One array holds the keys of all; afterwards those are kept that come
    more than once.
    """
    keys = array("Q", map(pair_key, _progress(corpus, "Looking for duplicates")))
    ordered = np.frombuffer(keys, dtype=np.uint64)
    ordered.sort()
    repeated = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    seen = np.zeros(len(repeated), dtype=bool)

    def is_duplicate(pair: Pair) -> bool:
        key = np.uint64(pair_key(pair))
        place = int(repeated.searchsorted(key))
        if place == len(repeated) or repeated[place] != key:
            return False
        before = bool(seen[place])
        seen[place] = True
        return before

    return is_duplicate, len(keys)


def _clean_text(pairs: list[Pair], is_duplicate: Callable[[Pair], bool] | None, report: CleaningReport) -> list[Pair]:
    """The pairs that have text on both sides and did not come before."""
    kept = []
    for pair in pairs:
        if not (pair[0].strip() and pair[1].strip()):
            report.empty += 1
        elif is_duplicate is not None and is_duplicate(pair):
            report.duplicate += 1
        else:
            kept.append(pair)
    return kept


def _encode(backend: Tokenizer, pairs: list[Pair]) -> tuple[list[list[int]], list[list[int]]]:
    """The tokens of the sources and of the targets; the tokenizer's own threads share the batch."""
    encodings = backend.encode_batch_fast([pair[side] for side in (0, 1) for pair in pairs])
    tokens = [encoding.ids for encoding in encodings]
    return tokens[: len(pairs)], tokens[len(pairs) :]


def _clean_lengths(
    lengths: np.ndarray, max_length: int | None, max_length_ratio: float | None, report: CleaningReport
) -> np.ndarray:
    """Indices of the pairs whose lengths (sides, pairs) are within the limits."""
    longer, shorter = lengths.max(axis=0), lengths.min(axis=0)
    too_long = longer > (np.inf if max_length is None else max_length)
    uneven = ~too_long & (longer > shorter * (np.inf if max_length_ratio is None else max_length_ratio))
    report.too_long += int(too_long.sum())
    report.uneven += int(uneven.sum())
    return np.flatnonzero(~too_long & ~uneven)
