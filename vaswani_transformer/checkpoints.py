"""The run folder: what a run saves, and how it goes on after an interruption.

    runs/NAME/
      config.json  generation_config.json  model.safetensors  tokenizer…   the best model, for from_pretrained
      training_args.yaml  metrics.jsonl
      checkpoints/step-000500/   the weights and all that an exact resume needs

Everything is written aside and renamed, so a kill at any moment leaves the last whole checkpoint.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn
from torch.optim import Optimizer
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .errors import InputError


@dataclass
class TrainingState:
    """Where a run stands: after `step` updates, `batch` batches into epoch `epoch`."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    seconds: float = 0.0
    best_score: float | None = None
    best_step: int = 0


class RunFolder:
    """Reads and writes one run's folder.

    Args:
        path: The folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"
        self.metrics = self.path / "metrics.jsonl"
        self.arguments = self.path / "training_args.yaml"

    def check(self, resume: bool) -> None:
        """Check that the folder is free for a new run, or holds one to go on with.

        Raises:
            InputError: If the folder holds another run or other files, or none to resume.
        """
        if resume:
            if not self.arguments.is_file():
                raise InputError(f"{self.path}: no run to resume here; start it without --resume")
        elif self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            what = "holds another run" if self.arguments.is_file() else "is not empty"
            remedy = "add --resume to go on with it, or choose" if self.arguments.is_file() else "choose"
            raise InputError(f"{self.path}: the output folder {what}; {remedy} another --output-dir")

    def create(self, arguments: dict[str, Any], tokenizer: PreTrainedTokenizerBase) -> None:
        """Make the folder of a new run, with its settings and its tokenizer."""
        self.path.mkdir(parents=True, exist_ok=True)
        tokenizer.save_pretrained(self.path)
        write_atomically(self.arguments, lambda path: path.write_text(yaml.safe_dump(arguments, sort_keys=False)))

    def record(self, **values: Any) -> None:
        """Append a record to `metrics.jsonl`."""
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")

    def step(self, number: int) -> Path:
        """The folder of the checkpoint after update `number`."""
        return self.checkpoints / f"step-{number:06d}"

    def steps(self) -> list[Path]:
        """The whole checkpoints, oldest first."""
        return sorted(self.checkpoints.glob("step-*[0-9]"))

    def save_checkpoint(self, model: nn.Module, optimizer: Optimizer, state: TrainingState, keep: int) -> None:
        """Save the weights, the optimizer and the generators after `state.step`; keep the `keep` newest."""
        names = {parameter: name for name, parameter in model.named_parameters()}
        moments: dict[str, torch.Tensor] = {"rng": torch.get_rng_state()}
        if torch.cuda.is_available():
            moments["cuda_rng"] = torch.cuda.get_rng_state()
        for parameter, values in optimizer.state.items():
            for key, value in values.items():
                moments[f"{key}.{names[parameter]}"] = value.contiguous()

        def write(folder: Path) -> None:
            folder.mkdir()
            weights = {name: parameter.detach().contiguous() for name, parameter in model.named_parameters()}
            save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
            save_file(moments, folder / "training_state.safetensors")
            (folder / "training_state.json").write_text(json.dumps(asdict(state)))

        self.checkpoints.mkdir(exist_ok=True)
        write_atomically(self.step(state.step), write)
        for old in self.steps()[:-keep]:
            shutil.rmtree(old)

    def load_checkpoint(self, model: nn.Module, optimizer: Optimizer) -> TrainingState:
        """Bring model, optimizer and generators to the last checkpoint, and forget the metrics after it.

        A run that was stopped before its first checkpoint starts anew.
        """
        if not self.steps():
            self.metrics.unlink(missing_ok=True)
            return TrainingState()
        folder = self.steps()[-1]
        state = TrainingState(**json.loads((folder / "training_state.json").read_text()))
        weights = load_file(folder / "model.safetensors")
        moments = load_file(folder / "training_state.safetensors")
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(weights[name])
        torch.set_rng_state(moments.pop("rng"))
        if "cuda_rng" in moments:
            torch.cuda.set_rng_state(moments.pop("cuda_rng"))
        parameters = dict(model.named_parameters())
        for key, value in moments.items():
            kind, name = key.split(".", 1)
            optimizer.state[parameters[name]][kind] = value.to(parameters[name].device)
        if self.metrics.exists():
            lines = self.metrics.read_text(encoding="utf-8").splitlines(keepends=True)
            kept = [line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= state.step]
            write_atomically(self.metrics, lambda path: path.write_text("".join(kept), encoding="utf-8"))
        return state

    def save_best(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        """Save `model` as a folder that `from_pretrained` loads, each file replaced at once."""
        aside = self.path / ".best"
        shutil.rmtree(aside, ignore_errors=True)
        model.save_pretrained(aside)
        tokenizer.save_pretrained(aside)
        for file in aside.iterdir():
            os.replace(file, self.path / file.name)
        aside.rmdir()


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Have `write` make a file or folder beside `path`, flush it to the disk, and rename it to `path`."""
    aside = path.with_name(f".{path.name}.partial")
    if aside.is_dir():
        shutil.rmtree(aside)
    write(aside)
    for part in [aside, *(aside.iterdir() if aside.is_dir() else [])]:
        descriptor = os.open(part, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    if path.is_dir():
        shutil.rmtree(path)
    os.replace(aside, path)


def read_weights(folder: Path) -> dict[str, torch.Tensor]:
    """The weights of a checkpoint or a model folder, by name.

    Raises:
        InputError: If they are missing or damaged.
    """
    try:
        return load_file(folder / "model.safetensors")
    except (SafetensorError, OSError) as error:
        raise InputError(f"{folder}: model.safetensors cannot be read ({error})") from error


def average_weights(models: Iterable[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Mean of the weights of several checkpoints, computed in float64 (section 6.1 averages the last 5 or 20).

    Raises:
        InputError: If there are none, or they are not of one model.
    """
    total: dict[str, torch.Tensor] = {}
    dtypes: dict[str, torch.dtype] = {}
    count = 0
    for weights in models:
        shapes = {name: weight.shape for name, weight in weights.items()}
        if total and shapes != {name: weight.shape for name, weight in total.items()}:
            raise InputError("the checkpoints are not of one model: their weights have different names or shapes")
        for name, weight in weights.items():
            dtypes[name] = weight.dtype
            total[name] = total[name] + weight.double() if name in total else weight.double()
        count += 1
    if not count:
        raise InputError("there are no checkpoints to average")
    return {name: (weight / count).to(dtypes[name]) for name, weight in total.items()}
