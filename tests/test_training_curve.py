"""The picture of a training."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

from vaswani_transformer.checkpoints import RunFolder
from vaswani_transformer.cli import main
from vaswani_transformer.training_curve import draw_training_curve

RECORDS = [
    {"step": 100, "loss": 5.0},
    {"step": 200, "loss": 4.0},
    {"step": 200, "validation_loss": 3.5, "bleu": 10.0, "chrf++": 30.0},
    {"step": 300, "loss": float("nan")},
]


def test_the_picture_holds_what_the_records_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = []
    figure_of_matplotlib = pytest.importorskip("matplotlib.figure").Figure

    class Figure(figure_of_matplotlib):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            figures.append(self)

    monkeypatch.setattr("matplotlib.figure.Figure", Figure)
    draw_training_curve(RECORDS, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    losses, scores = figures[0].axes
    drawn = {
        line.get_label(): list(line.get_xydata()[:2, 1]) for axes in (losses, scores) for line in axes.get_lines()
    }
    assert drawn == {"training, label-smoothed": [5, 4], "validation": [3.5], "BLEU": [10], "chrF++": [30]}
    assert [list(line.get_xydata()[:, 0]) for line in losses.get_lines()] == [[100, 200, 300], [200]]
    assert [axes.get_ylabel() for axes in (losses, scores)] == ["loss of a target token", "score"]
    # Without scores there is one panel, without records no picture.
    draw_training_curve(RECORDS[:2], tmp_path / "losses.png")
    assert len(figures[1].axes) == 1
    draw_training_curve([], tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


def test_training_draws_it_or_says_why_not(
    small_run: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    flags = ["--max-steps", "1", "--output-dir"]
    assert main(["train", *small_run, *flags, str(tmp_path / "a")]) == 0
    assert RunFolder(tmp_path / "a").curve.read_bytes().startswith(b"\x89PNG")
    assert "](training_curve.png)" in (tmp_path / "a" / "README.md").read_text()
    real_import = builtins.__import__

    def without_matplotlib(name: str, *rest: Any, **options: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real_import(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without_matplotlib)
    assert main(["train", *small_run, *flags, str(tmp_path / "b")]) == 0
    assert "pip install matplotlib" in capsys.readouterr().err
    assert "](training_curve.png)" not in (tmp_path / "b" / "README.md").read_text()
