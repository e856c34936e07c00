"""Training text larger than the disk: read window after window, of which no more than three are kept."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from itertools import islice
from pathlib import Path
from threading import Thread

import xxhash

from .corpora import Pair, ParallelCorpus
from .corpus_cache import default_cache_dir
from .encoded_corpus import EncodedCorpus, EncodedPairs, EpochCorpus
from .preprocessing import CleaningReport

logger = logging.getLogger(__name__)

Prepare = Callable[[ParallelCorpus, Path], tuple[EncodedCorpus | EpochCorpus, CleaningReport]]


class StreamedCorpus(EpochCorpus):
    """A corpus whose epochs are its windows: so many pairs after one another, shuffled among themselves.

    After the last pair the first one follows. While a window is trained on, the next one is read and prepared; those
    before the last are removed from the cache. A window is decided by its number, so a resumed run finds its own, but
    reads all that comes before it again.

    Args:
        corpus: The text.
        window: Pairs in a window, before cleaning.
        prepare: Cleans and encodes a window with the cache in the folder that it is given.
        cache_dir: Folder of the cache; the user's if `None`.
    """

    def __init__(
        self, corpus: ParallelCorpus, window: int, prepare: Prepare, cache_dir: str | Path | None = None
    ) -> None:
        self.corpus = corpus
        self.window = window
        self.prepare = prepare
        root = default_cache_dir() if cache_dir is None else Path(cache_dir).expanduser()
        self.folder = root / f"stream-{self.fingerprint}"
        self._reader = self._endlessly()
        self._place = 0
        self._next: tuple[int, Future[EncodedCorpus | EpochCorpus]] | None = None

    @property
    def fingerprint(self) -> str:
        """What tells this text, in these windows, from others."""
        return xxhash.xxh3_128_hexdigest(repr((sorted(self.corpus.identity.items()), self.window)).encode())

    def epoch(self, number: int) -> EncodedPairs:
        """The pairs of window `number`, from 0.

        Raises:
            InputError: If the text cannot be read, or is malformed.
        """
        if self._next is not None and self._next[0] == number:
            prepared = self._next[1].result()
        else:
            prepared = self._prepare(number)
        # Another process of this machine may still be at the window before.
        shutil.rmtree(self._folder(number - 2), ignore_errors=True)
        self._next = (number + 1, self._prepare_in_background(number + 1))
        return prepared.epoch(number) if isinstance(prepared, EpochCorpus) else prepared

    def _folder(self, number: int) -> Path:
        return self.folder / f"window-{number:06d}"

    def _prepare(self, number: int) -> EncodedCorpus | EpochCorpus:
        was_read = False

        def read() -> Iterator[Pair]:
            nonlocal was_read
            was_read = True
            return self._pairs(number)

        identity = {**self.corpus.identity, "window": [number, self.window]}
        prepared, report = self.prepare(
            replace(self.corpus, read=read, identify=lambda: identity), self._folder(number)
        )
        if was_read:
            logger.info(f"Window {number}: {report}")
        return prepared

    def _prepare_in_background(self, number: int) -> Future[EncodedCorpus | EpochCorpus]:
        future: Future[EncodedCorpus | EpochCorpus] = Future()

        def work() -> None:
            try:
                future.set_result(self._prepare(number))
            except BaseException as error:  # whoever asks for the window is told
                future.set_exception(error)

        # A daemon, for a run that ends does not wait for a window that nobody needs any more.
        Thread(target=work, name=f"window-{number}", daemon=True).start()
        return future

    def _pairs(self, number: int) -> Iterator[Pair]:
        start = number * self.window
        if start < self._place:
            self._reader, self._place = self._endlessly(), 0
        for _ in islice(self._reader, start - self._place):
            pass
        self._place = start + self.window
        return islice(self._reader, self.window)

    def _endlessly(self) -> Iterator[Pair]:
        while True:
            yield from self.corpus
