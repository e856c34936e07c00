"""Training: determinism, exact resume, accumulation, limits, and what each setting changes."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from accelerate.tracking import GeneralTracker
from conftest import Refused, reset_accelerate
from datasets import Dataset
from safetensors.torch import load_file
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedTokenizerBase

from vaswani_transformer import training
from vaswani_transformer.checkpoints import RunFolder, TrainingState, average_weights
from vaswani_transformer.cli import main
from vaswani_transformer.errors import InputError
from vaswani_transformer.training import LoggingWindow, TranslationTrainer, build_model, create_accelerator
from vaswani_transformer.training_arguments import parse_training_arguments

ROOT = Path(__file__).parents[1]


def run(flags: list[str], folder: Path, *more: str) -> list[dict]:
    """Train and return the records of metrics.jsonl."""
    reset_accelerate()
    assert main(["train", *flags, "--output-dir", str(folder), *more]) == 0
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def losses(records: list[dict]) -> list[float]:
    return [record["loss"] for record in records if "loss" in record]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(RunFolder(folder).steps()[-1] / "model.safetensors")


def same_run(one: Path, other: Path) -> None:
    """Check that two runs ended with the same weights, the same best model and the same records but for the clock."""

    def records(folder: Path) -> list[dict]:
        found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        clock = ("seconds", "target_tokens_per_second")
        return [{name: value for name, value in record.items() if name not in clock} for record in found]

    assert records(one) == records(other)
    for files in (
        (one / "model.safetensors", other / "model.safetensors"),
        *zip(states(one), states(other), strict=True),
    ):
        first, second = map(load_file, files)
        assert first.keys() == second.keys()
        assert all(torch.equal(first[name], second[name]) for name in first), files


def states(folder: Path) -> list[Path]:
    """The tensors of the newest checkpoint."""
    return sorted(RunFolder(folder).steps()[-1].glob("*.safetensors"))


def test_same_seed_same_losses_to_the_last_digit(small_run: list[str], tmp_path: Path) -> None:
    first = losses(run(small_run, tmp_path / "a", "--max-steps", "8"))
    again = losses(run(small_run, tmp_path / "b", "--max-steps", "8"))
    other = losses(run(small_run, tmp_path / "c", "--max-steps", "8", "--seed", "2"))
    assert len(first) == 8
    assert first == again
    assert first != other


def test_validating_more_often_does_not_change_the_training(small_run: list[str], tmp_path: Path) -> None:
    seldom = run(small_run, tmp_path / "a", "--max-steps", "6")
    often = run(small_run, tmp_path / "b", "--max-steps", "6", "--eval-steps", "2", "--save-steps", "3")
    assert losses(seldom) == losses(often)
    assert [record["step"] for record in often if "bleu" in record] == [2, 4, 6]


def test_resumed_run_equals_the_uninterrupted_one(small_run: list[str], tmp_path: Path) -> None:
    whole = run(small_run, tmp_path / "whole", "--max-steps", "30", "--save-steps", "10")
    run(small_run, tmp_path / "parts", "--max-steps", "13", "--save-steps", "10")
    resumed = run(small_run, tmp_path / "parts", "--max-steps", "30", "--save-steps", "10", "--resume")
    assert [record["step"] for record in resumed if "loss" in record] == list(range(1, 31))
    assert losses(resumed) == losses(whole)
    expected, found = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_a_record_across_an_interruption(small_run: list[str], tmp_path: Path) -> None:
    flags = [*small_run, "--logging-steps", "4", "--save-steps", "3"]
    run(flags, tmp_path / "whole", "--max-steps", "10")
    folder = RunFolder(tmp_path / "a")
    run(flags, folder.path, "--max-steps", "7")
    shutil.rmtree(folder.steps()[-1])
    assert folder.steps()[-1].name == "step-000006"
    run(flags, folder.path, "--max-steps", "10", "--resume")
    same_run(folder.path, tmp_path / "whole")


def test_a_run_of_an_older_version_goes_on(small_run: list[str], tmp_path: Path) -> None:
    whole = run(small_run, tmp_path / "a", "--max-steps", "4")
    run(small_run, tmp_path / "b", "--max-steps", "2")
    folder = RunFolder(tmp_path / "b")
    settings = folder.read_settings()
    folder.save_settings({name: value for name, value in settings.items() if name not in ("freeze", "cache_dir")})
    assert losses(run(small_run, tmp_path / "b", "--max-steps", "4", "--resume")) == losses(whole)


def test_resume_before_the_first_checkpoint_starts_anew(small_run: list[str], tmp_path: Path) -> None:
    whole = run(small_run, tmp_path / "a", "--max-steps", "4")
    folder = RunFolder(tmp_path / "a")
    for step in folder.steps():
        for file in step.iterdir():
            file.unlink()
        step.rmdir()
    assert losses(run(small_run, tmp_path / "a", "--max-steps", "4", "--resume")) == losses(whole)


def test_accumulation_gives_the_same_trajectory(small_run: list[str], tmp_path: Path) -> None:
    flags = [*small_run, "--dropout", "0", "--max-steps", "6"]
    whole = losses(run(flags, tmp_path / "a"))
    parts = losses(run(flags, tmp_path / "b", "--gradient-accumulation-steps", "3"))
    assert parts == pytest.approx(whole, rel=1e-5)


def test_more_settings_change_what_they_say(small_run: list[str], tmp_path: Path) -> None:
    base = run(small_run, tmp_path / "base", "--max-steps", "4")
    rates = [record["learning_rate"] for record in base if "loss" in record]
    assert rates == pytest.approx([32**-0.5 * step * 20**-1.5 for step in (1, 2, 3, 4)])

    peak = run(small_run, tmp_path / "peak", "--max-steps", "4", "--learning-rate", "0.02", "--warmup-steps", "2")
    rates = [record["learning_rate"] for record in peak if "loss" in record]
    assert rates == pytest.approx([0.01, 0.02, 0.02 * (2 / 3) ** 0.5, 0.02 * (2 / 4) ** 0.5])

    # The first update's loss has seen no optimizer step yet, so only the loss and the data can change it.
    smooth = losses(run(small_run, tmp_path / "smooth", "--max-steps", "1", "--label-smoothing-factor", "0"))
    assert smooth[0] != losses(base)[0]
    for number, flags in enumerate(
        (
            ["--max-grad-norm", "0.01"],
            ["--adam-beta1", "0.5"],
            ["--adam-beta2", "0.5"],
            ["--adam-epsilon", "0.1"],
            ["--mixed-precision", "bf16"],
        )
    ):
        changed = losses(run(small_run, tmp_path / f"changed{number}", "--max-steps", "4", *flags))
        if "bf16" not in flags:
            assert changed[0] == losses(base)[0], flags
        assert changed[3] != losses(base)[3], flags


def test_limits_intervals_and_kept_checkpoints(small_run: list[str], tmp_path: Path) -> None:
    flags = ["--num-train-epochs", "1", "--save-steps", "3", "--keep-checkpoints", "2", "--logging-steps", "5"]
    records = run(small_run, tmp_path / "a", *flags)
    last = records[-1]["step"]
    assert [record["step"] for record in records if "loss" in record] == list(range(5, last + 1, 5))
    assert records[-1]["epoch"] == 0
    # The two newest multiples of three, and the last if it is none.
    expected = sorted({last - last % 3 - 3, last - last % 3, last})
    assert [folder.name for folder in RunFolder(tmp_path / "a").steps()] == [f"step-{n:06d}" for n in expected[-3:]]
    started = time.monotonic()
    run(small_run, tmp_path / "b", "--max-minutes", "0.02")
    assert time.monotonic() - started < 30


def test_every_parameter_moves(small_run: list[str], tmp_path: Path) -> None:
    run(small_run, tmp_path / "a", "--max-steps", "2", "--save-steps", "1")
    first, second = (load_file(folder / "model.safetensors") for folder in RunFolder(tmp_path / "a").steps())
    assert all(not torch.equal(first[name], second[name]) for name in first)


def test_run_folder_is_a_model_folder_of_the_best_update(small_run: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "a"
    flags = ["--max-steps", "9", "--eval-steps", "3", "--save-steps", "3", "--metric-for-best-model", "loss"]
    records = run(small_run, folder, *flags)
    validations = {record["step"]: record["validation_loss"] for record in records if "validation_loss" in record}
    best = min(validations, key=validations.get)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    saved = load_file(folder / "checkpoints" / f"step-{best:06d}" / "model.safetensors")
    assert all(torch.equal(parameter, saved[name]) for name, parameter in model.named_parameters())
    assert AutoTokenizer.from_pretrained(folder)("Tom")["input_ids"][-1] == model.config.eos_token_id
    assert (model.generation_config.num_beams, model.generation_config.length_penalty) == (4, 0.6)
    files = {file.name for file in folder.iterdir()}
    model_files = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}
    run_files = {"training_args.yaml", "metrics.jsonl", "checkpoints", "README.md", "training_curve.png"}
    assert files == model_files | run_files | {"tokenizer_config.json"}


def test_training_learns_more_than_word_frequencies(
    small_run: list[str], corpus_files: dict[str, Path], tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    flags = ["--max-steps", "400", "--learning-rate", "0.01", "--dropout", "0", "--label-smoothing-factor", "0"]
    found = losses(run(small_run, tmp_path / "a", *flags))
    targets = [line.split("\t")[1] for line in corpus_files["train"].read_text(encoding="utf-8").splitlines()]
    counts = Counter(token for ids in tokenizer(targets)["input_ids"] for token in ids)
    frequencies = [count / counts.total() for count in counts.values()]
    # No model that ignores the context can go below the entropy of single tokens.
    entropy = -sum(frequency * math.log(frequency) for frequency in frequencies)
    assert sum(found[-20:]) / 20 < entropy - 1.5


def test_average_is_the_mean_in_float64(small_run: list[str], tmp_path: Path) -> None:
    run(small_run, tmp_path / "a", "--max-steps", "6", "--save-steps", "2")
    steps = RunFolder(tmp_path / "a").steps()
    loaded = [load_file(folder / "model.safetensors") for folder in steps[-2:]]
    assert main(["average", str(tmp_path / "a"), "--last", "2", "--output", str(tmp_path / "mean")]) == 0
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "mean")
    for name, parameter in model.named_parameters():
        mean = (loaded[0][name].double() + loaded[1][name].double()) / 2
        assert torch.equal(parameter, mean.float())
    assert main(["average", str(tmp_path / "a"), "--output", str(tmp_path / "half"), "--dtype", "float16"]) == 2
    flags = ["--last", "3", "--dtype", "float16"]
    assert main(["average", str(tmp_path / "a"), "--output", str(tmp_path / "half"), *flags]) == 0
    assert load_file(tmp_path / "half" / "model.safetensors")["model.encoder.embed_tokens.weight"].dtype == torch.half
    assert {p.dtype for p in AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "half").parameters()} == {torch.float32}
    with pytest.raises(InputError, match="no checkpoints"):
        average_weights([])


def test_a_loss_that_explodes_stops_the_run(
    small_run: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--max-steps", "500", "--learning-rate", "1e30", "--warmup-steps", "1", "--save-steps", "1"]
    assert main(["train", *small_run, "--output-dir", str(tmp_path / "a"), *flags]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "the loss is nan at update" in line
    assert "lower learning_rate" in line
    assert "step-" in line


def trainer_of(flags: list[str], folder: Path, tokenizer: PreTrainedTokenizerBase) -> TranslationTrainer:
    """A trainer on 60 pairs of random tokens, 2 to 9 on each side."""
    draw = random.Random(0)
    columns = {
        name: [[draw.randrange(4, 500) for _ in range(draw.randint(2, 9))] for _ in range(60)]
        for name in ("input_ids", "labels")
    }
    pairs = Dataset.from_dict(columns)
    settings = parse_training_arguments([*flags, "--output-dir", str(folder), "--max-steps", "9"])
    accelerator = create_accelerator(settings)
    return TranslationTrainer(settings, accelerator, build_model(settings, tokenizer), tokenizer, pairs, pairs)


class Waits(TorchDispatchMode):
    """Operators that make a host wait for its GPU: they bring a value to Python, or a size that depends on values."""

    NAMES = frozenset({"_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2", "unique_dim"})

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in self.NAMES:
            self.found.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("flags", [[], ["--gradient-accumulation-steps", "2"], ["--max-grad-norm", "1"]])
def test_an_update_does_not_wait_for_the_device(
    flags: list[str], small_run: list[str], tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    trainer = trainer_of([*small_run, *flags, "--batch-tokens", "60"], tmp_path, tokenizer)
    epoch = trainer.epoch(0)
    inputs, tokens = trainer.prepare(epoch, epoch.batches[0])
    assert any("attention_mask" in part for part in inputs)  # with padding
    with Waits() as waits:
        loss = trainer.update(inputs, tokens)
    assert waits.found == []
    with waits:  # those that look are seen
        loss.item()
        loss.reshape(1).nonzero()
    assert waits.found == ["_local_scalar_dense", "nonzero"]


def test_a_part_without_pairs_changes_nothing(
    small_run: list[str], tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    trainer = trainer_of([*small_run, "--dropout", "0", "--batch-tokens", "60"], tmp_path, tokenizer)
    epoch = trainer.epoch(0)
    inputs, tokens = trainer.prepare(epoch, [*epoch.batches[0], np.empty(0, dtype=np.int64)])
    assert [part["labels"].ne(-100).sum() for part in inputs] == [tokens, 0]
    before = [parameter.clone() for parameter in trainer.bare_model.parameters()]
    loss = trainer.update(inputs, tokens)
    after = [parameter.clone() for parameter in trainer.bare_model.parameters()]
    for parameter, value in zip(trainer.bare_model.parameters(), before, strict=True):
        parameter.data.copy_(value)
    trainer.optimizer.optimizer.state.clear()
    assert trainer.update(inputs[:1], tokens) == loss
    assert all(map(torch.equal, trainer.bare_model.parameters(), after))


def test_a_window_counts_losses_when_it_looks_and_names_the_first_that_is_not_finite() -> None:
    accelerator = Accelerator(cpu=True)
    window, state = LoggingWindow(), TrainingState()
    for loss, tokens in ((2.0, 10), (4.0, 30)):
        state.step += 1
        window.add(state, torch.tensor(loss), tokens)
    assert window.tokens == 0
    assert window.look(accelerator) is None
    assert (window.tokens, window.mean_loss) == (40, 3.5)
    for loss in (1.0, math.inf, math.nan):
        state.step, state.batch = state.step + 1, state.batch + 5
        window.add(state, torch.tensor(loss), 10)
    assert window.look(accelerator) == (math.inf, TrainingState(step=4, batch=10))
    assert window.look(accelerator) is None


def test_a_divergence_is_told_by_its_own_update_and_before_a_checkpoint(
    small_run: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    update, looks = TranslationTrainer.update, []

    def diverge(self: TranslationTrainer, *batch: Any) -> torch.Tensor:
        loss = update(self, *batch)
        return loss * math.nan if self.state.step + 1 >= 13 else loss

    monkeypatch.setattr(TranslationTrainer, "update", diverge)
    look = TranslationTrainer._look
    monkeypatch.setattr(TranslationTrainer, "_look", lambda *both: (looks.append(both[0].state.step), look(*both)))
    flags = ["--logging-steps", "100", "--save-steps", "6", "--max-steps", "40"]
    refused(["train", *small_run, *flags, "--output-dir", str(tmp_path / "a")], "the loss is nan at update 13, batch ")
    assert looks == [6, 10, 12, 18]
    assert [folder.name for folder in RunFolder(tmp_path / "a").steps()] == ["step-000006", "step-000012"]


def test_how_often_one_looks_changes_no_record(
    small_run: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = [*small_run, "--logging-steps", "7", "--max-steps", "21"]
    seldom = losses(run(flags, tmp_path / "a"))
    monkeypatch.setattr(training, "UPDATES_PER_LOOK", 1)
    assert losses(run(flags, tmp_path / "b")) == seldom
    assert len(seldom) == 3


def test_a_finished_run_is_not_touched_by_resume(small_run: list[str], tmp_path: Path) -> None:
    flags = [*small_run, "--max-steps", "3"]
    assert run(flags, tmp_path / "a") == run(flags, tmp_path / "a", "--resume")


def test_settings_of_a_run_are_a_recipe_again(small_run: list[str], tmp_path: Path) -> None:
    first = run([*small_run, "--max-steps", "2"], tmp_path / "a")
    recipe = str(tmp_path / "a" / "training_args.yaml")
    assert losses(run(["--config", recipe], tmp_path / "b")) == losses(first)
    # A resumed run brings them up to date.
    run([*small_run, "--max-steps", "3"], tmp_path / "a", "--resume")
    assert "max_steps: 3\n" in Path(recipe).read_text()


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--d-model", "64"], "d_model was 32 and is 64"),
        (["--seed", "7"], "seed was 1 and is 7"),
        (["--vocab-size", "400"], "vocab_size was 500 and is 400"),
        (["--num-attention-heads", "4"], "num_attention_heads was 2 and is 4"),
    ],
)
def test_resume_refuses_other_settings(
    flags: list[str], text: str, small_run: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run([*small_run, "--max-steps", "2"], tmp_path / "a")
    assert (
        main(["train", *small_run, "--max-steps", "3", "--output-dir", str(tmp_path / "a"), "--resume", *flags]) == 2
    )
    assert text in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("name", ["model.safetensors", "training_state.safetensors", "training_state.json"])
@pytest.mark.parametrize("damage", ["truncated", "other bytes", "missing"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    name: str, damage: str, small_run: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [*small_run, "--max-steps", "6", "--save-steps", "2", "--average-last", "2", "--eval-steps", "5"]
    run(flags, tmp_path / "whole")
    run([*flags, "--max-steps", "4"], tmp_path / "a")
    newest = RunFolder(tmp_path / "a").steps()[-1]
    data = (newest / name).read_bytes()
    middle = len(data) // 2
    if damage == "truncated":
        (newest / name).write_bytes(data[:middle])
    elif damage == "other bytes":
        digit = b"1" if data[middle : middle + 1] != b"1" else b"2"
        (newest / name).write_bytes(data[:middle] + digit + data[middle + 1 :])
    else:
        (newest / name).unlink()
    capsys.readouterr()
    records = run(flags, tmp_path / "a", "--resume")
    assert f"{newest} is damaged" in capsys.readouterr().err
    assert (newest.parent / f".{newest.name}.damaged").is_dir()
    same_run(tmp_path / "a", tmp_path / "whole")
    assert [record["step"] for record in records if "loss" in record] == [1, 2, 3, 4, 5, 6]


def test_no_checkpoint_is_whole(small_run: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run([*small_run, "--max-steps", "4", "--save-steps", "2"], tmp_path / "a")
    for step in RunFolder(tmp_path / "a").steps():
        (step / "model.safetensors").write_bytes(b"")
    assert main(["train", *small_run, "--max-steps", "6", "--output-dir", str(tmp_path / "a"), "--resume"]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "no checkpoint is whole" in line
    assert line.count("model.safetensors not as written") == 2


def test_resume_on_another_corpus_is_refused(
    small_run: list[str], corpus_files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run([*small_run, "--max-steps", "2"], tmp_path / "a")
    shorter = tmp_path / "shorter.tsv"
    shorter.write_text("".join(corpus_files["train"].read_text(encoding="utf-8").splitlines(True)[:300]))
    flags = ["--output-dir", str(tmp_path / "a"), "--train-file", str(shorter), "--max-steps", "3", "--resume"]
    assert main(["train", *small_run, *flags]) == 2
    assert "not those of the run any more (there are 300 now)" in capsys.readouterr().err.splitlines()[-1]
    # As many pairs, of other sentences.
    lines = corpus_files["train"].read_text(encoding="utf-8").splitlines(True)
    shorter.write_text("".join(reversed(lines)), encoding="utf-8")
    assert main(["train", *small_run, *flags]) == 2
    assert "not those of the run any more (there are 400 now)" in capsys.readouterr().err.splitlines()[-1]


def test_early_stopping(small_run: list[str], tmp_path: Path) -> None:
    # The loss falls, and rises when the rate is far too high: the best model is found on the way.
    flags = [*small_run, "--metric-for-best-model", "loss", "--eval-steps", "2", "--save-steps", "4"]
    flags += ["--learning-rate", "0.05", "--warmup-steps", "12", "--early-stopping-patience", "3"]
    records = run(flags, tmp_path / "a")
    validation = [record["validation_loss"] for record in records if "validation_loss" in record]
    best = min(range(len(validation)), key=validation.__getitem__)
    assert len(validation) == best + 1 + 3
    assert records[-1]["step"] == 2 * len(validation)
    # A finished run is not touched; more patience goes on, as if it had been there.
    assert run(flags, tmp_path / "a", "--resume") == records
    flags[-1] = "4"
    run(flags, tmp_path / "a", "--resume")
    run(flags, tmp_path / "b")
    same_run(tmp_path / "a", tmp_path / "b")


def test_the_best_checkpoint_is_kept(small_run: list[str], tmp_path: Path) -> None:
    flags = ["--max-steps", "12", "--save-steps", "1", "--eval-steps", "2", "--keep-checkpoints", "2"]
    flags += ["--metric-for-best-model", "loss", "--learning-rate", "0.5", "--warmup-steps", "8"]
    records = run(small_run, tmp_path / "a", *flags)
    validation = {record["step"]: record["validation_loss"] for record in records if "validation_loss" in record}
    best = min(validation, key=validation.get)
    assert best < 11
    names = [folder.name for folder in RunFolder(tmp_path / "a").steps()]
    assert names == [f"step-{step:06d}" for step in (best, 11, 12)]


def test_learned_positions_train_where_validation_has_longer_sentences(small_run: list[str], tmp_path: Path) -> None:
    flags = ["--positional-encoding", "learned", "--max-length", "22", "--max-steps", "2"]
    records = run([*small_run, *flags], tmp_path / "a")
    assert math.isfinite(records[-1]["validation_loss"])


def test_average_last_validates_and_saves_the_mean(small_run: list[str], tmp_path: Path) -> None:
    flags = ["--max-steps", "6", "--save-steps", "2", "--eval-steps", "6"]
    plain = run(small_run, tmp_path / "plain", *flags)
    averaged = run(small_run, tmp_path / "mean", *flags, "--average-last", "3")
    assert losses(plain) == losses(averaged)
    expected = [
        load_file(tmp_path / "mean" / "checkpoints" / f"step-{n:06d}" / "model.safetensors") for n in (2, 4, 6)
    ]
    saved = load_file(tmp_path / "mean" / "model.safetensors")
    for name, weight in saved.items():
        assert torch.equal(weight, (sum(weights[name].double() for weights in expected) / 3).float()), name
    assert plain[-1]["validation_loss"] != averaged[-1]["validation_loss"]


def start(flags: list[str], folder: Path) -> subprocess.Popen:
    """Start a long run in another process and wait for its second checkpoint."""
    command = [sys.executable, "-m", "vaswani_transformer", "train", *flags, "--output-dir", str(folder)]
    process = subprocess.Popen(
        [*command, "--max-steps", "100000", "--save-steps", "5"],
        stderr=subprocess.PIPE,
        text=True,
        # As many threads as here, for sums are rounded by thread.
        env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())},
    )
    deadline = time.monotonic() + 90
    while len(RunFolder(folder).steps()) < 2:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return process


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interruption_leaves_a_whole_checkpoint(how: signal.Signals, small_run: list[str], tmp_path: Path) -> None:
    process = start(small_run, tmp_path / "a")
    process.send_signal(how)
    error = process.communicate(timeout=60)[1]
    if how != signal.SIGKILL:
        assert process.returncode == 128 + how
        assert "--resume" in error.splitlines()[-1]
        assert "Traceback" not in error
    last = int(RunFolder(tmp_path / "a").steps()[-1].name.split("-")[1])
    records = run(small_run, tmp_path / "a", "--max-steps", str(last + 2), "--resume")
    whole = run(small_run, tmp_path / "b", "--max-steps", str(last + 2))
    assert losses(records) == losses(whole)


def test_training_goes_on_from_a_model(
    small_run: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = run(small_run, tmp_path / "a", "--max-steps", "4")
    files = small_run[small_run.index("--train-file") :]
    flags = [*files, "--init-from", str(tmp_path / "a"), "--batch-tokens", "400", "--mixed-precision", "no"]
    flags += ["--logging-steps", "1", "--eval-sentences", "4", "--max-steps", "3", "--learning-rate", "1e-9"]
    records = run(flags, tmp_path / "b", "--dropout", "0", "--save-steps", "2")
    # It begins where the other ended, with its vocabulary, and its own dropout.
    assert losses(records)[0] < losses(first)[0] - 0.1
    assert records[-1]["validation_loss"] == pytest.approx(first[-1]["validation_loss"], abs=1e-4)
    names = ("tokenizer.json", "config.json")
    vocabularies, configs = ([(tmp_path / run / name).read_text() for run in "ab"] for name in names)
    assert vocabularies[0] == vocabularies[1]
    assert [json.loads(config)["dropout"] for config in configs] == [0.1, 0]
    run(flags, tmp_path / "c", "--dropout", "0", "--save-steps", "2", "--max-steps", "2")
    resumed = run(flags, tmp_path / "c", "--dropout", "0", "--save-steps", "2", "--resume")
    assert losses(resumed) == losses(records)
    assert all(torch.equal(weight, weights(tmp_path / "b")[name]) for name, weight in weights(tmp_path / "c").items())
    reset_accelerate()
    capsys.readouterr()
    assert main(["train", *flags, "--output-dir", str(tmp_path / "d"), "--d-model", "64"]) == 2
    assert "has d_model 32, and 64 is asked for; leave d_model out" in capsys.readouterr().err.splitlines()[-1]


def test_frozen_parts_stay_as_they_are(
    small_run: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(small_run, tmp_path / "a", "--max-steps", "1", "--save-steps", "1")
    run(small_run, tmp_path / "b", "--max-steps", "5", "--save-steps", "5", "--freeze", "model.encoder")
    before, after = weights(tmp_path / "a"), weights(tmp_path / "b")
    seed_weights = build_initial(small_run)
    for name, weight in after.items():
        assert torch.equal(weight, seed_weights[name]) == name.startswith("model.encoder."), name
    assert not torch.equal(before["model.encoder.embed_tokens.weight"], after["model.encoder.embed_tokens.weight"])
    for parts, text in ((["model.encode"], "the model has no part model.encode"), (["model"], "nothing of the model")):
        reset_accelerate()
        flags = ["--max-steps", "1", "--output-dir", str(tmp_path / "c"), "--freeze", *parts]
        assert main(["train", *small_run, *flags]) == 2
        assert text in capsys.readouterr().err.splitlines()[-1]


def build_initial(flags: list[str]) -> dict[str, torch.Tensor]:
    """The weights that a run of these flags begins with."""
    from vaswani_transformer.training import build_model
    from vaswani_transformer.training_arguments import parse_training_arguments

    settings = parse_training_arguments([*flags, "--output-dir", "x", "--max-steps", "1"])
    return dict(build_model(settings, range(500)).named_parameters())


def test_activations_computed_again_give_the_same_training(small_run: list[str], tmp_path: Path) -> None:
    flags = [*small_run, "--max-steps", "5"]
    assert losses(run(flags, tmp_path / "a")) == pytest.approx(
        losses(run(flags, tmp_path / "b", "--gradient-checkpointing")), rel=1e-6
    )


def test_dropout_rises_in_a_run_and_in_one_that_goes_on(
    small_run: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [*small_run, "--dropout", "0.3", "--save-steps", "2"]
    rising = [*flags, "--dropout-warmup-steps", "4", "--max-steps", "8"]
    whole = losses(run(rising, tmp_path / "whole"))
    none = losses(run([*small_run, "--dropout", "0", "--max-steps", "2"], tmp_path / "none"))
    assert whole[0] == none[0]
    assert whole[1] != none[1]
    for interrupted in ("2", "6"):
        folder = tmp_path / interrupted
        run([*rising, "--max-steps", interrupted], folder)
        assert losses(run(rising, folder, "--resume")) == whole
    reset_accelerate()
    assert main(["train", *rising, "--torch-compile", "--output-dir", str(tmp_path / "compiled")]) == 2
    assert "choose it or torch_compile" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.slow
def test_a_compiled_model_gives_the_same_training(small_run: list[str], tmp_path: Path) -> None:
    flags = [*small_run, "--max-steps", "6", "--save-steps", "3", "--dropout", "0"]
    plain = run(flags, tmp_path / "a")
    assert losses(run(flags, tmp_path / "b", "--torch-compile")) == pytest.approx(losses(plain), rel=1e-4)


def test_half_precision_needs_a_gpu(small_run: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--max-steps", "1", "--output-dir", str(tmp_path / "a"), "--mixed-precision", "fp16"]
    if not torch.cuda.is_available():
        reset_accelerate()
        assert main(["train", *small_run, *flags]) == 2
        assert "mixed_precision=fp16 needs a GPU" in capsys.readouterr().err.splitlines()[-1]


def test_trackers_get_the_records(
    small_run: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logged, settings, ended = [], {}, []

    class Tracker(GeneralTracker):
        name = "trackio"
        requires_logging_directory = False
        main_process_only = True

        def __init__(self, run_name: str, **_: object) -> None:
            super().__init__()

        @property
        def tracker(self) -> None:
            return None

        def store_init_configuration(self, values: dict) -> None:
            settings.update(values)

        def log(self, values: dict, step: int | None = None, **_: object) -> None:
            logged.append((step, values))

        def finish(self) -> None:
            ended.append(True)

    flags = [*small_run, "--max-steps", "2", "--output-dir", str(tmp_path / "a"), "--report-to", "trackio"]
    assert main(["train", *flags]) == 2
    assert "pip install trackio" in capsys.readouterr().err.splitlines()[-1]
    assert main(["train", *flags[:-1], "trackyo"]) == 2
    assert "unknown tracker trackyo; did you mean trackio" in capsys.readouterr().err.splitlines()[-1]
    monkeypatch.setattr("vaswani_transformer.training_arguments.find_spec", lambda _: True)
    monkeypatch.setattr("accelerate.accelerator.filter_trackers", lambda names, *_: [Tracker(*names or "")])
    records = run(flags[: flags.index("--output-dir")], tmp_path / "a", *flags[-2:])
    assert [(record["step"], record.get("loss")) for record in records] == [
        (step, values.get("loss")) for step, values in logged
    ]
    assert settings["batch_tokens"] == 400
    assert str(tmp_path) not in str(settings)
    assert ended


def test_a_full_disk_stops_the_run_with_its_checkpoints_whole(small_run: list[str], tmp_path: Path) -> None:
    flags = [*small_run, "--max-steps", "6", "--save-steps", "2", "--output-dir", str(tmp_path / "a")]
    script = f"""
import resource, signal, sys
from vaswani_transformer import checkpoints
from vaswani_transformer.cli import main

save = checkpoints.RunFolder.save_checkpoint

def save_to_a_full_disk(self, weights, moments, state, generators):
    if state.step == 4:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    save(self, weights, moments, state, generators)

checkpoints.RunFolder.save_checkpoint = save_to_a_full_disk
sys.exit(main({["train", *flags]}))
"""
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert done.returncode == 2, done.stderr
    line = done.stderr.splitlines()[-1]
    assert "the disk is full, and the run stopped after update 4; the last checkpoint is" in line
    assert line.endswith("step-000002; make room, and go on with --resume")
    assert "Traceback" not in done.stderr
    assert [path.name for path in (tmp_path / "a" / "checkpoints").iterdir()] == ["step-000002"]
    flags = [*small_run, "--max-steps", "6", "--save-steps", "2"]
    run(flags, tmp_path / "a", "--resume")
    run(flags, tmp_path / "b")
    same_run(tmp_path / "a", tmp_path / "b")


@pytest.mark.slow
def test_killed_at_random_moments(small_run: list[str], tmp_path: Path) -> None:
    # Writing, validating and training take about equally long.
    flags = [*small_run, "--max-steps", "60", "--save-steps", "2", "--eval-steps", "5", "--keep-checkpoints", "2"]
    run(flags, tmp_path / "whole")
    command = [sys.executable, "-m", "vaswani_transformer", "train", *flags]
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    moments = random.Random(0)
    killed = 0
    for number in range(20):
        folder = tmp_path / f"run-{number}"
        process = subprocess.Popen([*command, "--output-dir", str(folder)], stderr=subprocess.DEVNULL, env=environment)
        while not (folder / "metrics.jsonl").exists() and process.poll() is None:
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 1.2))
        process.kill()
        killed += process.wait() == -signal.SIGKILL
        run(flags, folder, "--resume")
        same_run(folder, tmp_path / "whole")
    assert killed >= 15


UPDATES_IN_FLOAT64 = """
import sys
from itertools import islice
from pathlib import Path
from safetensors.torch import save_file
from vaswani_transformer.checkpoints import RunFolder
from vaswani_transformer.corpora import open_corpus
from vaswani_transformer.preprocessing import tokenize_corpus
from vaswani_transformer.training import TranslationTrainer, build_model, create_accelerator
from vaswani_transformer.training_arguments import parse_training_arguments

output, *flags = sys.argv[1:]
settings = parse_training_arguments(flags)
tokenizer = RunFolder(settings.output_dir).load_tokenizer()
accelerator = create_accelerator(settings)
pairs, _ = tokenize_corpus(open_corpus(settings.train_file), tokenizer)
trainer = TranslationTrainer(settings, accelerator, build_model(settings, tokenizer).double(), tokenizer, pairs, pairs)
trainer.model.train()
epoch = 0
while trainer.state.step < 50:
    drawn = trainer.epoch(epoch)
    for batch in islice(drawn.batches, 50 - trainer.state.step):
        trainer.update(*trainer.prepare(drawn, batch))
        trainer.state.step += 1
    epoch += 1
if accelerator.is_main_process:
    weights = {name: weight.detach().contiguous() for name, weight in trainer.bare_model.named_parameters()}
    save_file(weights, output)
"""


@pytest.mark.slow
def test_devices_and_accumulation_change_nothing_but_rounding(small_run: list[str], tmp_path: Path) -> None:
    run(small_run, tmp_path / "a", "--max-steps", "1")
    script = tmp_path / "updates.py"
    script.write_text(UPDATES_IN_FLOAT64)
    flags = [*small_run, "--output-dir", str(tmp_path / "a"), "--max-steps", "50", "--dropout", "0"]
    flags += ["--learning-rate", "0.001", "--max-grad-norm", "1"]
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    found = {}
    for processes, parts in ((1, 1), (1, 4), (2, 1), (2, 3)):
        output = tmp_path / f"{processes}-{parts}.safetensors"
        launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(processes), str(script)]
        command = [*launch, str(output), *flags, "--gradient-accumulation-steps", str(parts)]
        subprocess.run(command, check=True, env=environment, timeout=300)
        found[processes, parts] = load_file(output)
    expected = found.pop((1, 1))
    start = build_initial(small_run)
    assert max((expected[name] - start[name]).abs().max() for name in start) > 0.01
    for layout, weights in found.items():
        worst = max((weights[name] - expected[name]).abs().max().item() for name in expected)
        assert worst < 1e-10, layout


@pytest.mark.slow
def test_two_processes_equal_one(small_run: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Adam's first updates are as large as the rate whatever the gradient, and so are those of rounding errors: a
    # usual rate keeps these far below the weights.
    flags = [*small_run, "--dropout", "0", "--bpe-dropout", "0.1", "--learning-rate", "0.001", "--max-steps", "20"]
    one = losses(run(flags, tmp_path / "one"))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "-m", "vaswani_transformer"]
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    command += ["train", *flags, "--output-dir", str(tmp_path / "two")]
    subprocess.run(command, check=True, env=environment, timeout=300)
    records = [json.loads(line) for line in (tmp_path / "two" / "metrics.jsonl").read_text().splitlines()]
    assert losses(records) == pytest.approx(one, rel=1e-5)
    expected, found = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert all(torch.allclose(expected[name], found[name], atol=1e-5) for name in expected)
    # Two processes resume from what two saved, and what one process goes on with is the same again.
    command[command.index("--max-steps") + 1] = "30"
    subprocess.run([*command, "--resume"], check=True, env=environment, timeout=300)
    records = [json.loads(line) for line in (tmp_path / "two" / "metrics.jsonl").read_text().splitlines()]
    flags[flags.index("--max-steps") + 1] = "30"
    assert losses(records) == pytest.approx(losses(run(flags, tmp_path / "one", "--resume")), rel=1e-5)
    # One process goes on with what two began, and says what that means.
    flags[flags.index("--max-steps") + 1] = "31"
    capsys.readouterr()
    assert len(losses(run(flags, tmp_path / "two", "--resume"))) == 31
    assert "The run began on 2 processes and goes on with 1" in capsys.readouterr().err
