"""A model whose weights another engine holds, behind the interface that the translation pipeline needs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedTokenizerBase

from .checkpoints import write_atomically
from .configuration_vaswani import VaswaniConfig
from .errors import InputError
from .modeling_vaswani import VaswaniForConditionalGeneration, VaswaniPreTrainedModel

TRANSLATIONS_ALONE = "an exported model gives translations alone; take the model that it was made of"


def check_length(length: int, longest: int) -> None:
    """Raise [`InputError`] if a source has more tokens than the engine has positions for."""
    if length > longest:
        raise InputError(f"a source of {length:,} tokens is longer than the {longest:,} that the model can read")


def check_new(folder: Path) -> None:
    """Raise [`InputError`] if `folder` is there already."""
    if folder.exists():
        raise InputError(f"{folder}: exists already; choose another folder")


def write_folder(
    folder: Path,
    model: VaswaniForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    write: Callable[[Path], None],
) -> None:
    """Write an exported model: what `write` puts into its folder, and what every engine's folder has beside it."""

    def write_all(aside: Path) -> None:
        aside.mkdir()
        write(aside)
        model.generation_config.save_pretrained(aside)
        tokenizer.save_pretrained(aside)

    folder.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(folder, write_all)


class ExportedModel(VaswaniPreTrainedModel):
    """Base class of what `vaswani-transformer export` writes, loaded again: it translates, and is not trained.

    Args:
        folder: Where it lies.
        config: Of the model that was exported.
        tokenizer: Likewise.
    """

    def __init__(self, folder: Path, config: VaswaniConfig, tokenizer: PreTrainedTokenizerBase) -> None:
        super().__init__(config)
        self.generation_config = GenerationConfig.from_pretrained(folder)
        self.tokenizer = tokenizer

    @property
    def device(self) -> torch.device:
        """Where `generate()` takes and gives its tensors, wherever the engine computes."""
        return torch.device("cpu")

    @property
    def dtype(self) -> torch.dtype:
        """What the engine takes and gives; inside it has the precision of its files."""
        return torch.float32

    def to(self, *args: Any, **kwargs: Any) -> ExportedModel:
        """Leave the model where its engine has it."""
        return self

    @classmethod
    def can_generate(cls) -> bool:
        """Whether there is a `generate()`: always."""
        return True

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse what only the model itself can give, such as attention weights.

        Raises:
            InputError: Always.
        """
        raise InputError(TRANSLATIONS_ALONE)
