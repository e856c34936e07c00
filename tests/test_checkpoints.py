"""The run folder: atomic writes, whole checkpoints, the mean of weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from vaswani_transformer.checkpoints import (
    RunFolder,
    TrainingState,
    average_weights,
    generator_states,
    moments_by_name,
    read_weights,
    write_atomically,
)
from vaswani_transformer.errors import InputError
from vaswani_transformer.optimization import create_optimizer
from vaswani_transformer.sharding import gather


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_atomically(path, lambda aside: aside.write_text("old"))

    def fail(aside: Path) -> None:
        aside.write_text("half of the n")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, fail)
    assert path.read_text() == "old"
    write_atomically(path, lambda aside: aside.write_text("new"))
    assert path.read_text() == "new"
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]


def test_a_failed_checkpoint_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = create_optimizer(model)
    folder = RunFolder(tmp_path)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    weights, moments = gather(model.named_parameters(), True), gather(moments_by_name(model, optimizer), True)
    folder.save_checkpoint(weights, moments, TrainingState(step=1), [generator_states()])
    drawn = torch.rand(3)

    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="disk full"):
        patch.setattr("vaswani_transformer.checkpoints.json.dumps", fail)
        folder.save_checkpoint(weights, moments, TrainingState(step=2), [generator_states()])
    # Its half does not take the room that is needed.
    assert [path.name for path in folder.checkpoints.iterdir()] == ["step-000001"]
    other = torch.nn.Linear(3, 2)
    assert folder.load_checkpoint(other, create_optimizer(other), rank=0).step == 1
    assert torch.equal(other.weight, model.weight)
    assert torch.equal(torch.rand(3), drawn)
    # A process that the checkpoint does not know goes on with its own generator.
    torch.manual_seed(5)
    folder.load_checkpoint(other, create_optimizer(other), rank=1)
    fresh = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(3), fresh)


def test_old_checkpoints_go_by_number_and_odd_ones_first(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for number in (5, 999_990, 999_995, 999_999, 1_000_000, 1_000_003):
        folder.step(number).mkdir(parents=True)
    assert [step.name for step in folder.steps()][-2:] == ["step-1000000", "step-1000003"]
    assert [step.name for step in folder.steps(every=5)][1:] == ["step-999990", "step-999995", "step-1000000"]
    folder.remove_old(keep=2, every=5, best_step=5)
    assert [step.name for step in folder.steps()] == ["step-000005", "step-999995", "step-1000000", "step-1000003"]
    folder.remove_old(keep=2, every=5, best_step=0)
    assert [path.name for path in sorted(folder.checkpoints.iterdir())] == [
        "step-1000000",
        "step-1000003",
        "step-999995",
    ]


def test_the_mean_is_taken_in_float64(tmp_path: Path) -> None:
    # In float16, or summed up in float32, the small parts would be lost.
    values = [2048.0, 1.0, 1.0, 1.0, 1.0]
    mean = average_weights({"a": torch.full((2,), value, dtype=torch.float16)} for value in values)
    assert mean["a"].dtype == torch.float16
    assert mean["a"].tolist() == [torch.tensor(2052 / 5).half().item()] * 2
    with pytest.raises(InputError, match="not of one model"):
        average_weights([{"a": torch.ones(2)}, {"a": torch.ones(3)}])
    with pytest.raises(InputError, match="no checkpoints"):
        average_weights([])


def test_damaged_weights_are_named(tmp_path: Path) -> None:
    save_file({"a": torch.ones(1000)}, tmp_path / "model.safetensors")
    data = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(data[:500])
    with pytest.raises(InputError, match=r"model\.safetensors cannot be read"):
        read_weights(tmp_path)
    with pytest.raises(InputError, match=r"model\.safetensors cannot be read"):
        read_weights(tmp_path / "nowhere")
