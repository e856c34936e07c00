"""The cache of prepared corpora: when it is used, when not, what harms it, and how little memory all of it takes."""

from __future__ import annotations

import json
import os
import pickle
import random
import resource
import signal
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset, load_from_disk
from huggingface_hub import constants
from transformers import PreTrainedTokenizerFast

from vaswani_transformer import preprocessing
from vaswani_transformer.cli import main
from vaswani_transformer.corpora import ParallelCorpus, corpus_of, open_corpus
from vaswani_transformer.corpus_cache import default_cache_dir
from vaswani_transformer.encoded_corpus import EncodedCorpus, EncodedCorpusWriter
from vaswani_transformer.errors import InputError
from vaswani_transformer.preprocessing import learn_tokenizer, tokenize_corpus
from vaswani_transformer.tokenization import train_tokenizer

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is resident")

Pairs = list[tuple[str, str]]
PAIRS: Pairs = [(f"the dog {number}", f"der Hund {number}") for number in range(30)]


class Reads:
    """A corpus that counts how often it is read."""

    def __init__(self, pairs: Pairs = PAIRS, pause: float = 0.0) -> None:
        self.pairs, self.pause, self.count = pairs, pause, 0
        self.corpus = ParallelCorpus("pairs", self.read, lambda: {"pairs": pairs})

    def read(self) -> Iterator[tuple[str, str]]:
        self.count += 1
        time.sleep(self.pause)
        yield from self.pairs


def entries(cache: Path, name: str = "pairs") -> list[Path]:
    return sorted(path for path in cache.glob(f"{name}-*") if path.is_dir())


def write_tsv(path: Path, pairs: Pairs = PAIRS) -> Path:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return path


def expected_rows(tokenizer: PreTrainedTokenizerFast, pairs: Pairs) -> list[dict[str, list[int]]]:
    return [
        {"input_ids": tokenizer(source)["input_ids"], "labels": tokenizer(target)["input_ids"]}
        for source, target in pairs
    ]


# When the cache is used


def test_what_was_prepared_is_not_prepared_again(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    reads = Reads([*PAIRS, PAIRS[0], ("", "x")])
    first, report = tokenize_corpus(reads.corpus, tokenizer, drop_duplicates=True, cache_dir=tmp_path)
    assert reads.count == 2  # for the duplicates, and to encode
    again, same_report = tokenize_corpus(reads.corpus, tokenizer, drop_duplicates=True, cache_dir=tmp_path)
    assert reads.count == 2
    assert list(again) == list(first) == expected_rows(tokenizer, PAIRS)
    assert (report.read, report.duplicate, report.empty) == (32, 1, 1)
    assert same_report == report


def test_each_setting_and_the_tokenizer_have_entries_of_their_own(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    reads = Reads()
    other = train_tokenizer(chain.from_iterable(PAIRS), 280)
    plain = tokenize_corpus(reads.corpus, tokenizer, cache_dir=tmp_path)[0]
    for number, (words, settings) in enumerate(
        [
            (tokenizer, {"max_length": 9}),
            (tokenizer, {"max_length_ratio": 2.0}),
            (tokenizer, {"drop_duplicates": True}),
            (other, {}),
        ],
        2,
    ):
        tokenize_corpus(reads.corpus, words, **settings, cache_dir=tmp_path)
        assert len(entries(tmp_path)) == number
    assert list(tokenize_corpus(reads.corpus, other, cache_dir=tmp_path)[0]) != list(plain)


def test_the_bytes_of_the_files_decide_and_not_their_times(tmp_path: Path) -> None:
    file = write_tsv(tmp_path / "a.tsv")
    before = open_corpus([file]).identity
    stat = file.stat()
    os.utime(file, (1, 1))
    assert open_corpus([file]).identity == before
    # Another text of the same size at the same time.
    file.write_text(file.read_text(encoding="utf-8").replace("dog 7", "cat 7"), encoding="utf-8")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert file.stat().st_size == stat.st_size
    assert open_corpus([file]).identity != before
    assert open_corpus([file], target_lang="fr").identity != open_corpus([file]).identity
    # The same bytes by another name are the same text, and as a table of another kind they are not.
    copy = write_tsv(tmp_path / "b.tsv", [("a", "b")])
    table = write_tsv(tmp_path / "b.csv", [("a", "b")])
    assert open_corpus([copy]).identity == open_corpus([write_tsv(tmp_path / "c.tsv", [("a", "b")])]).identity
    assert open_corpus([copy]).identity != open_corpus([table]).identity


def test_two_files_are_told_from_other_two_of_the_same_bytes(tmp_path: Path) -> None:
    texts = {"a": "x\ny\n", "b": "x\n", "c": "y\nx\n", "d": "y\n"}
    files = {name: tmp_path / name for name in texts}
    for name, text in texts.items():
        files[name].write_text(text)
    identities = [
        json.dumps(open_corpus([files[one], files[two]]).identity) for one, two in ("ab", "ba", "ac", "bd", "db")
    ]
    assert len(set(identities)) == 5


def test_the_builtin_corpus_is_known_without_generating_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vaswani_transformer.builtin_corpus.generate_pairs", lambda *_: pytest.fail("generated"))
    name = {"dataset_name": "builtin:en-de"}
    one = open_corpus(**name).identity
    assert open_corpus(**name).identity == one
    for other in ({"seed": 3}, {"split": "test"}, {"source_lang": "de", "target_lang": "en"}):
        assert open_corpus(**name, **other).identity != one


def test_a_data_set_is_known_by_its_text(tmp_path: Path) -> None:
    def dataset(pairs: Pairs) -> Dataset:
        return Dataset.from_list([{"translation": {"en": source, "de": target}} for source, target in pairs])

    whole, part = dataset(PAIRS), dataset(PAIRS[:-1])
    assert corpus_of(whole, "en", "de").identity == corpus_of(dataset(PAIRS), "en", "de").identity
    assert corpus_of(whole, "en", "de").identity != corpus_of(part, "en", "de").identity
    assert corpus_of(whole, "en", "de").identity != corpus_of(whole, "de", "en").identity
    assert corpus_of(whole.select(range(29)), "en", "de").identity == corpus_of(part, "en", "de").identity
    # On the disk it is known by the bytes of its files.
    whole.save_to_disk(tmp_path / "a")
    part.save_to_disk(tmp_path / "b")
    mapped, other = load_from_disk(tmp_path / "a"), load_from_disk(tmp_path / "b")
    assert corpus_of(mapped, "en", "de").identity == corpus_of(load_from_disk(tmp_path / "a"), "en", "de").identity
    assert corpus_of(mapped, "en", "de").identity != corpus_of(other, "en", "de").identity
    assert list(corpus_of(mapped, "en", "de")) == PAIRS
    parts = [corpus_of(mapped.select(range(*bounds)), "en", "de").identity for bounds in ((0, 9), (9, 18))]
    assert parts[0] != parts[1]


def test_the_command_keeps_what_it_prepared(
    small_run: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = tmp_path / "cache"
    flags = ["train", *small_run, "--max-steps", "1", "--cache-dir", str(cache), "--output-dir"]
    assert main([*flags, str(tmp_path / "a")]) == 0
    made = {path: path.stat().st_mtime_ns for path in cache.rglob("*") if path.suffix != ".lock"}
    assert "Learning a vocabulary" in capsys.readouterr().err
    assert (len(entries(cache)), len(entries(cache, "tokenizer"))) == (2, 1)
    assert main([*flags, str(tmp_path / "b")]) == 0
    assert main([*flags, str(tmp_path / "b"), "--max-steps", "2", "--resume"]) == 0
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*") if path.suffix != ".lock"} == made
    output = capsys.readouterr().err
    assert "Learning a vocabulary" not in output
    assert "Training text: 400 pairs read;" in output
    records = [(tmp_path / run / "metrics.jsonl").read_text().splitlines()[0] for run in "ab"]
    assert len({json.loads(record)["loss"] for record in records}) == 1
    # The run's place on this machine is no part of its card.
    assert str(cache) not in (tmp_path / "a" / "README.md").read_text(encoding="utf-8")


def test_the_default_folder_is_in_the_users_cache() -> None:
    assert default_cache_dir() == Path(constants.HF_HOME) / "vaswani_transformer"
    assert os.environ["HF_HOME"] == constants.HF_HOME


# What harms it


@pytest.mark.parametrize("name", ["corpus.json", "tokens.bin", "lengths.bin", "offsets.bin", "digest"])
@pytest.mark.parametrize("harm", ["cut", "changed", "missing"])
def test_a_damaged_entry_is_made_anew_with_a_warning(
    name: str, harm: str, tokenizer: PreTrainedTokenizerFast, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reads = Reads()
    tokenize_corpus(reads.corpus, tokenizer, cache_dir=tmp_path)
    file = entries(tmp_path)[0] / name
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.unlink()
    if harm != "missing":
        file.write_bytes(data if harm == "changed" else data[: len(data) // 2])
    caplog.clear()
    again, _ = tokenize_corpus(reads.corpus, tokenizer, cache_dir=tmp_path)
    assert list(again) == expected_rows(tokenizer, PAIRS)
    (record,) = caplog.records
    assert "of the cache is damaged" in record.getMessage()
    caplog.clear()
    tokenize_corpus(reads.corpus, tokenizer, cache_dir=tmp_path)
    assert (reads.count, caplog.records) == (2, [])


def test_a_damaged_vocabulary_is_learned_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    vocabulary = learn_tokenizer(Reads().corpus, 280, tmp_path).get_vocab()
    file = entries(tmp_path, "tokenizer")[0] / "tokenizer.json"
    file.write_bytes(file.read_bytes().replace(b"dog", b"god"))
    assert learn_tokenizer(Reads().corpus, 280, tmp_path).get_vocab() == vocabulary
    assert "of the cache is damaged" in caplog.text


def test_a_kill_leaves_nothing_that_loads(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    def read() -> Iterator[tuple[str, str]]:
        yield from PAIRS * 100  # several batches are written by then
        os.kill(os.getpid(), signal.SIGKILL)

    process = os.fork()
    if not process:
        tokenize_corpus(ParallelCorpus("pairs", read, lambda: {"pairs": PAIRS}), tokenizer, cache_dir=tmp_path)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
    assert [path.suffix for path in tmp_path.iterdir() if path.is_dir()] == [".partial"]
    encoded, _ = tokenize_corpus(Reads().corpus, tokenizer, cache_dir=tmp_path)
    assert list(encoded) == expected_rows(tokenizer, PAIRS)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [encoded.folder.name]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), InputError("line 7: …")])
def test_a_failure_leaves_nothing_at_all(
    error: BaseException, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    def read() -> Iterator[tuple[str, str]]:
        yield from PAIRS
        raise error

    corpus = ParallelCorpus("pairs", read, dict)
    with pytest.raises(type(error)):
        tokenize_corpus(corpus, tokenizer, cache_dir=tmp_path)
    assert [path.suffix for path in tmp_path.iterdir()] in ([".lock"], [])


def test_of_several_at_once_one_makes_it(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    reads = Reads(pause=0.3)
    with ThreadPoolExecutor(3) as pool:
        tasks = [pool.submit(tokenize_corpus, reads.corpus, tokenizer, cache_dir=tmp_path) for _ in range(3)]
    assert all(list(task.result()[0]) == expected_rows(tokenizer, PAIRS) for task in tasks)
    assert reads.count == 1


@linux
def test_a_full_disk_ends_in_one_line(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    reads = Reads([(f"{source} " * 40, target) for source, target in PAIRS * 100])
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(
            InputError, match=r"cannot be written there .*; free space, or choose .* --cache-dir"
        ) as info:
            tokenize_corpus(reads.corpus, tokenizer, cache_dir=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert str(tmp_path) in str(info.value)
    assert entries(tmp_path) == []
    assert not list(tmp_path.glob(".*.partial"))


def test_a_cache_folder_that_cannot_be_made(small_run: list[str], refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    flags = ["train", *small_run, "--max-steps", "1", "--output-dir", str(tmp_path / "run")]
    refused([*flags, "--cache-dir", str(tmp_path / "file")], str(tmp_path / "file"), "--cache-dir")
    refused([*flags, "--cache-dir", str(tmp_path / "file" / "below")], "--cache-dir")
    assert not (tmp_path / "run").exists()


# What is in it


def test_rows_in_any_order(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    generator = random.Random(2)
    pairs = [(" ".join("dog" * generator.randint(1, 9)), "Hund " * generator.randint(1, 30)) for _ in range(2500)]
    encoded, _ = tokenize_corpus(ParallelCorpus("x", lambda: iter(pairs), dict), tokenizer, cache_dir=tmp_path)
    rows = expected_rows(tokenizer, pairs)
    assert len(encoded) == 2500
    assert list(encoded) == rows
    assert encoded[7] == rows[7]
    assert encoded[-1] == rows[-1]
    indices = [generator.randrange(2500) for _ in range(300)]
    for key in (indices, np.array(indices), np.array(indices, dtype=np.int32), range(5, 20)):
        assert encoded[key] == {name: [rows[index][name] for index in key] for name in ("input_ids", "labels")}
    assert encoded[[]] == {"input_ids": [], "labels": []}
    assert encoded.lengths.tolist() == [[len(row["input_ids"]), len(row["labels"])] for row in rows]
    for outside in (2500, -2501, [0, 2500]):
        with pytest.raises(IndexError, match="there are 2500 pairs"):
            encoded[outside]
    assert list(pickle.loads(pickle.dumps(encoded))) == rows


@pytest.mark.parametrize(("vocab_size", "size"), [(2**16, 2), (2**16 + 1, 4)])
def test_a_token_takes_as_many_bytes_as_the_vocabulary_needs(vocab_size: int, size: int, tmp_path: Path) -> None:
    rows = [[0, vocab_size - 1, 5], [vocab_size - 1]]
    with EncodedCorpusWriter(tmp_path, vocab_size) as writer:
        writer.add(rows[:1], rows[1:])
        writer.add([], [])
        writer.add(rows[1:], rows[:1])
        writer.finish()
    assert EncodedCorpus(tmp_path)[[0, 1]] == {"input_ids": rows, "labels": rows[::-1]}
    assert (tmp_path / "tokens.bin").stat().st_size == 8 * size


def test_padding_of_earlier_calls_stays_out(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    used = pickle.loads(pickle.dumps(tokenizer))
    used(["a", "a much longer text"], padding=True, truncation=True, max_length=3)
    pairs = [("dog " * 20, "Hund"), ("</s> <pad>", "x")]
    encoded, _ = tokenize_corpus(ParallelCorpus("x", lambda: iter(pairs), dict), used, cache_dir=tmp_path)
    assert list(encoded) == expected_rows(tokenizer, pairs)


def test_the_vocabulary_is_that_of_all_text(tmp_path: Path) -> None:
    learned = learn_tokenizer(Reads().corpus, 280, tmp_path)
    expected = train_tokenizer(chain.from_iterable(PAIRS), 280)
    assert learned.backend_tokenizer.to_str() == expected.backend_tokenizer.to_str()
    for name, found in (("learned", learned), ("expected", expected)):
        found.save_pretrained(tmp_path / name)
    files = [sorted((tmp_path / name).iterdir()) for name in ("learned", "expected")]
    assert [file.read_bytes() for file in files[0]] == [file.read_bytes() for file in files[1]]


def test_the_vocabulary_of_a_huge_corpus_is_that_of_an_even_sample(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(preprocessing, "VOCABULARY_PAIRS", 12)
    learned = learn_tokenizer(Reads().corpus, 275, tmp_path)
    assert learned.get_vocab() == train_tokenizer(chain.from_iterable(PAIRS[::3]), 275).get_vocab()


# Memory


def test_memory_does_not_grow_with_the_pairs(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    def peak(count: int) -> int:
        def read() -> Iterator[tuple[str, str]]:
            return ((f"the old dog {number}", f"der alte Hund {number}") for number in range(count))

        file = tmp_path / f"{count}.tsv"
        write_tsv(file, list(read()))
        tracemalloc.start()
        tokenize_corpus(open_corpus([file]), tokenizer, drop_duplicates=True, cache_dir=tmp_path)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(100)
    few, many = peak(2_000), peak(12_000)
    # Keys and lengths are eight bytes a pair each; a pair of sentences as Python's objects is hundreds.
    assert many - few < 10_000 * 24


@linux
def test_pages_that_were_read_are_given_back(tmp_path: Path) -> None:
    def mapped() -> int:
        lines = Path("/proc/self/smaps").read_text().splitlines()
        at = next(number for number, line in enumerate(lines) if "tokens.bin" in line)
        return next(int(line.split()[1]) for line in lines[at:] if line.startswith("Rss:"))

    with EncodedCorpusWriter(tmp_path, 2**17) as writer:
        for _ in range(10):
            writer.add([list(range(1000))] * 100, [list(range(1000))] * 100)
        writer.finish()
    encoded = EncodedCorpus(tmp_path)
    assert sum(1 for _ in encoded) == 1000
    assert mapped() == 0
    assert (tmp_path / "tokens.bin").stat().st_size == 8_000_000
