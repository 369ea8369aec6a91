"""A new operator is a package and an entry in the registry: whoever has its logs can read them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.committed import Logs, commit_all, said
from tests.support.compare import assert_same_rows
from tests.support.harm import segment_path
from tests.support.oracle import OracleOutcome, Row
from tests.support.pairing import PairingCase, in_order
from tests.support.small import small_pairing
from tests.support.verdict import assert_logs_are_right, recovered_states, watermarks
from trailmark.checkpoint.policy import Continuous
from trailmark.cli import main
from trailmark.engine.ticks import DueBatch
from trailmark.errors import SettingError, UnknownFormat
from trailmark.inspection import read_status
from trailmark.inspection.logs import OperatorFiles
from trailmark.inspection.plan import plan_bucket
from trailmark.inspection.verify import verify_operator
from trailmark.kernel.columns import contiguous
from trailmark.log import LocalStorage
from trailmark.records import FrameKind, Stream
from trailmark.streams.table import read_table

_BATCHES = 8
_BUCKETS = 2
_SIDES = ("left", "right")


def _write(path: Path) -> Logs:
    return commit_all(path, small_pairing(_BATCHES), Continuous(q=8, u=12), _BUCKETS)


@pytest.fixture
def logs(tmp_path: Path, pairing_kind: None) -> Logs:
    return _write(tmp_path / "pairs")


def _given(case: PairingCase, side: str) -> list[Row]:
    """All tuples that one of the inputs was given."""
    port = _SIDES.index(side)
    return [row for rows in case.batches for at, row in in_order(rows) if at == port]


def _outcomes(logs: Logs) -> list[OracleOutcome]:
    """What the oracle makes of every batch of every bucket."""
    case = logs.case
    marks = watermarks(logs.query, case.batches)
    outcomes = []
    for bucket in range(_BUCKETS):
        oracle = case.oracle()
        for batch, rows in enumerate(case.batches):
            part = case.split(rows, _BUCKETS)[bucket]
            outcomes.append(case.outcome(oracle, batch, part, None, marks[batch]))
    return outcomes


def _plain(rows: list[Row]) -> Counter[tuple[Any, ...]]:
    """Rows without their times, which the command line shows as text."""
    return Counter(tuple(sorted((k, v) for k, v in row.items() if k != "at")) for row in rows)


def test_without_its_entry_nobody_takes_the_logs_for_those_of_another(tmp_path: Path) -> None:
    logs = _write(tmp_path / "pairs")
    with pytest.raises(UnknownFormat, match="pairing"):
        read_status(LocalStorage(logs.path))
    (finding,) = verify_operator(LocalStorage(logs.path)).findings
    assert finding.trouble == "unknown"


def test_its_logs_are_found_whole_and_any_harm_to_an_order_is_not(logs: Logs) -> None:
    assert_logs_are_right(logs.query, logs.case.batches)
    found = verify_operator(LocalStorage(logs.path))
    assert found.is_whole, found.findings
    assert found.batches == 2 * _BUCKETS * _BATCHES
    segment = logs.query.logs().input(0).read(1)
    path = logs.path / segment_path(Stream.INPUT, 1)
    data = bytearray(path.read_bytes())
    data[segment.frames[FrameKind.ORDER].offset + 40] ^= 4
    path.write_bytes(data)
    (finding,) = verify_operator(LocalStorage(logs.path)).findings
    assert (finding.stream, finding.bucket, finding.batch) == ("input", 0, 1)


def test_its_status_counts_the_tuples_of_both_inputs(logs: Logs) -> None:
    status = read_status(LocalStorage(logs.path))
    assert status.is_sound
    assert status.last_batch == status.committed == _BATCHES - 1
    recent = [bucket.recent for bucket in status.buckets if bucket.recent is not None]
    assert sum(each.tuples for each in recent) == sum(b.num_rows for b in logs.case.batches)
    assert sum(each.results for each in recent) == sum(len(o.results) for o in _outcomes(logs))


@pytest.mark.parametrize("bucket", range(_BUCKETS))
def test_its_recovery_is_planned_from_files_alone_as_the_operator_plans_it(
    logs: Logs, bucket: int
) -> None:
    plan = plan_bucket(OperatorFiles(LocalStorage(logs.path)), bucket)
    states = recovered_states(logs.query, bucket, _BATCHES - 1)
    account = logs.reports[-1][bucket].account
    assert (plan.base, plan.replay_from) == (account.base, account.needs)
    assert (plan.records_read, plan.replay_tuples) == (account.extent, account.replay)
    assert plan.open_windows == len(states)


def test_a_batch_is_due_while_the_slower_of_its_watermarks_moves(logs: Logs) -> None:
    due = DueBatch(LocalStorage(logs.path))
    due.look()
    assert due.after == _BATCHES - 1


def test_its_results_and_the_tuples_of_each_input_can_be_read(logs: Logs) -> None:
    results = read_table(logs.path)
    wanted = [row for outcome in _outcomes(logs) for row in outcome.results]
    assert wanted
    assert_same_rows(contiguous(results), wanted, "results")
    for side in _SIDES:
        rows = read_table(logs.path, records=f"input:{side}")
        assert_same_rows(contiguous(rows), _given(logs.case, side), side)


def test_all_its_records_can_be_read(logs: Logs) -> None:
    found = read_table(logs.path, records="all")
    kinds = Counter(found["kind"].to_pylist())
    reports = [report for reports in logs.reports for report in reports]
    assert kinds == {
        "result": sum(report.results.num_rows for report in reports),
        "open": sum(report.footprints_opened for report in reports),
        "check": sum(report.footprints_checked for report in reports),
    }
    pieces = found.filter(pa.compute.not_equal(found["kind"], "result"))
    assert all(
        dict(state).keys() == {"opened", "batch", "row", "at"}
        for state in pieces["state"].to_pylist()
    )


def test_its_state_can_be_read_as_of_every_batch(logs: Logs) -> None:
    case = logs.case
    marks = watermarks(logs.query, case.batches)
    oracles = [case.oracle() for _ in range(_BUCKETS)]
    for batch, rows in enumerate(case.batches):
        expected = Counter[tuple[int, ...]]()
        for bucket, oracle in enumerate(oracles):
            part = case.split(rows, _BUCKETS)[bucket]
            case.outcome(oracle, batch, part, None, marks[batch])
            for ((key,), _), state in oracle.open_windows().items():
                expected[bucket, key, state["$opened"], state["at"]] += 1
        found = read_table(logs.path, records="state", ending_batch=batch)
        # Its pieces have a batch of their own: that of the tuple which they remember.
        named = ["$batch", "bucket", "key", "opened", "batch", "row", "at"]
        assert found.schema.names == named
        assert set(found["$batch"].to_pylist()) <= {batch}
        columns = [found[name].to_pylist() for name in ("bucket", "key", "opened", "at")]
        assert Counter(zip(*columns, strict=True)) == expected


@pytest.mark.parametrize("records", ["input", "input:middle"])
def test_whoever_asks_for_one_of_its_inputs_has_to_say_which(logs: Logs, records: str) -> None:
    with pytest.raises(SettingError, match="input:left, input:right"):
        read_table(logs.path, records=records)


def test_the_log_shows_the_tuples_of_every_input(
    logs: Logs, capsys: pytest.CaptureFixture[str]
) -> None:
    found = said(capsys, "log", logs.path, "--records", "--kind", "input", "--json")
    for side in _SIDES:
        rows = [each["row"] for each in found if each["kind"] == f"input:{side}"]
        assert _plain(rows) == _plain(_given(logs.case, side))
    assert {each["kind"] for each in found} == {"input:left", "input:right"}


def test_the_log_shows_the_tuples_of_a_key_on_every_input(
    logs: Logs, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("log", logs.path, "--stream", "input", "--key", "key=2", "--json")
    rows = [each["row"] for each in said(capsys, *asked, "--records")]
    given = [row for side in _SIDES for row in _given(logs.case, side) if row["key"] == 2]
    assert given
    assert _plain(rows) == _plain(given)
    counts = Counter[str]()
    for each in said(capsys, *asked):
        counts.update(each["rows"])
    assert counts.total() == len(given)


def test_the_log_lists_its_segments_by_input_and_leaves_out_the_order(
    logs: Logs, capsys: pytest.CaptureFixture[str]
) -> None:
    logged = logs.query.logs()
    for each in said(capsys, "log", logs.path, "--json"):
        is_input = each["stream"] == Stream.INPUT.name.lower()
        log = (logged.input if is_input else logged.output)(each["bucket"])
        held = {kind: int(frame) for kind, frame in log.read(each["batch"]).footer.rows.items()}
        if is_input:
            left, right = (held[FrameKind.of_port(port)] for port in range(2))
            assert each["rows"] == {"input:left": left, "input:right": right}
        else:
            assert each["rows"]["closed"] == held[FrameKind.CLOSED]
            assert each["rows"]["results"] == held[FrameKind.RESULTS]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["status"], "pairs of left and right by key"),
        (["verify"], "whole"),
        (["recover", "--dry-run"], "recover to the end of batch"),
        (["log"], "input:right"),
        (["log", "--records"], "input:right"),
    ],
    ids=["status", "verify", "recover", "log", "records"],
)
def test_every_command_tells_people_of_it(
    logs: Logs, command: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *options = command
    assert main([name, str(logs.path), *options]) == 0
    assert expected in capsys.readouterr().out
