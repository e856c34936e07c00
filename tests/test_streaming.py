"""Streaming: windows of a text that is larger than the disk."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path

import pytest
import torch
from conftest import Refused, reset_accelerate
from datasets import Dataset
from safetensors.torch import load_file
from transformers import PreTrainedTokenizerFast

from vaswani_transformer import preprocessing
from vaswani_transformer.bpe_dropout import BpeDropoutCorpus, apply_bpe_dropout
from vaswani_transformer.checkpoints import RunFolder
from vaswani_transformer.cli import main
from vaswani_transformer.corpora import Pair, ParallelCorpus, open_corpus
from vaswani_transformer.encoded_corpus import EncodedCorpus, EncodedPairs
from vaswani_transformer.errors import InputError
from vaswani_transformer.preprocessing import CleaningReport, learn_tokenizer, tokenize_corpus
from vaswani_transformer.streaming import StreamedCorpus

TEXT = [(f"the dog {number}", f"der Hund {number}") for number in range(25)]
Stream = Callable[..., StreamedCorpus]


@pytest.fixture
def stream(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> Stream:
    """Streams `TEXT` in windows."""

    def prepare(corpus: ParallelCorpus, cache_dir: Path) -> tuple[EncodedCorpus, CleaningReport]:
        return tokenize_corpus(corpus, tokenizer, cache_dir=cache_dir)

    def create(window: int, text: list[Pair] = TEXT, **more: object) -> StreamedCorpus:
        corpus = ParallelCorpus("the text", lambda: iter(text), lambda: {"text": len(text)})
        return StreamedCorpus(corpus, window, more.pop("prepare", prepare), tmp_path / "windows", **more)

    return create


def texts(pairs: EncodedPairs, tokenizer: PreTrainedTokenizerFast) -> list[Pair]:
    return [(tokenizer.decode(row["input_ids"][:-1]), tokenizer.decode(row["labels"][:-1])) for row in pairs]


def wait_for_window(stream: StreamedCorpus, number: int) -> None:
    """Until the background has prepared it."""
    deadline = time.monotonic() + 30
    while not list((stream.folder / f"window-{number:06d}").glob("pairs-*/digest")) and time.monotonic() < deadline:
        time.sleep(0.001)


@pytest.mark.parametrize("window", [1, 7, 25, 60])
def test_windows_are_the_text_over_and_over(window: int, stream: Stream, tokenizer: PreTrainedTokenizerFast) -> None:
    corpus = stream(window)
    endless = cycle(TEXT)
    for number in range(5):
        assert texts(corpus.epoch(number), tokenizer) == list(islice(endless, window))


@pytest.mark.parametrize("number", [0, 2, 9])
def test_a_window_is_decided_by_its_number(number: int, stream: Stream, tokenizer: PreTrainedTokenizerFast) -> None:
    expected = list(islice(cycle(TEXT), 7 * number, 7 * number + 7))
    resumed = stream(7)
    assert texts(resumed.epoch(number), tokenizer) == expected
    assert texts(resumed.epoch(0), tokenizer) == TEXT[:7]


def test_a_leap_over_windows_takes_its_own_pairs(tokenizer: PreTrainedTokenizerFast, stream: Stream) -> None:
    """While the background still reads the window that is not needed any more."""
    text = [(f"dog {number}", f"Hund {number}") for number in range(3000)]
    for _ in range(3):
        corpus = stream(300, text)
        corpus.epoch(0)
        assert texts(corpus.epoch(6), tokenizer) == text[1800:2100]
        assert texts(corpus.epoch(7), tokenizer) == text[2100:2400]
        kept = {folder.name for folder in corpus.folder.iterdir()}
        assert kept <= {"window-000001", "window-000006", "window-000007", "window-000008"}
        corpus.remove()
        assert not corpus.folder.exists()


def test_one_process_reads_ahead_and_the_others_find_its_windows(
    stream: Stream, tokenizer: PreTrainedTokenizerFast
) -> None:
    first, second = stream(5), stream(5, ahead=False)
    for number in range(4):
        expected = texts(first.epoch(number), tokenizer)
        assert texts(second.epoch(number), tokenizer) == expected
        wait_for_window(first, number + 1)
    second.corpus = replace(second.corpus, read=lambda: iter(()))
    assert texts(second.epoch(4), tokenizer) == texts(first.epoch(4), tokenizer)


def test_three_windows_at_most_are_on_the_disk(stream: Stream) -> None:
    corpus = stream(5)
    for number in range(6):
        corpus.epoch(number)
        wait_for_window(corpus, number + 1)
        kept = sorted(folder.name for folder in corpus.folder.iterdir())
        assert kept == [f"window-{at:06d}" for at in range(max(0, number - 1), number + 2)]


def test_the_text_is_read_once_a_pass_and_one_window_ahead(
    tokenizer: PreTrainedTokenizerFast, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = stream(5)
    read: list[Pair] = []

    def reading() -> Iterator[Pair]:
        for pair in TEXT:
            read.append(pair)
            yield pair

    monkeypatch.setattr(corpus, "corpus", ParallelCorpus("x", reading, lambda: {"text": 25}))
    for number in range(3):
        corpus.epoch(number)
        wait_for_window(corpus, number + 1)
        assert read == TEXT[: 5 * (number + 2)]


def test_what_is_there_is_not_read_again(
    stream: Stream, tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = stream(7)
    expected = [texts(first.epoch(number), tokenizer) for number in (0, 1)]
    wait_for_window(first, 2)

    def refuse() -> Iterator[Pair]:
        raise AssertionError

    second = stream(7, ahead=False)
    monkeypatch.setattr(second, "corpus", ParallelCorpus("x", refuse, lambda: {"text": 25}))
    assert [texts(second.epoch(number), tokenizer) for number in (0, 1)] == expected


def test_a_fault_in_the_background_reaches_who_asks_for_the_window(
    tokenizer: PreTrainedTokenizerFast, stream: Stream
) -> None:
    def prepare(corpus: ParallelCorpus, cache_dir: Path) -> tuple[EncodedCorpus, CleaningReport]:
        pairs = list(corpus)
        if TEXT[7] in pairs:
            raise InputError("the text: line 8 is broken")
        return tokenize_corpus(replace(corpus, read=lambda: iter(pairs)), tokenizer, cache_dir=cache_dir)

    corpus = stream(7, prepare=prepare)
    corpus.epoch(0)
    for _ in range(2):
        with pytest.raises(InputError, match="line 8 is broken"):
            corpus.epoch(1)
    assert texts(corpus.epoch(2), tokenizer) == TEXT[14:21]


def test_the_next_window_is_prepared_while_one_is_used(tokenizer: PreTrainedTokenizerFast, stream: Stream) -> None:
    def prepare(corpus: ParallelCorpus, cache_dir: Path) -> tuple[EncodedCorpus, CleaningReport]:
        time.sleep(0.3)
        return tokenize_corpus(corpus, tokenizer, cache_dir=cache_dir)

    corpus = stream(7, prepare=prepare)
    started = time.monotonic()
    corpus.epoch(0)
    assert time.monotonic() - started < 0.6
    wait_for_window(corpus, 1)
    started = time.monotonic()
    corpus.epoch(1)
    assert time.monotonic() - started < 0.2


def test_a_stream_that_nobody_has_ends_its_thread(stream: Stream) -> None:
    before = set(threading.enumerate())
    corpus = stream(5)
    corpus.epoch(0)
    (thread,) = set(threading.enumerate()) - before
    wait_for_window(corpus, 1)
    del corpus
    gc.collect()
    thread.join(timeout=10)
    assert not thread.is_alive()


def test_windows_with_dropped_merges(tokenizer: PreTrainedTokenizerFast, stream: Stream) -> None:
    def prepare(corpus: ParallelCorpus, cache_dir: Path) -> tuple[BpeDropoutCorpus, CleaningReport]:
        pairs, report = tokenize_corpus(corpus, tokenizer, cache_dir=cache_dir)
        return apply_bpe_dropout(pairs, tokenizer, 0.3, cache_dir=cache_dir), report

    plain, dropped = stream(7), stream(7, prepare=prepare)
    assert texts(dropped.epoch(2), tokenizer) == texts(plain.epoch(2), tokenizer)
    assert dropped.epoch(2).lengths.sum() > plain.epoch(2).lengths.sum()


def test_another_text_or_window_is_another_stream(stream: Stream) -> None:
    prints = {stream(7).fingerprint, stream(8).fingerprint, stream(7, TEXT[:-1]).fingerprint}
    assert len(prints) == 3
    assert stream(7).fingerprint in prints


def test_the_vocabulary_is_that_of_the_first_pairs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(preprocessing, "VOCABULARY_PAIRS", 5)
    read: list[Pair] = []

    def reading(count: int) -> Iterator[Pair]:
        for pair in TEXT[:count]:
            read.append(pair)
            yield pair

    def corpus(count: int) -> ParallelCorpus:
        return ParallelCorpus("x", lambda: reading(count), lambda: {"pairs": count})

    first = learn_tokenizer(corpus(25), 265, tmp_path, streaming=True)
    assert read == TEXT[:5]
    assert first.get_vocab() == learn_tokenizer(corpus(5), 265, tmp_path).get_vocab()


@pytest.fixture
def dataset_folder(tmp_path: Path) -> Path:
    """A data set as `datasets.load_dataset` streams it."""
    folder = tmp_path / "pairs"
    folder.mkdir()
    rows = [{"translation": {"en": source, "de": target}} for source, target in TEXT]
    Dataset.from_list(rows).to_parquet(folder / "train.parquet")
    return folder


def test_a_data_set_is_streamed(dataset_folder: Path) -> None:
    corpus = open_corpus(dataset_name=str(dataset_folder), streaming=True)
    assert list(corpus) == TEXT
    assert list(corpus) == TEXT
    identity = corpus.identity
    assert open_corpus(dataset_name=str(dataset_folder), streaming=True).identity == identity
    rows = [{"translation": {"en": "a", "de": "b"}}]
    Dataset.from_list(rows).to_parquet(dataset_folder / "train.parquet")
    assert open_corpus(dataset_name=str(dataset_folder), streaming=True).identity != identity


def test_a_data_set_without_the_languages_is_refused(dataset_folder: Path) -> None:
    with pytest.raises(InputError, match="a translation column with en and fr, found en, de"):
        open_corpus(dataset_name=str(dataset_folder), target_lang="fr", streaming=True)


def test_a_data_set_that_breaks_off(dataset_folder: Path) -> None:
    corpus = open_corpus(dataset_name=str(dataset_folder), streaming=True)
    (dataset_folder / "train.parquet").write_bytes(b"PAR1" + b"x" * 100)
    with pytest.raises(InputError, match=r"could not be read on \(.*\); go on with --resume"):
        list(corpus)


def test_a_streamed_run_resumes_exactly(small_run: list[str], tmp_path: Path) -> None:
    def run(folder: str, *flags: str) -> list[float]:
        reset_accelerate()
        stream = ["--streaming", "--streaming-window", "150", "--cache-dir", str(tmp_path / f"cache-{folder}")]
        assert main(["train", *small_run, *stream, "--output-dir", str(tmp_path / folder), *flags]) == 0
        records = RunFolder(tmp_path / folder).read_records(tmp_path / folder / "metrics.jsonl")
        epochs.update(record["epoch"] for record in records)
        return [record["loss"] for record in records if "loss" in record]

    epochs: set[int] = set()
    whole = run("whole", "--max-steps", "60")
    assert epochs == {0, 1, 2, 3, 4, 5}
    run("parts", "--max-steps", "47")
    shutil.rmtree(tmp_path / "cache-parts")
    assert run("parts", "--max-steps", "60", "--resume") == whole
    assert not list((tmp_path / "cache-parts").glob("stream-*"))
    one, other = (
        load_file(RunFolder(tmp_path / name).steps()[-1] / "model.safetensors") for name in ("whole", "parts")
    )
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_window_without_a_clean_pair_is_passed_over(
    small_run: list[str], corpus_files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = corpus_files["train"].read_text(encoding="utf-8").splitlines(keepends=True)
    file = tmp_path / "train.tsv"
    file.write_text("".join([*lines[:150], *["a\t" + "b " * 50 + "\n"] * 290, *lines[150:]]), encoding="utf-8")
    flags = ["--train-file", str(file), "--streaming", "--streaming-window", "150", "--max-steps", "40"]
    assert main(["train", *small_run, *flags, "--bpe-dropout", "0.1", "--output-dir", str(tmp_path / "a")]) == 0
    assert "Window 1: 150 pairs read" in (said := capsys.readouterr().err)
    assert "150 beyond the length ratio; 0 kept" in said
    records = RunFolder(tmp_path / "a").read_records(tmp_path / "a" / "metrics.jsonl")
    assert {record["epoch"] for record in records} >= {0, 3}
    assert 1 not in {record["epoch"] for record in records}


def test_an_interruption_does_not_wait_for_a_window(
    small_run: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = StreamedCorpus.epoch
    release = threading.Event()

    def epoch(self: StreamedCorpus, number: int) -> EncodedPairs:
        if number:
            os.kill(os.getpid(), signal.SIGINT)
            while not release.wait(0.01):
                pass
        return whole(self, number)

    monkeypatch.setattr(StreamedCorpus, "epoch", epoch)
    started = time.monotonic()
    flags = ["--streaming", "--streaming-window", "150", "--max-steps", "500", "--output-dir", str(tmp_path / "a")]
    assert main(["train", *small_run, *flags]) == 128 + signal.SIGINT
    assert time.monotonic() - started < 40
    release.set()
    assert RunFolder(tmp_path / "a").steps()


def test_settings_that_contradict_streaming(small_run: list[str], tmp_path: Path, refused: Refused) -> None:
    flags = ["train", *small_run, "--output-dir", str(tmp_path / "a"), "--streaming"]
    refused([*flags, "--num-train-epochs", "2"], "num_train_epochs counts passes over the corpus")
    refused([*flags, "--max-steps", "2", "--streaming-window", "3"], "or a larger streaming_window")
    assert not (tmp_path / "a").exists()
    refused([*flags, "--max-steps", "2", "--streaming-window", "0"], "streaming_window must be at least 1, got 0")
