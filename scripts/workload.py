"""Decoding with random weights: a model, its sources, and the exact length of its targets."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import methodcaller
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from engines import Engine
from peers import POSITIONS
from vaswani_transformer import VaswaniConfig, VaswaniForConditionalGeneration
from vaswani_transformer.errors import InputError
from vaswani_transformer.tokenization import SPECIAL_TOKENS


@dataclass(frozen=True)
class Workload:
    """One batch of random sentences for a model of random weights; each field is an option with its help.

    Raises:
        InputError: If there is no token beside the special ones, or a sentence is longer than the engines' tables.
    """

    preset: str = field(default="base", metadata={"help": "shape of the model", "choices": ("tiny", "base", "big")})
    vocab_size: int = field(default=16_000, metadata={"help": "entries of its vocabulary"})
    sentences: int = field(default=32, metadata={"help": "source sentences, in one batch"})
    source_tokens: int = field(default=20, metadata={"help": "tokens of each"})
    target_tokens: int = field(default=24, metadata={"help": "tokens of each translation, neither more nor less"})
    num_beams: int = field(default=4, metadata={"help": "width of the beam"})

    def __post_init__(self) -> None:
        """Check the sizes."""
        if self.vocab_size <= len(SPECIAL_TOKENS):
            raise InputError(f"--vocab-size must be above {len(SPECIAL_TOKENS)}, the special tokens")
        for name in ("source_tokens", "target_tokens"):
            if getattr(self, name) > POSITIONS:
                raise InputError(f"--{name.replace('_', '-')} must be at most {POSITIONS:,}")

    def __str__(self) -> str:
        return (
            f"{self.preset}, {self.vocab_size:,} entries, random weights; {self.sentences} sentences of "
            f"{self.source_tokens} tokens, {self.target_tokens} target tokens each"
        )

    def save_model(self, folder: str | Path) -> None:
        """Write the model to `folder`, and a tokenizer with an entry for each embedding."""
        torch.manual_seed(0)
        tokens = [*SPECIAL_TOKENS, *map(str, range(len(SPECIAL_TOKENS), self.vocab_size))]
        model = WordLevel({token: index for index, token in enumerate(tokens)}, unk_token="<unk>")
        names = ("pad_token", "bos_token", "eos_token", "unk_token")
        special = dict(zip(names, SPECIAL_TOKENS, strict=True))
        PreTrainedTokenizerFast(tokenizer_object=Tokenizer(model), **special).save_pretrained(folder)
        config = getattr(VaswaniConfig, self.preset)(vocab_size=self.vocab_size)
        VaswaniForConditionalGeneration(config).save_pretrained(folder)

    def sources(self) -> list[list[int]]:
        """Token ids of the sentences, none of them special."""
        generator = random.Random(0)
        tokens = range(len(SPECIAL_TOKENS), self.vocab_size)
        return [generator.choices(tokens, k=self.source_tokens) for _ in range(self.sentences)]

    def warm_up(self) -> Callable[[Engine], list[list[int]]]:
        """A small piece of `run`."""
        return methodcaller("generate", [self.sources()[0][:2]], self.num_beams, 2)

    def run(self) -> Callable[[Engine], list[list[int]]]:
        """What an engine does: the targets of all sentences."""
        return methodcaller("generate", self.sources(), self.num_beams, self.target_tokens)
