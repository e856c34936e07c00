"""Encoded sentence pairs on the disk, read through memory maps.

    corpus.json   the tokens' type, and what else the writer notes
    tokens.bin    the tokens of all sentences, source and target in turn (uint16 or uint32)
    lengths.bin   the tokens of each side of each pair (int32)
    offsets.bin   where each pair begins among the tokens, and where the last one ends (int64)

A corpus of five million pairs of 16 + 16 tokens takes 400 MB, which no process holds: `preprocessing` writes them in
batches, and training reads the pairs of one batch.
"""

from __future__ import annotations

import json
import mmap
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, overload

import numpy as np
from datasets import Dataset

DESCRIPTION = "corpus.json"
FILES = ("tokens.bin", "lengths.bin", "offsets.bin")

Row = dict[str, list[int]]
Rows = dict[str, list[list[int]]]


class EncodedPairs(ABC):
    """Encoded sentence pairs, of which only those that are asked for come into memory.

    `pairs[3]` is `{"input_ids": [...], "labels": [...]}`, and `pairs[indices]` has a list of them under each name,
    as a `datasets.Dataset` gives them.

    Attributes:
        lengths: Tokens of each side of each pair (pairs, 2).
    """

    column_names = ("input_ids", "labels")
    lengths: np.ndarray

    @abstractmethod
    def gather(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The tokens of the pairs at `indices`, one side after the other, and their numbers (pairs, 2)."""

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, key: int) -> Row: ...

    @overload
    def __getitem__(self, key: Sequence[int] | np.ndarray) -> Rows: ...

    def __getitem__(self, key: int | Sequence[int] | np.ndarray) -> Row | Rows:
        if isinstance(key, int | np.integer):
            return {name: column[0] for name, column in self[[key]].items()}
        indices = np.asarray(key, dtype=np.int64)
        if len(indices) and not -len(self) <= indices.min() <= indices.max() < len(self):
            raise IndexError(f"there are {len(self)} pairs, got {indices.min()} to {indices.max()}")
        found, lengths = self.gather(indices % max(1, len(self)))
        tokens = found.tolist()
        ends = lengths.sum(axis=1, dtype=np.int64).cumsum().tolist()
        rows: Rows = {name: [] for name in self.column_names}
        for end, (source, target) in zip(ends, lengths.tolist(), strict=True):
            middle = end - target
            rows["input_ids"].append(tokens[middle - source : middle])
            rows["labels"].append(tokens[middle:end])
        return rows

    def __iter__(self) -> Iterator[Row]:
        for start in range(0, len(self), 1000):
            rows = self[range(start, min(start + 1000, len(self)))]
            for source, target in zip(*rows.values(), strict=True):
                yield {"input_ids": source, "labels": target}


class EncodedCorpus(EncodedPairs):
    """Encoded sentence pairs on the disk. 8 bytes a pair stay in memory, the lengths.

    Args:
        folder: What [`EncodedCorpusWriter`] wrote.

    Attributes:
        description: What the writer noted.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.description: dict[str, Any] = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        self.lengths = np.fromfile(folder / "lengths.bin", dtype=np.int32).reshape(-1, 2)
        self._tokens = map_array(folder / "tokens.bin", self.description["dtype"])
        self._offsets = map_array(folder / "offsets.bin", "int64")

    def gather(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The tokens of the pairs at `indices`, one side after the other, and their numbers (pairs, 2)."""
        lengths = self.lengths[indices]
        places = spread(self._offsets[indices], lengths.sum(axis=1, dtype=np.int64))
        tokens = self._tokens[places]
        release(self._tokens, self._offsets)
        return tokens, lengths

    def __reduce__(self) -> tuple:
        # Another process maps the files itself.
        return type(self), (self.folder,)


class EpochCorpus(ABC):
    """Training text whose encoded pairs are others in each epoch."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """What tells this text from others."""

    @abstractmethod
    def epoch(self, number: int) -> EncodedPairs:
        """The pairs of epoch `number`, the same whenever they are asked for."""


def pair_lengths(encoded: EncodedPairs | Dataset) -> np.ndarray:
    """Tokens of each side of each pair of an encoded corpus (pairs, 2)."""
    if isinstance(encoded, EncodedPairs):
        return encoded.lengths
    import pyarrow.compute as pc

    if not len(encoded):
        return np.zeros((0, 2), dtype=np.int64)
    table = encoded.with_format("arrow")[:]
    columns = [pc.list_value_length(table[name]).to_numpy() for name in EncodedPairs.column_names]
    return np.stack(columns, axis=1).astype(np.int64)


class EncodedCorpusWriter:
    """Writes encoded pairs into a folder, batch by batch; [`finish`] makes it whole. A context manager.

    Args:
        folder: An empty folder.
        vocab_size: Decides how many bytes a token takes.
    """

    def __init__(self, folder: Path, vocab_size: int) -> None:
        self.folder = folder
        self.dtype = "uint16" if vocab_size <= 2**16 else "uint32"
        self.end = 0
        self.files = {name: (folder / name).open("wb") for name in FILES}
        self._write("offsets.bin", np.zeros(1, dtype=np.int64))

    def add(self, input_ids: Sequence[Sequence[int]], labels: Sequence[Sequence[int]]) -> None:
        """Append pairs."""
        sides = [side for pair in zip(input_ids, labels, strict=True) for side in pair]
        lengths = np.fromiter(map(len, sides), dtype=np.int32).reshape(-1, 2)
        offsets = self.end + np.cumsum(lengths.sum(axis=1, dtype=np.int64))
        self._write("tokens.bin", np.fromiter(chain.from_iterable(sides), dtype=self.dtype))
        self._write("lengths.bin", lengths)
        self._write("offsets.bin", offsets)
        if len(offsets):
            self.end = int(offsets[-1])

    def __enter__(self) -> EncodedCorpusWriter:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self.files.values():
            with suppress(OSError):  # that of a full disk is on its way already
                file.close()

    def finish(self, **description: Any) -> None:
        """Finish the files, and note `description` with them."""
        for file in self.files.values():
            file.close()
        text = json.dumps({"dtype": self.dtype, **description})
        (self.folder / DESCRIPTION).write_text(text + "\n", encoding="utf-8")

    def _write(self, name: str, values: np.ndarray) -> None:
        self.files[name].write(values.tobytes())


def spread(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The places `start`, `start + 1`, … of each run of so many, run after run."""
    return np.repeat(starts - (sizes.cumsum() - sizes), sizes) + np.arange(sizes.sum())


def map_array(path: Path, dtype: str) -> np.ndarray:
    """The file as an array, which stays on the disk; an empty file cannot be mapped."""
    return np.memmap(path, dtype=dtype, mode="r") if path.stat().st_size else np.zeros(0, dtype=dtype)


def release(*arrays: np.ndarray) -> None:
    """Give the pages of maps back, which count as this process's memory; the system keeps them while it has room."""
    for mapped in arrays:
        mapping = getattr(mapped, "_mmap", None)
        if mapping is not None and hasattr(mmap, "MADV_DONTNEED"):
            mapping.madvise(mmap.MADV_DONTNEED)
