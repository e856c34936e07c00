"""The run folder: what a run saves, and how it goes on after an interruption.

    runs/NAME/
      config.json  generation_config.json  model.safetensors  tokenizer…   the best model, for from_pretrained
      training_args.yaml  metrics.jsonl  evaluations.jsonl  README.md  training_curve.png
      checkpoints/step-000500/   the weights and all that an exact resume needs

A folder of averaged weights has the first two lines too, and the names of the checkpoints in averaged.json.
Everything is written aside and renamed, so a kill at any moment leaves the last whole checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from huggingface_hub.utils.sha import sha_fileobj
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn
from torch.optim import Optimizer
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from .errors import InputError, one_line
from .sharding import cut_like
from .training_arguments import default_settings

# The files of a checkpoint: the weights, what else an exact resume needs in tensors, and the rest.
TENSORS = ("model.safetensors", "training_state.safetensors")
STATE = "training_state.json"


@dataclass
class TrainingState:
    """Where a run stands.

    Args:
        step: Updates that are done.
        epoch: Passes over the corpus that are done.
        batch: Batches of this pass that are done.
        seconds: Time that the updates took.
        validated_step: The last update that was validated.
        best_score: Of the best model, the higher the better.
        best_step: The update of the best model.
        validations_since_best: Validations that found no better model.
        processes: How many trained.
        corpus: What tells the training pairs from others.
        gradient_scaler: The state of fp16's gradient scaler.
        window_loss: Sum of the losses of the target tokens since the last record.
        window_tokens: How many these are.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    seconds: float = 0.0
    validated_step: int = 0
    best_score: float | None = None
    best_step: int = 0
    validations_since_best: int = 0
    processes: int = 1
    corpus: str = ""
    gradient_scaler: dict[str, Any] | None = None
    window_loss: float = 0.0
    window_tokens: int = 0


class RunFolder:
    """Reads and writes one run's folder.

    Args:
        path: The folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.weights = self.path / "model.safetensors"
        self.checkpoints = self.path / "checkpoints"
        self.metrics = self.path / "metrics.jsonl"
        self.arguments = self.path / "training_args.yaml"
        self.evaluations = self.path / "evaluations.jsonl"
        self.averaged = self.path / "averaged.json"
        self.curve = self.path / "training_curve.png"

    def is_run(self) -> bool:
        """Whether a training, or the mean of its checkpoints, made this folder."""
        return self.arguments.is_file()

    def check(self, settings: dict[str, Any], may_change: Collection[str], resume: bool) -> None:
        """Check that the folder is free for a new run, or holds one to go on with in these settings.

        Raises:
            InputError: If the folder cannot be made, holds another run or other files, or there is none to resume.
        """
        if self.averaged.is_file():
            raise InputError(
                f"{self.path}: holds the mean of a run's checkpoints, which cannot be trained on; resume the run "
                "itself, or choose another --output-dir"
            )
        if resume:
            self._check_settings(settings, may_change)
        elif self.path.is_file():
            raise InputError(f"{self.path}: is a file; choose another --output-dir")
        elif self.path.exists() and any(self.path.iterdir()):
            what = "holds another run" if self.arguments.is_file() else "is not empty"
            remedy = "add --resume to go on with it, or choose" if self.arguments.is_file() else "choose"
            raise InputError(f"{self.path}: the output folder {what}; {remedy} another --output-dir")
        else:
            parent = next(parent for parent in [self.path, *self.path.absolute().parents] if parent.exists())
            if not (parent.is_dir() and os.access(parent, os.W_OK)):
                raise InputError(f"{self.path}: cannot be made, for {parent} is no folder to write to")

    def _check_settings(self, settings: dict[str, Any], may_change: Collection[str]) -> None:
        if not self.arguments.is_file():
            raise InputError(f"{self.path}: no run to resume here; start it without --resume")
        if changed := self.changed_settings(settings, may_change):
            changes = ", ".join(f"{name} was {before} and is {now}" for name, (before, now) in changed.items())
            raise InputError(f"{self.path}: a resumed run keeps its settings: {changes}; give the ones it had")

    def changed_settings(self, settings: dict[str, Any], may_change: Collection[str]) -> dict[str, tuple[Any, Any]]:
        """Of the settings that may not change, those that the run had otherwise: what they were, and what they are."""
        before = self.read_settings()
        known = [name for name in settings if name in before and name not in may_change]
        return {name: (before[name], settings[name]) for name in known if settings[name] != before[name]}

    def create(self, settings: dict[str, Any], tokenizer: PreTrainedTokenizerBase) -> None:
        """Make the folder of a new run, with its tokenizer and its settings."""
        self.path.mkdir(parents=True, exist_ok=True)
        tokenizer.save_pretrained(self.path)
        self.save_settings(settings)

    def save_settings(self, settings: dict[str, Any]) -> None:
        """Save the settings, or bring those of a resumed run up to date."""
        write_atomically(self.arguments, lambda path: path.write_text(yaml.safe_dump(settings, sort_keys=False)))

    def read_settings(self) -> dict[str, Any]:
        """The settings of the run, defaults where its version had none; empty where no training made this folder.

        Raises:
            InputError: If they are damaged.
        """
        if not self.arguments.is_file():
            return {}
        try:
            settings = yaml.safe_load(self.arguments.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise InputError(
                f"{self.arguments}: does not hold the run's settings any more ({one_line(error)})"
            ) from error
        if not isinstance(settings, dict):
            raise InputError(f"{self.arguments}: does not hold the run's settings any more (no `key: value` lines)")
        if "output_dir" not in settings:  # every run has written it
            raise InputError(f"{self.arguments}: does not hold the run's settings any more (no output_dir)")
        return {**default_settings(), **settings}

    def load_tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer that the run began with.

        Raises:
            InputError: If it is missing or damaged.
        """
        try:
            return AutoTokenizer.from_pretrained(self.path)
        except Exception as error:  # transformers and tokenizers raise many kinds
            raise InputError(f"{self.path}: the run's tokenizer cannot be read ({one_line(error)})") from error

    def record(self, **values: Any) -> None:
        """Append a record to `metrics.jsonl`."""
        _append(self.metrics, values)

    def record_evaluation(self, **values: Any) -> None:
        """Append a record to `evaluations.jsonl`."""
        _append(self.evaluations, values)

    def read_records(self, path: Path) -> list[dict[str, Any]]:
        """The records of `metrics` or `evaluations`, but half a record at the end; none where there is no file.

        Raises:
            InputError: If the file holds something else.
        """
        if not path.is_file():
            return []
        try:
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            records = [json.loads(line) for line in lines if line.endswith("\n")]
        except ValueError as error:
            raise InputError(f"{path}: not the records of a run any more ({one_line(error)})") from error
        if not all(isinstance(record, dict) for record in records):
            raise InputError(f"{path}: not the records of a run any more; expected a JSON object in each line")
        return records

    def step(self, number: int) -> Path:
        """The folder of the checkpoint after update `number`."""
        return self.checkpoints / f"step-{number:06d}"

    def steps(self, every: int = 1) -> list[Path]:
        """The whole checkpoints, oldest first; with `every`, those of multiples of so many updates."""
        numbered = {int(folder.name.removeprefix("step-")): folder for folder in self.checkpoints.glob("step-*[0-9]")}
        return [numbered[number] for number in sorted(numbered) if number % every == 0]

    def save_checkpoint(
        self,
        weights: dict[str, torch.Tensor],
        moments: dict[str, torch.Tensor],
        state: TrainingState,
        generators: Sequence[dict[str, torch.Tensor]],
    ) -> None:
        """Save the checkpoint after `state.step`.

        Args:
            weights: The whole model's, by name.
            moments: The optimizer's state, of [`moments_by_name`].
            state: Where the run stands.
            generators: The random generators of each process.
        """
        tensors = {f"{key}.{rank}": value for rank, own in enumerate(generators) for key, value in own.items()}

        def write(folder: Path) -> None:
            folder.mkdir()
            save_file(weights, folder / TENSORS[0], metadata={"format": "pt"})
            save_file({**tensors, **moments}, folder / TENSORS[1])
            (folder / STATE).write_text(_sealed(state, {name: file_digest(folder / name) for name in TENSORS}))

        self.checkpoints.mkdir(exist_ok=True)
        write_atomically(self.step(state.step), write)

    def save_state(self, state: TrainingState) -> None:
        """Bring the record of the checkpoint after `state.step` up to date."""
        path = self.step(state.step) / STATE
        digests = _unsealed(path)[1]
        write_atomically(path, lambda aside: aside.write_text(_sealed(state, digests)))

    def remove_old(self, keep: int, every: int, best_step: int) -> None:
        """Remove all checkpoints but the newest, the `keep` newest of multiples of `every` updates, and the best."""
        kept = {*self.steps(every)[-keep:], *self.steps()[-1:], self.step(best_step)}
        for folder in self.steps():
            if folder not in kept:
                # At once, as far as anyone who looks for checkpoints can see.
                aside = folder.with_name(f".{folder.name}.removed")
                os.replace(folder, aside)
                shutil.rmtree(aside)

    def set_damaged_aside(self) -> list[str]:
        """Rename the newest checkpoints that are not what was written, up to the first that is whole.

        Returns:
            A line for each, with what is wrong and its new name.

        Raises:
            InputError: If there are checkpoints, and none is whole.
        """
        found = []
        for folder in reversed(self.steps()):
            try:
                _, digests = _unsealed(folder / STATE)
                changed = [name for name in TENSORS if file_digest(folder / name) != digests[name]]
            except (OSError, ValueError, KeyError, TypeError) as error:
                reason = one_line(error)
            else:
                if not changed:
                    return found
                reason = f"{' and '.join(changed)} not as written"
            aside = folder.with_name(f".{folder.name}.damaged")
            if aside.exists():
                shutil.rmtree(aside)
            os.replace(folder, aside)
            found.append(f"{folder} is damaged ({reason}); it is now {aside.name}")
        if found:
            raise InputError(f"no checkpoint is whole: {'; '.join(found)}; start the run anew in another folder")
        return found

    def load_checkpoint(self, model: nn.Module, optimizer: Optimizer, rank: int) -> TrainingState:
        """Bring the model, the optimizer and the generators of process `rank` to the newest checkpoint.

        A run that was stopped before its first checkpoint starts anew. A process that the checkpoint does not know,
        because there were fewer, keeps its generators as they are.

        Raises:
            InputError: If the checkpoint is damaged or of another model.
        """
        if not self.steps():
            return TrainingState()
        folder = self.steps()[-1]
        try:
            state, _ = _unsealed(folder / STATE)
            weights, tensors = (load_file(folder / name) for name in TENSORS)
            copy_weights(model, weights)
            parameters = dict(model.named_parameters())
            for key, value in tensors.items():
                kind, name = key.split(".", 1)
                if name in parameters:
                    optimizer.state[parameters[name]][kind] = cut_like(value, parameters[name])
        except (SafetensorError, OSError, ValueError, TypeError, KeyError, RuntimeError) as error:
            raise InputError(
                f"{folder}: the checkpoint does not fit this model ({one_line(error)}); remove it to go on from the "
                "one before"
            ) from error
        restore_generators({kind: tensors[key] for kind in GENERATORS if (key := f"{kind}.{rank}") in tensors})
        return state

    def forget_records_after(self, step: int) -> None:
        """Remove the records of updates after `step`, and half a record at the end, from `metrics.jsonl`."""
        if not self.metrics.exists():
            return
        lines = self.metrics.read_text(encoding="utf-8").splitlines(keepends=True)
        try:
            kept = [line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= step]
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{self.metrics}: not the records of a run any more ({one_line(error)})") from error
        write_atomically(self.metrics, lambda path: path.write_text("".join(kept), encoding="utf-8"))

    def save_averaged(self, run: RunFolder, steps: Sequence[Path]) -> None:
        """Take over the settings and the records of `run`, and note of which of its checkpoints this is the mean."""
        for ours, its in ((self.arguments, run.arguments), (self.metrics, run.metrics)):
            if its.is_file():
                shutil.copyfile(its, ours)
        self.averaged.write_text(json.dumps({"checkpoints": [step.name for step in steps]}) + "\n")

    def save_best(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        """Save `model` as a folder that `from_pretrained` loads, each file replaced at once."""
        aside = self.path / ".best"
        shutil.rmtree(aside, ignore_errors=True)
        model.save_pretrained(aside)
        tokenizer.save_pretrained(aside)
        for file in aside.iterdir():
            os.replace(file, self.path / file.name)
        aside.rmdir()


def _append(path: Path, values: dict[str, Any]) -> None:
    """Append a record in place of half a one, which an interruption left at the end."""
    with path.open("ab+") as file:
        file.seek(0)
        whole = file.read().rfind(b"\n") + 1
        file.truncate(whole)
        file.write((json.dumps(values) + "\n").encode("utf-8"))


GENERATORS = ("rng", "cuda_rng")


def generator_states() -> dict[str, torch.Tensor]:
    """The states of this process's random generators."""
    states = {"rng": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda_rng"] = torch.cuda.get_rng_state()
    return states


def restore_generators(states: dict[str, torch.Tensor]) -> None:
    """Bring this process's random generators to what [`generator_states`] gave."""
    if "rng" in states:
        torch.set_rng_state(states["rng"])
    if "cuda_rng" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda_rng"])


def check_output(output: str | Path) -> None:
    """Raise [`InputError`] if a file cannot be written there: before the work of which it is to hold the results."""
    folder = Path(output).absolute().parent
    if Path(output).is_dir():
        raise InputError(f"{output}: is a folder, expected a file to write")
    if not folder.is_dir():
        raise InputError(f"{output}: there is no folder {folder} to write to")


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Have `write` make a file or folder beside `path`, flush it to the disk, and rename it to `path`."""
    aside = path.with_name(f".{path.name}.partial")
    _remove(aside)
    try:
        write(aside)
        for part in [aside, *(aside.iterdir() if aside.is_dir() else [])]:
            _flush(part)
    except BaseException:
        _remove(aside)  # a full disk needs the room
        raise
    if path.is_dir():
        shutil.rmtree(path)
    os.replace(aside, path)
    _flush(path.parent)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def file_digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return sha_fileobj(file).hex()


def _sealed(state: TrainingState, digests: dict[str, str]) -> str:
    """The record of a checkpoint, with the digests of its other files and of itself."""
    record = {"state": asdict(state), "sha256": digests}
    return json.dumps({**record, "seal": hashlib.sha256(json.dumps(record).encode()).hexdigest()})


def _unsealed(path: Path) -> tuple[TrainingState, dict[str, str]]:
    """What [`_sealed`] wrote.

    Raises:
        ValueError: If it is damaged.
    """
    record = json.loads(path.read_text(encoding="utf-8"))
    seal = record.pop("seal")
    if hashlib.sha256(json.dumps(record).encode()).hexdigest() != seal:
        raise ValueError(f"{path.name} not as written")
    return TrainingState(**record["state"]), record["sha256"]


def read_weights(folder: Path) -> dict[str, torch.Tensor]:
    """The weights of a checkpoint or a model folder, by name.

    Raises:
        InputError: If they are missing or damaged.
    """
    try:
        return load_file(folder / "model.safetensors")
    except (SafetensorError, OSError) as error:
        raise InputError(f"{folder}: model.safetensors cannot be read ({error})") from error


def moments_by_name(model: nn.Module, optimizer: Optimizer) -> Iterator[tuple[str, torch.Tensor]]:
    """The optimizer's state of each parameter, as `exp_avg.NAME`."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    for parameter, values in optimizer.state.items():
        for key, value in values.items():
            yield f"{key}.{names[parameter]}", value


def copy_weights(model: nn.Module, weights: dict[str, torch.Tensor]) -> None:
    """Give the parameters of `model` the values of `weights`, by name."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(cut_like(weights[name], parameter))


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
