"""Training with the weights cut into a piece for each process: FSDP 2, torch's `fully_shard`, set up by Accelerate.

A tensor that is cut is a `DTensor`. Each function here takes a plain tensor too, and leaves it as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from .errors import InputError, one_line
from .modeling_vaswani import VaswaniForConditionalGeneration


def check_parallelism(accelerator: Accelerator) -> None:
    """Check that each process has the whole model, or FSDP 2 cuts it.

    Raises:
        InputError: If it is cut by other means, or FSDP is asked for what it cannot do here.
    """
    kind, parallelism = accelerator.distributed_type, accelerator.parallelism_config
    if kind in (DistributedType.DEEPSPEED, DistributedType.MEGATRON_LM) or (
        kind == DistributedType.FSDP and not accelerator.is_fsdp2
    ):
        name = "FSDP 1" if kind == DistributedType.FSDP else kind.value
        raise InputError(
            f"{name} is not supported; choose plain data parallelism in `accelerate config`, or FSDP with version 2 "
            "where the model does not fit on a device"
        )
    if parallelism is not None and parallelism.non_data_parallel_size > 1:
        raise InputError(
            "tensor, context and sequence parallelism are not supported; choose sizes of 1 for them in "
            "`accelerate config`"
        )
    if accelerator.is_fsdp2 and accelerator.mixed_precision == "fp16":
        raise InputError("mixed_precision=fp16 is not supported with FSDP; choose bf16, or no")
    if accelerator.is_fsdp2 and accelerator.state.fsdp_plugin.activation_checkpointing:
        raise InputError(
            "FSDP's activation checkpointing is not supported; switch it off in `accelerate config`, and choose "
            "--gradient-checkpointing"
        )


def prepare_sharded(
    accelerator: Accelerator, model: VaswaniForConditionalGeneration, optimizer: Optimizer
) -> tuple[VaswaniForConditionalGeneration, Optimizer]:
    """`accelerator.prepare` where it cuts the model by FSDP 2.

    Returns:
        The same model and optimizer, with a piece of each parameter in this process.
    """
    # FSDP wants a matrix that modules share in one of its groups. Accelerate makes one of the source embedding and the
    # projection, so a target embedding that is tied to them becomes the same module.
    model.set_input_embeddings(model.get_input_embeddings())
    plugin = accelerator.state.fsdp_plugin
    if plugin.mixed_precision_policy is not None:
        # Accelerate would have the gradients summed and the loss rounded in half precision too.
        plugin.mixed_precision_policy = replace(
            plugin.mixed_precision_policy, reduce_dtype=torch.float32, output_dtype=None
        )
    try:
        model, optimizer = accelerator.prepare(model, optimizer)
    except ValueError as error:  # such as a name of a layer that the model has none of
        raise InputError(f"FSDP: {one_line(error)}; mend it in `accelerate config`") from error
    # FSDP gathers the weights of a module that is called, and the smoothed loss reads the projection's without a call.
    model.register_forward_pre_hook(lambda model, _: model.lm_head.unshard())
    return model, optimizer


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """A whole tensor for one that is cut, on its device and without its gradient; all processes must ask for it."""
    tensor = tensor.detach()
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def gather(tensors: Iterable[tuple[str, torch.Tensor]], keep: bool) -> dict[str, torch.Tensor]:
    """Whole tensors on the host by name; all processes must ask, and one that does not `keep` them gets none."""
    gathered = {}
    for name, tensor in tensors:
        full = whole(tensor)
        if keep:
            gathered[name] = full.cpu().contiguous()
    return gathered


def cut_like(tensor: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """This process's piece of a whole `tensor`, cut as `parameter` is, on its device.

    A tensor of another shape, as Adam's count of updates, stays whole.
    """
    if not isinstance(parameter, DTensor) or tensor.shape != parameter.shape:
        return tensor.to(parameter.device)
    # Each process has the whole and takes its piece of that: without a source nothing is sent.
    pieces = distribute_tensor(tensor, parameter.device_mesh, parameter.placements, src_data_rank=None)
    return pieces.to(parameter.device)
