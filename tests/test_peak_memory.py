"""Peak memory of a piece of work: what it takes itself, and neither its weights nor what loading them took."""

from __future__ import annotations

import sys
from functools import partial
from operator import methodcaller

import pytest
import torch

import peak_memory
from peak_memory import measure_peak_memory

MIB = 2**20
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the peak")


def load() -> torch.Tensor:
    """8 MiB that stay, after 512 MiB that do not."""
    return torch.ones(512, MIB, dtype=torch.uint8)[:8].clone()


def work(loaded: torch.Tensor, mebibytes: int) -> None:
    for _ in range(2):  # in turn, so the peak is that of one
        loaded.repeat(mebibytes // 8, 1)


@linux
def test_it_is_the_peak_of_the_work_alone() -> None:
    found = measure_peak_memory(load, methodcaller("sum"), partial(work, mebibytes=160))
    assert 158 * MIB < found < 165 * MIB


@linux
def test_the_process_that_asks_does_not_count() -> None:
    held = torch.ones(300, MIB, dtype=torch.uint8)
    assert measure_peak_memory(load, methodcaller("sum"), partial(work, mebibytes=8)) < 20 * MIB
    assert held.numel() == 300 * MIB


def test_it_is_none_where_the_system_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise FileNotFoundError("/proc/self/status")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(peak_memory, "_glibc", lambda *arguments: None)
    monkeypatch.setattr(peak_memory, "_resident_peak", refuse)
    assert peak_memory._measure(partial(torch.ones, 3), torch.sum, torch.sum, torch.get_num_threads()) is None


def test_an_error_of_the_work_is_raised() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        measure_peak_memory(partial(torch.ones, 3), torch.sum, methodcaller("nothing"))
