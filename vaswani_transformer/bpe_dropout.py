"""BPE dropout (Provilkov et al. 2020, https://arxiv.org/abs/1910.13267): words cut into other tokens in each epoch.

`tokenizers` drops merges too, but draws from a generator that takes no seed, so that no run could be repeated or
resumed, and skips fewer than the authors do (it offers the skipped ones again where it comes upon an outdated merge).
Here each word of the text is cut `SAMPLES` times by a seeded generator, once for all; which of these an occurrence of
it takes is drawn from the seed, the epoch and its place alone. A word of more than `LONGEST` characters, such as a
clause of a script without blanks, counts as the words that its tokens are, which are cut each for itself: words that
hardly ever come back would fill the disk. One entry of the cache holds

    tokens.bin lengths.bin offsets.bin corpus.json   the pairs as an `EncodedCorpus` whose tokens are words
    segments.bin                                     the tokens of all segmentations
    starts.bin                                       where those of each word begin in it (words)
    ends.bin                                         where each ends from there (words, 1 + SAMPLES + 1); the first is
                                                     the tokenizer's own
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import xxhash
from datasets.utils import tqdm
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from .corpus_cache import cached, digest_files
from .encoded_corpus import (
    FILES,
    EncodedCorpus,
    EncodedCorpusWriter,
    EncodedPairs,
    EpochCorpus,
    map_array,
    release,
    spread,
)
from .errors import InputError
from .tokenization import plain_backend

# Segmentations of a word: what is learned of one comes back after so many occurrences.
SAMPLES = 32
# Characters (bytes, to a tokenizer of bytes) of a word; German's compounds have less.
LONGEST = 40
BATCH = 1_000
# Symbols that are merged at a time.
BLOCK = 2_000_000
NO_MERGE = np.iinfo(np.int32).max


def apply_bpe_dropout(
    pairs: EncodedCorpus,
    tokenizer: PreTrainedTokenizerFast,
    dropout: float,
    *,
    seed: int = 0,
    max_length: int | None = None,
    cache_dir: str | Path | None = None,
) -> BpeDropoutCorpus:
    """The pairs, with merges left out at random, others in each epoch, on both sides.

    Args:
        pairs: What `tokenize_corpus` gave.
        tokenizer: The byte-pair tokenizer that encoded them.
        dropout: Probability that a merge is skipped, from 0 to 1; the authors take 0.1.
        seed: Of what is skipped.
        max_length: Most tokens of a side; a pair that would get longer stays as the tokenizer cut it.
        cache_dir: Folder of the cache; the user's if `None`.

    Raises:
        InputError: If the tokenizer does not merge pairs, or the cache cannot be written.
    """
    merges = Merges(tokenizer)
    key = {
        "pairs": digest_files(*(pairs.folder / name for name in FILES)),
        "tokenizer": xxhash.xxh3_128_hexdigest(tokenizer.backend_tokenizer.to_str().encode()),
        "dropout": dropout,
        "seed": seed,
        "samples": SAMPLES,
    }

    def make(folder: Path) -> None:
        words = _write_words(folder, pairs, tokenizer, merges, key["pairs"])
        _write_segmentations(folder, words, merges, dropout, seed)

    return cached(cache_dir, "words", key, make, lambda folder: BpeDropoutCorpus(folder, seed, max_length))


class Merges:
    """The merges of a byte-pair tokenizer, in their order.

    Args:
        tokenizer: A tokenizer whose model is BPE.

    Attributes:
        widths: Characters of each token (tokens of the vocabulary).

    Raises:
        InputError: If it is another, or marks where words begin or end inside of the tokens.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
        marked = model.get("continuing_subword_prefix") or model.get("end_of_word_suffix")
        if model["type"] != "BPE" or marked:
            kind = f"BPE with {marked} in its tokens" if marked else model["type"]
            raise InputError(
                f"bpe_dropout needs a tokenizer of plain byte pairs, and this one is {kind}; leave it out"
            )
        ids: dict[str, int] = model["vocab"]
        pairs = [(left, right) for left, right in (_two(merge) for merge in model["merges"])]
        self.parts = {ids[left + right]: (ids[left], ids[right]) for left, right in pairs}
        self.size = max(ids.values()) + 1
        keys = np.array([ids[left] * self.size + ids[right] for left, right in pairs], dtype=np.int64)
        self.results = np.array([ids[left + right] for left, right in pairs], dtype=np.int64)
        self._order = keys.argsort()
        self._keys = keys[self._order]
        self.widths = np.ones(max(len(tokenizer), self.size), dtype=np.int64)
        for token in self.parts:
            self.widths[token] = len(self.symbols([token]))

    def symbols(self, tokens: list[int]) -> list[int]:
        """What was merged to `tokens`, down to the single characters."""
        found: list[int] = []
        left = tokens[::-1]
        while left:
            token = left.pop()
            if token in self.parts:
                left += self.parts[token][::-1]
            else:
                found.append(token)
        return found

    def ranks(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """The rank of the merge of each two tokens, `NO_MERGE` where there is none or one is -1."""
        if not len(self._keys):
            return np.full(left.shape, NO_MERGE, dtype=np.int32)
        keys = np.where((left < 0) | (right < 0), -1, left * self.size + right)
        places = self._keys.searchsorted(keys).clip(max=len(self._keys) - 1)
        return np.where(self._keys[places] == keys, self._order[places], NO_MERGE).astype(np.int32)

    def merge(self, symbols: np.ndarray, dropout: float, generator: np.random.Generator) -> np.ndarray:
        """Merge rows of symbols as the tokenizer does, but skip merges at random (the authors' algorithm 1).

        At each step every merge that is possible is skipped with the probability `dropout`, and the first of those
        that are left is made, at one place; a row is done where none is left.

        Args:
            symbols: Tokens (rows, longest), -1 at their ends.
            dropout: Probability of skipping.
            generator: Draws what is skipped.

        Returns:
            Tokens (rows, longest), -1 at their ends.
        """
        symbols = symbols.astype(np.int64)
        count, width = symbols.shape
        ranks = np.full((count, width), NO_MERGE, dtype=np.int32)
        ranks[:, :-1] = self.ranks(symbols[:, :-1], symbols[:, 1:])
        active = np.arange(count)
        while len(active):
            possible = ranks[active]
            possible[generator.random(possible.shape, dtype=np.float32) < dropout] = NO_MERGE
            places = possible.argmin(axis=1)
            chosen = possible[np.arange(len(active)), places]
            active, places, chosen = (values[chosen < NO_MERGE] for values in (active, places, chosen))
            # All that follows a merge moves up by one.
            after = np.arange(width) > places[:, None]
            moved = np.minimum(np.arange(width) + after, width - 1)
            rows, row_ranks = (np.take_along_axis(values[active], moved, axis=1) for values in (symbols, ranks))
            rows[:, -1], row_ranks[:, -1] = -1, NO_MERGE
            each = np.arange(len(active))
            rows[each, places] = self.results[chosen]
            following = np.where(places + 1 < width, rows[each, (places + 1) % width], -1)
            row_ranks[each, places] = self.ranks(rows[each, places], following)
            inner = places > 0
            row_ranks[each[inner], places[inner] - 1] = self.ranks(
                rows[each[inner], places[inner] - 1], rows[each[inner], places[inner]]
            )
            symbols[active], ranks[active] = rows, row_ranks
        return symbols


class BpeDropoutCorpus(EpochCorpus):
    """Pairs whose words are cut into other tokens in each epoch.

    Args:
        folder: What [`apply_bpe_dropout`] prepared.
        seed: Of which segmentation an occurrence takes.
        max_length: Most tokens of a side; a pair that would get longer stays as the tokenizer cut it.
    """

    def __init__(self, folder: Path, seed: int, max_length: int | None = None) -> None:
        self.words = EncodedCorpus(folder)
        self.seed = seed
        self.max_length = max_length
        self.segments = map_array(folder / "segments.bin", self.words.description["segments_dtype"])
        self.starts = map_array(folder / "starts.bin", "int64")
        self.ends = map_array(folder / "ends.bin", "uint32").reshape(-1, 1 + SAMPLES + 1)

    @property
    def fingerprint(self) -> str:
        """What tells this text from others: the digest of the encoded pairs that it was made of."""
        return self.words.description["pairs"]

    def epoch(self, number: int) -> EncodedPairs:
        """The pairs as they are cut in epoch `number`."""
        return _Segmented(self, number)


class _Segmented(EncodedPairs):
    """The pairs of a [`BpeDropoutCorpus`] in one epoch; 9 bytes a pair stay in memory."""

    def __init__(self, corpus: BpeDropoutCorpus, number: int) -> None:
        self.corpus = corpus
        self.key = np.random.SeedSequence((corpus.seed, number)).generate_state(1, np.uint64)[0]
        count = len(corpus.words)
        self.whole = np.zeros(count, dtype=bool)
        limit = np.inf if corpus.max_length is None else corpus.max_length
        blocks = [np.zeros((0, 2), dtype=np.int32)]
        for start in range(0, count, 10_000):
            indices = np.arange(start, min(start + 10_000, count))
            lengths = self._lengths(indices)
            self.whole[indices] = lengths.max(axis=1) > limit
            if self.whole[indices].any():
                lengths = self._lengths(indices)
            blocks.append(lengths.astype(np.int32))
        self.lengths = np.concatenate(blocks)

    def gather(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The tokens of the pairs at `indices`, one side after the other, and their numbers (pairs, 2)."""
        corpus = self.corpus
        words, samples, _ = self._choose(indices)
        begins = corpus.ends[words, samples]
        sizes = corpus.ends[words, samples + 1] - begins
        tokens = corpus.segments[spread(corpus.starts[words] + begins, sizes.astype(np.int64))]
        release(corpus.segments, corpus.starts, corpus.ends)
        return tokens, self.lengths[indices]

    def _choose(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The words of the pairs, the segmentation of each, and the number of words of each side (pairs, 2)."""
        words, counts = self.corpus.words.gather(indices)
        sizes = counts.sum(axis=1, dtype=np.int64)
        places = spread(np.zeros(len(indices), dtype=np.int64), sizes)
        pairs = np.repeat(indices, sizes)
        drawn = 1 + _mix((pairs.astype(np.uint64) << np.uint64(24)) + places.astype(np.uint64), self.key) % SAMPLES
        return words, np.where(self.whole[pairs], 0, drawn).astype(np.int64), counts

    def _lengths(self, indices: np.ndarray) -> np.ndarray:
        """Tokens of each side of the pairs (pairs, 2)."""
        words, samples, counts = self._choose(indices)
        ends = self.corpus.ends
        sizes = (ends[words, samples + 1] - ends[words, samples]).astype(np.int64)
        release(ends)
        totals = np.concatenate([[0], sizes.cumsum()])[np.concatenate([[0], counts.ravel().cumsum()])]
        return np.diff(totals).reshape(-1, 2)


def _two(merge: str | list[str]) -> list[str]:
    """The two tokens of a merge; older files have them in one text."""
    return merge.split(" ") if isinstance(merge, str) else merge


def _mix(counters: np.ndarray, key: np.uint64) -> np.ndarray:
    """Random 64-bit numbers of `counters`: SplitMix64 (Steele et al. 2014), whose state `key` begins."""
    mixed = counters * np.uint64(0x9E3779B97F4A7C15) + key
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _write_words(
    folder: Path, pairs: EncodedCorpus, tokenizer: PreTrainedTokenizerFast, merges: Merges, digest: str
) -> list[np.ndarray]:
    """Write the pairs, which have this digest, as an [`EncodedCorpus`] of words.

    Returns:
        The tokens of each word.
    """
    backend = plain_backend(tokenizer)
    numbers: dict[bytes, int] = {}
    dtype = np.uint16 if len(tokenizer) <= 2**16 else np.uint32
    with EncodedCorpusWriter(folder, vocab_size=2**32) as writer:
        for start in tqdm(range(0, len(pairs), BATCH), desc="Finding words", unit_scale=BATCH, unit=" pairs"):
            tokens, lengths = pairs.gather(np.arange(start, min(start + BATCH, len(pairs))))
            sides = [side.tolist() for side in np.split(tokens, lengths.ravel().cumsum()[:-1])]
            in_words = [
                [numbers.setdefault(word, len(numbers)) for word in _words(np.array(side, dtype=dtype), ends, merges)]
                for side, ends in zip(sides, _word_ends(backend, sides), strict=True)
            ]
            writer.add(in_words[::2], in_words[1::2])
        writer.finish(segments_dtype=np.dtype(dtype).name, pairs=digest)
    return [np.frombuffer(word, dtype=dtype) for word in numbers]


def _word_ends(backend: Tokenizer, sides: list[list[int]]) -> Iterator[np.ndarray]:
    """Where the words of each side end.

    The tokenizer finds them in the text again. Where it finds other tokens there, each token is a word.
    """
    for side, encoding in zip(sides, backend.encode_batch(backend.decode_batch(sides)), strict=True):
        if encoding.ids == side:
            # A token that belongs to no word, such as </s>, is one.
            of_words = np.array([-1 - at if word is None else word for at, word in enumerate(encoding.word_ids)])
            yield np.append(np.flatnonzero(np.diff(of_words)) + 1, len(side))
        else:
            yield np.arange(1, len(side) + 1)


def _words(side: np.ndarray, ends: np.ndarray, merges: Merges) -> Iterator[bytes]:
    """The words that end there, as bytes; each token of one that is too long."""
    start = 0
    characters = np.append(0, merges.widths[side].cumsum())
    for end in ends.tolist():
        if characters[end] - characters[start] > LONGEST:
            yield from (token.tobytes() for token in side[start:end])
        else:
            yield side[start:end].tobytes()
        start = end


def _write_segmentations(folder: Path, words: list[np.ndarray], merges: Merges, dropout: float, seed: int) -> None:
    """Cut each word `SAMPLES` times, words of similar lengths at a time, and write what comes out."""
    widths = np.array([merges.widths[word].sum() for word in words], dtype=np.int64)
    order = widths.argsort(kind="stable")
    starts = np.zeros(len(words), dtype=np.int64)
    ends = np.zeros((len(words), 1 + SAMPLES + 1), dtype=np.uint32)
    generator = np.random.default_rng(seed)
    written = first = 0
    with (folder / "segments.bin").open("wb") as file, tqdm(total=len(words), desc="Cutting words") as progress:
        while first < len(order):
            # As many as fit the block, were all as long as the last of them.
            cells = widths[order[first:]] * SAMPLES * np.arange(1, len(order) - first + 1)
            block = order[first : first + max(1, int(cells.searchsorted(BLOCK, side="right")))]
            first += len(block)
            width = int(widths[block[-1]])
            padded = np.full((len(block), width), -1, dtype=np.int64)
            padded[np.arange(width) < widths[block, None]] = np.concatenate(
                [merges.symbols(words[word].tolist()) for word in block]
            )
            cut = merges.merge(np.repeat(padded, SAMPLES, axis=0), dropout, generator)
            rows = np.full((len(block), 1 + SAMPLES, width), -1, dtype=np.int64)
            rows[:, 1:] = cut.reshape(len(block), SAMPLES, width)
            for row, word in zip(rows, block, strict=True):
                row[0, : len(words[word])] = words[word]
            sizes = (rows >= 0).sum(axis=2)
            ends[block, 1:] = sizes.cumsum(axis=1)
            totals = sizes.sum(axis=1)
            starts[block] = written + totals.cumsum() - totals
            written += int(totals.sum())
            file.write(rows[rows >= 0].astype(words[block[0]].dtype).tobytes())
            progress.update(len(block))
    (folder / "starts.bin").write_bytes(starts.tobytes())
    (folder / "ends.bin").write_bytes(ends.tobytes())
