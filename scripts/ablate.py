"""What each choice of the paper is worth, on Multi30k: `python scripts/ablate.py --data FOLDER`.

The paper's table 3 varies its base model; here it is the small model of `multi30k-en-de.yaml`, one choice at a time.
"""

from __future__ import annotations

import re
import shlex
import statistics
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from reproduce import (
    REPRODUCTIONS,
    RESULTS,
    ROOT,
    Reproduction,
    add_options,
    check_flags,
    conditions,
    evaluate,
    run_script,
    train,
)
from results import Results, circumstances, spread, threads
from vaswani_transformer.checkpoints import write_atomically
from vaswani_transformer.errors import InputError
from vaswani_transformer.training_arguments import ArgumentParser

BASE = "multi30k-en-de"
OUTPUT = ROOT / "model_cards" / "README.md"
SECTION = "<!-- ablations -->\n", "<!-- end of ablations -->\n"


@dataclass(frozen=True)
class Variant:
    """One row: the base with a change in training, or in decoding what the base's training gave.

    Args:
        choice: What is varied.
        value: To what.
        flags: Of `train`.
        decoding: Fields of [`Reproduction`].
    """

    choice: str
    value: str
    flags: tuple[str, ...] = ()
    decoding: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name in those of folders and files."""
        return f"{self.choice}-{self.value}".replace(" ", "-")

    @property
    def run(self) -> str:
        """The name of the training that it needs; the base's, for what is only decoded."""
        return f"ablation-{self.name if self.flags else 'base'}"

    def of(self, reproduction: Reproduction) -> Reproduction:
        """The base, decoded as this says."""
        return replace(reproduction, **self.decoding)


VARIANTS = (
    Variant("the recipe", "as it is"),
    *(Variant("heads", str(heads), ("--num-attention-heads", str(heads))) for heads in (1, 2, 8)),
    Variant("positions", "learned", ("--positional-encoding", "learned")),
    Variant("label smoothing", "0", ("--label-smoothing-factor", "0")),
    *(Variant("dropout", str(rate), ("--dropout", str(rate))) for rate in (0, 0.1, 0.2)),
    Variant("dropout", "from the start", ("--dropout-warmup-steps", "0")),
    Variant("normalisation", "before sublayers", ("--norm-first", "true")),
    Variant("embeddings", "untied", ("--tie-word-embeddings", "false")),
    # Neither is chosen by its scores, as the models of the other rows are.
    Variant("checkpoints", "the last alone", decoding={"average_last": 1}),
    Variant("checkpoints", "mean of the last 10", decoding={"average_last": 10}),
    *(Variant("beam", str(beams), decoding={"num_beams": beams}) for beams in (1, 4, 10)),
    *(Variant("alpha", str(alpha), decoding={"length_penalty": alpha}) for alpha in (0.0, 1.0)),
)


def score(
    variant: Variant, reproduction: Reproduction, options: Namespace, seed: int, flags: list[str], kept: Results
) -> None:
    """Train what the variant needs, unless that is done, and keep its score."""
    folder = options.runs / f"{variant.run}-{seed}"
    training = [*flags, *variant.flags]
    train(BASE, reproduction, options.data, folder, seed, training)
    decoded = variant.of(reproduction)
    result = evaluate(BASE, decoded, options.data, folder, variant.name)
    kept.add(variant.name, conditions(BASE, decoded, options.data, training), seed, result)


def table(kept: Results, reproduction: Reproduction, data: Path, flags: list[str]) -> str:
    """All rows that are scored, in this call or another, as Markdown."""
    metric = f"BLEU, {reproduction.tokenize[0]}"
    lines = [
        "## Ablations",
        f"{reproduction.title.replace('test2016', 'validation set')}: `scripts/recipes/{BASE}.yaml` with one choice "
        f"changed at a time, beam {reproduction.num_beams}, alpha {reproduction.length_penalty}. Mean and, of "
        "several seeds, standard deviation. But for the rows of checkpoints, the model of each run is the one that "
        "was best on the same set.",
        "",
        "| choice | value | BLEU | chrF++ | parameters | seeds | hours a seed |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    choices: dict[tuple[int, ...], list[str]] = {}
    everything = []
    for variant in VARIANTS:
        shared = conditions(BASE, variant.of(reproduction), data, [*flags, *variant.flags])
        results = kept.of(variant.name, shared)
        if not results:
            continue
        seeds, found = tuple(results), list(results.values())
        scores = [spread([one["scores"][name] for one in found]) for name in (metric, "chrF++")]
        hours = statistics.mean(one["hours"] for one in found)
        lines.append(
            f"| {variant.choice} | {variant.value} | {scores[0]} | {scores[1]} | {found[0]['parameters']:,} | "
            f"{len(found)} | {hours:.2f} |"
        )
        everything += found
        if variant.choice not in choices.setdefault(seeds, []):
            choices[seeds].append(variant.choice)
    commands = [
        ["python scripts/ablate.py --data DATA --seeds", *map(str, seeds), "--only", *map(shlex.quote, names), *flags]
        for seeds, names in choices.items()
    ]
    lines += [
        "",
        f"BLEU: `{everything[0]['signatures'][metric]}`. {circumstances(everything)} All of it again:",
        "```",
        *(threads(everything) + " ".join(command) for command in commands),
        "```",
    ]
    return "\n".join(lines) + "\n"


def write_section(output: Path, text: str) -> None:
    """Put `text` between the marks of its section in a file, and leave the rest; at the end, if there are none."""
    before = output.read_text(encoding="utf-8") if output.is_file() else ""
    start, end = SECTION
    found = re.search(f"{start}.*?{end}", before, re.DOTALL)
    place = found.span() if found else (len(before), len(before))
    whole = before[: place[0]] + start + text + end + before[place[1] :]
    write_atomically(output, lambda path: path.write_text(whole, encoding="utf-8"))


def run(options: Namespace, flags: list[str]) -> None:
    """Train and score the variants with each seed; the table is written anew after each.

    Scored is the validation set, as in the paper's table 3: choices are made on it.
    """
    if options.data is None:
        raise InputError("give the folder of Multi30k's files: --data FOLDER")
    check_flags(flags)
    reproduction = REPRODUCTIONS[BASE]
    reproduction.check(options.data)
    reproduction = replace(reproduction, test=reproduction.valid)
    output = options.output or OUTPUT
    kept = Results.beside(options.output or RESULTS / "ablations.md")
    text = ""
    for seed in dict.fromkeys(options.seeds):
        for variant in VARIANTS:
            if not options.only or variant.choice in options.only:
                score(variant, reproduction, options, seed, flags, kept)
                text = table(kept, reproduction, options.data, flags)
                write_section(output, text)
    print(text, end="")


def create_parser() -> ArgumentParser:
    """The parser of this script."""
    parser = ArgumentParser(
        prog="ablate.py",
        description="Train the small Multi30k model with one choice changed at a time, and write the table, and its "
        "results as JSON beside it. What was interrupted goes on. Flags that it does not know go to every `train`.",
    )
    add_options(parser)
    choices = sorted({variant.choice for variant in VARIANTS})
    parser.add_argument("--only", nargs="+", choices=choices, default=[], help="Choices to vary; all by default.")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="Where the table goes; model_cards/README.md by default, the results in results/ablations.json there.",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Ablate; 0, 2 for a mistake in what was given, told in one line, or 128 and the signal."""
    return run_script(create_parser(), run, arguments)


if __name__ == "__main__":
    sys.exit(main())
