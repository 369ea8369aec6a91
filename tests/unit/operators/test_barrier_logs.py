"""The logs of barriers, for whoever has only them, and footprints that are none."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.barriers import BarrierCase, small_barrier
from tests.support.committed import Logs, commit_all
from tests.support.verdict import assert_logs_are_right
from trailmark.checkpoint.policy import Continuous
from trailmark.cli import main
from trailmark.errors import DamagedSegment, SettingError, TrailmarkError, UnknownFormat
from trailmark.inspection.logs import OperatorFiles
from trailmark.inspection.verify import verify_operator
from trailmark.log import LocalStorage, OperatorMeta, PortRows
from trailmark.operators.barrier import Barrier
from trailmark.operators.barrier.state import BarrierState
from trailmark.operators.kinds import caution_of, form_of, kind_of, title_of
from trailmark.records import FOOTPRINT
from trailmark.state.memory import Memory
from trailmark.streams.table import read_table

_BATCHES = 6


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return commit_all(tmp_path / "logs", small_barrier(_BATCHES), Continuous(u=12), 2)


def _meta(path: Path) -> OperatorMeta:
    return OperatorFiles(LocalStorage(path)).meta


def test_they_are_right_and_found_whole(logs: Logs) -> None:
    assert_logs_are_right(logs.query, logs.case.batches)
    found = verify_operator(LocalStorage(logs.path))
    assert found.is_whole, found.findings


def test_results_and_all_records_can_be_read(logs: Logs) -> None:
    reports = [report for reports in logs.reports for report in reports]
    wanted = [row for report in reports for row in report.results.to_pylist()]
    found = read_table(logs.path)
    assert found.schema.names == ["key", "cost", "gain"]
    assert Counter(map(str, found.to_pylist())) == Counter(map(str, wanted))
    kinds = Counter(read_table(logs.path, records="all")["kind"].to_pylist())
    assert kinds["open"] + kinds["check"] == sum(
        report.footprints_opened + report.footprints_checked for report in reports
    )
    state = read_table(logs.path, records="state")
    assert state.num_rows == sum(report.account.open_windows for report in logs.reports[-1])
    with pytest.raises(SettingError, match="has no code"):
        read_table(logs.path, records="state", operator=len)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["status"], "barrier by key"),
        (["verify"], "whole"),
        (["recover", "--dry-run"], "recover to the end of batch"),
        (["log", "--records"], "held_before"),
    ],
)
def test_every_command_tells_people_of_it(
    logs: Logs, command: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *options = command
    assert main([name, str(logs.path), *options]) == 0
    assert expected in capsys.readouterr().out


@pytest.mark.parametrize(
    "change",
    [
        {"by": [["cost", "int32"]]},
        {"by": None},
        {"by": "key"},
        {"by": [5]},
        {"by": [{"a": 1}]},
        {"order_by": "key"},
        {"order_by": {"cost": "cost"}},
        {"order_by": {"cost": "cost", "gain": 3}},
    ],
    ids=str,
)
def test_a_strange_description_is_unknown_to_readers(logs: Logs, change: dict[str, Any]) -> None:
    meta = _meta(logs.path)
    strange = replace(meta, operator={**meta.operator, **change})
    with pytest.raises(UnknownFormat):
        form_of(strange)
    with pytest.raises(UnknownFormat):
        kind_of(strange).rebuild(strange, None)
    assert title_of(strange.operator)
    caution_of(strange.operator)


# Footprints that are none


class _History:
    def __init__(self, case: BarrierCase) -> None:
        self._case = case

    def rows(self, batch: int) -> PortRows:
        return self._case.batches[batch]


def _processed() -> tuple[Barrier, BarrierState, pa.RecordBatch]:
    case = small_barrier(3)
    operator = case.operator()
    state = operator.open(Memory(), _History(case))
    for batch in range(3):
        operator.process(state, case.given(batch))
    state.renew(state.list_oldest(), 2)
    footprint = operator.footprints(state, state.list_oldest(), 0)
    footprint = _changed(footprint, "held_before", 0)  # it may refer to any batch
    assert operator.trouble(footprint, 2) == ""
    return operator, state, footprint


def _changed(footprint: pa.RecordBatch, name: str, value: Any) -> pa.RecordBatch:
    place = footprint.schema.get_field_index(name)
    array = pa.array([value], footprint.schema.field(name).type)
    return footprint.set_column(place, footprint.schema.field(name), array)


def _ranges(*rows: tuple[Any, ...]) -> list[dict[str, Any]]:
    names = ("port", "batch", "first", "count", "position", "bits")
    return [dict(zip(names, (*row, None), strict=False)) for row in rows]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("$kind", 7),
        ("$opened", 3),
        ("arrived", -1),
        ("arrived", None),
        ("held_before", -1),
        ("ranges", None),
        ("ranges", [None]),
        ("ranges", _ranges((2, 0, 0, 1, 0))),
        ("ranges", _ranges((-1, 0, 0, 1, 0))),
        ("ranges", _ranges((0, 3, 0, 1, 0))),
        ("ranges", _ranges((0, -1, 0, 1, 0))),
        ("ranges", _ranges((0, 0, -1, 1, 0))),
        ("ranges", _ranges((0, 0, 0, 0, 0))),
        ("ranges", _ranges((0, 0, 0, 1 << 50, 0))),
        ("ranges", _ranges((0, 0, 0, 1, -1))),
        ("ranges", _ranges((0, 0, None, 1, 0))),
        ("ranges", _ranges((0, 1, 0, 1, 0), (0, 0, 0, 1, 0))),
        ("ranges", _ranges((0, 0, 0, 1, 0), (0, 0, 2, 1, 0))),
        ("ranges", _ranges((0, 0, 0, 2, 0, b"\x01"))),
        ("ranges", _ranges((0, 0, 0, 2, 0, b""))),
        ("ranges", _ranges((0, 0, 0, 1, 1000))),
        ("ranges", _ranges((1, 0, 0, 1, 0), (0, 0, 0, 1, 0))),
        ("held:cost", [None]),
        ("held:gain", None),
    ],
    ids=str,
)
def test_what_is_no_footprint_is_refused(name: str, value: Any) -> None:
    operator, _, footprint = _processed()
    assert operator.trouble(_changed(footprint, name, value), 2)


def test_two_footprints_or_other_columns_are_refused() -> None:
    operator, _, footprint = _processed()
    twice = pa.Table.from_batches([footprint, footprint]).combine_chunks().to_batches()[0]
    assert "not one footprint" in operator.trouble(twice, 2)
    assert "other columns" in operator.trouble(footprint.drop_columns(["arrived"]), 2)
    assert operator.trouble(footprint.slice(0, 0), 2) == ""


def test_places_that_the_input_does_not_have_are_damage() -> None:
    operator, _, footprint = _processed()
    for ranges in (
        _ranges((0, 0, 1, 1000, 0)),
        _ranges((0, 0, 0, 1 << 40, 0)),
        _ranges((0, 0, 0, 1, 0, b"\0\0\1")),
    ):
        strange = _changed(footprint, "ranges", ranges)
        assert operator.trouble(strange, 2) == ""
        state = operator.open(Memory(), _History(small_barrier(3)))
        stamped = strange.append_column(FOOTPRINT, pa.array([2], pa.int64()))
        with pytest.raises(DamagedSegment, match="should wait, and there are only"):
            operator.load(state, stamped, "here")


def test_a_state_that_is_there_twice_is_refused() -> None:
    operator, state, footprint = _processed()
    stamped = footprint.append_column(FOOTPRINT, pa.array([2], pa.int64()))
    with pytest.raises(TrailmarkError, match="there twice"):
        operator.load(state, stamped, "here")
