"""`vaswani-transformer average`: the mean of a run's last checkpoints."""

from __future__ import annotations

from pathlib import Path

from ..errors import InputError
from ..training_arguments import ArgumentParser
from .options import positive, say


def create_parser() -> ArgumentParser:
    """The parser of this command."""
    parser = ArgumentParser(
        prog="vaswani-transformer average",
        description="Save the mean of a run's last checkpoints (section 6.1 of the paper) as a model folder.",
    )
    parser.add_argument("run", metavar="RUN", help="A run folder.")
    parser.add_argument("--last", type=positive, default=5, help="How many of the newest checkpoints.")
    parser.add_argument("--output", required=True, metavar="FOLDER", help="New folder for the averaged model.")
    parser.add_argument(
        "--dtype", default="float32", choices=["float32", "float16", "bfloat16"], help="Precision on disk."
    )
    return parser


def run(arguments: list[str]) -> int:
    """Save the mean of a run's last checkpoints as a model folder."""
    options = create_parser().parse_strictly(arguments)

    import torch

    from ..checkpoints import RunFolder, average_weights, read_weights
    from ..model_card import update_card
    from ..translation import load_model

    output = Path(options.output)
    if output.exists():
        raise InputError(f"{output}: exists already; choose another --output")
    run = RunFolder(options.run)
    steps = run.steps()
    if len(steps) < options.last:
        raise InputError(f"{options.run}: has {len(steps)} checkpoints, --last {options.last} asks for more")
    steps = steps[-options.last :]
    model, tokenizer = load_model(options.run)
    weights = average_weights(map(read_weights, steps))
    # The configuration keeps float32, so that half precision saves space on the disk and costs none in memory.
    dtype = getattr(torch, options.dtype)
    model.save_pretrained(output, state_dict={name: weight.to(dtype) for name, weight in weights.items()})
    tokenizer.save_pretrained(output)
    RunFolder(output).save_averaged(run, steps)
    update_card(output)
    say(f"The mean of {', '.join(step.name for step in steps)} is in {output}")
    return 0
