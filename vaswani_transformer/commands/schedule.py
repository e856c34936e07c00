"""`vaswani-transformer schedule`: draw the learning rate of recipes."""

from __future__ import annotations

from pathlib import Path

from ..training_arguments import ArgumentParser
from .options import say


def create_parser() -> ArgumentParser:
    """The parser of this command."""
    parser = ArgumentParser(
        prog="vaswani-transformer schedule",
        description="Draw the learning rate over the updates of recipes (equation 3 of the paper). Needs matplotlib.",
    )
    parser.add_argument("recipes", nargs="+", metavar="RECIPE", help="A YAML recipe, or a run's training_args.yaml.")
    parser.add_argument("--output", required=True, metavar="FILE", help="The picture: a .png or .svg.")
    return parser


def run(arguments: list[str]) -> int:
    """Draw the learning rate over the updates of recipes."""
    options = create_parser().parse_strictly(arguments)

    from ..paper_pictures import draw_schedules, read_schedule
    from ..pictures import check_picture, save_figure

    output = Path(options.output)
    check_picture(output)
    save_figure(draw_schedules({recipe: read_schedule(recipe) for recipe in options.recipes}), output)
    say(f"The picture is in {output}")
    return 0
