"""Saving matplotlib's figures as PNG and SVG."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from .checkpoints import check_output, write_atomically
from .errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg")


def check_picture(path: str | Path, formats: Sequence[str] = FORMATS) -> None:
    """Look, before the work, whether a picture can be drawn and saved under this name.

    Raises:
        InputError: If the name ends in none of `formats`, no file can be there, or matplotlib is not installed.
    """
    check_output(path)
    if Path(path).suffix not in formats:
        raise InputError(f"{path}: expected a picture's name, which ends in {', '.join(formats)}")
    if find_spec("matplotlib") is None:
        raise InputError("pictures need the package matplotlib: pip install matplotlib")


def create_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches that no window shows.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Figure, path: Path) -> None:
    """Save a figure as the ending of `path`, one of [`FORMATS`], says."""
    if path.suffix == ".svg":
        text = to_svg(figure)
        write_atomically(path, lambda aside: aside.write_text(text, encoding="utf-8"))
        return
    with warnings.catch_warnings():
        _ignore_missing_glyphs()
        write_atomically(path, lambda aside: figure.savefig(aside, format="png", dpi=120))


def to_svg(figure: Figure) -> str:
    """A figure as the text of an SVG, the same each time; letters stay letters, which the reader's fonts show."""
    from matplotlib import rc_context

    picture = StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "vaswani"}), warnings.catch_warnings():
        _ignore_missing_glyphs()
        figure.savefig(picture, format="svg", metadata={"Date": None})
    return picture.getvalue()


def _ignore_missing_glyphs() -> None:
    # Of scripts that matplotlib's own font has not: a box stands for them.
    warnings.filterwarnings("ignore", message="Glyph")
