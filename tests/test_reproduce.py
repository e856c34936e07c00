"""The script that reproduces published results, end to end on a small corpus."""

from __future__ import annotations

import json
import shutil
import statistics
from pathlib import Path

import pytest
import yaml
from conftest import reset_accelerate

import reproduce
from reproduce import REPRODUCTIONS, Reproduction, main
from vaswani_transformer.checkpoints import RunFolder

NAMES = list(REPRODUCTIONS)


@pytest.fixture
def small(
    small_run: list[str], corpus_files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """A small reproduction called `small`; the arguments that run it."""
    data = tmp_path / "data"
    data.mkdir()
    for file in corpus_files.values():
        shutil.copy(file, data)
    own = small_run[: small_run.index("--train-file")]
    recipe = {
        flag.removeprefix("--").replace("-", "_"): value for flag, value in zip(own[::2], own[1::2], strict=True)
    }
    (tmp_path / "small.yaml").write_text(yaml.safe_dump({**recipe, "max_steps": 4, "mixed_precision": "no"}))
    monkeypatch.setattr(reproduce, "RECIPES", tmp_path)
    monkeypatch.setattr(reproduce, "ROOT", tmp_path)
    reproduction = Reproduction(
        "Small",
        ("train.tsv",),
        ("validation.tsv",),
        ("validation.tsv",),
        source="the built-in corpus",
        num_beams=2,
        length_penalty=1.0,
        tokenize=("none", "13a"),
        published="99.9",
    )
    monkeypatch.setitem(REPRODUCTIONS, "small", reproduction)
    return ["small", "--data", str(data), "--runs", str(tmp_path / "runs"), "--output", str(tmp_path / "small.md")]


def test_seeds_are_trained_scored_and_told(
    small: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*small, "--seeds", "3", "5"]) == 0
    text = (tmp_path / "small.md").read_text()
    assert capsys.readouterr().out.endswith(text)
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    assert rows[0] == ["seed", "BLEU, none", "BLEU, 13a", "chrF++", "updates", "hours"]
    assert [row[0] for row in rows[2:]] == ["3", "5", "mean ± standard deviation"]
    for seed in (3, 5):
        run = RunFolder(tmp_path / "runs" / f"small-{seed}")
        assert (run.read_settings()["seed"], run.read_settings()["max_steps"]) == (seed, 4)
        scores = json.loads((run.path / "test-none.json").read_text())
        assert (scores["num_beams"], scores["length_penalty"], scores["tokenize"]) == (2, 1.0, "none")
        row = next(row for row in rows if row[0] == str(seed))
        assert row[1] == f"{scores['bleu']:.2f}"
        assert row[3:5] == [f"{scores['chrf++']:.2f}", "4"]
    chrf = [json.loads((tmp_path / f"runs/small-{seed}/test-13a.json").read_text())["chrf++"] for seed in (3, 5)]
    assert rows[-1][3].startswith(f"{statistics.mean(chrf):.2f} ± {statistics.stdev(chrf):.2f}")
    for told in ("Published: 99.9", "tok:none|", "tok:13a|", "torch 2", "--num-beams 2 --length-penalty 1.0"):
        assert told in text
    assert str(tmp_path) not in text


def test_what_is_done_is_not_trained_again(small: list[str], tmp_path: Path) -> None:
    assert main([*small, "--seeds", "3", "--max-steps", "2"]) == 0
    weights = RunFolder(tmp_path / "runs" / "small-3").steps()[-1] / "model.safetensors"
    before = weights.stat().st_mtime_ns
    assert main([*small, "--seeds", "3", "--max-steps", "2"]) == 0
    assert weights.stat().st_mtime_ns == before
    reset_accelerate()
    assert main([*small, "--seeds", "3"]) == 0  # goes on
    assert RunFolder(tmp_path / "runs" / "small-3").steps()[-1].name == "step-000004"
    assert "--max-steps" not in (tmp_path / "small.md").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_every_reproduction_has_its_recipe_and_says_what_it_lacks(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (reproduce.RECIPES / f"{name}.yaml").is_file()
    assert name.split("-")[1:3] == reproduce.language_flags(name)[1:4:2]
    assert main([name, "--data", str(tmp_path)]) == 2
    found = capsys.readouterr().err
    assert found.count("\n") == 1
    assert f"{tmp_path}/{REPRODUCTIONS[name].train[0]}: no such file; get " in found


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("multi30k")])
def test_the_files_are_those_of_multi30k(name: str) -> None:
    data = Path(__file__).parents[2] / "shared" / "data" / "multi30k"
    if not data.is_dir():
        pytest.skip("Multi30k is not in ../shared/data")
    reproduction = REPRODUCTIONS[name]
    for names in (reproduction.train, reproduction.valid, reproduction.test):
        assert len(reproduction.files(data, names)) == 2


def test_mistakes_end_in_one_line(small: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, text in (
        (["nothing"], "invalid choice"),
        ([*small, "--seeds", "x"], "invalid int"),
        ([*small, "--no-such-flag", "1"], "ended with exit code 2"),
        ([*small[:-1], str(tmp_path / "no" / "x.md")], "there is no folder"),
    ):
        assert main(arguments) == 2
        assert text in capsys.readouterr().err.splitlines()[-1]
