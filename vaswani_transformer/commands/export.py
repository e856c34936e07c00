"""`vaswani-transformer export`: write a model for another engine."""

from __future__ import annotations

import shlex
from pathlib import Path

from ..errors import InputError
from ..training_arguments import ArgumentParser
from .options import MODEL_HELP, say


def create_parser() -> ArgumentParser:
    """The parser of this command."""
    from ..ctranslate2_export import QUANTIZATIONS

    parser = ArgumentParser(
        prog="vaswani-transformer export",
        description="Write a model for an engine that runs without PyTorch: CTranslate2, or ONNX Runtime. The folder "
        "holds all that the engine needs, the tokenizer too; `translate` and `evaluate` take it as any other model.",
    )
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument(
        "--format",
        required=True,
        choices=["ctranslate2", "onnx"],
        help="ctranslate2: the fastest on a CPU; onnx: an encoder and a decoder for every runtime that reads ONNX.",
    )
    parser.add_argument("--output", required=True, metavar="FOLDER", help="New folder for the exported model.")
    parser.add_argument(
        "--quantization",
        choices=QUANTIZATIONS,
        help="How CTranslate2 stores the weights, and computes where the machine can; float32 if not given.",
    )
    return parser


def run(arguments: list[str]) -> int:
    """Write a model for another engine."""
    options = create_parser().parse_strictly(arguments)

    from ..ctranslate2_export import ctranslate2_length_penalty, export_ctranslate2
    from ..onnx_export import export_onnx
    from ..translation import load_model

    if options.format == "onnx" and options.quantization:
        raise InputError("--quantization is CTranslate2's; leave it out, or choose --format ctranslate2")
    if Path(options.output).exists():
        raise InputError(f"{options.output}: exists already; choose another --output")
    model, tokenizer = load_model(options.model)
    if options.format == "onnx":
        export_onnx(model, tokenizer, options.output)
    else:
        export_ctranslate2(model, tokenizer, options.output, options.quantization)
    say(f"The model is in {options.output}: vaswani-transformer translate {shlex.quote(options.output)}")
    if options.format == "ctranslate2":
        alpha = model.generation_config.length_penalty
        say(
            f"There `translate` keeps the paper's length penalty, ((5 + n) / 6)^{alpha:g}. CTranslate2 itself divides "
            f"by n^length_penalty: give it length_penalty={ctranslate2_length_penalty(alpha):.2g}, and "
            f"beam_size={model.generation_config.num_beams}"
        )
    return 0
