"""What stands behind the union: one operator, or several in a chain, as in one query."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import trailmark as tm
from trailmark.checkpoint.policy import Continuous
from trailmark.engine import Bucket, OperatorLogs
from trailmark.engine.tentative import InputsTold, Upstream
from trailmark.log import PortRows
from trailmark.operators.aggregate import Aggregate
from trailmark.operators.keyed import Keyed
from trailmark.operators.protocol import AnyOperator
from trailmark.streams.union.decision import Decision
from trailmark.testing.disk import SimulatedDisk

SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("item", pa.int64())])
NO_ROWS = pa.RecordBatch.from_pylist([], schema=SCHEMA)


class Numbered:
    """A keyed operator with a result for every row: how many its key has had. The result has the
    columns of the row, so that the next in the chain takes it."""

    state: ClassVar[Any] = {"n": pa.int64()}

    def process(self, keys: Any, rows: pa.RecordBatch, state: Any) -> pa.Table:
        numbers = state["n"][keys.of_rows] + _turns(keys.of_rows) + 1
        state["n"] += keys.counts()
        return pa.table({"at": rows["at"], "item": rows["item"], "n": numbers})


def _turns(of_rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How many rows with the same key come before each."""
    order = np.argsort(of_rows, kind="stable")
    of_key = of_rows[order]
    firsts = np.flatnonzero(np.r_[True, of_key[1:] != of_key[:-1]][: len(of_key)])
    begins = np.repeat(firsts, np.diff(np.r_[firsts, len(of_key)]))
    turns = np.empty(len(of_key), dtype=np.int64)
    turns[order] = np.arange(len(of_key)) - begins
    return turns


def counting() -> list[AnyOperator]:
    """Counts in windows of a second."""
    window = tm.time_window("at", "1 second")
    return [Aggregate(SCHEMA, by=["item"], window=window, values={"n": tm.count()})]


def numbering(depth: int) -> list[AnyOperator]:
    """So many operators that give a result for every row, each behind the one before."""
    output = SCHEMA.append(pa.field("n", pa.int64()))
    return [
        Keyed(output if place else SCHEMA, Numbered, by="item", output=output)
        for place in range(depth)
    ]


class Chain:
    """Operators in one query: a batch goes through all of them, with what is tentative of it.

    Parameters
    ----------
    operators
        In their order. The first is behind the union.
    decided
        The decision that the batch is made of which runs.
    """

    def __init__(self, operators: Sequence[AnyOperator], decided: Callable[[], Decision]) -> None:
        self._decided = decided
        policy = Continuous.within("1 second")
        self._buckets = []
        for place, operator in enumerate(operators):
            (port,) = operator.ports
            goes_by_union = place == 0 and port.event_time is not None
            told = partial(self._told, goes_by_union=goes_by_union)
            logs = OperatorLogs(SimulatedDisk().storage(), operator, buckets=1, told=told)
            self._buckets.append(Bucket(operator, logs, 0, policy, retain_batches=64))

    def run(
        self, number: int, stable: pa.RecordBatch, tentative: pa.RecordBatch
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """What comes out of the last one: stable results, and tentative ones."""
        for bucket in self._buckets:
            report = bucket.run(number, PortRows((stable,)), PortRows((tentative,)))
            stable = report.results
            tentative = stable.slice(0, 0) if report.tentative is None else report.tentative
        return stable, tentative

    def close(self) -> None:
        for bucket in self._buckets:
            bucket.close()

    def _told(self, *, goes_by_union: bool) -> InputsTold:
        """An operator whose rows are results is only told which of them stand."""
        decision = self._decided()
        since = None if decision.ahead is None else decision.ahead.since
        union = Upstream(decision.number, since, decision.phase.value)
        if not goes_by_union:
            return InputsTold([None], [None], (union,))
        return InputsTold([decision.released_us], [decision.until_us], (union,))
