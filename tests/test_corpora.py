import csv
import gzip
import io
import itertools
import json
import random
import re
import socket
from collections.abc import Callable
from pathlib import Path

import datasets
import pyarrow
import pytest
from datasets import Dataset, Features, Translation
from pyarrow import parquet
from transformers import PreTrainedTokenizerFast

from vaswani_transformer import corpora
from vaswani_transformer.corpora import (
    ParallelCorpus,
    corpus_of,
    decode_lines,
    load_corpus,
    open_corpus,
    read_lines,
    sentences,
)
from vaswani_transformer.encoded_corpus import pair_lengths
from vaswani_transformer.errors import InputError
from vaswani_transformer.preprocessing import CleaningReport, tokenize_corpus
from vaswani_transformer.tokenization import train_tokenizer

TATOEBA = Path(__file__).parents[2] / "shared" / "data" / "tatoeba-en-de"

Pairs = list[tuple[str, str]]

# What splits lines in other programs, but is text here: only "\n" and "\r\n" end a line.
SEPARATORS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
PAIRS: Pairs = [
    ("Good morning, “Tom”.", "„Guten Morgen“, Tom."),
    (f"one{SEPARATORS}line", f"eine{SEPARATORS}Zeile"),
    ("  blanks  stay ", " Leerzeichen   bleiben  "),
    ("family 👨‍👩‍👧", "e\u0301 is not composed here"),
    ('a "quoted", word', "1;2|3 'x' \\n"),
    ("", "an empty source"),
    ("an empty target", ""),
    ("Zero \0 byte", "Null"),
    ("Good morning, “Tom”.", "„Guten Morgen“, Tom."),
]
ENDS = {"unix": "\n", "windows": "\r\n"}


def pairs_of(dataset: Dataset, source_lang: str = "en", target_lang: str = "de") -> Pairs:
    assert dataset.column_names == ["translation"]
    return [(pair[source_lang], pair[target_lang]) for pair in dataset["translation"]]


def write(path: Path, text: str | bytes) -> Path:
    """Write a file; its name says whether it is compressed."""
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def as_tsv(pairs: Pairs, end: str = "\n") -> str:
    return "".join(f"{source}\t{target}{end}" for source, target in pairs)


def as_csv(pairs: Pairs, end: str = "\n") -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator=end)
    writer.writerow(["number", "de", "en"])
    writer.writerows((number, target, source) for number, (source, target) in enumerate(pairs))
    return file.getvalue()


def as_json_columns(pairs: Pairs, end: str = "\n") -> str:
    rows = ({"id": number, "de": target, "en": source} for number, (source, target) in enumerate(pairs))
    return "".join(json.dumps(row, ensure_ascii=False) + end for row in rows)


def as_json_translation(pairs: Pairs, end: str = "\n") -> str:
    rows = ({"translation": {"en": source, "de": target, "fr": "…"}} for source, target in pairs)
    return "".join(json.dumps(row) + end for row in rows)


def refused(call: Callable[[], object], *fragments: str) -> str:
    """The text of the `InputError` that `call` raises: one line that has all fragments."""
    with pytest.raises(InputError) as caught:
        call()
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    for fragment in fragments:
        assert fragment in text
    return text


# Formats


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
@pytest.mark.parametrize("compressed", ["", ".gz"])
def test_two_plain_files(tmp_path: Path, compressed: str, end: str) -> None:
    files = [
        write(tmp_path / f"text.{language}{compressed}", "".join(pair[side] + end for pair in PAIRS))
        for side, language in enumerate(("en", "de"))
    ]
    assert pairs_of(load_corpus(files)) == PAIRS
    assert pairs_of(load_corpus([str(file) for file in files])) == PAIRS
    # The order of the files says what the source is.
    swapped = load_corpus(files[::-1], source_lang="de", target_lang="en")
    assert pairs_of(swapped, "de", "en") == [(target, source) for source, target in PAIRS]


def test_the_columns_of_a_tsv_may_stand_the_other_way_round(tmp_path: Path) -> None:
    file = write(tmp_path / "pairs.tsv", as_tsv(PAIRS))
    backward = {"source_lang": "de", "target_lang": "en"}
    as_they_stand, swapped = (load_corpus([file], **backward, tsv_columns=order) for order in (None, ["en", "de"]))
    assert pairs_of(as_they_stand, "de", "en") == PAIRS
    assert pairs_of(swapped, "de", "en") == [(target, source) for source, target in PAIRS]
    assert list(open_corpus([file], **backward, tsv_columns=("en", "de"))) == pairs_of(swapped, "de", "en")
    # They are other text to the cache, but for files that tell the side of their languages themselves.
    assert (
        open_corpus([file], **backward, tsv_columns=("en", "de")).identity != open_corpus([file], **backward).identity
    )
    assert open_corpus([file], tsv_columns=("en", "de")).identity == open_corpus([file]).identity
    table = write(tmp_path / "pairs.csv", "en,de\na,b\n")
    assert pairs_of(load_corpus([table], **backward, tsv_columns=["en", "de"]), "de", "en") == [("b", "a")]
    short = write(tmp_path / "short.tsv", "a\n")
    refused(lambda: load_corpus([short], **backward, tsv_columns=["en", "de"]), "columns, en and de, found 1")
    for columns in (["en"], ["en", "fr"], ["en", "en"], ["en", "de", "de"]):
        refused(lambda columns=columns: load_corpus([file], tsv_columns=columns), "tsv_columns must be en and de")


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
@pytest.mark.parametrize("compressed", ["", ".gz"])
@pytest.mark.parametrize(
    ("suffix", "form"),
    [
        (".tsv", as_tsv),
        (".csv", as_csv),
        (".jsonl", as_json_columns),
        (".jsonl", as_json_translation),
        (".json", as_json_columns),
        (".json", as_json_translation),
    ],
)
def test_one_table(tmp_path: Path, suffix: str, form: Callable[[Pairs, str], str], compressed: str, end: str) -> None:
    file = write(tmp_path / f"pairs.v1{suffix}{compressed}", form(PAIRS, end))
    assert pairs_of(load_corpus([file])) == PAIRS


@pytest.mark.parametrize("layout", ["columns", "translation"])
def test_parquet(tmp_path: Path, layout: str) -> None:
    rows = [{"en": source, "de": target} for source, target in PAIRS]
    if layout == "translation":
        rows = [{"translation": row} for row in rows]
    # Several row groups, as large files have.
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "pairs.parquet", row_group_size=2)
    assert pairs_of(load_corpus([tmp_path / "pairs.parquet"])) == PAIRS


def test_what_datasets_writes_is_read_back(tmp_path: Path) -> None:
    dataset = load_corpus([write(tmp_path / "pairs.tsv", as_tsv(PAIRS))])
    dataset.to_parquet(tmp_path / "pairs.parquet")
    dataset.to_json(tmp_path / "pairs.jsonl")
    assert pairs_of(load_corpus([tmp_path / "pairs.parquet"])) == PAIRS
    assert pairs_of(load_corpus([tmp_path / "pairs.jsonl"])) == PAIRS


def test_the_last_line_needs_no_end(tmp_path: Path) -> None:
    assert pairs_of(load_corpus([write(tmp_path / "a.tsv", "a\tb\nc\td")])) == [("a", "b"), ("c", "d")]
    files = [write(tmp_path / "a.en", "a\nc"), write(tmp_path / "a.de", "b\nd\n")]
    assert pairs_of(load_corpus(files)) == [("a", "b"), ("c", "d")]


def test_empty_lines_of_plain_files_are_sentences(tmp_path: Path) -> None:
    files = [write(tmp_path / "a.en", "a\n\nc\n\n"), write(tmp_path / "a.de", "\n\nd\n\n")]
    assert pairs_of(load_corpus(files)) == [("a", ""), ("", ""), ("c", "d"), ("", "")]


def test_an_empty_column_of_a_tsv_is_an_empty_side(tmp_path: Path) -> None:
    assert pairs_of(load_corpus([write(tmp_path / "a.tsv", "\tb\na\t\n\t\n")])) == [("", "b"), ("a", ""), ("", "")]


def test_a_tsv_knows_no_quotes(tmp_path: Path) -> None:
    # Tatoeba and others write it so: a quotation mark is text, and opens nothing.
    text = '"a\tb\n"c"\td""\n'
    assert pairs_of(load_corpus([write(tmp_path / "a.tsv", text)])) == [('"a', "b"), ('"c"', 'd""')]


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
def test_a_csv_cell_may_hold_commas_quotes_and_newlines(tmp_path: Path, end: str) -> None:
    text = end.join(["en,de", '"a, ""b""","c', 'd, e"', '"",f', '"x","y"', ""])
    expected = [('a, "b"', "c\nd, e"), ("", "f"), ("x", "y")]
    assert pairs_of(load_corpus([write(tmp_path / "a.csv", text)])) == expected


def test_a_csv_cell_may_be_long(tmp_path: Path) -> None:
    # Python's csv refuses more than 131,072 characters unless told otherwise.
    cell = "word " * 40_000
    assert pairs_of(load_corpus([write(tmp_path / "a.csv", f'en,de\n"{cell}",b\n')])) == [(cell, "b")]


def test_blank_lines_of_json_lines_are_skipped(tmp_path: Path) -> None:
    text = '\n{"en": "a", "de": "b"}\n\n  \n{"en": "c", "de": "d"}\n\n'
    assert pairs_of(load_corpus([write(tmp_path / "a.jsonl", text)])) == [("a", "b"), ("c", "d")]


def test_columns_are_found_by_language(tmp_path: Path) -> None:
    text = '{"fr": "un", "de": "eins", "en": "one"}\n'
    dataset = load_corpus([write(tmp_path / "a.jsonl", text)], source_lang="fr", target_lang="en")
    assert pairs_of(dataset, "fr", "en") == [("un", "one")]


def test_the_column_is_the_translation_feature(tmp_path: Path) -> None:
    dataset = load_corpus([write(tmp_path / "a.tsv", "a\tb\n")], source_lang="fr", target_lang="nl")
    assert dataset.features == Features({"translation": Translation(["fr", "nl"])})
    assert dataset[0] == {"translation": {"fr": "a", "nl": "b"}}


def test_the_order_is_kept(tmp_path: Path) -> None:
    pairs = [(f"source {number}", f"target {number}") for number in range(5000)]
    random.Random(0).shuffle(pairs)
    assert pairs_of(load_corpus([write(tmp_path / "a.tsv.gz", as_tsv(pairs))])) == pairs


def test_sentences_come_pair_by_pair_in_the_languages_asked_for(tmp_path: Path) -> None:
    pairs = [(f"s{number}", f"t{number}") for number in range(2500)]
    dataset = load_corpus([write(tmp_path / "a.tsv", as_tsv(pairs))])
    assert list(sentences(dataset, "en", "de")) == list(itertools.chain.from_iterable(pairs))
    assert list(sentences(dataset, "de")) == [target for _, target in pairs]


def test_lines_end_at_newlines_only(tmp_path: Path) -> None:
    text = f"a{SEPARATORS}b\r\nc\rd\n\ne\r\r\n\n"
    expected = [f"a{SEPARATORS}b", "c\rd", "", "e\r", ""]
    assert list(read_lines(write(tmp_path / "a.txt", text))) == expected
    assert list(read_lines(write(tmp_path / "a.txt.gz", text))) == expected
    assert list(read_lines(write(tmp_path / "b.txt", ""))) == []


def test_a_stream_is_read_like_a_file() -> None:
    text = f"ä{SEPARATORS}b\r\nc\rd\n\ne"
    assert list(decode_lines(io.BytesIO(text.encode()), "input")) == [f"ä{SEPARATORS}b", "c\rd", "", "e"]
    refused(
        lambda: list(decode_lines(io.BytesIO("ä\nab".encode() + b"\xff"), "input")),
        "input: expected UTF-8, found byte 0xff at byte offset 5;",
    )


def test_a_gzip_file_may_have_several_members(tmp_path: Path) -> None:
    # `cat a.gz b.gz` is a gzip file, and parallel compressors write such.
    file = tmp_path / "a.txt.gz"
    file.write_bytes(gzip.compress(b"a\nb") + gzip.compress(b"c\nd\n"))
    assert list(read_lines(file)) == ["a", "bc", "d"]


@pytest.mark.skipif(not TATOEBA.is_dir(), reason="the Tatoeba corpus is not in ../shared/data")
def test_tatoeba_is_read_whole() -> None:
    file = TATOEBA / "valid.tsv.gz"
    with gzip.open(file) as stream:
        expected = [tuple(line.decode().rstrip("\n").split("\t")) for line in stream]
    assert pairs_of(load_corpus([file])) == expected


# Errors of files


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl", "a.json", "a.parquet", "a.tsv.gz"])
def test_a_missing_table(tmp_path: Path, name: str) -> None:
    refused(lambda: load_corpus([tmp_path / name]), str(tmp_path / name), "no such file")
    (tmp_path / name).mkdir()
    refused(lambda: load_corpus([str(tmp_path / name)]), str(tmp_path / name), "is a folder, expected a file")


def test_a_missing_plain_file(tmp_path: Path) -> None:
    here, away = write(tmp_path / "a.en", "a\n"), tmp_path / "a.de"
    refused(lambda: load_corpus([here, away]), str(away), "no such file")
    refused(lambda: load_corpus([away, here]), str(away), "no such file")


def test_unequal_numbers_of_lines(tmp_path: Path) -> None:
    files = [write(tmp_path / "a.en", "a\n" * 1234), write(tmp_path / "a.de", "a\n" * 1233)]
    refused(lambda: load_corpus(files), f"{files[0]} has 1,234 lines", f"{files[1]} has 1,233", "same number")


@pytest.mark.parametrize("compressed", ["", ".gz"])
@pytest.mark.parametrize(("line", "columns"), [("alone", 1), ("a\tb\tc", 3), ("", 1), ("\t\t\t", 4)])
def test_a_tsv_line_without_two_columns(tmp_path: Path, line: str, columns: int, compressed: str) -> None:
    file = write(tmp_path / f"a.tsv{compressed}", f"a\tb\nc\td\n{line}\ne\tf\n")
    refused(lambda: load_corpus([file]), f"{file}, line 3", "expected 2 tab-separated", f"found {columns}")


@pytest.mark.parametrize("compressed", ["", ".gz"])
@pytest.mark.parametrize("suffix", ["tsv", "csv", "jsonl"])
@pytest.mark.parametrize(
    ("before", "bad"),
    [
        (b"", b"\xff"),
        (b"en,de\n\xc3\xa4\tb\n", b"\xe4"),
        (b'en,de\r\n{"en": "a", "de": "b"}\r\n', b"\xc3("),
        # Half a character at the end of the file.
        (b"en,de\n" * 3, b"\xe2\x82"),
        # A surrogate and an overlong form are not UTF-8 either.
        (b"", b"\xed\xa0\x80"),
        (b"en,de\nx", b"\xc0\xaf"),
    ],
)
def test_invalid_utf8_has_its_offset(tmp_path: Path, before: bytes, bad: bytes, suffix: str, compressed: str) -> None:
    # The lines before the bad byte are read first, so they must be sound in the format at hand.
    lines = before.decode().splitlines(keepends=True)
    sound = {"tsv": "a\tä", "csv": "en,de", "jsonl": '{"en": "ä", "de": "b"}'}[suffix]
    text = b"".join((sound + line[len(line.rstrip("\r\n")) :]).encode() for line in lines if line[-1] == "\n")
    text += b"x" * 5
    file = write(tmp_path / f"a.{suffix}{compressed}", text + bad)
    refused(
        lambda: load_corpus([file]), f"{file}: expected UTF-8, found byte 0x{bad[0]:02x} at byte offset {len(text)};"
    )


@pytest.mark.parametrize("compressed", ["", ".gz"])
def test_invalid_utf8_in_a_later_line_of_plain_text(tmp_path: Path, compressed: str) -> None:
    good = write(tmp_path / f"a.en{compressed}", "a\n" * 100_000)
    start = "ä€𝄞\r\n".encode() * 50_000
    bad = write(tmp_path / f"a.de{compressed}", start + b"caf\xe9\n" + b"a\n" * 50_000)
    refused(lambda: load_corpus([good, bad]), str(bad), f"found byte 0xe9 at byte offset {len(start) + 3};")


def breakages() -> dict[str, bytes]:
    sound = gzip.compress(b"a\tb\n" * 10_000)
    return {
        "not compressed": b"a\tb\n",
        "cut off": sound[:-12],
        "bad data": sound[:15] + bytes(byte ^ 0xFF for byte in sound[15:25]) + sound[25:],
        "wrong checksum": sound[:-8] + bytes(8),
        "garbage behind": sound + b"garbage",
    }


@pytest.mark.parametrize("data", breakages().values(), ids=breakages().keys())
def test_a_broken_gzip_file(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "a.tsv.gz"
    file.write_bytes(data)
    refused(lambda: load_corpus([file]), f"{file}: broken gzip file")


def test_a_csv_without_the_languages_in_its_header(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "en,fr\na,b\n")
    refused(lambda: load_corpus([file]), str(file), "header", "expected", "en and de", "found en, fr")
    file = write(tmp_path / "b.csv", "")
    refused(lambda: load_corpus([file]), str(file), "header", "found nothing")


@pytest.mark.parametrize(("row", "cells"), [("alone", 1), ("a,b,c", 3), ('"a,b"', 1)])
def test_a_csv_row_unlike_its_header(tmp_path: Path, row: str, cells: int) -> None:
    # The cell before holds a newline: what counts are the lines of the file, as an editor shows them.
    file = write(tmp_path / "a.csv", f'en,de\n"a\na",b\n{row}\nc,d\n')
    refused(lambda: load_corpus([file]), f"{file}, line 4", "expected 2 columns", f"found {cells}")


def test_a_csv_with_a_quote_that_nothing_closes(tmp_path: Path) -> None:
    # Read leniently, one forgotten quote swallows the rest of the corpus without a word.
    file = write(tmp_path / "a.csv", 'en,de\na,b\nHello,"Hallo\nc,d\ne,f\n')
    refused(lambda: load_corpus([file]), str(file), "line")


def test_a_csv_with_a_bare_carriage_return(tmp_path: Path) -> None:
    # Text or a mistake: either will do, but no traceback of Python's csv.
    file = write(tmp_path / "a.csv", "en,de\na\rb,c\n")
    try:
        assert pairs_of(load_corpus([file])) == [("a\rb", "c")]
    except InputError as error:
        assert f"{file}, line 2" in str(error)


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".jsonl.gz"])
def test_broken_json(tmp_path: Path, suffix: str) -> None:
    file = write(tmp_path / f"a{suffix}", '{"en": "a", "de": "b"}\n\n{"en": "a", "de": \n')
    refused(lambda: load_corpus([file]), f"{file}, line 3", "expected a JSON object")


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ('{"en": "a", "fr": "b"}', "en (str), fr (str)"),
        ('{"translation": {"en": "a", "fr": "b"}}', "en (str), fr (str)"),
        ('["a", "b"]', "list"),
        ('"a"', "str"),
        ("null", "NoneType"),
        ("{}", ""),
        ('{"en": "a", "de": null}', ""),
        ('{"en": "a", "de": 3}', ""),
        ('{"translation": ["a", "b"]}', ""),
    ],
)
def test_a_json_row_without_both_texts(tmp_path: Path, row: str, found: str) -> None:
    file = write(tmp_path / "a.jsonl", f'{{"en": "a", "de": "b"}}\n{row}\n')
    refused(lambda: load_corpus([file]), f"{file}, line 2", "expected texts under en and de", f"found {found}")


@pytest.mark.parametrize(
    "row",
    [
        # JSON may spell half a surrogate pair, which no UTF-8 can hold.
        r'{"en": "\ud800", "de": "b"}',
        # Python refuses to read numbers of more than 4,300 digits, and to nest without end.
        '{"en": "a", "de": "b", "id": ' + "1" * 5000 + "}",
        '{"en": "a", "de": "b", "id": ' + "[" * 100_000 + "]" * 100_000 + "}",
    ],
    ids=["surrogate", "number", "nesting"],
)
def test_json_that_python_cannot_hold(tmp_path: Path, row: str) -> None:
    # Loaded without what is not needed, or refused with its line; no traceback.
    file = write(tmp_path / "a.jsonl", f'{{"en": "a", "de": "b"}}\n{row}\n')
    try:
        assert pairs_of(load_corpus([file])) == [("a", "b"), ("a", "b")]
    except InputError as error:
        assert f"{file}, line 2" in str(error)


def write_parquet(path: Path, columns: dict[str, list]) -> Path:
    parquet.write_table(pyarrow.table(columns), path)
    return path


def test_what_is_no_parquet_file(tmp_path: Path) -> None:
    for name, data in (("a", b"a\tb\n" * 10), ("b", b""), ("c", b"PAR1")):
        file = write(tmp_path / f"{name}.parquet", data)
        refused(lambda file=file: load_corpus([file]), f"{file}, after row 0: not a whole Parquet file")
    sound = write_parquet(tmp_path / "d.parquet", {"en": ["a"] * 100, "de": ["b"] * 100}).read_bytes()
    file = write(tmp_path / "e.parquet", sound[: len(sound) // 2])
    refused(lambda: load_corpus([file]), f"{file}, after row 0: not a whole Parquet file")


def test_a_parquet_file_with_broken_data(tmp_path: Path) -> None:
    # The footer, at the end, is sound: what is broken shows only when the rows are read.
    columns = {name: [f"sentence {number}" for number in range(1000)] for name in ("en", "de")}
    data = bytearray(write_parquet(tmp_path / "a.parquet", columns).read_bytes())
    for place in range(30, len(data) // 2):
        data[place] ^= 0x55
    file = write(tmp_path / "b.parquet", bytes(data))
    refused(lambda: load_corpus([file]), str(file))


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ({"en": ["a", "b"], "fr": ["c", "d"]}, "en (str), fr (str)"),
        ({"en": ["a"], "de": [1]}, ""),
        ({"en": ["a"], "de": [b"b"]}, ""),
    ],
)
def test_a_parquet_row_without_both_texts(tmp_path: Path, columns: dict[str, list], found: str) -> None:
    file = write_parquet(tmp_path / "a.parquet", columns)
    refused(lambda: load_corpus([file]), f"{file}, row 1", "expected texts under en and de", f"found {found}")


def test_a_parquet_row_with_a_null_has_its_number(tmp_path: Path) -> None:
    file = write_parquet(tmp_path / "a.parquet", {"en": ["a", "b", None], "de": ["c", "d", "e"]})
    refused(lambda: load_corpus([file]), f"{file}, row 3", "expected texts under en and de")


@pytest.mark.parametrize("name", ["a.txt", "a.en", "a", "a.gz", "a.xlsx", "a.txt.gz"])
def test_one_file_that_is_no_table(tmp_path: Path, name: str) -> None:
    file = write(tmp_path / name, "a\tb\n")
    refused(lambda: load_corpus([file]), str(file), "must be a table", ".tsv, .csv, .jsonl", "two files")


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz", "a.jsonl", "a.parquet", "a.csv"])
def test_an_empty_corpus(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    if name == "a.parquet":
        write_parquet(file, {"en": [], "de": []})
    else:
        write(file, "en,de\n" if name == "a.csv" else "")
    refused(lambda: load_corpus([file]), str(file), "empty")


def test_two_empty_files(tmp_path: Path) -> None:
    files = [write(tmp_path / "a.en", ""), write(tmp_path / "a.de", "")]
    refused(lambda: load_corpus(files), str(files[0]), str(files[1]), "empty")


def test_a_wrong_number_of_files(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", "a\tb\n")
    refused(lambda: load_corpus([file] * 3), "one table or two plain-text files", "got 3 files")
    refused(lambda: load_corpus([]), "one table or two plain-text files", "got 0 files")


def test_files_or_a_data_set_but_not_both(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", "a\tb\n")
    refused(lambda: load_corpus([file], dataset_name="builtin:en-de"), "either files or a data set name", "got both")
    refused(load_corpus, "either files or a data set name", "got neither")


def test_one_language_twice(tmp_path: Path) -> None:
    # A pair has a side for each language: with one language, one of the two texts would be lost.
    file = write(tmp_path / "a.tsv", "source\ttarget\n")
    refused(lambda: load_corpus([file], source_lang="en", target_lang="en"), "en")


# The built-in corpus


@pytest.fixture
def small_builtin(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    sizes = {"train": 40, "validation": 7, "test": 9}
    monkeypatch.setattr(corpora, "BUILTIN_SIZES", sizes)
    return sizes


def test_the_builtin_corpus_is_what_its_generator_gives(small_builtin: dict[str, int]) -> None:
    from vaswani_transformer.builtin_corpus import generate_pairs

    for split, size in small_builtin.items():
        dataset = load_corpus(dataset_name="builtin:en-de", split=split, seed=3)
        expected = [(pair["en"], pair["de"]) for pair in generate_pairs(split, size, 3)]
        assert len(expected) == size
        assert pairs_of(dataset) == expected


def test_the_builtin_corpus_goes_both_ways(small_builtin: dict[str, int]) -> None:
    forward = pairs_of(load_corpus(dataset_name="builtin:en-de"))
    for name in ("builtin:de-en", "builtin:en-de"):
        backward = load_corpus(dataset_name=name, source_lang="de", target_lang="en")
        assert backward.features["translation"].languages == ["de", "en"]
        assert pairs_of(backward, "de", "en") == [(target, source) for source, target in forward]


def test_the_builtin_corpus_follows_its_seed(small_builtin: dict[str, int]) -> None:
    first, same, other = (pairs_of(load_corpus(dataset_name="builtin:en-de", seed=seed)) for seed in (1, 1, 2))
    assert first == same
    assert first != other


def test_mistakes_about_the_builtin_corpus(small_builtin: dict[str, int]) -> None:
    refused(lambda: load_corpus(dataset_name="builtin:en-fr"), "builtin:en-fr", "no such", "builtin:en-de")
    refused(lambda: load_corpus(dataset_name="builtin:"), "no such", "builtin:en-de")
    refused(
        lambda: load_corpus(dataset_name="builtin:en-de", source_lang="fr"), "languages are en and de", "got fr and de"
    )
    refused(
        lambda: load_corpus(dataset_name="builtin:en-de", target_lang="fr"), "languages are en and de", "got en and fr"
    )
    refused(
        lambda: load_corpus(dataset_name="builtin:en-de", split="dev"), "splits are train, validation, test", "got dev"
    )


# The Hub

FromHub = Callable[[Dataset | Exception], list[tuple]]


@pytest.fixture
def from_hub(monkeypatch: pytest.MonkeyPatch) -> FromHub:
    """Makes `datasets.load_dataset` give or raise something; returns the arguments that it was called with."""

    def prepare(result: Dataset | Exception) -> list[tuple]:
        calls: list[tuple] = []

        def load_dataset(*arguments: object, **options: object) -> Dataset:
            calls.append((arguments, options))
            if isinstance(result, Exception):
                raise result
            return result

        monkeypatch.setattr(datasets, "load_dataset", load_dataset)
        return calls

    return prepare


def hub_dataset(pairs: Pairs, **columns: list) -> Dataset:
    rows = [{"de": target, "en": source, "fr": "…"} for source, target in pairs]
    features = Features(
        {"translation": Translation(["de", "en", "fr"]), **{name: datasets.Value("int64") for name in columns}}
    )
    return Dataset.from_dict({"translation": rows, **columns}, features=features)


def test_a_data_set_from_the_hub(from_hub: FromHub) -> None:
    calls = from_hub(hub_dataset(PAIRS, id=list(range(len(PAIRS)))))
    dataset = load_corpus(dataset_name="someone/pairs", dataset_config_name="de-en", split="test")
    assert pairs_of(dataset) == PAIRS
    ((arguments, options),) = calls
    assert arguments == ("someone/pairs", "de-en")
    assert options == {"split": "test", "streaming": False}
    assert pairs_of(load_corpus(dataset_name="x", source_lang="de", target_lang="en"), "de", "en") == [
        (target, source) for source, target in PAIRS
    ]


def test_a_plain_struct_is_a_translation_column_too(from_hub: FromHub) -> None:
    # So it comes from Parquet files that were not written by `datasets`.
    from_hub(Dataset.from_list([{"translation": {"en": source, "de": target}} for source, target in PAIRS]))
    assert pairs_of(load_corpus(dataset_name="someone/pairs")) == PAIRS


def test_a_data_set_with_a_column_for_each_language(from_hub: FromHub) -> None:
    columns = {"en": [source for source, _ in PAIRS], "de": [target for _, target in PAIRS]}
    dataset = Dataset.from_dict({**columns, "image": list(range(len(PAIRS)))})
    from_hub(dataset)
    assert pairs_of(load_corpus(dataset_name="someone/pairs")) == PAIRS
    assert list(open_corpus(dataset_name="someone/pairs", source_lang="de", target_lang="en")) == [
        (target, source) for source, target in PAIRS
    ]
    from_hub(dataset.to_iterable_dataset())
    assert list(open_corpus(dataset_name="someone/pairs", streaming=True)) == PAIRS


def test_a_data_set_without_the_languages(from_hub: FromHub) -> None:
    from_hub(hub_dataset(PAIRS))
    refused(
        lambda: load_corpus(dataset_name="someone/pairs", target_lang="nl"),
        "someone/pairs",
        "expected a translation column with en and nl",
        "found de, en, fr",
    )
    from_hub(Dataset.from_dict({"text": ["a"], "label": [1]}))
    refused(
        lambda: load_corpus(dataset_name="someone/text"), "someone/text", "translation column", "found text, label"
    )


def test_an_empty_data_set(from_hub: FromHub) -> None:
    from_hub(hub_dataset([]))
    refused(lambda: load_corpus(dataset_name="someone/pairs"), "someone/pairs", "empty")


def test_a_data_set_with_a_missing_text(from_hub: FromHub, tokenizer: PreTrainedTokenizerFast) -> None:
    # Refused at loading or dropped as empty; no traceback later.
    from_hub(hub_dataset([("a", "b"), ("c", None), ("d", "e")]))
    try:
        dataset = load_corpus(dataset_name="someone/pairs")
    except InputError as error:
        assert "someone/pairs" in str(error)
    else:
        encoded, report = tokenize_corpus(corpus_of(dataset, "en", "de"), tokenizer)
        assert (len(encoded), report.empty) == (2, 1)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectionError("Couldn't reach the Hub\nsecond line\nthird"), "Couldn't reach the Hub"),
        (ValueError(""), "ValueError"),
        (FileNotFoundError("\n\nno such data set"), "no such data set"),
    ],
)
def test_a_failure_of_the_hub_ends_in_one_line(from_hub: FromHub, error: Exception, text: str) -> None:
    from_hub(error)
    message = refused(
        lambda: load_corpus(dataset_name="someone/pairs", dataset_config_name="de-en", split="dev"),
        "someone/pairs (de-en), split dev, could not be loaded from the Hub",
        text,
    )
    assert "second line" not in message
    refused(lambda: load_corpus(dataset_name="someone/pairs"), "someone/pairs, split train")


def test_a_name_of_the_hub_without_network(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    def refuse(*_: object, **__: object) -> None:
        raise OSError("no network here")

    # Both libraries read the variable HF_HUB_OFFLINE once, when they are imported.
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(socket, "socket", refuse)
    refused(lambda: load_corpus(dataset_name="nobody-here/no-such-pairs"), "nobody-here/no-such-pairs", "Hub")


# Cleaning and encoding

SENTENCE = "the old dog sleeps under a big table while der alte Hund schläft unter dem großen Tisch"
WORDS = SENTENCE.split()


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    generator = random.Random(1)
    return train_tokenizer((" ".join(generator.choices(WORDS, k=8)) for _ in range(200)), 320)


def corpus(pairs: Pairs) -> ParallelCorpus:
    return ParallelCorpus("pairs", lambda: iter(pairs), lambda: {"pairs": pairs})


def random_pairs(count: int, seed: int = 0) -> Pairs:
    generator = random.Random(seed)

    def sentence() -> str:
        return " ".join(generator.choices(WORDS, k=generator.randint(1, 30)))

    return [(sentence(), sentence()) for _ in range(count)]


def encodings(tokenizer: PreTrainedTokenizerFast, pairs: Pairs) -> list[dict[str, list[int]]]:
    return [
        {"input_ids": tokenizer(source)["input_ids"], "labels": tokenizer(target)["input_ids"]}
        for source, target in pairs
    ]


def test_encodings_are_the_tokenizers_own(tokenizer: PreTrainedTokenizerFast) -> None:
    pairs = [*random_pairs(1500), ("</s> <pad>", "„ä“ 👨‍👩‍👧")]
    encoded, report = tokenize_corpus(corpus(pairs), tokenizer)
    assert encoded.column_names == ("input_ids", "labels")
    assert list(encoded) == encodings(tokenizer, pairs)
    assert all(row["input_ids"][-1] == row["labels"][-1] == tokenizer.eos_token_id for row in encoded)
    assert report == CleaningReport(read=1501)
    backward, _ = tokenize_corpus(corpus([pair[::-1] for pair in pairs]), tokenizer)
    assert list(backward) == [{"input_ids": row["labels"], "labels": row["input_ids"]} for row in encoded]


def test_without_limits_only_empty_sides_are_dropped(tokenizer: PreTrainedTokenizerFast) -> None:
    # Equal pairs, a very long one, a very uneven one: all stay.
    pairs = [("a", "b"), ("a", "b"), ("dog " * 5000, "Hund"), ("the dog", "the dog"), ("a", "b")]
    encoded, report = tokenize_corpus(corpus(pairs), tokenizer)
    assert list(encoded) == encodings(tokenizer, pairs)
    assert report == CleaningReport(read=5)
    assert report.kept == 5


def test_each_reason_is_counted_by_itself(tokenizer: PreTrainedTokenizerFast) -> None:
    long, short = "dog " * 60, "dog"
    # Tokens with </s>: the limits below lie between these.
    assert len(tokenizer(long)["input_ids"]) > 50
    kept = [(f"the dog {number}", f"der Hund {number}") for number in range(10)]
    pairs = [
        ("", "b"),
        kept[0],
        ("a", ""),
        (" \t\u3000 ", "b"),
        ("a", "\n\u2028"),
        ("", ""),
        *kept[1:5],
        kept[2],
        kept[0],
        kept[0],
        (long, long),
        ("a " + long, short),
        (short, long),
        kept[5],
        ("the dog sleeps under the table", "a"),
        ("a", "the dog sleeps under the table"),
        *kept[6:],
    ]
    encoded, report = tokenize_corpus(
        corpus(pairs), tokenizer, max_length=50, max_length_ratio=2, drop_duplicates=True
    )
    assert report == CleaningReport(read=23, empty=5, duplicate=3, too_long=3, uneven=2)
    assert report.kept == len(encoded) == 10
    assert list(encoded) == encodings(tokenizer, kept)


def test_an_empty_side_counts_once_however_often_it_comes(tokenizer: PreTrainedTokenizerFast) -> None:
    pairs = [("", "b"), ("", "b"), ("a", "b")]
    encoded, report = tokenize_corpus(corpus(pairs), tokenizer, drop_duplicates=True)
    assert report == CleaningReport(read=3, empty=2)
    assert len(encoded) == 1


def test_only_equal_pairs_are_duplicates(tokenizer: PreTrainedTokenizerFast) -> None:
    # An equal source, an equal target, sides exchanged, another cut between the sides: none is the same pair.
    pairs = [("a", "b"), ("a", "c"), ("d", "b"), ("b", "a"), ("ab", "c"), ("a", "bc"), ("a", "a"), ("b", "b")]
    encoded, report = tokenize_corpus(corpus([*pairs, *pairs[::-1]]), tokenizer, drop_duplicates=True)
    # The first of equal pairs stays, and the order.
    assert list(encoded) == encodings(tokenizer, pairs)
    assert report == CleaningReport(read=16, duplicate=8)


def test_the_limits_are_inclusive(tokenizer: PreTrainedTokenizerFast) -> None:
    pairs = random_pairs(400, seed=5)
    sizes = [[len(tokenizer(side)["input_ids"]) for side in pair] for pair in pairs]
    limit = sorted(max(size) for size in sizes)[300]
    encoded, report = tokenize_corpus(corpus(pairs), tokenizer, max_length=limit)
    assert max(pair_lengths(encoded).ravel()) == limit
    assert report.too_long == sum(max(size) > limit for size in sizes)
    assert 0 < report.too_long < 400

    short = [("dog " * 3, "dog"), ("dog", "dog " * 3), ("dog " * 4, "dog")]
    twice, thrice = (len(tokenizer("dog " * count)["input_ids"]) for count in (3, 4))
    one = len(tokenizer("dog")["input_ids"])
    for ratio, dropped in ((thrice / one, 0), (twice / one, 1), (twice / one - 0.01, 3)):
        _, report = tokenize_corpus(corpus(short), tokenizer, max_length_ratio=ratio)
        assert report == CleaningReport(read=3, uneven=dropped)


@pytest.mark.parametrize("seed", range(4))
def test_cleaning_equals_an_independent_filter(tokenizer: PreTrainedTokenizerFast, seed: int) -> None:
    generator = random.Random(seed)
    pairs = random_pairs(300, seed)
    pairs += generator.choices(pairs, k=60) + [("", "a"), ("a", " ")] * 10
    generator.shuffle(pairs)
    expected, report = [], CleaningReport(read=len(pairs))
    seen = set()
    for pair, row in zip(pairs, encodings(tokenizer, pairs), strict=True):
        small, large = sorted((len(row["input_ids"]), len(row["labels"])))
        if any(not side or side.isspace() for side in pair):
            report.empty += 1
        elif pair in seen:
            report.duplicate += 1
        elif large > 25:
            report.too_long += 1
        elif large / small > 1.5:
            report.uneven += 1
        else:
            expected.append(row)
        seen.add(pair)
    encoded, found = tokenize_corpus(
        corpus(pairs), tokenizer, max_length=25, max_length_ratio=1.5, drop_duplicates=True
    )
    assert found == report
    assert min(report.empty, report.duplicate, report.too_long, report.uneven, report.kept) > 0
    assert list(encoded) == expected


@pytest.mark.parametrize(("pairs", "limit"), [([("", "a"), ("b", " ")], None), ([("a", "b")], 1)])
def test_a_corpus_of_which_nothing_is_left(
    tokenizer: PreTrainedTokenizerFast, pairs: Pairs, limit: int | None
) -> None:
    encoded, report = tokenize_corpus(corpus(pairs), tokenizer, max_length=limit)
    assert report.kept == len(encoded) == 0
    assert pair_lengths(encoded).shape == (0, 2)
    # Nothing is left, but it is still an encoded corpus.
    assert encoded.column_names == ("input_ids", "labels")


def test_the_report_in_words() -> None:
    report = CleaningReport(read=12_345, empty=1, duplicate=2_000, too_long=30, uneven=4)
    assert report.kept == 10_310
    assert str(report) == (
        "12,345 pairs read; dropped 1 with an empty side, 2,000 duplicates, 30 too long, 4 beyond the length ratio; "
        "10,310 kept"
    )


def test_pair_lengths_are_those_of_the_lists(tokenizer: PreTrainedTokenizerFast) -> None:
    encoded, _ = tokenize_corpus(corpus(random_pairs(1200)), tokenizer)
    dataset = Dataset.from_list(list(encoded))
    # A data set of `datasets` will do too, and a selection of one.
    for pairs in (encoded, dataset, dataset.select([7, 3, 1199, 3]), dataset.shuffle(seed=1)):
        assert pair_lengths(pairs).tolist() == [[len(row["input_ids"]), len(row["labels"])] for row in pairs]


def test_errors_never_show_a_whole_row(tmp_path: Path) -> None:
    # A corpus may be confidential, and its rows long.
    file = write(tmp_path / "a.jsonl", json.dumps({"en": "secret " * 1000, "fr": "geheim"}) + "\n")
    assert not re.search("secret|geheim", refused(lambda: load_corpus([file])))
