"""Batches by token budget with similar lengths together, and the collator that pads them."""

from __future__ import annotations

import atexit
import ctypes
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from queue import Empty, SimpleQueue
from threading import Event, Semaphore, Thread, current_thread
from typing import TypeVar

import numpy as np
import torch

from .errors import InputError

Item = TypeVar("Item")


def batches_by_tokens(lengths: np.ndarray, order: np.ndarray, max_tokens: int) -> Iterator[np.ndarray]:
    """Cut `order` into runs whose padded size stays within `max_tokens` on every side.

    Args:
        lengths: Tokens of each sentence on each side (sentences, sides).
        order: Indices of the sentences, similar lengths near one another.
        max_tokens: Most positions, padding included, that a batch may have on a side. A sentence that is longer
            makes a batch of its own.
    """
    longest = lengths[order].max(axis=1)
    start = 0
    while start < len(order):
        # More sentences than fit even if all were as short as the first, to find the one that does not fit.
        longest_so_far = np.maximum.accumulate(longest[start : start + max_tokens // max(1, longest[start]) + 1])
        padded = longest_so_far.astype(np.int64) * np.arange(1, len(longest_so_far) + 1)
        end = start + max(1, int(padded.searchsorted(max_tokens, side="right")))
        yield order[start:end]
        start = end


class EpochBatches(Sequence[list[np.ndarray]]):
    """The batches of an epoch, each a list of arrays of indices, one for each of its parts.

    Two arrays hold them all, and a batch is cut out of these when it is asked for.

    Args:
        lengths: Tokens of each pair's sides (pairs, 2).
        order: Indices of the pairs, those of a batch side by side.
        bounds: Where each batch begins and ends in `order` (batches, 2).
        parts: Pieces that a batch is cut into. A batch of fewer pairs leaves its last parts empty.
    """

    def __init__(self, lengths: np.ndarray, order: np.ndarray, bounds: np.ndarray, parts: int) -> None:
        self.lengths, self.order, self.bounds, self.parts = lengths, order, bounds, parts

    def __len__(self) -> int:
        return len(self.bounds)

    def __getitem__(self, index: int) -> list[np.ndarray]:
        start, end = self.bounds[index]
        return np.array_split(self.order[start:end], self.parts)

    def padding_share(self) -> float:
        """Share of the positions of both sides that hold padding."""
        starts, ends = self.bounds.T
        size, more = np.divmod(ends - starts, self.parts)
        # As `array_split` cuts: the first parts have a pair more where they cannot be equal.
        edges = np.stack([starts + part * size + np.minimum(part, more) for part in range(self.parts + 1)], axis=1)
        sizes = np.diff(edges, axis=1)
        # In their order along `order`, and without the empty ones, which have no widest pair.
        along = starts.argsort()
        begins, sizes = edges[along, :-1].ravel(), sizes[along].ravel()
        begins, sizes = begins[sizes > 0], sizes[sizes > 0]
        widths = [np.maximum.reduceat(side[self.order], begins).astype(np.int64) for side in self.lengths.T]
        return 1 - int(self.lengths.sum()) / int(sum(width @ sizes for width in widths))

    def __str__(self) -> str:
        return f"{len(self):,} updates an epoch, {self.padding_share():.1%} of the positions are padding"


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
        may_be_less: Whether pairs that do not fill one batch make what they do, or none.

    Raises:
        InputError: If a pair does not fit the budget, or the corpus does not fill a batch.
    """

    def __init__(
        self, lengths: np.ndarray, batch_tokens: int, parts: int = 1, seed: int = 0, may_be_less: bool = False
    ) -> None:
        if not len(lengths) and not may_be_less:
            raise InputError("there are no pairs to make batches of; look at the counts of cleaning")
        if lengths.max(initial=0) > batch_tokens:
            raise InputError(
                f"the longest sentence has {lengths.max()} tokens, and batch_tokens={batch_tokens} has no room for "
                "it; raise batch_tokens or lower max_length"
            )
        if lengths.max(axis=1).sum() < batch_tokens and not may_be_less:
            raise InputError(
                f"the corpus has about {lengths.max(axis=1).sum():,} tokens, less than one batch of "
                f"batch_tokens={batch_tokens:,}; lower batch_tokens, or give more text (or a larger "
                "streaming_window)"
            )
        self.lengths = lengths
        self.batch_tokens = batch_tokens
        self.parts = parts
        self.seed = seed

    def epoch(self, number: int) -> EpochBatches:
        """Batches of epoch `number`; every pair comes once."""
        generator = np.random.default_rng((self.seed, number))
        order = np.arange(len(self.lengths), dtype=np.int32 if len(self.lengths) < 2**31 else np.int64)
        generator.shuffle(order)
        source, target = self.lengths[order].T
        longer = np.maximum(source, target)
        # By the longer side, which fills the budget; then by the other side, up and down in turn so that it does
        # not jump where the longer side grows by one. Equal pairs stay in the drawn order.
        other = np.where(longer % 2 == 0, source - target, target - source)
        order = order[np.lexsort((other, longer))]
        sizes = np.array(
            [len(batch) for batch in batches_by_tokens(self.lengths, order, self.batch_tokens)], dtype=int
        )
        ends = sizes.cumsum()
        bounds = np.stack([ends - sizes, ends], axis=1)
        return EpochBatches(self.lengths, order, bounds[generator.permutation(len(bounds))], self.parts)


@dataclass
class TranslationCollator:
    """Pads encoded pairs to tensors: `input_ids`, `attention_mask` and `labels` (batch, length).

    Args:
        pad_token_id: Pads the sources; labels are padded with -100, which no loss counts.
    """

    pad_token_id: int

    def __call__(self, input_ids: Sequence[Sequence[int]], labels: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
        """Tensors for the sentences of one batch."""
        sources, mask = _pad(input_ids, self.pad_token_id)
        return {"input_ids": sources, "attention_mask": mask.long(), "labels": _pad(labels, -100)[0]}


def _pad(sentences: Sequence[Sequence[int]], value: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The sentences in rows that `value` fills up, and where they stand in these (sentences, longest)."""
    lengths = np.fromiter(map(len, sentences), dtype=np.int64)
    mask = np.arange(lengths.max()) < lengths[:, None]
    padded = np.full(mask.shape, value, dtype=np.int64)
    padded[mask] = np.fromiter(chain.from_iterable(sentences), dtype=np.int64)
    return torch.from_numpy(padded), torch.from_numpy(mask)


class Cancelled(BaseException):
    """Ends the thread of [`prefetch`] in the middle of an item."""


def prefetch(
    items: Iterator[Item], ahead: int = 2, stop: Callable[[], bool] = lambda: False
) -> Generator[Item, None, None]:
    """The same items in the same order, each made in a background thread up to `ahead` items before its turn.

    The thread ends with the generator, and with the program: an item that nobody takes is given up.

    Args:
        items: Goes through in the thread.
        ahead: Most items that are ready and not taken.
        stop: Asked from time to time while the next item is not ready; true ends the items.
    """
    ready: SimpleQueue[tuple[Item | None, BaseException | None]] = SimpleQueue()
    room, closed = Semaphore(ahead), Event()

    def work() -> None:
        try:
            while room.acquire() and not closed.is_set():
                ready.put((next(items), None))
        except BaseException as error:  # StopIteration too; it is raised where the item would have been taken
            ready.put((None, error))

    def end() -> None:
        closed.set()
        room.release()
        if thread is current_thread():
            return
        thread.join(timeout=0.2)
        if thread.is_alive():
            # An item can take minutes. To leave the thread to itself would be no way out: Python ends a thread that
            # is at work in C++ while the program ends by an abort of all.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Cancelled))
            thread.join(timeout=10)  # what hangs in the network hears of nothing

    thread = Thread(target=work, name="prefetch", daemon=True)
    thread.start()
    atexit.register(end)
    try:
        while True:
            try:
                item, error = ready.get(timeout=0.1)
            except Empty:
                if stop():
                    return
                continue
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            room.release()
            yield item
    finally:
        end()
        atexit.unregister(end)
