"""The README's example runs as it is printed, and survives being run twice."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

_README = Path(__file__).parents[2] / "README.md"


def _example() -> str:
    (block,) = re.findall(r"```python\n(.*?)```", _README.read_text(), flags=re.DOTALL)
    return str(block)


def _batches() -> list[pa.RecordBatch]:
    rng = np.random.default_rng(7)
    return [
        pa.record_batch(
            {
                "item_id": rng.integers(0, 20, 150, dtype=np.int32),
                "item_price": rng.integers(1, 100, 150, dtype=np.int32),
            }
        )
        for _ in range(4)
    ]


def _averages(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    """The same query, by hand."""
    prices: dict[int, list[int]] = {}
    results = []
    for batch in batches:
        for row in batch.to_pylist():
            window = prices.setdefault(row["item_id"], [])
            window.append(row["item_price"])
            if len(window) == 10:
                results.append({"item_id": row["item_id"], "avg_price": sum(window) / 10})
                window.clear()
    return results


def _run(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    printed: list[pa.RecordBatch] = []
    show: Callable[[pa.RecordBatch], None] = printed.append
    names: dict[str, Any] = {"batches": batches, "print": show}
    exec(compile(_example(), str(_README), "exec"), names)
    names["bucket"].close()
    return [row for results in printed for row in results.to_pylist()]


def test_the_example_gives_the_right_averages_again_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    batches = _batches()
    expected = sorted(map(str, _averages(batches)))
    assert len(expected) > 10
    assert sorted(map(str, _run(batches[:3]))) == sorted(map(str, _averages(batches[:3])))
    assert sorted(map(str, _run(batches))) == expected
    assert sorted(map(str, _run(batches))) == expected


def test_the_example_is_no_longer_than_fifteen_lines() -> None:
    assert len(_example().strip().splitlines()) <= 15
