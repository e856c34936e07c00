"""Parallel text from files, the Hub or the built-in generator, as `datasets` with a `translation` column."""

from __future__ import annotations

import csv
import gzip
import json
import logging
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import xxhash
from datasets import Dataset, Features, IterableDataset, Translation, concatenate_datasets

from .corpus_cache import digest_files
from .errors import InputError, one_line

if TYPE_CHECKING:
    from .training_arguments import TranslationTrainingArguments

logger = logging.getLogger(__name__)

TABLE_SUFFIXES = (".tsv", ".csv", ".jsonl", ".json", ".parquet")
BUILTIN_SIZES = {"train": 120_000, "validation": 500, "test": 1_000}

Pair = tuple[str, str]


@dataclass(frozen=True)
class ParallelCorpus:
    """Sentence pairs that are read anew each time that they are gone through; memory holds none.

    Args:
        origin: Where they come from, for messages.
        read: Reads them from the beginning.
        identify: Computes the `identity`.
    """

    origin: str
    read: Callable[[], Iterator[Pair]]
    identify: Callable[[], dict[str, Any]]

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What decides the pairs, such as the digest of a file, as JSON can tell it."""
        return self.identify()

    def __iter__(self) -> Iterator[Pair]:
        pairs = self.read()
        first = next(pairs, None)
        if first is None:
            raise InputError(f"{self.origin}: the corpus is empty; it needs at least one sentence pair")
        yield first
        yield from pairs


def open_corpus(
    files: Sequence[str | Path] | None = None,
    *,
    dataset_name: str | None = None,
    dataset_config_name: str | None = None,
    split: str = "train",
    source_lang: str = "en",
    target_lang: str = "de",
    tsv_columns: Sequence[str] | None = None,
    seed: int = 0,
    streaming: bool = False,
) -> ParallelCorpus:
    """Open parallel text of any size; the arguments are those of [`load_corpus`].

    With `streaming`, a data set on the Hub is downloaded while it is read, and nothing of it stays on the disk.

    Raises:
        InputError: If the corpus is not there; while it is read, if it is malformed or not UTF-8, or empty.
    """
    if (files is None) == (dataset_name is None):
        raise InputError(
            "a corpus needs either files or a data set name, got " + ("neither" if files is None else "both")
        )
    if source_lang == target_lang:
        raise InputError(f"source and target language must differ, got {source_lang} twice")
    languages = (source_lang, target_lang)
    tsv_columns = tuple(tsv_columns or languages)
    if sorted(tsv_columns) != sorted(languages):
        raise InputError(
            f"tsv_columns must be {source_lang} and {target_lang}, in the order of the file, got "
            f"{' '.join(tsv_columns)}"
        )
    if dataset_name is None:
        paths = [Path(file) for file in files]
        _check_files(paths)
        kinds = [_kind(path) for path in paths if _kind(path) in TABLE_SUFFIXES]
        columns = {"tsv_columns": tsv_columns} if kinds == [".tsv"] and tsv_columns != languages else {}
        return ParallelCorpus(
            ", ".join(map(str, paths)),
            partial(_read_pairs, paths, *languages, tsv_columns),
            lambda: {"files": digest_files(*paths), "kinds": kinds, "languages": languages, **columns},
        )
    if dataset_name.startswith("builtin:"):
        return _open_builtin(dataset_name, split, languages, seed)
    dataset = _load_from_hub(dataset_name, dataset_config_name, split, *languages, streaming=streaming)
    if isinstance(dataset, IterableDataset):
        return _stream_of(dataset, dataset_name, dataset_config_name, split, *languages)
    return corpus_of(dataset, *languages, name=dataset_name)


def open_corpora(settings: TranslationTrainingArguments) -> tuple[ParallelCorpus, ParallelCorpus]:
    """The text that `settings` name to train on, and that to validate on; errors as of [`open_corpus`]."""
    common = {
        "dataset_name": settings.dataset_name,
        "dataset_config_name": settings.dataset_config_name,
        "source_lang": settings.source_lang,
        "target_lang": settings.target_lang,
        "tsv_columns": settings.tsv_columns,
        "seed": settings.seed,
    }
    return (
        open_corpus(settings.train_file or None, split=settings.train_split, streaming=settings.streaming, **common),
        open_corpus(settings.validation_file or None, split=settings.validation_split, **common),
    )


def _stream_of(
    dataset: IterableDataset, name: str, config: str | None, split: str, source_lang: str, target_lang: str
) -> ParallelCorpus:
    from datasets import load_dataset_builder

    def read() -> Iterator[Pair]:
        both = sentences(dataset, source_lang, target_lang)
        try:
            yield from zip(both, both, strict=True)
        except Exception as error:  # the Hub, the network and the data set's own files fail in many ways
            raise InputError(
                f"data set {name}, split {split}, could not be read on ({one_line(error)}); go on with --resume"
            ) from error

    def identify() -> dict[str, Any]:
        # The hash tells the revision of the files on the Hub.
        return {
            "stream": [name, config, split, load_dataset_builder(name, config).hash],
            "languages": [source_lang, target_lang],
        }

    return ParallelCorpus(name, read, identify)


def corpus_of(dataset: Dataset, source_lang: str, target_lang: str, name: str = "the data set") -> ParallelCorpus:
    """The pairs of a data set with a `translation` column."""

    def read() -> Iterator[Pair]:
        both = sentences(dataset, source_lang, target_lang)
        return zip(both, both, strict=True)

    def identify() -> dict[str, Any]:
        files = [Path(file["filename"]) for file in dataset.cache_files]
        if files:
            # The fingerprint tells which rows of the files they are, such as those of a split or a selection.
            digest = [digest_files(*files), dataset._fingerprint]
        else:
            pairs = xxhash.xxh3_128()
            for pair in read():
                pairs.update(pair_key(pair).to_bytes(8, "little"))
            digest = [pairs.hexdigest()]
        return {"dataset": digest, "languages": [source_lang, target_lang]}

    return ParallelCorpus(name, read, identify)


def pair_key(pair: Pair) -> int:
    """64 bits that tell pairs apart: of five million, two that differ share them with a chance of one in a million."""
    return xxhash.xxh3_64_intdigest(pair[0].encode() + b"\xff" + pair[1].encode())  # UTF-8 has no byte 0xff


def load_corpus(
    files: Sequence[str | Path] | None = None,
    *,
    dataset_name: str | None = None,
    dataset_config_name: str | None = None,
    split: str = "train",
    source_lang: str = "en",
    target_lang: str = "de",
    tsv_columns: Sequence[str] | None = None,
    seed: int = 0,
) -> Dataset:
    """Load parallel text as a `datasets.Dataset` with a `translation` column of `{source_lang: …, target_lang: …}`.

    Args:
        files: One table (.tsv without a header, .csv with one, .jsonl or .json, .parquet), or two plain-text files,
            the source and the target, a sentence a line; .gz too, but for Parquet. A JSON line or a Parquet row has a
            column for each language, or a `translation` column.
        dataset_name: `builtin:en-de` (or `builtin:de-en`), or a data set on the Hub with a `translation` column or one
            for each language.
        dataset_config_name: Configuration of the Hub's data set.
        split: Split of the data set; `files` have none.
        source_lang: Code of the source language.
        target_lang: Code of the target language.
        tsv_columns: The languages of a TSV's two columns; source and target if not given.
        seed: Seed of the built-in generator.

    The text is held in memory, as is right for a test set. What trains reads it with [`open_corpus`].

    Raises:
        InputError: If a file is missing, malformed or not UTF-8, the corpus is empty, or its languages differ.
    """
    if files is None and dataset_name is not None and not dataset_name.startswith("builtin:"):
        return _load_from_hub(dataset_name, dataset_config_name, split, source_lang, target_lang)
    corpus = open_corpus(
        files,
        dataset_name=dataset_name,
        dataset_config_name=dataset_config_name,
        split=split,
        source_lang=source_lang,
        target_lang=target_lang,
        tsv_columns=tsv_columns,
        seed=seed,
    )
    features = Features({"translation": Translation([source_lang, target_lang])})
    pairs, blocks = iter(corpus), []
    while block := list(islice(pairs, 10_000)):
        rows = [{source_lang: source, target_lang: target} for source, target in block]
        blocks.append(Dataset.from_dict({"translation": rows}, features=features))
    return concatenate_datasets(blocks)


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


def _check_files(paths: list[Path]) -> None:
    """Check what can be told of the files without reading them."""
    kinds = [_kind(path) in TABLE_SUFFIXES for path in paths]
    if len(paths) == 2 and any(kinds):
        table = paths[kinds.index(True)]
        raise InputError(f"{table}: a table holds both sides, so give one table or two plain-text files")
    if len(paths) not in (1, 2):
        raise InputError(f"expected one table or two plain-text files, got {len(paths)} files")
    if len(paths) == 1 and not kinds[0]:
        raise InputError(
            f"{paths[0]}: one file must be a table ({', '.join(TABLE_SUFFIXES)}); plain text comes as two files, "
            "source and target"
        )
    for path in paths:
        _check_file(path)


def _read_pairs(paths: list[Path], source_lang: str, target_lang: str, tsv_columns: tuple[str, ...]) -> Iterator[Pair]:
    if len(paths) == 2:
        yield from _read_two_files(*paths)
        return
    readers = {".tsv": partial(_read_tsv, header=tsv_columns), ".csv": _read_csv, ".parquet": _read_parquet}
    yield from readers.get(_kind(paths[0]), _read_json_lines)(paths[0], source_lang, target_lang)


def _read_two_files(source: Path, target: Path) -> Iterator[Pair]:
    sides = (read_lines(source), read_lines(target))
    for number, pair in enumerate(zip_longest(*sides), 1):
        if None in pair:
            # One of the files is at its end; the rest of the other is counted.
            counts = [number - (side is None) + sum(1 for _ in lines) for side, lines in zip(pair, sides, strict=True)]
            raise InputError(
                f"{source} has {counts[0]:,} lines and {target} has {counts[1]:,}; a source and a target "
                "file must have the same number"
            )
        yield pair


def _kind(path: Path) -> str:
    return Path(path.stem).suffix if path.suffix == ".gz" else path.suffix


def _read_tsv(path: Path, source_lang: str, target_lang: str, header: tuple[str, ...]) -> Iterator[Pair]:
    source, target = header.index(source_lang), header.index(target_lang)
    for number, line in enumerate(read_lines(path), 1):
        columns = line.split("\t")
        if len(columns) != 2:
            raise InputError(
                f"{path}, line {number}: expected 2 tab-separated columns, {' and '.join(header)}, "
                f"found {len(columns)}"
            )
        yield columns[source], columns[target]


def _read_csv(path: Path, source_lang: str, target_lang: str) -> Iterator[Pair]:
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


def _read_json_lines(path: Path, source_lang: str, target_lang: str) -> Iterator[Pair]:
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}, line {number}: expected a JSON object, {error}") from error
        yield _pair_of_row(row, f"{path}, line {number}", source_lang, target_lang)


def _read_parquet(path: Path, source_lang: str, target_lang: str) -> Iterator[Pair]:
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


def _open_builtin(name: str, split: str, languages: tuple[str, str], seed: int) -> ParallelCorpus:
    from . import builtin_corpus

    if name not in ("builtin:en-de", "builtin:de-en"):
        raise InputError(f"{name}: there is no such built-in corpus; the one there is, is builtin:en-de")
    if set(languages) != {"en", "de"}:
        raise InputError(f"{name}: its languages are en and de, got {languages[0]} and {languages[1]}")
    if split not in BUILTIN_SIZES:
        raise InputError(f"{name}: its splits are {', '.join(BUILTIN_SIZES)}, got {split}")
    size = BUILTIN_SIZES[split]

    @cache
    def generate() -> list[Pair]:
        # To generate it takes longer than all that follows, and it is small.
        pairs = builtin_corpus.generate_pairs(split, size, seed)
        return [(pair[languages[0]], pair[languages[1]]) for pair in pairs]

    def identify() -> dict[str, Any]:
        grammar = digest_files(*sorted(Path(builtin_corpus.__file__).parent.glob("*.py")))
        return {"builtin": [split, size, seed], "grammar": grammar, "languages": languages}

    return ParallelCorpus(name, lambda: iter(generate()), identify)


def _load_from_hub(
    name: str, config: str | None, split: str, source_lang: str, target_lang: str, streaming: bool = False
) -> Dataset | IterableDataset:
    from datasets import load_dataset

    logger.info(f"Looking for the data set {name} on the Hub")
    try:
        dataset = load_dataset(name, config, split=split, streaming=streaming)
    except Exception as error:  # the Hub, the network and the data set's own files fail in many ways
        raise InputError(
            f"data set {name}{f' ({config})' if config else ''}, split {split}, could not be loaded from the Hub: "
            f"{str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}"
        ) from error
    if {source_lang, target_lang} <= set(dataset.column_names) and "translation" not in dataset.column_names:
        dataset = dataset.select_columns([source_lang, target_lang]).map(
            lambda pair: {"translation": pair},
            remove_columns=[source_lang, target_lang],
            features=Features({"translation": Translation([source_lang, target_lang])}),
        )
    feature = dataset.features.get("translation")
    languages = feature.languages if isinstance(feature, Translation) else feature if isinstance(feature, dict) else []
    if not {source_lang, target_lang} <= set(languages):
        raise InputError(
            f"data set {name}: expected a translation column with {source_lang} and {target_lang}, found "
            f"{', '.join(languages) or ', '.join(dataset.features)}"
        )
    if isinstance(dataset, Dataset) and not len(dataset):
        raise InputError(f"data set {name}, split {split}: the corpus is empty; it needs at least one sentence pair")
    return dataset.select_columns("translation")


def sentences(dataset: Dataset | IterableDataset, *languages: str) -> Iterator[str]:
    """Yield the sentences of `dataset` in the given languages, pair by pair."""
    for batch in dataset.iter(batch_size=1000):
        for pair in batch["translation"]:
            for language in languages:
                yield pair[language] or ""
