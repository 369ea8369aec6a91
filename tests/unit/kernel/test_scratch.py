"""Working memory is used again, by name and by thread, and not kept where it is large."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from trailmark.kernel import scratch as module
from trailmark.kernel.library import address
from trailmark.kernel.scratch import scratch


def test_the_same_name_gets_the_same_memory_and_another_name_other() -> None:
    first = scratch("a", 100, np.int64)
    assert address(scratch("a", 50, np.int32)) == address(first)
    assert address(scratch("b", 100, np.int64)) != address(first)
    assert first.shape == (100,)


def test_more_than_before_is_given() -> None:
    scratch("grows", 10, np.uint8)
    grown = scratch("grows", 1_000_000, np.int64)
    grown[:] = 7
    assert len(grown) == 1_000_000


def test_threads_do_not_share() -> None:
    mine = scratch("thread", 1000, np.int64)
    others: list[int | None] = []
    thread = threading.Thread(
        target=lambda: others.append(address(scratch("thread", 1000, np.int64)))
    )
    thread.start()
    thread.join()
    assert others != [address(mine)]


def test_large_arrays_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_BYTES", 1000)
    held = scratch("large", 2000, np.uint8)
    again = scratch("large", 2000, np.uint8)
    assert address(held) != address(again)
