"""The set of changed windows, against a plain set."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tests.support.orders import count_case, orders
from trailmark.checkpoint.changes import Changes
from trailmark.operators.protocol import BatchInput
from trailmark.state.memory import Memory
from trailmark.state.table import StateTable

_OPERATOR = count_case([], size=3).operator()


def _slots(*numbers: int) -> npt.NDArray[np.int64]:
    return np.array(numbers, dtype=np.int64)


def _table(items: range, memory: Memory | None = None) -> StateTable:
    """A window for each item, in the slots from 1 on."""
    table = StateTable(_OPERATOR.layout, Memory() if memory is None else memory)
    _OPERATOR.process(table, BatchInput(0, orders([(item, 1) for item in items])))
    return table


def test_what_was_added_is_taken_once() -> None:
    rng = random.Random(1)
    table, changes = _table(range(3_000)), Changes(Memory())
    plain: set[int] = set()
    taken = 0
    for _ in range(200):
        added = rng.sample(range(1, 3_001), rng.choice((0, 1, 10, 300)))
        changes.add(_slots(*added))
        plain.update(added)
        if rng.random() < 0.3:
            assert sorted(changes.take(table).tolist()) == sorted(plain)
            taken += len(plain)
            plain.clear()
    assert taken > 1_000


def test_windows_that_have_closed_since_are_left_out() -> None:
    table, changes = _table(range(10)), Changes(Memory())
    changes.add(table.slots())
    closing = [(item, 1) for item in (2, 5) for _ in range(2)]
    _OPERATOR.process(table, BatchInput(1, orders(closing)))
    assert table.open_windows == 8
    assert sorted(changes.take(table).tolist()) == sorted(table.slots().tolist())


def test_it_grows_with_the_table() -> None:
    table, changes = _table(range(40_000)), Changes(Memory())
    changes.add(_slots(3))
    changes.add(_slots(39_999))
    changes.add(_slots(20_000, 3))
    assert changes.take(table).tolist() == [3, 20_000, 39_999]


def test_cleared_it_is_empty() -> None:
    table, changes = _table(range(10)), Changes(Memory())
    changes.add(table.slots())
    changes.clear()
    assert not len(changes.take(table))


def test_the_next_process_finds_it_in_the_same_memory(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    table = _table(range(10_000), memory)
    Changes(memory).add(_slots(7, 9_000))
    memory.close()
    memory = Memory(tmp_path)
    table = StateTable(_OPERATOR.layout, memory, is_new=False)
    assert Changes(memory).take(table).tolist() == [7, 9_000]
    memory.close()
