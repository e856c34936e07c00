"""Training text larger than the disk: read window after window, of which no more than three are kept."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from itertools import count, islice
from pathlib import Path

import xxhash

from .batching import prefetch
from .corpora import Pair, ParallelCorpus
from .encoded_corpus import EncodedCorpus, EncodedPairs, EpochCorpus
from .preprocessing import CleaningReport

logger = logging.getLogger(__name__)

Prepare = Callable[[ParallelCorpus, Path], tuple[EncodedCorpus | EpochCorpus, CleaningReport]]
Window = EncodedCorpus | EpochCorpus


class StreamedCorpus(EpochCorpus):
    """A corpus whose epochs are its windows: so many pairs after one another, shuffled among themselves.

    After the last pair the first one follows. While a window is trained on, the next one is read and prepared; all
    but these two and the one before are removed. A window is decided by its number, so a resumed run finds its own,
    but reads all that comes before it again.

    Args:
        corpus: The text.
        window: Pairs in a window, before cleaning.
        prepare: Cleans and encodes a window with the cache in the folder that it is given.
        folder: Where the windows are kept; no other run may use it.
        ahead: Whether this process prepares the next window. One of a machine does, and the others find it.
    """

    def __init__(
        self, corpus: ParallelCorpus, window: int, prepare: Prepare, folder: Path, ahead: bool = True
    ) -> None:
        self.corpus = corpus
        self.window = window
        self.prepare = prepare
        self.folder = folder
        self.ahead = ahead
        self._next: int | None = None
        self._windows: Generator[Window, None, None] = (_ for _ in ())

    @property
    def fingerprint(self) -> str:
        """What tells this text, in these windows, from others."""
        return xxhash.xxh3_128_hexdigest(repr((sorted(self.corpus.identity.items()), self.window)).encode())

    def epoch(self, number: int) -> EncodedPairs:
        """The pairs of window `number`, from 0.

        Raises:
            InputError: If the text cannot be read, or is malformed.
        """
        if number != self._next:
            windows = _prepare_windows(self.corpus, self.window, self.prepare, self.folder, number)
            self._windows = prefetch(windows, ahead=1) if self.ahead else windows
        self._next = None  # what fails is begun anew
        prepared = next(self._windows)
        self._next = number + 1
        # Another process of this machine may still be at the window before.
        used = [_folder_of(self.folder, number + way) for way in (-1, 0, 1)]
        for folder in self.folder.iterdir():
            if folder not in used:
                shutil.rmtree(folder, ignore_errors=True)
        return prepared.epoch(number) if isinstance(prepared, EpochCorpus) else prepared

    def close(self) -> None:
        """Give up the window that is being prepared."""
        self._next = None
        self._windows.close()

    def remove(self) -> None:
        """Remove the windows, which a run that is done needs no more."""
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _prepare_windows(
    corpus: ParallelCorpus, window: int, prepare: Prepare, folder: Path, first: int
) -> Generator[Window, None, None]:
    """The windows from `first` on, each prepared when it is asked for."""
    pairs, read = _endlessly(corpus), 0
    for number in count(first):
        identity = {**corpus.identity, "window": [number, window]}
        before = read

        def read_window(number: int = number) -> Iterator[Pair]:
            nonlocal read
            # What others have prepared is left out.
            for _ in islice(pairs, number * window - read):
                pass
            read = (number + 1) * window
            return islice(pairs, window)

        own = replace(corpus, read=read_window, identify=lambda identity=identity: identity)
        prepared, report = prepare(own, _folder_of(folder, number))
        if read != before:
            logger.info(f"Window {number}: {report}")
        yield prepared


def _folder_of(folder: Path, number: int) -> Path:
    return folder / f"window-{number:06d}"


def _endlessly(corpus: ParallelCorpus) -> Iterator[Pair]:
    while True:
        yield from corpus
