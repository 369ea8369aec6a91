"""Every byte of a small log changed, every file cut at every length: the same answer, or none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.compare import assert_same_rows, assert_same_states, table_states
from tests.support.disk import SimulatedDisk
from tests.support.engine import Judge, Query, StepClock
from tests.support.harm import EVERY_BYTE, Harm
from tests.support.oracle import Identity, OracleOutcome, Row
from tests.support.plain import plain_rows
from tests.support.small import SMALL_WINDOWS, small_case
from trailmark.checkpoint.ledger import Ledger
from trailmark.checkpoint.policy import Continuous
from trailmark.errors import TrailmarkError
from trailmark.kernel.columns import contiguous
from trailmark.records import FrameKind
from trailmark.recovery import plan_recovery, restore
from trailmark.state.memory import Memory
from trailmark.state.table import StateTable

_BATCHES = 2


class _SmallLog:
    """Two batches of one bucket, and what must be found in them."""

    def __init__(self) -> None:
        case = small_case(SMALL_WINDOWS["time"], _BATCHES, ["total", "last"])
        self.operator = case.operator()
        self.disk = SimulatedDisk()
        self.query = Query(case, self.disk, Continuous(q=4))
        judge = Judge(case, 1)
        self.outcomes: list[OracleOutcome] = []
        for batch, rows in enumerate(case.batches):
            judge.check(self.query, batch, self.query.run(batch, [rows]))
            self.outcomes.append(judge.outcome(0, batch))
        self.query.stop()
        self.states: dict[Identity, Row] = judge.oracle(0).open_windows()

    def check_results(self) -> None:
        output = self.query.logs().output(0)
        for batch, expected in enumerate(self.outcomes):
            results = output.read(batch).table(FrameKind.RESULTS)
            assert results is not None
            assert_same_rows(contiguous(results), expected.results, f"batch {batch}")

    def check_input(self) -> None:
        inputs = self.query.logs().input(0)
        for segment, rows in zip(inputs.read_from(0), self.query.case.batches, strict=True):
            logged = segment.table(FrameKind.INPUT)
            assert logged is not None
            names = logged.schema.names
            assert_same_rows(contiguous(logged), plain_rows(rows.select(names)), "input")

    def check_recovery(self) -> None:
        operator, logs = self.operator, self.query.logs()
        output, inputs = logs.output(0), logs.input(0)
        plan = plan_recovery(operator, output, inputs, logs.snapshots(0), _BATCHES - 1, 0)
        memory = Memory()
        table, ledger = StateTable(operator.layout, memory), Ledger(memory)
        restore(plan, operator, table, ledger, output, inputs, 0, StepClock())
        assert_same_states(table_states(operator, table), self.states, "recovered")


def _is_refused(check: Callable[[], None]) -> bool:
    """Whether a check was refused by name; any other answer than the right one fails."""
    try:
        check()
    except TrailmarkError as error:
        refusal = error
    else:
        return False
    assert refusal.what
    assert refusal.where
    return True


@pytest.mark.parametrize("harm", EVERY_BYTE.values(), ids=EVERY_BYTE)
@pytest.mark.parametrize("which", ["meta.json", "in/", "out/", "watermark/"])
def test_harm_to_any_byte_gives_the_same_answer_or_a_refusal(harm: Harm, which: str) -> None:
    log = _SmallLog()
    refused = tried = 0
    for path in (p for p in log.disk.files() if p.startswith(which)):
        for what in harm(log.disk, path):
            tried += 1
            refusals = [_is_refused(c) for c in (log.check_results, log.check_input)]
            is_recovery_refused = _is_refused(log.check_recovery)
            refused += any(refusals) or is_recovery_refused
            if which == "out/":
                # All input is there, so a damaged output segment can always be gone around.
                assert not is_recovery_refused, f"{path}, {what}"
    if which in ("in/", "out/"):
        assert refused == tried, "a reader of the whole log notices every change"
    assert not _is_refused(log.check_recovery), "undone"
