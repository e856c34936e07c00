"""The ablations, end to end on a small corpus."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from conftest import reset_accelerate
from test_reproduce import small  # noqa: F401 - a fixture

import ablate
import reproduce
from vaswani_transformer.checkpoints import RunFolder
from vaswani_transformer.training_arguments import parse_training_arguments

RECIPE = reproduce.RECIPES / f"{ablate.BASE}.yaml"


@pytest.mark.parametrize("variant", ablate.VARIANTS, ids=lambda variant: f"{variant.choice} {variant.value}")
def test_each_variant_changes_what_it_says(variant: ablate.Variant) -> None:
    def settings(*flags: str) -> dict:
        files = ["--train-file", "x", "--validation-file", "x", "--output-dir", "x"]
        arguments = parse_training_arguments(["--config", str(RECIPE), *files, *flags])
        return {**vars(arguments), **arguments.model_config().to_dict()}

    base, changed = settings(), settings(*variant.flags)
    differing = {name for name in base if base[name] != changed[name]}
    # The width of a head follows from their number.
    assert len(differing - {"head_dim"}) == (1 if variant.flags else 0)
    kinds = [bool(variant.flags), bool(variant.decoding)]
    assert sum(kinds) == (variant.choice != "the recipe")
    assert len({other.run for other in ablate.VARIANTS if other.flags}) == sum(bool(v.flags) for v in ablate.VARIANTS)


def test_ablations_end_to_end(
    small: list[str],  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(ablate, "BASE", "small")
    monkeypatch.setattr(
        ablate,
        "VARIANTS",
        [variant for variant in ablate.VARIANTS if variant.value in ("as it is", "1", "the last alone")],
    )
    flags = ["--save-steps", "2", "--average-last", "2"]
    output = tmp_path / "small.md"
    output.write_text("# Mine\nAbove.\n")
    # In two calls, of which the second leaves what the first has found.
    assert ablate.main([*small[1:], *flags, "--seeds", "1", "2", "--only", "heads", "the recipe", "beam"]) == 0
    output.write_text(output.read_text() + "Below.\n")
    capsys.readouterr()
    # What is scored stays, whatever becomes of its run.
    shutil.rmtree(tmp_path / "runs" / "ablation-heads-1-2")
    assert ablate.main([*small[1:], *flags, "--seeds", "1", "--only", "checkpoints"]) == 0
    whole, text = output.read_text(), capsys.readouterr().out
    text = text[text.index("## Ablations") :]
    assert whole == f"# Mine\nAbove.\n<!-- ablations -->\n{text}<!-- end of ablations -->\nBelow.\n"
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")][2:]
    assert [row[:2] for row in rows] == [
        ["the recipe", "as it is"],
        ["heads", "1"],
        ["checkpoints", "the last alone"],
        ["beam", "1"],
    ]
    assert [row[5] for row in rows] == ["2", "2", "1", "2"]
    for command in ("--seeds 1 2 --only 'the recipe' heads beam --save", "--seeds 1 --only checkpoints --save"):
        assert f"python scripts/ablate.py --data DATA {command}-steps 2 --average-last 2\n" in text
    runs = tmp_path / "runs"
    assert json.loads((runs / "ablation-base-1" / "beam-1-none.json").read_text())["num_beams"] == 1
    assert json.loads((runs / "ablation-base-1" / "the-recipe-as-it-is-none.json").read_text())["num_beams"] == 2
    assert json.loads((runs / "ablation-heads-1-1" / "heads-1-none.json").read_text())["num_beams"] == 2
    last = RunFolder(runs / "ablation-base-1-last-1")
    assert json.loads(last.averaged.read_text()) == {"checkpoints": ["step-000004"]}
    assert sorted(path.name for path in runs.iterdir()) == [
        "ablation-base-1",
        "ablation-base-1-last-1",
        "ablation-base-2",
        "ablation-heads-1-1",
    ]
    assert RunFolder(tmp_path / "runs" / "ablation-heads-1-1").read_settings()["num_attention_heads"] == 1
    assert str(tmp_path) not in text
    reset_accelerate()
    capsys.readouterr()
    assert ablate.main([*small[1:], "--only", "nothing"]) == 2
    assert "invalid choice" in capsys.readouterr().err
    for arguments, told in (
        ([*small[1:-1], str(tmp_path / "nowhere" / "x.md")], "there is no folder"),
        (["--runs", str(runs)], "give the folder of Multi30k's files"),
        ([*small[1:], "--seed", "3"], "--seed is decided by the script"),
    ):
        assert ablate.main(arguments) == 2
        assert told in capsys.readouterr().err.splitlines()[-1]
