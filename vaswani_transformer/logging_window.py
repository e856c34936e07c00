"""The losses between two records of a training, which no update waits for."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace

import torch
from accelerate import Accelerator

from .checkpoints import TrainingState


@dataclass
class LoggingWindow:
    """The updates since the last record. Their losses stay on the device until somebody looks.

    Args:
        loss: Sum of the losses of the target tokens that have been looked at.
        tokens: How many these are.
        tokens_before: Those among them of before the run was resumed, which took none of this process's time.
    """

    loss: float = 0.0
    tokens: int = 0
    tokens_before: int = 0
    started: float = field(default_factory=time.monotonic)
    unseen: list[tuple[TrainingState, torch.Tensor, int]] = field(default_factory=list)

    def add(self, state: TrainingState, loss: torch.Tensor, tokens: int) -> None:
        """Note an update that led to `state`: this process's part of the loss, and all processes' target tokens."""
        self.unseen.append((replace(state), loss, tokens))

    def look(self, accelerator: Accelerator) -> tuple[float, TrainingState] | None:
        """Wait for the device and count the updates that nobody has seen, over all processes.

        Returns:
            The first loss that is not finite with the state after its update, or `None`.
        """
        unseen, self.unseen = self.unseen, []
        if unseen:
            losses = accelerator.reduce(torch.stack([loss for _, loss, _ in unseen])).tolist()
            for loss, (state, _, tokens) in zip(losses, unseen, strict=True):
                if not math.isfinite(loss):
                    return loss, state
                self.loss += loss * tokens
                self.tokens += tokens
        return None

    @property
    def mean_loss(self) -> float:
        """Loss of a target token."""
        return self.loss / self.tokens

    @property
    def tokens_per_second(self) -> float:
        """Target tokens a second, pauses left out."""
        return (self.tokens - self.tokens_before) / (time.monotonic() - self.started)
