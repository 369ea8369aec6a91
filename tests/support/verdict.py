"""Whole logs, judged by the oracle from the first batch to the last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa

from tests.support.compare import assert_same_rows, assert_same_states
from tests.support.engine import CrashCase, by_port
from tests.support.oracle import Identity, Row
from tests.support.plain import plain_rows
from trailmark.checkpoint.account import Account
from trailmark.checkpoint.ledger import Ledger
from trailmark.engine import OperatorLogs
from trailmark.log import Segment, monotonic_us
from trailmark.operators.protocol import AnyOperator
from trailmark.records import FrameKind
from trailmark.recovery import InputHistory, plan_recovery, restore
from trailmark.state.memory import Memory


class Logged(Protocol):
    """A query that has logs, wherever they are."""

    @property
    def case(self) -> CrashCase: ...

    @property
    def buckets(self) -> int: ...

    def logs(self) -> OperatorLogs: ...


def assert_logs_are_right(query: Logged, batches: Sequence[Any]) -> list[Any]:
    """Both logs of every bucket hold these batches, whole, once, with the oracle's results.

    The rows have to be given in the order they were delivered in. Returns the oracles, which know
    the state after the last batch.
    """
    logs = query.logs()
    marks = watermarks(query, batches)
    oracles = []
    for number in range(query.buckets):
        inputs, output = logs.input(number), logs.output(number)
        assert output.batches() == list(range(len(batches)))
        assert inputs.newest() == len(batches) - 1
        for log in (inputs, output):
            assert log.verify().is_whole, log.verify().problems
        oracle = query.case.oracle()
        for batch, segment in enumerate(output.read_from()):
            rows = query.case.split(batches[batch], query.buckets)[number]
            before = marks[batch - 1] if batch else None
            expected = query.case.outcome(oracle, batch, rows, before, marks[batch])
            what = f"batch {batch}, bucket {number}"
            assert_same_rows(logged_results(segment), expected.results, what)
            account = Account.from_attributes(segment.footer.attributes)
            assert account.watermark == marks[batch], what
            assert account.open_windows == len(oracle.open_windows()), what
            assert segment.footer.attributes["late_rows"] == expected.late_rows, what
        oracles.append(oracle)
    return oracles


def assert_state_is_right(query: Logged, number: int, oracle: Any, target: int) -> None:
    """A recovery from the logs gives the oracle's state."""
    found = recovered_states(query, number, target)
    assert_same_states(found, oracle.open_windows(), f"bucket {number} after batch {target}")


def recovered_states(
    query: Logged, number: int, target: int, operator: AnyOperator | None = None
) -> dict[Identity, Row]:
    """The state after a batch, from the logs alone."""
    logs = query.logs()
    operator = query.case.operator() if operator is None else operator
    output, inputs = logs.output(number), logs.input(number)
    plan = plan_recovery(operator, output, inputs, logs.snapshots(number), target, 0)
    history = InputHistory(inputs, operator.ports)
    state, ledger = operator.open(Memory(), history), Ledger(Memory())
    restore(plan, operator, state, ledger, output, inputs, 0, monotonic_us)
    return query.case.states(operator, state)


def watermarks(query: Logged, batches: Sequence[Any]) -> list[int | None]:
    """The watermark of every batch: the greatest time that a port had in the batches before it,
    less its delay; the least of those of all ports, once each has one."""
    driving = [
        (place, port.event_time, port.delay_us)
        for place, port in enumerate(query.case.operator().ports)
        if port.event_time is not None
    ]
    marks: list[int | None] = []
    reached: dict[int, int] = {}
    for rows in batches:
        is_known = driving and len(reached) == len(driving)
        marks.append(min(reached.values()) if is_known else None)
        tables = by_port(rows).tables
        for place, column, delay in driving:
            times = [row[column] for row in plain_rows(tables[place])]
            found = [time - delay for time in times if time is not None]
            if place in reached:
                found.append(reached[place])
            if found:
                reached[place] = max(found)
    return marks


def logged_results(segment: Segment) -> pa.RecordBatch:
    """The results of an output segment as one record batch."""
    table = segment.table(FrameKind.RESULTS)
    assert table is not None
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
