"""Every byte of a small log changed, every file cut at every length: the same answer, or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.support.compare import assert_same_rows, assert_same_states
from tests.support.engine import CrashCase, Judge, Query, by_port
from tests.support.harm import EVERY_BYTE, Harm
from tests.support.oracle import Identity, OracleOutcome, Row
from tests.support.plain import plain_rows
from tests.support.small import SMALL_WINDOWS, small_case, small_case_of, small_pairing
from trailmark.checkpoint.ledger import Ledger
from trailmark.checkpoint.policy import Continuous
from trailmark.errors import TrailmarkError
from trailmark.kernel.columns import contiguous
from trailmark.log import PortRows, read_ports
from trailmark.records import FrameKind
from trailmark.recovery import InputHistory, plan_recovery, restore
from trailmark.state.memory import Memory
from trailmark.testing.disk import SimulatedDisk
from trailmark.testing.processes import StepClock

_BATCHES = 2
_FILES = ["meta.json", "in/", "out/", "watermark/"]


class _SmallLog:
    """Two batches of one bucket, and what must be found in them."""

    def __init__(self, case: CrashCase) -> None:
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

    def paths(self, which: str) -> list[str]:
        return [path for path in self.disk.files() if path.startswith(which)]

    def check_results(self) -> None:
        output = self.query.logs().output(0)
        for batch, expected in enumerate(self.outcomes):
            results = output.read(batch).table(FrameKind.RESULTS)
            assert results is not None
            assert_same_rows(contiguous(results), expected.results, f"batch {batch}")

    def check_input(self) -> None:
        inputs = self.query.logs().input(0)
        ports = self.operator.ports
        for segment, rows in zip(inputs.read_from(0), self.query.case.batches, strict=True):
            logged, given = read_ports(segment, ports), by_port(rows)
            for port, found, wanted in zip(ports, logged.tables, given.tables, strict=True):
                columns = wanted.select(port.schema.names)
                assert_same_rows(found, plain_rows(columns), f"input {port.name}")
            assert _order(logged) == _order(given)

    def check_recovery(self) -> None:
        operator, logs = self.operator, self.query.logs()
        output, inputs = logs.output(0), logs.input(0)
        plan = plan_recovery(operator, output, inputs, logs.snapshots(0), _BATCHES - 1, 0)
        memory = Memory()
        history = InputHistory(inputs, operator.ports)
        state, ledger = operator.open(memory, history), Ledger(memory)
        restore(plan, operator, state, ledger, output, inputs, 0, StepClock())
        assert_same_states(self.query.case.states(operator, state), self.states, "recovered")


def _order(rows: PortRows) -> list[int] | None:
    return None if rows.order is None else rows.order.tolist()


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
@pytest.mark.parametrize("which", _FILES)
def test_harm_to_any_byte_gives_the_same_answer_or_a_refusal(harm: Harm, which: str) -> None:
    log = _SmallLog(small_case(SMALL_WINDOWS["time"], _BATCHES, ["total", "last"]))
    _check_harm(log, harm, which, log.paths(which))


@pytest.mark.parametrize("harm", EVERY_BYTE.values(), ids=EVERY_BYTE)
@pytest.mark.parametrize("which", _FILES)
def test_harm_to_any_byte_of_two_inputs_does_so_too(harm: Harm, which: str) -> None:
    """In the files of the last batch: those before it are no different."""
    log = _SmallLog(small_pairing(_BATCHES))
    _check_harm(log, harm, which, log.paths(which)[-1:])


@pytest.mark.parametrize("harm", EVERY_BYTE.values(), ids=EVERY_BYTE)
@pytest.mark.parametrize("kind", ["barrier", "join", "keyed", "whole"])
def test_harm_to_any_byte_of_the_output_of_other_operators_is_gone_around(
    harm: Harm, kind: str
) -> None:
    """In the last batch, at every fourth byte: their frames are larger, and in the same format."""
    log = _SmallLog(small_case_of(kind, _BATCHES))
    _check_harm(log, harm, "out/", log.paths("out/")[-1:], every=4)


def _check_harm(
    log: _SmallLog, harm: Harm, which: str, paths: Sequence[str], every: int = 1
) -> None:
    # Who reads one of the logs opens no file of the other.
    readers = [
        reads
        for reads, of_the_other in ((log.check_results, "in/"), (log.check_input, "out/"))
        if which != of_the_other
    ]
    refused = tried = 0
    for path in paths:
        for number, what in enumerate(harm(log.disk, path)):
            if number % every:
                continue
            tried += 1
            refusals = [_is_refused(reads) for reads in readers]
            is_recovery_refused = _is_refused(log.check_recovery)
            refused += any(refusals) or is_recovery_refused
            if which == "out/":
                # All input is there, so a damaged output segment can always be gone around.
                assert not is_recovery_refused, f"{path}, {what}"
    assert tried
    if which in ("in/", "out/"):
        assert refused == tried, "a reader of the whole log notices every change"
    assert not _is_refused(log.check_recovery), "undone"
