"""The picture of a training: the losses and the scores over its updates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .pictures import create_figure, save_figure

# What is drawn together, and by which names the records have it.
PANELS = {
    "loss of a target token": {"training, label-smoothed": "loss", "validation": "validation_loss"},
    "score": {"BLEU": "bleu", "chrF++": "chrf++"},
}


def draw_training_curve(records: list[dict[str, Any]], path: Path) -> None:
    """Draw the records of `metrics.jsonl` as a PNG.

    Args:
        records: The records, each with its `step`.
        path: The picture.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    panels = {title: lines for title, lines in PANELS.items() if any(_points(records, key) for key in lines.values())}
    if not panels:
        return
    figure = create_figure(5.5 * len(panels), 3.6)
    for place, (title, lines) in enumerate(panels.items(), 1):
        axes = figure.add_subplot(1, len(panels), place)
        for name, key in lines.items():
            if points := _points(records, key):
                # Few points are marked: one alone would be no line.
                axes.plot(
                    *zip(*points, strict=True), label=name, marker="o" if len(points) < 30 else None, markersize=3
                )
        axes.set_xlabel("updates")
        axes.set_ylabel(title)
        axes.grid(alpha=0.3)
        axes.legend()
    save_figure(figure, path)


def _points(records: list[dict[str, Any]], key: str) -> list[tuple[int, float]]:
    return [(record["step"], record[key]) for record in records if key in record]
