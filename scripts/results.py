"""What trained models scored, kept beside the tables that are drawn of it."""

from __future__ import annotations

import json
import os
import platform
import statistics
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from vaswani_transformer.checkpoints import check_output, write_atomically
from vaswani_transformer.errors import InputError

PACKAGES = ("torch", "transformers", "tokenizers", "sacrebleu")

Result = dict[str, Any]


@dataclass(frozen=True)
class Results:
    """The results of several trainings and seeds, in a JSON file.

    Seeds trained in different calls, and on different machines, meet in it. The file holds, for each name, the
    conditions that its seeds share and the result of each; results under other conditions are no longer that name's.
    """

    path: Path

    @classmethod
    def beside(cls, table: Path) -> Results:
        """The results of a table, in the file of its name that ends in `.json`.

        Raises:
            InputError: If either cannot be written, or the file holds something else.
        """
        results = cls(table.with_suffix(".json"))
        if results.path == table:
            raise InputError(f"{table}: the results go there; give the table a name that does not end in .json")
        results.check()
        check_output(table)
        return results

    def check(self) -> None:
        """See that the file can be read and written, before hours of training.

        Raises:
            InputError: If not.
        """
        check_output(self.path)
        try:
            entries = self._read()
            whole = all({"conditions", "seeds"} == set(entry) for entry in entries.values())
        except (ValueError, AttributeError, TypeError):
            whole = False
        if not whole:
            raise InputError(f"{self.path}: holds no results of trainings; move it, or choose another --output")

    def of(self, name: str, conditions: dict[str, Any]) -> dict[int, Result]:
        """The results of `name` under these conditions, by seed."""
        entry = self._read().get(name)
        if entry is None or entry["conditions"] != conditions:
            return {}
        return {int(seed): result for seed, result in entry["seeds"].items()}

    def add(self, name: str, conditions: dict[str, Any], seed: int, result: Result) -> None:
        """Keep the result of a seed, in place of an earlier one and of all under other conditions."""
        seeds = {**self.of(name, conditions), seed: result}
        entries = self._read() | {name: {"conditions": conditions, "seeds": dict(sorted(seeds.items()))}}
        text = json.dumps(dict(sorted(entries.items())), indent=1) + "\n"
        write_atomically(self.path, lambda path: path.write_text(text, encoding="utf-8"))

    def _read(self) -> dict[str, Any]:
        return json.loads(self.path.read_text(encoding="utf-8")) if self.path.is_file() else {}


def circumstances(results: list[Result]) -> str:
    """The machines, precisions and versions of some results, in a sentence."""
    trained_on = (result["trained_on"] for result in results)
    return " ".join(
        f"Trained on {text}."
        for text in dict.fromkeys(f"{one['machine']}, {one['precision']}; {one['versions']}" for one in trained_on)
    )


def threads(results: list[Result]) -> str:
    """What stands before a command so that it gives the same digits: on a CPU they depend on the threads."""
    counts = {result["trained_on"].get("threads") for result in results} - {None}
    return f"OMP_NUM_THREADS={counts.pop()} " if len(counts) == 1 else ""


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


def spread(values: list[float]) -> str:
    """Mean and, where there are several, standard deviation."""
    mean = f"{statistics.mean(values):.2f}"
    return f"{mean} ± {statistics.stdev(values):.2f}" if len(values) > 1 else mean
