"""Two pictures of what the paper has in formulas: the positions (section 3.5) and the learning rate (equation 3)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from .errors import InputError
from .modeling_vaswani import VaswaniForConditionalGeneration
from .optimization import learning_rate_at
from .pictures import create_figure
from .training_arguments import TranslationTrainingArguments, parse_training_arguments, read_recipe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Updates at which a learning rate is computed to be drawn.
POINTS = 500


def read_positions(model: VaswaniForConditionalGeneration, length: int | None = None) -> torch.Tensor:
    """The encodings (length, d_model) of the first positions of a source, computed or learned.

    Args:
        model: Of this package.
        length: How many; `max_position_embeddings`, as many as the longest sentence of its training has, if not given.

    Raises:
        InputError: If the model has learned fewer.
    """
    longest = model.config.max_position_embeddings
    if length is not None and length > longest and model.config.positional_encoding == "learned":
        raise InputError(f"the model has learned {longest:,} positions, got a length of {length:,}; lower it")
    positions = torch.arange(length or longest, device=model.device)
    with torch.no_grad():
        return model.model.encoder.embeddings.positions(positions, torch.float32).cpu()


def draw_positions(encodings: torch.Tensor) -> Figure:
    """A row for each position, a column for each dimension.

    Args:
        encodings: Of [`read_positions`].

    Raises:
        ImportError: If matplotlib is not installed.
    """
    figure = create_figure(7, 3.6)
    axes = figure.add_subplot()
    most = float(encodings.abs().max())
    image = axes.imshow(encodings.numpy(), cmap="RdBu", vmin=-most, vmax=most, aspect="auto", interpolation="nearest")
    axes.set_xlabel("dimension")
    axes.set_ylabel("position")
    figure.colorbar(image, ax=axes, label="encoding")
    return figure


def read_schedule(recipe: str | Path) -> list[tuple[int, float]]:
    """The learning rate at some updates of a recipe's training, the last of warm-up and the last of all among them.

    Raises:
        InputError: If the recipe is missing or malformed.
    """
    settings = _settings_of(recipe)
    last = settings.max_steps
    updates = {1, settings.warmup_steps, last, *(round(last * point / POINTS) for point in range(1, POINTS))}
    # A recipe that begins with another model's weights leaves the width to it, and tells the rate.
    width = settings.model_config().d_model
    return [
        (update, learning_rate_at(update, width, settings.warmup_steps, settings.learning_rate))
        for update in sorted(updates)
        if 1 <= update <= last
    ]


def _settings_of(recipe: str | Path) -> TranslationTrainingArguments:
    """The settings of a recipe, whatever text it is to be trained on, and wherever."""
    text = ["--train-file", "-", "--validation-file", "-"]
    if {"--dataset_name", "--train_file"} & set(read_recipe(recipe)):
        text = []
    return parse_training_arguments(["--config", str(recipe), "--output-dir", "-", *text])


def draw_schedules(schedules: dict[str, list[tuple[int, float]]]) -> Figure:
    """The learning rate over the updates, a line for each recipe.

    Args:
        schedules: Of [`read_schedule`], by name.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    figure = create_figure(7, 3.6)
    axes = figure.add_subplot()
    for name, schedule in schedules.items():
        axes.plot(*zip(*schedule, strict=True), label=name)
    axes.set_xlabel("updates")
    axes.set_ylabel("learning rate")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(alpha=0.3)
    axes.legend()
    return figure
