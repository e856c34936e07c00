"""Options that several commands share, and how they speak."""

from __future__ import annotations

import argparse
import math
import sys

from ..training_arguments import ArgumentParser

MODEL_HELP = "A run folder, a model on the Hub, or the name of a checkpoint that ships with the package."
TRANSLATOR_HELP = "A run folder, a model on the Hub, a checkpoint that ships with the package, or what `export` wrote."


def say(text: str) -> None:
    """Tell the person who waits; results alone go to standard output."""
    print(text, file=sys.stderr, flush=True)


def positive(text: str) -> int:
    """The type of an option that counts something."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text}")
    return number


def exponent(text: str) -> float:
    """The type of `--length-penalty`."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not -10 <= number <= 10:
        raise argparse.ArgumentTypeError(f"expected a number from -10 to 10, got {text}")
    return number


def create_decoding_parser(name: str, description: str) -> ArgumentParser:
    """The parser of a command that translates many sentences with a model."""
    parser = ArgumentParser(prog=f"vaswani-transformer {name}", description=description)
    parser.add_argument("model", metavar="MODEL", help=TRANSLATOR_HELP)
    add_search_options(parser)
    parser.add_argument(
        "--batch-tokens", type=positive, default=2048, help="Most source positions in a batch, with padding."
    )
    parser.add_argument(
        "--dtype",
        choices=["float32", "bfloat16"],
        default="float32",
        help="Precision of the weights; bfloat16 is faster on GPUs and on CPUs with AVX512-BF16 or AMX.",
    )
    return parser


def add_search_options(parser: ArgumentParser) -> None:
    """Add the options of the search."""
    parser.add_argument("--num-beams", type=positive, default=4, help="Width of the beam; 1 is greedy.")
    parser.add_argument(
        "--length-penalty",
        type=exponent,
        metavar="ALPHA",
        help="Exponent of the length penalty; the model's own if not given.",
    )


def search_settings(options: argparse.Namespace) -> dict[str, int | float]:
    """The arguments of `generate()` that they mean."""
    settings = {"num_beams": options.num_beams}
    if options.length_penalty is not None:
        settings["length_penalty"] = options.length_penalty
    return settings


def decoding_settings(options: argparse.Namespace) -> dict[str, int | float]:
    """The arguments of a call of the pipeline that the options of [`create_decoding_parser`] mean."""
    return {"batch_tokens": options.batch_tokens, **search_settings(options)}
