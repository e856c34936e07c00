"""FSDP 2: the training of a model in pieces is the training of the whole model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_prepare_auto_wrap_policy
from conftest import Refused
from safetensors.torch import load_file

from vaswani_transformer import VaswaniForConditionalGeneration
from vaswani_transformer.checkpoints import RunFolder
from vaswani_transformer.errors import InputError
from vaswani_transformer.sharding import check_parallelism

ROOT = Path(__file__).parents[1]
# Accelerate takes FSDP for GPUs alone, so it is told that the CPUs are some.
TRAIN = """
import sys
from accelerate.state import PartialState
from accelerate.utils import DistributedType
from vaswani_transformer import training
from vaswani_transformer.cli import main

precision, pieces, *flags = sys.argv[1:]
if pieces != "1":
    set_device = PartialState.set_device

    def call_them_gpus(self):
        set_device(self)
        self.distributed_type = DistributedType.MULTI_GPU

    PartialState.set_device = call_them_gpus
if precision == "float64":
    build_model = training.build_model
    training.build_model = lambda *parts: build_model(*parts).double()
sys.exit(main(["train", *flags]))
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`train` in a precision, 1 for the whole model or the number of its pieces, and the flags."""
    path = tmp_path_factory.mktemp("script") / "train.py"
    path.write_text(TRAIN)
    return path


def run(script: Path, precision: str, pieces: int, flags: list[str], folder: Path, **settings: str) -> list[dict]:
    """Train in one process, or in one for each of several pieces, and return the records."""
    environment = {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **settings}
    launch = [sys.executable]
    if pieces > 1:
        launch += ["-m", "torch.distributed.run", "--nproc_per_node", str(pieces)]
        environment |= {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"}
        environment |= {"FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP"}
    command = [*launch, str(script), precision, str(pieces), *flags, "--output-dir", str(folder)]
    subprocess.run(command, check=True, env={**os.environ, **environment}, timeout=300)
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def scores(records: list[dict], name: str) -> list[float]:
    return [record[name] for record in records if name in record]


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    """The newest checkpoint's and the best model's, but for the generators, which are of each process."""
    files = [*sorted(RunFolder(folder).steps()[-1].glob("*.safetensors")), folder / "model.safetensors"]
    loaded = {f"{file.parent.name if file.parent != folder else ''}/{file.name}": load_file(file) for file in files}
    return {
        f"{file} {name}": tensor
        for file, own in loaded.items()
        for name, tensor in own.items()
        if not name.startswith("rng.")
    }


def difference(one: Path, other: Path) -> float:
    first, second = tensors(one), tensors(other)
    assert first.keys() == second.keys()
    assert {name: (tensor.shape, tensor.dtype) for name, tensor in first.items()} == {
        name: (tensor.shape, tensor.dtype) for name, tensor in second.items()
    }
    return max((first[name].double() - second[name].double()).abs().max().item() for name in first)


def test_accelerate_makes_a_piece_of_each_layer(trained: VaswaniForConditionalGeneration) -> None:
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="transformer_based_wrap")
    plugin.set_auto_wrap_policy(trained)
    policy = fsdp2_prepare_auto_wrap_policy(plugin, trained)
    layers = [name for name, module in trained.named_modules() if policy(module)]
    assert layers == ["model.encoder.layers.0", "model.decoder.layers.0", "model.decoder.layers.1"]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"distributed_type": DistributedType.DEEPSPEED}, "DEEPSPEED is not supported; choose plain data parallelism"),
        ({"distributed_type": DistributedType.MEGATRON_LM}, "MEGATRON_LM is not supported; choose plain"),
        ({"parallelism_config": SimpleNamespace(non_data_parallel_size=2)}, "choose sizes of 1 for them"),
        ({"is_fsdp2": True, "mixed_precision": "fp16"}, "fp16 is not supported with FSDP; choose bf16, or no"),
        ({"is_fsdp2": True, "activation_checkpointing": True}, "choose --gradient-checkpointing"),
    ],
    ids=["deepspeed", "megatron", "tensor-parallel", "fp16", "activation-checkpointing"],
)
def test_other_ways_to_cut_a_model_are_refused(settings: dict[str, Any], text: str) -> None:
    plugin = SimpleNamespace(activation_checkpointing=settings.get("activation_checkpointing", False))
    usual = {"distributed_type": DistributedType.NO, "parallelism_config": None, "is_fsdp2": False}
    usual |= {"mixed_precision": "no", "state": SimpleNamespace(fsdp_plugin=plugin)}
    with pytest.raises(InputError, match=text):
        check_parallelism(SimpleNamespace(**{**usual, **settings}))


def test_the_first_fsdp_is_refused(
    small_run: list[str], tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Accelerator, "distributed_type", property(lambda _: DistributedType.FSDP))
    command = ["train", *small_run, "--max-steps", "1", "--output-dir", str(tmp_path / "a")]
    refused(command, "FSDP 1 is not supported; choose plain data parallelism in `accelerate config`, or FSDP with ver")


@pytest.mark.slow
@pytest.mark.parametrize("tied", ["true", "false"])
def test_pieces_change_nothing_but_rounding(tied: str, script: Path, small_run: list[str], tmp_path: Path) -> None:
    flags = [*small_run, "--tie-word-embeddings", tied, "--dropout", "0", "--learning-rate", "0.001"]
    flags += ["--gradient-accumulation-steps", "2", "--max-grad-norm", "1", "--average-last", "2"]
    flags += ["--max-steps", "12", "--eval-steps", "6", "--save-steps", "6"]
    whole, pieces = tmp_path / "whole", tmp_path / "pieces"
    expected, found = run(script, "float64", 1, flags, whole), run(script, "float64", 2, flags, pieces)
    for name in ("validation_loss", "bleu"):
        assert scores(found, name) == pytest.approx(scores(expected, name), rel=1e-10)
    # The loss of an update is added up in float32.
    assert scores(found, "loss") == pytest.approx(scores(expected, "loss"), rel=1e-6)
    assert len(scores(found, "loss")) == 12
    assert len(scores(found, "bleu")) == 2
    assert difference(whole, pieces) < 1e-10
    # The whole model goes on with what the pieces saved, and the pieces with what the whole one did.
    flags[flags.index("--max-steps") + 1] = "15"
    whole.rename(tmp_path / "other")
    run(script, "float64", 1, [*flags, "--resume"], pieces)
    run(script, "float64", 2, [*flags, "--resume"], tmp_path / "other")
    assert RunFolder(pieces).steps()[-1].name == "step-000015"
    assert difference(tmp_path / "other", pieces) < 1e-10


@pytest.mark.slow
def test_pieces_resume_to_the_last_digit(script: Path, small_run: list[str], tmp_path: Path) -> None:
    flags = [*small_run, "--save-steps", "4", "--max-steps"]
    expected = run(script, "float32", 2, [*flags, "9"], tmp_path / "whole")
    run(script, "float32", 2, [*flags, "5"], tmp_path / "parts")
    found = run(script, "float32", 2, [*flags, "9", "--resume"], tmp_path / "parts")
    assert scores(found, "loss") == scores(expected, "loss")
    assert difference(tmp_path / "whole", tmp_path / "parts") == 0


@pytest.mark.slow
def test_pieces_in_half_precision_sum_in_float32(script: Path, small_run: list[str], tmp_path: Path) -> None:
    flags = [*small_run, "--dropout", "0", "--learning-rate", "0.001", "--max-steps", "8"]
    flags[flags.index("--mixed-precision") + 1] = "bf16"
    expected = run(script, "bf16", 1, flags, tmp_path / "whole")
    # Only the first process has the weights at the beginning.
    found = run(script, "bf16", 2, flags, tmp_path / "pieces", FSDP_CPU_RAM_EFFICIENT_LOADING="true")
    assert scores(found, "loss") == pytest.approx(scores(expected, "loss"), rel=1e-3)
    assert scores(found, "validation_loss") == pytest.approx(scores(expected, "validation_loss"), rel=1e-3)
    assert {tensor.dtype for tensor in tensors(tmp_path / "pieces").values()} == {torch.float32}
