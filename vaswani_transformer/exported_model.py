"""A model whose weights another engine holds, behind the interface that the translation pipeline needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedTokenizerBase

from .configuration_vaswani import VaswaniConfig
from .errors import InputError
from .modeling_vaswani import VaswaniPreTrainedModel

TRANSLATIONS_ALONE = "an exported model gives translations alone; take the model that it was made of"


def check_length(length: int, longest: int) -> None:
    """Raise [`InputError`] if a source has more tokens than the engine has positions for."""
    if length > longest:
        raise InputError(f"a source of {length:,} tokens is longer than the {longest:,} that the model can read")


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
