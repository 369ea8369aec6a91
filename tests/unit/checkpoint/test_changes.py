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


def _begun() -> Changes:
    """An empty set, from batch 1 on."""
    changes = Changes(Memory())
    changes.begin(0)
    return changes


def test_what_was_added_is_taken_once() -> None:
    rng = random.Random(1)
    table, changes = _table(range(3_000)), _begun()
    plain: set[int] = set()
    taken = 0
    for batch in range(1, 201):
        added = rng.sample(range(1, 3_001), rng.choice((0, 1, 10, 300)))
        assert changes.follow(batch, _slots(*added))
        plain.update(added)
        if rng.random() < 0.3:
            assert sorted(changes.take(table).tolist()) == sorted(plain)
            taken += len(plain)
            plain.clear()
    assert taken > 1_000


def test_windows_that_have_closed_since_are_left_out() -> None:
    table, changes = _table(range(10)), _begun()
    assert changes.follow(1, table.slots())
    closing = [(item, 1) for item in (2, 5) for _ in range(2)]
    _OPERATOR.process(table, BatchInput(1, orders(closing)))
    assert table.open_windows == 8
    assert sorted(changes.take(table).tolist()) == sorted(table.slots().tolist())


def test_it_grows_with_the_table() -> None:
    table, changes = _table(range(40_000)), _begun()
    assert changes.follow(1, _slots(3))
    assert changes.follow(2, _slots(39_999))
    assert changes.follow(3, _slots(20_000, 3))
    assert changes.take(table).tolist() == [3, 20_000, 39_999]


def test_begun_anew_it_is_empty() -> None:
    table, changes = _table(range(10)), _begun()
    assert changes.follow(1, table.slots())
    changes.begin(1)
    assert not len(changes.take(table))


def test_it_knows_which_batches_it_has_seen() -> None:
    changes = Changes(Memory())
    assert not changes.follow(1, _slots(3)), "nobody has begun"
    changes.begin(4)
    assert not changes.follow(4, _slots(3))
    assert not changes.follow(6, _slots(3)), "batch 5 is missing"
    assert changes.follow(5, _slots(3))
    assert changes.follow(6, _slots())


def test_the_next_process_finds_it_in_the_same_memory(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    table = _table(range(10_000), memory)
    changes = Changes(memory)
    changes.begin(0)
    assert changes.follow(1, _slots(7, 9_000))
    memory.close()
    memory = Memory(tmp_path)
    table = StateTable(_OPERATOR.layout, memory, is_new=False)
    changes = Changes(memory)
    assert changes.follow(2, _slots(8))
    assert changes.take(table).tolist() == [7, 8, 9_000]
    memory.close()
