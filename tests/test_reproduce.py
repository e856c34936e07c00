"""The script that reproduces published results, end to end on a small corpus."""

from __future__ import annotations

import json
import re
import shutil
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from conftest import reset_accelerate

import reproduce
from reproduce import REPRODUCTIONS, Reproduction, main
from vaswani_transformer import VaswaniConfig, VaswaniForConditionalGeneration
from vaswani_transformer.checkpoints import RunFolder
from vaswani_transformer.cli import main as cli
from vaswani_transformer.training_arguments import parse_training_arguments
from vaswani_transformer.translation import load_model

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
        "the built-in corpus",
        ("train.tsv",),
        ("validation.tsv",),
        ("validation.tsv",),
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
        scores = json.loads((run.path / "result-none.json").read_text())
        assert (scores["num_beams"], scores["length_penalty"], scores["tokenize"]) == (2, 1.0, "none")
        row = next(row for row in rows if row[0] == str(seed))
        assert row[1] == f"{scores['bleu']:.2f}"
        assert row[3:5] == [f"{scores['chrf++']:.2f}", "4"]
    chrf = [json.loads((tmp_path / f"runs/small-{seed}/result-13a.json").read_text())["chrf++"] for seed in (3, 5)]
    assert rows[-1][3].startswith(f"{statistics.mean(chrf):.2f} ± {statistics.stdev(chrf):.2f}")
    threads = f"OMP_NUM_THREADS={torch.get_num_threads()} python scripts/reproduce.py small --data DATA --seeds 3 5\n"
    told = (
        "Published: 99.9",
        "tok:none|",
        "tok:13a|",
        "torch 2",
        ", no; ",
        "--num-beams 2 --length-penalty 1.0",
        threads,
    )
    assert all(words in text for words in told)
    assert str(tmp_path) not in text


def test_the_printed_commands_give_the_printed_scores(
    small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*small, "--seeds", "3", "--dropout", "0.2"]) == 0
    text = capsys.readouterr().out
    row = next(line for line in text.splitlines() if line.startswith("| 3 |")).strip("| ").split(" | ")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "recipes").symlink_to(tmp_path)
    commands = [line.split()[1:] for line in text.splitlines() if line.startswith("vaswani-transformer ")]
    assert [command[0] for command in commands] == ["train", "evaluate", "evaluate"]
    for command in commands:
        reset_accelerate()
        words = [word.replace("DATA", "data").replace("runs/SEED", "again") for word in command]
        assert cli(["3" if word == "SEED" else word for word in words]) == 0
    found = capsys.readouterr().out
    assert [line.split()[1] for line in found.splitlines() if line.startswith("BLEU")] == row[1:3]
    assert re.search(rf"^chrF\+\+ +{row[3]} ", found, re.MULTILINE)


def test_the_table_has_the_seeds_of_other_calls_and_none_of_other_conditions(
    small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seeds() -> list[str]:
        return re.findall(r"^\| (\d+) \|", (tmp_path / "small.md").read_text(), re.MULTILINE)

    assert main([*small, "--seeds", "5"]) == 0
    assert main([*small, "--seeds", "3"]) == 0
    assert seeds() == ["3", "5"]
    assert main([*small, "--seeds", "4", "--dropout", "0"]) == 0
    assert seeds() == ["4"]
    with monkeypatch.context() as patch:
        patch.setitem(REPRODUCTIONS, "small", replace(REPRODUCTIONS["small"], length_penalty=0.2))
        assert main([*small, "--seeds", "5"]) == 0
        assert seeds() == ["5"]
    recipe = tmp_path / "small.yaml"
    recipe.write_text(f"{recipe.read_text()}label_smoothing_factor: 0.2\n")
    assert main([*small, "--seeds", "6"]) == 0
    assert seeds() == ["6"]


def test_the_table_has_the_seeds_of_other_machines(small: list[str], tmp_path: Path) -> None:
    assert main([*small, "--seeds", "5"]) == 0
    rows = [line for line in (tmp_path / "small.md").read_text().splitlines() if line.startswith("| 5 |")]
    shutil.rmtree(tmp_path / "runs")
    kept = json.loads((tmp_path / "small.json").read_text())["small"]
    assert kept["conditions"]["settings"]["max_steps"] == 4
    assert kept["seeds"]["5"]["scores"]["BLEU, 13a"] == pytest.approx(float(rows[0].split(" | ")[2]), abs=0.005)
    assert main([*small, "--seeds", "3"]) == 0
    text = (tmp_path / "small.md").read_text()
    assert rows[0] in text
    assert "| 3 |" in text
    assert "--seeds 3 5\n" in text
    assert str(tmp_path) not in (tmp_path / "small.json").read_text()


def test_a_run_of_other_settings_is_not_taken(
    small: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*small, "--seeds", "3"]) == 0
    table = (tmp_path / "small.md").read_text()
    run = RunFolder(tmp_path / "runs" / "small-3")
    settings = run.arguments.read_text()
    for flags, text in (
        (["--learning-rate", "0.5"], "learning_rate None and not 0.5"),
        (["--max-steps", "2"], "max_steps 4 and not 2"),
        (["--dropout-warmup-steps", "7"], "dropout_warmup_steps 0 and not 7"),
    ):
        # A run of before there was the setting.
        run.arguments.write_text(settings.replace("dropout_warmup_steps: 0\n", ""))
        assert main([*small, "--seeds", "3", *flags]) == 2
        assert text in capsys.readouterr().err.splitlines()[-1]
        assert (tmp_path / "small.md").read_text() == table
        reset_accelerate()


def test_the_circumstances_are_those_of_the_training(small: list[str], tmp_path: Path) -> None:
    assert main([*small, "--seeds", "3"]) == 0
    record = tmp_path / "runs" / "small-3" / "trained-on.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "machine": "an abacus", "threads": 77}))
    assert main([*small, "--seeds", "3"]) == 0
    text = (tmp_path / "small.md").read_text()
    parameters = load_model(str(tmp_path / "runs" / "small-3"))[0].num_parameters()
    assert f" {parameters:,} parameters.\n" in text
    assert "Trained on an abacus, no; torch" in text
    assert "OMP_NUM_THREADS=77 python" in text


def test_the_mean_of_checkpoints_is_scored(small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REPRODUCTIONS, "small", replace(REPRODUCTIONS["small"], average_last=2))
    assert main([*small, "--seeds", "3", "--save-steps", "2"]) == 0
    averaged = RunFolder(tmp_path / "runs" / "small-3-last-2").averaged
    assert json.loads(averaged.read_text()) == {"checkpoints": ["step-000002", "step-000004"]}
    scores = json.loads((tmp_path / "runs" / "small-3" / "result-none.json").read_text())
    assert scores["model"] == str(averaged.parent)
    text = (tmp_path / "small.md").read_text()
    assert "the mean of its last 2 checkpoints" in text
    assert "vaswani-transformer average runs/SEED --last 2 --output runs/SEED-average\n" in text
    assert "vaswani-transformer evaluate runs/SEED-average " in text


def test_a_signal_stops_all_seeds(
    small: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reproduce, "vaswani_transformer", lambda arguments: 143)
    assert main([*small, "--seeds", "3", "5"]) == 143
    assert capsys.readouterr().err.splitlines()[-1] == "reproduce.py: stopped; the same command goes on"


@pytest.mark.parametrize("name", [name for name in NAMES if REPRODUCTIONS[name].dataset_name])
def test_text_from_the_hub_needs_no_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def command(arguments: list[str]) -> int:
        asked.append(arguments)
        if arguments[0] == "train":
            settings = parse_training_arguments(arguments[1:])
            run = RunFolder(settings.output_dir)
            run.path.mkdir()
            run.save_settings(vars(settings))
            run.record(step=7, seconds=3600.0)
        if arguments[0] == "evaluate":
            scores = {"bleu": 1.0, "chrf++": 2.0, "bleu_signature": "b", "chrf++_signature": "c"}
            Path(arguments[-1]).write_text(json.dumps(scores))
        return 0

    monkeypatch.setattr(reproduce, "vaswani_transformer", command)
    model = VaswaniForConditionalGeneration(VaswaniConfig(vocab_size=8, d_model=8, num_attention_heads=2, d_ff=8))
    monkeypatch.setattr(reproduce, "load_model", lambda folder: (model, None))
    flags = ["--seeds", "1", "--runs", str(tmp_path), "--output", str(tmp_path / "x.md")]
    assert main([name, *flags]) == 0
    settings = parse_training_arguments(asked[0][1:])
    source = ["--dataset-name", settings.dataset_name]
    if settings.dataset_config_name:
        source += ["--dataset-config-name", settings.dataset_config_name]
    first = next(arguments for arguments in asked if arguments[0] == "evaluate")
    assert first[2 : 2 + len(source)] == source
    assert ["--source-lang", settings.source_lang, "--target-lang", settings.target_lang] == first[2 + len(source) :][
        :4
    ]
    if name.startswith("wmt14"):
        # Section 6.1: the last 5 checkpoints of the base models, the last 20 of the big ones, beam 4, alpha 0.6.
        last = "20" if "big" in name else "5"
        assert [arguments[3] for arguments in asked if arguments[0] == "average"] == [last]
        assert int(last) <= settings.keep_checkpoints
        assert first[first.index("--tokenize") :][:6] == [
            *("--tokenize", "compound", "--num-beams", "4", "--length-penalty", "0.6")
        ]
        capsys.readouterr()
        assert main([name, *flags, "--data", str(tmp_path)]) == 2
        assert "the text comes from wmt/wmt14 on the Hub; leave --data out" in capsys.readouterr().err
    assert "DATA" not in (tmp_path / "x.md").read_text()


def test_what_is_done_is_not_trained_again(small: list[str], tmp_path: Path) -> None:
    assert main([*small, "--seeds", "3", "--save-steps", "2"]) == 0
    run = RunFolder(tmp_path / "runs" / "small-3")
    whole, table = (run.steps()[-1] / "model.safetensors").read_bytes(), (tmp_path / "small.md").read_text()
    written = (run.steps()[-1] / "model.safetensors").stat().st_mtime_ns
    assert main([*small, "--seeds", "3", "--save-steps", "2"]) == 0
    assert (run.steps()[-1] / "model.safetensors").stat().st_mtime_ns == written
    assert re.sub(r"0\.\d\d \|$", "", (tmp_path / "small.md").read_text()) == re.sub(r"0\.\d\d \|$", "", table)
    # A seed that was interrupted goes on.
    shutil.rmtree(run.steps()[-1])
    reset_accelerate()
    assert main([*small, "--seeds", "3", "--save-steps", "2"]) == 0
    assert (run.steps()[-1] / "model.safetensors").read_bytes() == whole


@pytest.mark.parametrize("name", NAMES)
def test_every_reproduction_has_its_recipe_and_says_what_it_lacks(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (reproduce.RECIPES / f"{name}.yaml").is_file()
    assert name.split("-")[1:3] == reproduce.evaluation_flags(name, REPRODUCTIONS[name], "13a")[1:4:2]
    if not REPRODUCTIONS[name].train:
        return
    if not REPRODUCTIONS[name].dataset_name:
        assert main([name]) == 2
        assert capsys.readouterr().err.endswith("and name its folder with --data\n")
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
        assert [(data / name).is_file() for name in names] == [True, True]


@pytest.mark.parametrize("found", ["", "not JSON", "[]", "{}{", '{"name": 1}', '{"small": {"seeds": {}}}', '"x"', "3"])
def test_a_file_of_something_else_is_left_alone(
    found: str, small: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "small.json").write_text(found)
    assert main(small) == 2
    told = "holds no results of trainings; move it, or choose another --output\n"
    assert capsys.readouterr().err == f"reproduce.py: {tmp_path}/small.json: {told}"
    assert (tmp_path / "small.json").read_text() == found
    assert not (tmp_path / "runs").exists()


def test_mistakes_end_in_one_line(small: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, text in (
        (["nothing"], "invalid choice"),
        ([*small, "--seeds", "x"], "invalid int"),
        ([*small, "--no-such-flag", "1"], "unknown argument --no-such-flag"),
        ([*small, "--seed", "1"], "--seed is decided by the script; leave it out"),
        ([*small, "--output-dir=x"], "--output-dir is decided by the script; leave it out"),
        ([*small, "--batch-tokens", "1"], "seed 1 is not trained, for the reason above"),
        ([*small[:-1], str(tmp_path)], f"{tmp_path}: is a folder, expected a file to write"),
        ([*small[:-1], str(tmp_path / "no" / "x.md")], "there is no folder"),
        ([*small[:-1], str(tmp_path / "x.json")], "give the table a name that does not end in .json"),
    ):
        assert main(arguments) == 2
        assert text in capsys.readouterr().err.splitlines()[-1]
