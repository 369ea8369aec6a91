"""Rows in shared memory: few blocks, whatever was added, and every row where it was."""

from __future__ import annotations

import random
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from trailmark.operators import row_blocks as blocks
from trailmark.operators.row_blocks import RowBlocks
from trailmark.state.memory import Memory

_SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string()), ("list", pa.list_(pa.int8()))])


def _rows(first: int, count: int) -> pa.RecordBatch:
    numbers = list(range(first, first + count))
    columns = [numbers, [f"{n}" * (n % 3) for n in numbers], [[n % 7] * (n % 4) for n in numbers]]
    return pa.RecordBatch.from_pydict(dict(zip(_SCHEMA.names, columns, strict=True)), _SCHEMA)


def _check(held: RowBlocks, numbers: list[int], places: list[int]) -> None:
    found = held.take(np.array(places, dtype=np.int64))
    assert found.schema == _SCHEMA
    assert found.to_pylist() == [_rows(numbers[place], 1).to_pylist()[0] for place in places]


@pytest.mark.parametrize("seed", range(10))
def test_rows_are_found_whatever_was_added_merged_and_let_go(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    memory = Memory(tmp_path)
    held = RowBlocks(memory, "left", _SCHEMA, is_new=True)
    numbers: list[int] = []
    with mock.patch.object(blocks, "_MOST_ROWS", rng.choice((4, 50, 1 << 17))):
        for step in range(40):
            count = rng.choice((0, 1, 2, 30))
            held.add(_rows(1000 * step, count))
            numbers += range(1000 * step, 1000 * step + count)
            if rng.random() < 0.7:
                held.write()
            if rng.random() < 0.2:
                kept = sorted(rng.sample(range(len(numbers)), len(numbers) // 2))
                held.keep(np.array(kept, dtype=np.int64))
                numbers = [numbers[place] for place in kept]
            if rng.random() < 0.2:
                held.write()
                memory.close()
                memory = Memory(tmp_path)
                held = RowBlocks(memory, "left", _SCHEMA, is_new=False)
            if numbers:
                _check(held, numbers, [rng.randrange(len(numbers)) for _ in range(20)])
    _check(held, numbers, [])


def test_many_small_additions_make_few_blocks_and_move_a_row_few_times() -> None:
    held = RowBlocks(Memory(), "left", _SCHEMA, is_new=True)
    count, written = 512, 0
    for place in range(count):
        held.add(_rows(place, 1))
        held.write()
        written += int(held._blocks()["rows"][-1])
    assert len(held._blocks()) <= 10
    assert written <= 10 * count
    _check(held, list(range(count)), list(range(count)))


def test_large_blocks_are_left_alone() -> None:
    held = RowBlocks(Memory(), "left", _SCHEMA, is_new=True)
    with mock.patch.object(blocks, "_MOST_ROWS", 100):
        for place in range(5):
            held.add(_rows(100 * place, 100))
            held.write()
    assert held._blocks()["rows"].tolist() == [100] * 5
    _check(held, list(range(500)), [499, 0, 250])
