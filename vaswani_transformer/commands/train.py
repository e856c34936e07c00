"""`vaswani-transformer train`: train a model."""

from __future__ import annotations

from ..training_arguments import ArgumentParser, create_training_parser, parse_training_arguments


def create_parser() -> ArgumentParser:
    """The parser of this command."""
    return create_training_parser()


def run(arguments: list[str]) -> int:
    """Train a model."""
    settings = parse_training_arguments(arguments)

    from ..training_run import run_training

    return run_training(settings)
