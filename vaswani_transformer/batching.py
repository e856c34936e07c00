"""Batches by token budget with similar lengths together, and the collator that pads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from .errors import InputError


def batches_by_tokens(lengths: np.ndarray, order: np.ndarray, max_tokens: int) -> Iterator[np.ndarray]:
    """Cut `order` into runs whose padded size stays within `max_tokens` on every side.

    Args:
        lengths: Tokens of each sentence on each side (sentences, sides).
        order: Indices of the sentences, similar lengths near one another.
        max_tokens: Most positions, padding included, that a batch may have on a side. A sentence that is longer
            makes a batch of its own.
    """
    start, widest = 0, 0
    for end, length in enumerate(lengths[order].max(axis=1)):
        widest = max(widest, length)
        if end > start and widest * (end - start + 1) > max_tokens:
            yield order[start:end]
            start, widest = end, length
    if start < len(order):
        yield order[start:]


class TokenBatchSampler:
    """The batches of each epoch: by token budget, of similar lengths, in an order drawn from the seed.

    The paper's batches hold about 25,000 source and 25,000 target tokens (section 5.1). The budget is that of one
    update over all devices and accumulation steps: a batch comes in `parts` pieces, each for one forward pass, so
    the number of devices does not change what an update sees.

    Args:
        lengths: Tokens of each pair's sides (pairs, 2).
        batch_tokens: Most positions of one side in an update, padding included.
        parts: Pieces that a batch is cut into, the devices times the accumulation steps.
        seed: Seed of the order.

    Raises:
        InputError: If a pair does not fit the budget, or the corpus does not fill a batch.
    """

    def __init__(self, lengths: np.ndarray, batch_tokens: int, parts: int = 1, seed: int = 0) -> None:
        if not len(lengths):
            raise InputError("there are no pairs to make batches of")
        if lengths.max() > batch_tokens:
            raise InputError(
                f"the longest sentence has {lengths.max()} tokens, and batch_tokens={batch_tokens} has no room for "
                "it; raise batch_tokens or lower max_length"
            )
        if lengths.max(axis=1).sum() < batch_tokens:
            raise InputError(
                f"the corpus has about {lengths.max(axis=1).sum():,} tokens, less than one batch of "
                f"batch_tokens={batch_tokens:,}; lower batch_tokens or give more text"
            )
        self.lengths = lengths
        self.batch_tokens = batch_tokens
        self.parts = parts
        self.seed = seed

    def epoch(self, number: int) -> list[list[np.ndarray]]:
        """Batches of epoch `number`, each a list of `parts` arrays of indices; every pair comes once.

        A batch of fewer pairs than parts leaves its last parts empty.
        """
        generator = np.random.default_rng((self.seed, number))
        order = generator.permutation(len(self.lengths))
        source, target = self.lengths[order].T
        longer = np.maximum(source, target)
        # By the longer side, which fills the budget; then by the other side, up and down in turn so that it does
        # not jump where the longer side grows by one. Equal pairs stay in the drawn order.
        other = np.where(longer % 2 == 0, source - target, target - source)
        batches = list(batches_by_tokens(self.lengths, order[np.lexsort((other, longer))], self.batch_tokens))
        generator.shuffle(batches)
        return [np.array_split(batch, self.parts) for batch in batches]


@dataclass
class TranslationCollator:
    """Pads encoded pairs to tensors: `input_ids`, `attention_mask` and `labels` (batch, length).

    Args:
        pad_token_id: Pads the sources; labels are padded with -100, which no loss counts.
    """

    pad_token_id: int

    def __call__(self, input_ids: Sequence[Sequence[int]], labels: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
        """Tensors for the sentences of one batch."""
        sources = self._pad(input_ids, self.pad_token_id)
        mask = self._pad([[1] * len(sentence) for sentence in input_ids], 0)
        return {"input_ids": sources, "attention_mask": mask, "labels": self._pad(labels, -100)}

    @staticmethod
    def _pad(sentences: Sequence[Sequence[int]], value: int) -> torch.Tensor:
        width = max(map(len, sentences))
        return torch.tensor([[*sentence, *[value] * (width - len(sentence))] for sentence in sentences])
