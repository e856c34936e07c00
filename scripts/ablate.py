"""What each choice of the paper is worth, on Multi30k: `python scripts/ablate.py --data FOLDER`.

The paper's table 3 varies its base model; here it is the small model of `multi30k-en-de.yaml`, one choice at a time.
"""

from __future__ import annotations

import shlex
import shutil
import statistics
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from reproduce import (
    REPRODUCTIONS,
    ROOT,
    Reproduction,
    add_options,
    evaluate,
    language_flags,
    machine,
    run_script,
    spread,
    train,
    versions,
)
from vaswani_transformer.checkpoints import write_atomically
from vaswani_transformer.cli import main as vaswani_transformer
from vaswani_transformer.errors import InputError
from vaswani_transformer.training_arguments import ArgumentParser
from vaswani_transformer.translation import load_model

BASE = "multi30k-en-de"
OUTPUT = ROOT / "model_cards" / "README.md"


@dataclass(frozen=True)
class Variant:
    """One row: the base with a change in training, or in decoding what the base's training gave.

    Args:
        choice: What is varied.
        value: To what.
        flags: Of `train`.
        decoding: Fields of [`Reproduction`].
        averaged: Whether the model is the mean of checkpoints, as the recipe has it, or the last one alone.
    """

    choice: str
    value: str
    flags: tuple[str, ...] = ()
    decoding: dict[str, Any] = field(default_factory=dict)
    averaged: bool = True

    @property
    def run(self) -> str:
        """The name of the training that it needs; the base's, for what is only decoded."""
        return f"{self.choice}-{self.value}".replace(" ", "-") if self.flags else "base"


VARIANTS = (
    Variant("the recipe", "as it is"),
    *(Variant("heads", str(heads), ("--num-attention-heads", str(heads))) for heads in (1, 2, 8)),
    Variant("positions", "learned", ("--positional-encoding", "learned")),
    Variant("label smoothing", "0", ("--label-smoothing-factor", "0")),
    *(Variant("dropout", str(rate), ("--dropout", str(rate))) for rate in (0, 0.1, 0.2)),
    Variant("dropout", "from the start", ("--dropout-warmup-steps", "0")),
    Variant("normalisation", "before sublayers", ("--norm-first", "true")),
    Variant("embeddings", "untied", ("--tie-word-embeddings", "false")),
    Variant("checkpoints", "the last alone", averaged=False),
    *(Variant("beam", str(beams), decoding={"num_beams": beams}) for beams in (1, 4, 10)),
    *(Variant("alpha", str(alpha), decoding={"length_penalty": alpha}) for alpha in (0.0, 1.0)),
)


def score(
    variant: Variant, reproduction: Reproduction, options: Namespace, seed: int, flags: Sequence[str]
) -> dict[str, Any]:
    """Train what the variant needs, unless that is done, and score it."""
    folder = options.runs / f"ablation-{variant.run}-{seed}"
    train(BASE, reproduction, options.data, folder, seed, [*flags, *variant.flags])
    model = folder
    if not variant.averaged:
        model = folder.with_name(f"{folder.name}-last")
        shutil.rmtree(model, ignore_errors=True)
        if vaswani_transformer(["average", str(folder), "--last", "1", "--output", str(model)]):
            raise InputError(f"{folder}: its last checkpoint cannot be taken")
    found = evaluate(replace(reproduction, **variant.decoding), options.data, model, language_flags(BASE))
    return {**found, "parameters": load_model(str(folder))[0].num_parameters()}


def table(results: list[tuple[Variant, list[dict[str, Any]]]], reproduction: Reproduction, command: str) -> str:
    """All rows as Markdown."""
    metric = f"BLEU, {reproduction.tokenize[0]}"
    lines = [
        "# Ablations",
        f"{reproduction.title.replace('test2016', 'validation set')}: `scripts/recipes/{BASE}.yaml` with one choice "
        f"changed at a time, beam {reproduction.num_beams}, alpha {reproduction.length_penalty}. Mean and standard "
        "deviation over the seeds.",
        "",
        "| choice | value | BLEU | chrF++ | parameters | seeds | hours a seed |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for variant, found in results:
        scores = [spread([one[name] for one in found]) for name in (metric, "chrF++")]
        hours = statistics.mean(one["hours"] for one in found)
        lines.append(
            f"| {variant.choice} | {variant.value} | {scores[0]} | {scores[1]} | {found[0]['parameters']:,} | "
            f"{len(found)} | {hours:.2f} |"
        )
    signature = results[0][1][0]["signatures"][metric]
    lines += ["", f"BLEU: `{signature}`. On {machine()}; {versions()}. All of it again:", "```", command, "```"]
    return "\n".join(lines) + "\n"


def run(options: Namespace, flags: Sequence[str]) -> None:
    """Train and score the variants with each seed; the table is written anew after each.

    Scored is the validation set, as in the paper's table 3: choices are made on it.
    """
    reproduction = REPRODUCTIONS[BASE]
    reproduction.check(options.data)
    reproduction = replace(reproduction, test=reproduction.valid)
    chosen = [variant for variant in VARIANTS if not options.only or variant.choice in options.only]
    results: dict[str, tuple[Variant, list[dict[str, Any]]]] = {}
    text = ""
    words = ["python scripts/ablate.py --data DATA --seeds", *map(str, options.seeds)]
    words += ["--only", *map(shlex.quote, options.only)] if options.only else []
    for seed in dict.fromkeys(options.seeds):
        for variant in chosen:
            found = score(variant, reproduction, options, seed, flags)
            results.setdefault(f"{variant.choice} {variant.value}", (variant, []))[1].append(found)
            text = table(list(results.values()), reproduction, " ".join([*words, *flags]))
            write_atomically(options.output or OUTPUT, lambda path, text=text: path.write_text(text, encoding="utf-8"))
    print(text, end="")


def create_parser() -> ArgumentParser:
    """The parser of this script."""
    parser = ArgumentParser(
        prog="ablate.py",
        description="Train the small Multi30k model with one choice changed at a time, and write the table. What was "
        "interrupted goes on. Flags that it does not know go to every `train`.",
    )
    add_options(parser)
    choices = sorted({variant.choice for variant in VARIANTS})
    parser.add_argument("--only", nargs="+", choices=choices, default=[], help="Choices to vary; all by default.")
    parser.add_argument("--output", type=Path, metavar="FILE", help="Table; model_cards/README.md by default.")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Ablate; 0, or 2 for a mistake in what was given, told in one line."""
    return run_script(create_parser(), run, arguments)


if __name__ == "__main__":
    sys.exit(main())
