"""Logs of an earlier Trailmark are read, verified, merged, recovered from and gone on with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.compare import assert_same_rows
from tests.support.engine import Judge, Query
from tests.support.kept_logs import BATCHES, KEPT, POLICIES, engine_bucket, engine_case, unpack
from tests.support.plain import plain_rows
from tests.support.shown_states import StatedQuery
from tests.support.small import SMALL_WINDOWS
from trailmark.engine import BatchReport, OperatorLogs
from trailmark.inspection.verify import verify_operator
from trailmark.kernel.columns import contiguous
from trailmark.log import LocalStorage, StreamLog
from trailmark.records import FrameKind
from trailmark.streams.operator_state import open_state
from trailmark.testing.disk import SimulatedDisk


@dataclass(frozen=True)
class Kept:
    """Where the logs are, and how many batches they hold."""

    root: Path
    batches: int


@pytest.fixture(scope="module", params=KEPT)
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    root = tmp_path_factory.mktemp("kept")
    unpack(root, request.param)
    return Kept(root / "engine", KEPT[request.param])


@pytest.mark.parametrize("version", KEPT)
def test_states_of_kept_logs_are_read(version: str, tmp_path: Path) -> None:
    unpack(tmp_path, version)
    for window in SMALL_WINDOWS:
        stated = StatedQuery.of(engine_case(window), POLICIES["continuous"]).run()
        stated.query.stop()
        for policy in POLICIES:
            table = open_state(LocalStorage(tmp_path / "engine" / f"{window}-{policy}")).table()
            (batch,) = set(table["batch"].to_pylist())
            assert batch >= KEPT[version] - 2
            stated.check(table, batch)


def _versions(log: StreamLog) -> list[int]:
    return [log.read_footer(batch)[0].version for batch in log.batches()]


def _uninterrupted(window: str) -> list[BatchReport]:
    """What the present Trailmark makes of the same rows, and the oracle says is right."""
    case = engine_case(window)
    query, judge = Query(case, SimulatedDisk(), POLICIES["continuous"]), Judge(case, 1)
    reports = []
    for batch, rows in enumerate(case.batches):
        reports += query.run(batch, [rows])
        judge.check(query, batch, reports[-1:])
    query.stop()
    return reports


@pytest.mark.parametrize("window", SMALL_WINDOWS)
def test_kept_logs_go_on_as_if_nothing_had_happened(kept: Kept, window: str) -> None:
    expected = _uninterrupted(window)
    for policy in POLICIES:
        root = kept.root / f"{window}-{policy}"
        described = (root / "meta.json").read_bytes()
        bucket = engine_bucket(root, window, policy)
        operator = bucket.operator
        logs = OperatorLogs(LocalStorage(root), operator, buckets=1)
        assert verify_operator(LocalStorage(root)).is_whole, policy
        for segment in logs.output(0).read_from(to=kept.batches - 1):
            rows = operator.publish(contiguous(segment.table(FrameKind.RESULTS)))
            assert_same_rows(rows, plain_rows(expected[segment.batch].results), policy)
        logs.output(0).merge(kept.batches - 4)
        for batch in range(kept.batches, BATCHES):
            report = bucket.run(batch, engine_case(window).batches[batch])
            assert (report.recovery is not None) == (batch == kept.batches)
            assert_same_rows(report.results, plain_rows(expected[batch].results), policy)
        bucket.trim()
        bucket.close()
        for log in (logs.input(0), logs.output(0), logs.snapshots(0)):
            assert log.repair().is_whole
            assert log.verify().is_whole
        assert _versions(logs.output(0)) == [1] * KEPT["format-1"] + [2] * (BATCHES - 20)
        assert (root / "meta.json").read_bytes() == described
