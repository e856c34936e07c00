"""The benchmark of large corpora, at small sizes: what it generates, measures and tells."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest

import benchmark
import corpus_memory
from corpus_memory import write_pairs
from vaswani_transformer.corpora import open_corpus


@pytest.fixture(autouse=True)
def measured_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_memory, "_alone", lambda work, *arguments: work(*arguments))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the memory")
def test_it_tells_memory_and_time_of_each_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = tmp_path / "figures.json"
    flags = ["--pairs", "6000", "9000", "--updates", "1", "--folder", str(tmp_path), "--json", str(record)]
    assert benchmark.main(["corpus", *flags]) == 0
    figures = json.loads(record.read_text())
    output = capsys.readouterr().out
    for pairs in ("6000", "9000"):
        row = figures["rows"][pairs]
        assert row["prepare"]["peak"] > row["prepare"]["anonymous"] > 50 * 2**20
        # What was prepared is found again.
        assert row["train"]["seconds"] < row["prepare"]["seconds"]
        assert f"{int(pairs):,}  train" in output
    assert figures["ratios"]["train"] == pytest.approx(
        figures["rows"]["9000"]["train"]["peak"] / figures["rows"]["6000"]["train"]["peak"]
    )
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]


def test_the_generated_sentences_are_like_everyday_ones(tmp_path: Path) -> None:
    write_pairs(tmp_path / "a.tsv", 20_000)
    write_pairs(tmp_path / "b.tsv", 10_000)
    pairs = list(open_corpus([tmp_path / "a.tsv"]))
    assert len(pairs) == 20_000
    assert pairs[:10_000] == list(open_corpus([tmp_path / "b.tsv"]))
    words = [word for pair in pairs for side in pair for word in side.split()]
    assert 7 < len(words) / 40_000 < 10
    # By Zipf's law the first of 50,000 words is one in eleven, and the second half as often.
    (_, first), (_, second) = Counter(words).most_common(2)
    assert first / len(words) == pytest.approx(1 / 11.4, rel=0.1)
    assert first / second == pytest.approx(2, rel=0.1)


def test_where_memory_is_not_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(corpus_memory, "resident_memory", dict)
    assert benchmark.main(["corpus", "--pairs", "10"]) == 2
    assert "it needs Linux" in capsys.readouterr().err
