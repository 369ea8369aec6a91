"""`tm.testing.apply`: operators of users' own, right and wrong, in both forms."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

import trailmark as tm
from trailmark.errors import SettingError

_OUTPUT = pa.schema([("item", pa.string()), ("n", pa.int64())])
_SCHEMA = pa.schema([("item", pa.string()), ("price", pa.float64()), ("at", pa.timestamp("us"))])
_SECOND = 1_000_000


def _batches(count: int = 5) -> list[pa.Table]:
    made = []
    for batch in range(count):
        rows = [
            {
                "item": "abc"[(batch * place) % 3],
                "price": place / 4,
                "at": (5 * batch + place) * _SECOND,
            }
            for place in range(6)
        ]
        made.append(pa.Table.from_pylist(rows, schema=_SCHEMA))
    return made


class Count:
    """Counts, forgets after a pause, and tells of silence."""

    state: ClassVar[Any] = {"n": pa.int64(), "prices": pa.list_(pa.float64())}
    event_time_to_live = "40 seconds"

    def process(self, keys: Any, rows: Any, state: Any) -> Any:
        state["n"] += keys.counts()
        state["prices"].append(keys.of_rows, rows["price"])
        state.event_timer = np.datetime64("2100-01-01")
        state.clock_timer = np.where(state.is_new, state.now + 2 * _SECOND, state.clock_timer)
        return keys.table(n=state["n"])

    def on_event_timer(self, keys: Any, due: Any, state: Any) -> Any:
        return None

    def on_clock_timer(self, keys: Any, due: Any, state: Any) -> Any:
        return keys.table(n=-state["n"])


class Sum:
    """The whole form."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for row in batch.to_pylist():
            self.sums[row["item"]] = self.sums.get(row["item"], 0.0) + row["price"]
        found = [{"item": item, "n": int(total)} for item, total in self.sums.items()]
        return pa.RecordBatch.from_pylist(found, schema=_OUTPUT)

    def get_checkpoint(self) -> bytes:
        return json.dumps(self.sums).encode()

    def restore_checkpoint(self, state: bytes) -> None:
        self.sums = json.loads(state)


def _keyed(operator: Any = Count) -> tm.testing.Query:
    return tm.testing.apply(operator, by="item", schema=_OUTPUT, time="at")


def _whole(operator: Any = Sum) -> tm.testing.Query:
    return tm.testing.apply(operator, by="item", schema=_OUTPUT)


@pytest.mark.parametrize("make", [_keyed, _whole], ids=["keyed", "whole"])
@pytest.mark.parametrize("buckets", [1, 2])
def test_an_operator_that_keeps_its_promise_passes_everywhere(make: Any, buckets: int) -> None:
    report = tm.testing.run(make(), _batches(), crash_at="everywhere", buckets=buckets)
    assert report.crashes == report.operations > 50
    assert report.recoveries >= report.crashes


def test_the_clock_goes_on_by_the_same_step_in_every_run() -> None:
    report = tm.testing.run(_keyed(), _batches(), crash_at=3, clock_step="1 second")
    told = [row for row in report.results.to_pylist() if row["n"] < 0]
    assert len(told) == 3
    slow = tm.testing.run(_keyed(), _batches(), crash_at=3, clock_step="1 ms")
    assert not [row for row in slow.results.to_pylist() if row["n"] < 0]


class Forgetful(Count):
    """Keeps what it counts in an attribute, too."""

    def __init__(self) -> None:
        self.rows = 0

    def process(self, keys: Any, rows: Any, state: Any) -> Any:
        self.rows += rows.num_rows
        super().process(keys, rows, state)
        return keys.table(n=state["n"] + self.rows)


class Curious(Count):
    """Looks at the other keys of a call."""

    def process(self, keys: Any, rows: Any, state: Any) -> Any:
        super().process(keys, rows, state)
        state["n"] += len(keys)


class Careless(Sum):
    """Leaves the newest item out of its checkpoint."""

    def get_checkpoint(self) -> bytes:
        return json.dumps(dict(list(self.sums.items())[:-1])).encode()


@pytest.mark.parametrize(
    "query",
    [_keyed(Forgetful), _keyed(Curious), _whole(Careless)],
    ids=["attribute", "other keys", "checkpoint"],
)
def test_an_operator_that_breaks_its_promise_is_caught(query: tm.testing.Query) -> None:
    with pytest.raises(tm.testing.RecoveryDiffers, match="not the same after a crash"):
        tm.testing.run(query, _batches(), crash_at="everywhere", checkpoint=tm.Continuous(q=4))


def test_what_cannot_be_tested_is_refused() -> None:
    with pytest.raises(SettingError, match="must be a schema of Arrow's"):
        tm.testing.apply(Count, by="item", schema="item string, n long")
    with pytest.raises(SettingError, match="At least one key"):
        tm.testing.run(tm.testing.apply(Count, schema=_OUTPUT), _batches())
