"""Ctrl-C and SIGTERM, which stop a training between two updates."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class TrainingInterrupted(Exception):  # noqa: N818 - no error: the user, or the cluster, asked for it
    """Ctrl-C or SIGTERM: the run stopped between two updates, with its last checkpoint whole.

    Args:
        signal_number: Which of the two; another process' is not known here, and is taken for Ctrl-C.
    """

    def __init__(self, signal_number: int = signal.SIGINT) -> None:
        super().__init__()
        self.signal_number = signal_number


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """A list that the first Ctrl-C or SIGTERM, a cluster's warning, fills.

    So the loop can stop between two updates. A second one does what it did before.
    """
    signals: list[int] = []

    def note(signal_number: int, frame: object) -> None:
        signals.append(signal_number)
        print("\nStopping once this update is done and saved; once more stops at once.", file=sys.stderr)
        signal.signal(signal_number, previous[signal_number])

    if threading.current_thread() is not threading.main_thread():
        yield signals  # only the main thread may handle signals
        return
    previous = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
