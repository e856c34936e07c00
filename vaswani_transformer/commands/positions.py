"""`vaswani-transformer positions`: draw the encodings of positions."""

from __future__ import annotations

from pathlib import Path

from ..training_arguments import ArgumentParser
from .options import MODEL_HELP, positive, say


def create_parser() -> ArgumentParser:
    """The parser of this command."""
    parser = ArgumentParser(
        prog="vaswani-transformer positions",
        description="Draw the encodings of a model's positions (section 3.5 of the paper). Needs matplotlib.",
    )
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument("--output", required=True, metavar="FILE", help="The picture: a .png or .svg.")
    parser.add_argument(
        "--length", type=positive, help="Positions to show; those of its longest sentence if not given."
    )
    return parser


def run(arguments: list[str]) -> int:
    """Draw the encodings of a model's positions."""
    options = create_parser().parse_strictly(arguments)

    from ..paper_pictures import draw_positions, read_positions
    from ..pictures import check_picture, save_figure
    from ..translation import load_model

    output = Path(options.output)
    check_picture(output)
    model, _ = load_model(options.model)
    save_figure(draw_positions(read_positions(model, options.length)), output)
    say(f"The picture is in {output}")
    return 0
