"""Reproduce a published result, seed by seed, into a table: `python scripts/reproduce.py NAME --data FOLDER`."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from vaswani_transformer.checkpoints import RunFolder, write_atomically
from vaswani_transformer.cli import main as vaswani_transformer
from vaswani_transformer.errors import InputError
from vaswani_transformer.training_arguments import ArgumentParser, parse_training_arguments

ROOT = Path(__file__).parents[1]
RECIPES = ROOT / "scripts" / "recipes"
RESULTS = ROOT / "model_cards" / "results"
PACKAGES = ("torch", "transformers", "tokenizers", "sacrebleu")


@dataclass(frozen=True)
class Reproduction:
    """What is trained and how it is scored.

    Args:
        title: What it is.
        train: Names of the training files in the data folder; one table, or source and target.
        valid: Of those that decide.
        test: Of those that are scored, once.
        source: Where the data come from, and their licence.
        num_beams: Width of the search.
        length_penalty: Alpha.
        tokenize: How BLEU cuts words, of `evaluate --tokenize`; the first is the one that the literature counts in.
        published: What others report in it, and who.
    """

    title: str
    train: tuple[str, ...]
    valid: tuple[str, ...]
    test: tuple[str, ...]
    source: str
    num_beams: int = 4
    length_penalty: float = 0.6
    tokenize: tuple[str, ...] = ("13a",)
    published: str | None = None

    def files(self, data: Path, names: Sequence[str]) -> list[str]:
        """The paths of files in the data folder.

        Raises:
            InputError: If one is not there.
        """
        paths = [data / name for name in names]
        for path in paths:
            if not path.is_file():
                raise InputError(f"{path}: no such file; get {self.source}, and name its folder with --data")
        return [str(path) for path in paths]

    def check(self, data: Path) -> None:
        """Look for all files, before hours of training.

        Raises:
            InputError: If one is not there.
        """
        for names in (self.train, self.valid, self.test):
            self.files(data, names)


def _multi30k(target: str, title: str, published: str | None) -> Reproduction:
    folder = "" if published is None else "lc.norm.tok/"
    return Reproduction(
        title=title,
        train=(f"{folder}train.en.gz", f"{folder}train.{target}.gz"),
        valid=(f"{folder}val.en.gz", f"{folder}val.{target}.gz"),
        test=(f"{folder}test_2016_flickr.en.gz", f"{folder}test_2016_flickr.{target}.gz"),
        source="Multi30k, task 1 (github.com/multi30k/dataset, data/task1; for research and education)",
        num_beams=5,
        tokenize=("none",) if published else ("13a",),
        published=published,
    )


TATOEBA = "Tatoeba's sentence pairs by manythings.org/anki (CC BY 2.0 FR), cut into train, valid and test"
FILES = ("train.tsv.gz",), ("valid.tsv.gz",), ("test.tsv.gz",)
REPRODUCTIONS = {
    "multi30k-en-de": _multi30k(
        "de",
        "English to German, Multi30k, test2016, tokenised and lower-cased",
        "41.02 (Wu et al. 2021, one run, github.com/LividWo/Revisit-MMT)",
    ),
    "multi30k-en-fr": _multi30k(
        "fr", "English to French, Multi30k, test2016, tokenised and lower-cased", "61.80 (Wu et al. 2021)"
    ),
    "multi30k-en-de-raw": _multi30k("de", "English to German, Multi30k, test2016, as written", None),
    "tatoeba-en-de": Reproduction("English to German, Tatoeba", *FILES, source=TATOEBA),
    "tatoeba-de-en": Reproduction("German to English, Tatoeba", *FILES, source=TATOEBA),
}


def train(name: str, reproduction: Reproduction, data: Path, folder: Path, seed: int, flags: Sequence[str]) -> None:
    """Train one seed in `folder`, or go on with it.

    Raises:
        InputError: If the training stopped before its end; its own line says why.
    """
    arguments = _training_flags(name, reproduction, data, folder, seed, flags)
    if RunFolder(folder).is_run():
        arguments.append("--resume")
    if code := vaswani_transformer(["train", *arguments]):
        raise InputError(f"the training of seed {seed} ended with exit code {code}; the same command goes on with it")


def evaluate(reproduction: Reproduction, data: Path, folder: Path, languages: Sequence[str]) -> dict[str, Any]:
    """Scores of the best model of a run on the test set: BLEU under each of the tokenisations, and chrF++."""
    scores: dict[str, Any] = {}
    for tokenize in reproduction.tokenize:
        record = folder / f"test-{tokenize}.json"
        flags = _evaluation_flags(reproduction, tokenize, languages)
        files = reproduction.files(data, reproduction.test)
        if vaswani_transformer(["evaluate", str(folder), "--test-file", *files, *flags, "--json", str(record)]):
            raise InputError(f"{folder}: the evaluation failed")
        found = json.loads(record.read_text(encoding="utf-8"))
        scores[f"BLEU, {tokenize}"] = found["bleu"]
        scores["chrF++"] = found["chrf++"]
        scores.setdefault("signatures", {}).update(
            {f"BLEU, {tokenize}": found["bleu_signature"], "chrF++": found["chrf++_signature"]}
        )
    records = RunFolder(folder).read_records(folder / "metrics.jsonl")
    return {**scores, "updates": records[-1]["step"], "hours": records[-1]["seconds"] / 3600}


def table(name: str, reproduction: Reproduction, results: dict[int, dict[str, Any]], flags: Sequence[str]) -> str:
    """The table of all seeds as Markdown, with the commands and versions that gave it."""
    metrics = [*(f"BLEU, {tokenize}" for tokenize in reproduction.tokenize), "chrF++"]
    first = next(iter(results.values()))
    data = Path("DATA")
    languages = language_flags(name)
    lines = [
        f"# {name}",
        f"{reproduction.title}. {reproduction.source}.",
        "",
        f"| seed | {' | '.join(metrics)} | updates | hours |",
        f"| --- |{' --- |' * (len(metrics) + 2)}",
    ]
    for seed, found in results.items():
        scores = " | ".join(f"{found[metric]:.2f}" for metric in metrics)
        lines.append(f"| {seed} | {scores} | {found['updates']:,} | {found['hours']:.2f} |")
    if len(results) > 1:
        spreads = (spread([found[metric] for found in results.values()]) for metric in metrics)
        lines.append(f"| mean ± standard deviation | {' | '.join(spreads)} | | |")
    if reproduction.published:
        lines += ["", f"Published: {reproduction.published}."]
    lines += [
        "",
        f"Beam {reproduction.num_beams}, the paper's length penalty with alpha {reproduction.length_penalty}; of each "
        "run the model that was best on the validation set. "
        + " ".join(f"{metric}: `{first['signatures'][metric]}`." for metric in metrics),
        "",
        f"On {machine()}; {versions()}. All of it again:",
        "```",
        " ".join(["python scripts/reproduce.py", name, "--data DATA --seeds", *map(str, results), *flags]),
        "```",
        "which for each seed is",
        "```",
        " ".join(["vaswani-transformer train", *_training_flags(name, reproduction, data, None, None, flags)]),
    ]
    for tokenize in reproduction.tokenize:
        own = _evaluation_flags(reproduction, tokenize, languages)
        test = [str(data / path) for path in reproduction.test]
        lines.append(" ".join(["vaswani-transformer evaluate runs/SEED --test-file", *test, *own]))
    return "\n".join([*lines, "```"]) + "\n"


def versions() -> str:
    """The versions of what the figures depend on."""
    return ", ".join(f"{package} {version(package)}" for package in PACKAGES)


def machine() -> str:
    """The device and its threads, in words."""
    if torch.cuda.is_available():
        return f"{torch.cuda.device_count()} × {torch.cuda.get_device_name()}"
    processor = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.is_file():
        names = [line for line in information.read_text().splitlines() if line.startswith("model name")]
        processor = names[0].split(":")[1].strip() if names else processor
    return f"{torch.get_num_threads()} thread(s) of {os.cpu_count()} cores, {processor}"


def language_flags(name: str) -> list[str]:
    """The flags of `evaluate` that tell it a recipe's languages."""
    recipe = parse_training_arguments(
        ["--config", str(RECIPES / f"{name}.yaml"), "--output-dir", "x", "--train-file", "x", "--validation-file", "x"]
    )
    flags = ["--source-lang", recipe.source_lang, "--target-lang", recipe.target_lang]
    return flags + (["--tsv-columns", *recipe.tsv_columns] if recipe.tsv_columns else [])


def _training_flags(
    name: str,
    reproduction: Reproduction,
    data: Path,
    folder: Path | None,
    seed: int | None,
    flags: Sequence[str],
) -> list[str]:
    """The flags of `train`; without a folder and a seed, as a reader types them."""
    shown = folder is None
    train, valid = (
        [str(data / path) for path in names] if shown else reproduction.files(data, names)
        for names in (reproduction.train, reproduction.valid)
    )
    recipe = RECIPES / f"{name}.yaml"
    return [
        *("--config", str(recipe.relative_to(ROOT) if shown else recipe)),
        *("--train-file", *train, "--validation-file", *valid),
        *("--output-dir", "runs/SEED" if shown else str(folder), "--seed", "SEED" if shown else str(seed), *flags),
    ]


def _evaluation_flags(reproduction: Reproduction, tokenize: str, languages: Sequence[str]) -> list[str]:
    return [
        *(*languages, "--tokenize", tokenize),
        *("--num-beams", str(reproduction.num_beams), "--length-penalty", str(reproduction.length_penalty)),
    ]


def spread(values: list[float]) -> str:
    """Mean and, where there are several, standard deviation."""
    mean = f"{statistics.mean(values):.2f}"
    return f"{mean} ± {statistics.stdev(values):.2f}" if len(values) > 1 else mean


def create_parser() -> ArgumentParser:
    """The parser of this script."""
    parser = ArgumentParser(
        prog="reproduce.py",
        description="Train a recipe with several seeds, score each on its test set, and write the table. What was "
        "interrupted goes on. Flags that it does not know go to `train`.",
    )
    parser.add_argument("name", choices=REPRODUCTIONS, help="What to reproduce.")
    add_options(parser)
    parser.add_argument("--output", type=Path, metavar="FILE", help="Table; model_cards/results/NAME.md by default.")
    return parser


def add_options(parser: ArgumentParser) -> None:
    """The options of every script that trains several seeds."""
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="Folder of the corpus' files.")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="A run for each.")
    parser.add_argument("--runs", type=Path, default=Path("runs"), metavar="FOLDER", help="Where the run folders lie.")


def run(options: Namespace, flags: Sequence[str]) -> None:
    """Train and score all seeds; the table is written anew after each."""
    reproduction = REPRODUCTIONS[options.name]
    reproduction.check(options.data)
    if options.output is None:
        RESULTS.mkdir(exist_ok=True)
    output = options.output or RESULTS / f"{options.name}.md"
    if not output.absolute().parent.is_dir():
        raise InputError(f"{output}: there is no folder {output.absolute().parent} to write to")
    results: dict[int, dict[str, Any]] = {}
    for seed in dict.fromkeys(options.seeds):
        folder = options.runs / f"{options.name}-{seed}"
        train(options.name, reproduction, options.data, folder, seed, flags)
        results[seed] = evaluate(reproduction, options.data, folder, language_flags(options.name))
        text = table(options.name, reproduction, results, flags)
        write_atomically(output, lambda path, text=text: path.write_text(text, encoding="utf-8"))
    print(text, end="")


def main(arguments: Sequence[str] | None = None) -> int:
    """Reproduce; 0, or 2 for a mistake in what was given, told in one line."""
    return run_script(create_parser(), run, arguments)


def run_script(
    parser: ArgumentParser, work: Callable[[Namespace, list[str]], None], arguments: Sequence[str] | None
) -> int:
    """Have `work` do what `arguments` say, with the flags that the parser does not know; the exit code."""
    try:
        work(*parser.parse_known_args(sys.argv[1:] if arguments is None else arguments))
    except InputError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
