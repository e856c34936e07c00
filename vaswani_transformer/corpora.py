"""Parallel text from files, the Hub or the built-in generator, as `datasets` with a `translation` column."""

from __future__ import annotations

import csv
import gzip
import json
import logging
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from datasets import Dataset, Features, List, Translation, Value
from transformers import PreTrainedTokenizerBase

from .errors import InputError

logger = logging.getLogger(__name__)

TABLE_SUFFIXES = (".tsv", ".csv", ".jsonl", ".json", ".parquet")
BUILTIN_SIZES = {"train": 120_000, "validation": 500, "test": 1_000}


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


def load_corpus(
    files: Sequence[str | Path] | None = None,
    *,
    dataset_name: str | None = None,
    dataset_config_name: str | None = None,
    split: str = "train",
    source_lang: str = "en",
    target_lang: str = "de",
    seed: int = 0,
) -> Dataset:
    """Load parallel text as a `datasets.Dataset` with a `translation` column of `{source_lang: …, target_lang: …}`.

    Args:
        files: One table (.tsv without a header, .csv with one, .jsonl or .json, .parquet), or two plain-text files,
            the source and the target, a sentence a line; .gz too, but for Parquet. The first column of a TSV is the
            source. A JSON line or a Parquet row has a column for each language, or a `translation` column.
        dataset_name: `builtin:en-de` (or `builtin:de-en`), or a data set on the Hub with a `translation` column.
        dataset_config_name: Configuration of the Hub's data set.
        split: Split of the data set; `files` have none.
        source_lang: Code of the source language.
        target_lang: Code of the target language.
        seed: Seed of the built-in generator.

    Raises:
        InputError: If a file is missing, malformed or not UTF-8, the corpus is empty, or its languages differ.
    """
    if (files is None) == (dataset_name is None):
        raise InputError(
            "a corpus needs either files or a data set name, got " + ("neither" if files is None else "both")
        )
    if source_lang == target_lang:
        raise InputError(f"source and target language must differ, got {source_lang} twice")
    if dataset_name is not None and dataset_name.startswith("builtin:"):
        pairs = _builtin_pairs(dataset_name, split, source_lang, target_lang, seed)
        origin = dataset_name
    elif dataset_name is not None:
        return _load_from_hub(dataset_name, dataset_config_name, split, source_lang, target_lang)
    else:
        paths = [Path(file) for file in files]
        pairs = list(_read_pairs(paths, source_lang, target_lang))
        origin = ", ".join(map(str, paths))
    if not pairs:
        raise InputError(f"{origin}: the corpus is empty; it needs at least one sentence pair")
    sources, targets = zip(*pairs, strict=True)
    rows = [{source_lang: source, target_lang: target} for source, target in zip(sources, targets, strict=True)]
    return Dataset.from_dict(
        {"translation": rows}, features=Features({"translation": Translation([source_lang, target_lang])})
    )


def read_lines(path: Path) -> Iterator[str]:
    r"""Yield the lines of a UTF-8 text file, gzip or plain, without their ends ("\n" or "\r\n").

    Raises:
        InputError: If the file is missing or not UTF-8, or its compression is broken.
    """
    _check_file(path)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield from decode_lines(file, str(path))
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path}: broken gzip file ({error})") from error


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise InputError(f"{path}: is a folder, expected a file")
    if not path.exists():
        raise InputError(f"{path}: no such file")


def decode_lines(stream: BinaryIO, name: str) -> Iterator[str]:
    """Yield the lines of a stream of UTF-8 bytes, as [`read_lines`] does; errors call it `name`."""
    offset = 0
    for line in stream:
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{name}: expected UTF-8, found byte 0x{line[error.start]:02x} at byte offset "
                f"{offset + error.start}; convert it, for example with iconv"
            ) from error
        if offset == 0:
            text = text.removeprefix("\ufeff")  # the byte order mark that some editors write
        yield text.removesuffix("\n").removesuffix("\r")
        offset += len(line)


def _read_pairs(paths: list[Path], source_lang: str, target_lang: str) -> Iterator[tuple[str, str]]:
    if len(paths) == 2:
        for path in paths:
            if _kind(path) in TABLE_SUFFIXES:
                raise InputError(f"{path}: a table holds both sides, so give one table or two plain-text files")
        sources, targets = (list(read_lines(path)) for path in paths)
        if len(sources) != len(targets):
            raise InputError(
                f"{paths[0]} has {len(sources):,} lines and {paths[1]} has {len(targets):,}; a source and a target "
                "file must have the same number"
            )
        yield from zip(sources, targets, strict=True)
        return
    if len(paths) != 1:
        raise InputError(f"expected one table or two plain-text files, got {len(paths)} files")
    path = paths[0]
    kind = _kind(path)
    if kind not in TABLE_SUFFIXES:
        raise InputError(
            f"{path}: one file must be a table ({', '.join(TABLE_SUFFIXES)}); plain text comes as two files, "
            "source and target"
        )
    reader = {".tsv": _read_tsv, ".csv": _read_csv, ".parquet": _read_parquet}.get(kind, _read_json_lines)
    yield from reader(path, source_lang, target_lang)


def _kind(path: Path) -> str:
    return Path(path.stem).suffix if path.suffix == ".gz" else path.suffix


def _read_tsv(path: Path, source_lang: str, target_lang: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_lines(path), 1):
        columns = line.split("\t")
        if len(columns) != 2:
            raise InputError(
                f"{path}, line {number}: expected 2 tab-separated columns, {source_lang} and {target_lang}, "
                f"found {len(columns)}"
            )
        yield columns[0], columns[1]


def _read_csv(path: Path, source_lang: str, target_lang: str) -> Iterator[tuple[str, str]]:
    csv.field_size_limit(2**31 - 1)
    # Strict: an unclosed quote is an error here, and would swallow the rest of the file otherwise.
    rows = csv.reader((line + "\n" for line in read_lines(path)), strict=True)
    try:
        header = next(rows, [])
        if source_lang not in header or target_lang not in header:
            raise InputError(
                f"{path}: expected a header with the columns {source_lang} and {target_lang}, found "
                f"{', '.join(header) or 'nothing'}"
            )
        source, target = header.index(source_lang), header.index(target_lang)
        for row in rows:
            if len(row) != len(header):
                raise InputError(
                    f"{path}, line {rows.line_num}: expected {len(header)} columns, as in the header, found {len(row)}"
                )
            yield row[source], row[target]
    except csv.Error as error:
        raise InputError(f"{path}, line {rows.line_num}: not CSV ({error})") from error


def _read_json_lines(path: Path, source_lang: str, target_lang: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}, line {number}: expected a JSON object, {error}") from error
        yield _pair_of_row(row, f"{path}, line {number}", source_lang, target_lang)


def _read_parquet(path: Path, source_lang: str, target_lang: str) -> Iterator[tuple[str, str]]:
    from pyarrow import parquet

    _check_file(path)
    number = 0
    try:
        for batch in parquet.ParquetFile(path).iter_batches():
            for row in batch.to_pylist():
                number += 1
                yield _pair_of_row(row, f"{path}, row {number}", source_lang, target_lang)
    except InputError:
        raise
    except (ValueError, OSError) as error:  # Arrow's own errors are among them
        raise InputError(f"{path}, after row {number}: not a whole Parquet file ({error})") from error


def _pair_of_row(row: object, place: str, source_lang: str, target_lang: str) -> tuple[str, str]:
    pair = row.get("translation", row) if isinstance(row, dict) else None
    sides = [pair.get(lang) for lang in (source_lang, target_lang)] if isinstance(pair, dict) else [None]
    if not all(isinstance(side, str) for side in sides):
        kinds = {key: type(value).__name__ for key, value in pair.items()} if isinstance(pair, dict) else {}
        found = ", ".join(f"{key} ({kind})" for key, kind in kinds.items()) or type(row).__name__
        raise InputError(f"{place}: expected texts under {source_lang} and {target_lang}, found {found}")
    for side in sides:
        try:
            side.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InputError(f"{place}: expected Unicode text, found half of a surrogate pair ({error})") from error
    return sides[0], sides[1]


def _builtin_pairs(name: str, split: str, source_lang: str, target_lang: str, seed: int) -> list[tuple[str, str]]:
    from .builtin_corpus import generate_pairs

    if name not in ("builtin:en-de", "builtin:de-en"):
        raise InputError(f"{name}: there is no such built-in corpus; the one there is, is builtin:en-de")
    if {source_lang, target_lang} != {"en", "de"}:
        raise InputError(f"{name}: its languages are en and de, got {source_lang} and {target_lang}")
    if split not in BUILTIN_SIZES:
        raise InputError(f"{name}: its splits are {', '.join(BUILTIN_SIZES)}, got {split}")
    return [(pair[source_lang], pair[target_lang]) for pair in generate_pairs(split, BUILTIN_SIZES[split], seed)]


def _load_from_hub(name: str, config: str | None, split: str, source_lang: str, target_lang: str) -> Dataset:
    from datasets import load_dataset

    logger.info(f"Looking for the data set {name} on the Hub")
    try:
        dataset = load_dataset(name, config, split=split)
    except Exception as error:  # the Hub, the network and the data set's own files fail in many ways
        raise InputError(
            f"data set {name}{f' ({config})' if config else ''}, split {split}, could not be loaded from the Hub: "
            f"{str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}"
        ) from error
    feature = dataset.features.get("translation")
    languages = feature.languages if isinstance(feature, Translation) else feature if isinstance(feature, dict) else []
    if not {source_lang, target_lang} <= set(languages):
        raise InputError(
            f"data set {name}: expected a translation column with {source_lang} and {target_lang}, found "
            f"{', '.join(languages) or ', '.join(dataset.features)}"
        )
    if not len(dataset):
        raise InputError(f"data set {name}, split {split}: the corpus is empty; it needs at least one sentence pair")
    return dataset.select_columns("translation")


def sentences(dataset: Dataset, *languages: str) -> Iterator[str]:
    """Yield the sentences of `dataset` in the given languages, pair by pair."""
    for batch in dataset.iter(batch_size=1000):
        for pair in batch["translation"]:
            for language in languages:
                yield pair[language] or ""


def tokenize_corpus(
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    source_lang: str,
    target_lang: str,
    *,
    max_length: int | None = None,
    max_length_ratio: float | None = None,
    drop_duplicates: bool = False,
) -> tuple[Dataset, CleaningReport]:
    """Clean and encode a corpus.

    Args:
        dataset: What [`load_corpus`] returns.
        tokenizer: Encodes both sides; its encodings end in `</s>`.
        source_lang: Code of the source language.
        target_lang: Code of the target language.
        max_length: Drop pairs with a longer side, in tokens; `None` keeps every length.
        max_length_ratio: Drop pairs whose longer side has more than this many times the tokens of the shorter.
        drop_duplicates: Drop all but the first of equal pairs.

    Returns:
        A data set with the columns `input_ids` and `labels`, and the count of what was dropped.
    """
    report = CleaningReport(read=len(dataset))
    seen: set[int] = set()
    kept = []
    for index, pair in enumerate(_pairs(dataset, source_lang, target_lang)):
        if not (pair[0].strip() and pair[1].strip()):
            report.empty += 1
        elif drop_duplicates and (key := hash(pair)) in seen:
            report.duplicate += 1
        else:
            if drop_duplicates:
                seen.add(key)
            kept.append(index)

    def encode(batch: dict[str, list]) -> dict[str, list]:
        return {
            "input_ids": tokenizer([pair[source_lang] for pair in batch["translation"]])["input_ids"],
            "labels": tokenizer([pair[target_lang] for pair in batch["translation"]])["input_ids"],
        }

    if not kept:
        tokens = List(Value("int64"))
        return Dataset.from_dict(
            {"input_ids": [], "labels": []}, features=Features({"input_ids": tokens, "labels": tokens})
        ), report
    encoded = dataset.select(kept).map(
        encode, batched=True, remove_columns=dataset.column_names, keep_in_memory=True, desc="Tokenizing"
    )
    lengths = pair_lengths(encoded)
    longer, shorter = lengths.max(axis=1), lengths.min(axis=1)
    too_long = longer > (np.inf if max_length is None else max_length)
    uneven = ~too_long & (longer > shorter * (np.inf if max_length_ratio is None else max_length_ratio))
    report.too_long, report.uneven = int(too_long.sum()), int(uneven.sum())
    return encoded.select(np.flatnonzero(~too_long & ~uneven)), report


def pair_lengths(encoded: Dataset) -> np.ndarray:
    """Tokens of each side of each pair of an encoded corpus (pairs, 2)."""
    import pyarrow.compute as pc

    table = encoded.with_format("arrow")[:] if len(encoded) else None
    if table is None:
        return np.zeros((0, 2), dtype=np.int64)
    columns = [pc.list_value_length(table[name]).to_numpy() for name in ("input_ids", "labels")]
    return np.stack(columns, axis=1).astype(np.int64)


def _pairs(dataset: Dataset, source_lang: str, target_lang: str) -> Iterator[tuple[str, str]]:
    both = sentences(dataset, source_lang, target_lang)
    return zip(both, both, strict=True)
