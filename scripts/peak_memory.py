"""What a piece of work needs at its peak beyond what is loaded, measured in a process of its own."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

import torch

# The number of this parameter in glibc's malloc.h.
M_MMAP_THRESHOLD = -3

Loaded = TypeVar("Loaded")


def measure_peak_memory(
    load: Callable[[], Loaded], warm_up: Callable[[Loaded], object], run: Callable[[Loaded], object]
) -> int | None:
    """Bytes that `run(loaded)` takes at its peak above what is held after `loaded = load()` and `warm_up(loaded)`.

    On a CPU it is the resident memory of a fresh process, on a GPU the memory that torch allocates. `None` where
    it cannot be told: on a CPU elsewhere than on Linux, and on a GPU for weights that torch does not hold.

    Args:
        load: Loads the weights; like the others it must be picklable.
        warm_up: A small piece of the work, which loads the libraries that the work needs.
        run: The work.
    """
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_measure, load, warm_up, run, torch.get_num_threads()).result()


def _measure(
    load: Callable[[], Loaded],
    warm_up: Callable[[Loaded], object],
    run: Callable[[Loaded], object],
    threads: int,
) -> int | None:
    torch.set_num_threads(threads)
    # Each larger block goes back to the system when it is freed; else the peak varies with the heap's holes.
    _glibc("mallopt", M_MMAP_THRESHOLD, 2**17)
    loaded = load()
    warm_up(loaded)
    gc.collect()
    if torch.cuda.is_available():
        held = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run(loaded)
        return torch.cuda.max_memory_allocated() - held if held else None
    try:
        _glibc("malloc_trim", 0)  # or the work would take again, unseen, what loading has freed
        # Sets the peak back to what is held now. `getrusage` has no such reset: its peak would be that of loading.
        Path("/proc/self/clear_refs").write_text("5")
        held = _resident_peak()
        run(loaded)
        return _resident_peak() - held
    except OSError:
        return None


def _glibc(function: str, *arguments: int) -> None:
    """Call a function of glibc's allocator; other C libraries, which keep less to themselves, go without."""
    if sys.platform == "linux" and hasattr(ctypes.CDLL(None), function):
        getattr(ctypes.CDLL(None), function)(*arguments)


def _resident_peak() -> int:
    return _process_memory("VmHWM")


def resident_memory() -> dict[str, int]:
    """Bytes of this process: its peak so far, and what it has now without mapped files. Empty but on Linux."""
    try:
        return {"peak": _process_memory("VmHWM"), "anonymous": _process_memory("RssAnon")}
    except OSError:
        return {}


def _process_memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))
