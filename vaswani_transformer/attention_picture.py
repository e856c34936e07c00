"""Pictures of attention: the alignment of a translation with its source, and the heads of each layer."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from .attention import SIDES, Attention
from .checkpoints import write_atomically
from .errors import InputError
from .pictures import FORMATS, check_picture, create_figure, save_figure, to_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Beside pictures, pages that have the numbers too.
FORMATS_AND_PAGES = (*FORMATS, ".html")
# What can be shown: the alignment of words, and the attention weights themselves.
KINDS = ("alignment", *SIDES)
# What stands beside the positions.
TITLES = {"source": "source", "written": "translation", "read": "translation so far"}
# Inches of a position in a picture, and the most of a picture's sides.
CELL = 0.21
LARGEST = 80.0
PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font-family: system-ui, sans-serif; margin: 1.5rem; }}
figure {{ margin: 1rem 0; padding: 0.5rem; background: white; overflow-x: auto; width: fit-content; max-width: 100%; }}
table {{ border-collapse: collapse; font-size: 0.8rem; }}
th, td {{ padding: 0.1rem 0.4rem; text-align: right; font-variant-numeric: tabular-nums; }}
details > div {{ overflow-x: auto; }}
</style>
<h1>{title}</h1>
<p>{sentence}</p>
<p>{translation}</p>
<figure>{picture}</figure>
<details><summary>The numbers</summary>
{tables}
</details>
</html>
"""


@dataclass(frozen=True)
class Panel:
    """One square of a picture: weights (rows, columns), each row of which sums to 1."""

    title: str
    weights: torch.Tensor


class AttentionPicture:
    """A picture of what the positions of a sentence and of its translation attend to.

    Args:
        attention: The weights; an alignment is clearest of words, read with `words=True`.
        kind: `"alignment"` for the cross-attention of the layer that aligns best, the mean of its heads;
            `"encoder"`, `"decoder"` or `"cross"` for a panel for each layer and head.
        layers: Which layers, from 1; all if none is given.
        heads: Which heads, from 1; all if none is given.
        average: The mean of the heads in place of each.

    Raises:
        InputError: If there is no such kind, layer or head, or layers or heads of the alignment are asked for.
    """

    def __init__(
        self,
        attention: Attention,
        kind: str = "alignment",
        *,
        layers: Sequence[int] = (),
        heads: Sequence[int] = (),
        average: bool = False,
    ) -> None:
        if kind not in KINDS:
            raise InputError(f"unknown kind of attention {kind}; there are {', '.join(KINDS)}")
        self.attention = attention
        if kind == "alignment":
            if layers or heads or average:
                raise InputError("an alignment is of one layer and all its heads; choose layers and heads of cross")
            self.sides = SIDES["cross"]
            self.panels = [[Panel("", attention.alignment())]]
        else:
            self.sides = SIDES[kind]
            self.panels = choose_panels(getattr(attention, kind), layers, heads, average)
        self.rows, self.columns = (getattr(attention, side) for side in self.sides)

    def draw(self) -> Figure:
        """The picture as matplotlib's figure.

        Raises:
            ImportError: If matplotlib is not installed.
        """
        margins = [0.08 * max(map(len, labels)) for labels in (self.rows, self.columns)]
        width = len(self.panels[0]) * (len(self.columns) * CELL + 0.25) + margins[0] + 1.6
        height = len(self.panels) * (len(self.rows) * CELL + 0.35) + margins[1] + 0.8
        scale = min(1.0, LARGEST / max(width, height))
        figure = create_figure(max(3.2, width * scale), max(2.4, height * scale))
        grid = figure.subplots(len(self.panels), len(self.panels[0]), squeeze=False, sharex=True, sharey=True)
        for across, panels in zip(grid, self.panels, strict=True):
            for axes, panel in zip(across, panels, strict=True):
                image = axes.imshow(panel.weights.numpy(), cmap="Blues", vmin=0, vmax=1)
                axes.tick_params(length=0, labelsize=8 * scale, bottom=False, labelbottom=False)
                axes.set_xlabel(panel.title, fontsize=9 * scale)
                # A text between two $ is none of mathematics.
                axes.set_yticks(range(len(self.rows)), self.rows, parse_math=False)
        for axes in grid[0]:
            axes.tick_params(labeltop=True)
            axes.set_xticks(range(len(self.columns)), self.columns, parse_math=False, rotation=90)
        figure.supylabel(TITLES[self.sides[0]], fontsize=9)
        figure.suptitle(TITLES[self.sides[1]], fontsize=9)
        figure.colorbar(image, ax=grid, label="weight", shrink=min(1.0, 4 / height), aspect=15)
        return figure

    def save(self, path: str | Path) -> None:
        """Save the picture as the ending of `path` says: `.png`, `.svg`, or `.html`, a page with the numbers too.

        Raises:
            InputError: If it ends otherwise, no file can be there, or matplotlib is not installed.
        """
        path = Path(path)
        check_picture(path, FORMATS_AND_PAGES)
        if path.suffix == ".html":
            text = self._page()
            write_atomically(path, lambda aside: aside.write_text(text, encoding="utf-8"))
        else:
            save_figure(self.draw(), path)

    def _page(self) -> str:
        picture = to_svg(self.draw())
        return PAGE.format(
            title="What the translation attends to" if self.sides[0] == "written" else "What the source attends to",
            sentence=html.escape(self.attention.sentence),
            translation=html.escape(self.attention.translation),
            picture=picture[picture.index("<svg") :],
            tables="\n".join(self._table(panel) for panels in self.panels for panel in panels),
        )

    def _table(self, panel: Panel) -> str:
        def line(head: str, cells: Sequence[str], tag: str) -> str:
            return f"<tr><th>{html.escape(head)}</th>{''.join(f'<{tag}>{cell}</{tag}>' for cell in cells)}</tr>"

        lines = [line("", [html.escape(column) for column in self.columns], "th")]
        for row, weights in zip(self.rows, panel.weights.tolist(), strict=True):
            lines.append(line(row, [f"{weight:.3f}" for weight in weights], "td"))
        return f"<div><h2>{panel.title}</h2><table>{''.join(lines)}</table></div>"


def choose_panels(
    weights: torch.Tensor, layers: Sequence[int], heads: Sequence[int], average: bool
) -> list[list[Panel]]:
    """Of `weights` (layers, heads, rows, columns) a row of panels for each layer; see [`AttentionPicture`]."""
    layers, heads = (
        _places(name, numbers, count)
        for name, numbers, count in zip(("layer", "head"), (layers, heads), weights.shape[:2], strict=True)
    )
    if average:
        named = ", ".join(str(head + 1) for head in heads)
        which = "all heads" if len(heads) == weights.shape[1] else f"heads {named}"
        return [[Panel(f"layer {layer + 1}, mean of {which}", weights[layer, heads].mean(dim=0))] for layer in layers]
    return [[Panel(f"layer {layer + 1}, head {head + 1}", weights[layer, head]) for head in heads] for layer in layers]


def _places(name: str, numbers: Sequence[int], count: int) -> list[int]:
    for number in numbers:
        if not 1 <= number <= count:
            raise InputError(f"{name} {number}: this attention has {name}s 1 to {count}")
    return [number - 1 for number in dict.fromkeys(numbers)] or list(range(count))
