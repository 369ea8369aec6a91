"""The logs of joins, for whoever has only them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.committed import Logs, commit_all, said
from tests.support.grouping import small_groups
from tests.support.joining import JoinCase, small_join, small_windows
from tests.support.verdict import assert_logs_are_right, recovered_states
from trailmark.checkpoint.policy import Continuous, Incremental, Policy
from trailmark.cli import main
from trailmark.engine import BatchReport
from trailmark.errors import SettingError, UnknownFormat
from trailmark.inspection import read_status
from trailmark.inspection.logs import OperatorFiles
from trailmark.inspection.plan import plan_bucket
from trailmark.inspection.verify import verify_operator
from trailmark.log import LocalStorage, OperatorMeta
from trailmark.operators.kinds import caution_of, form_of, kind_of, title_of
from trailmark.streams.table import read_table

_BATCHES = 8
_BUCKETS = 2


def _write(path: Path, case: JoinCase) -> Logs:
    policy: Policy = Continuous(q=8, u=12)
    if case.group_size is not None:
        policy = Incremental(2, case.group_size)
    return commit_all(path, case, policy, _BUCKETS)


@pytest.fixture(params=["inner", "left", "right", "full", "last tuples", "groups"])
def logs(request: pytest.FixtureRequest, tmp_path: Path) -> Logs:
    windowed = {"last tuples": small_windows, "groups": small_groups}
    make = windowed.get(request.param)
    case = small_join(_BATCHES, request.param) if make is None else make(_BATCHES)
    return _write(tmp_path / "pairs", case)


@pytest.fixture
def full(tmp_path: Path) -> Logs:
    return _write(tmp_path / "pairs", small_join(_BATCHES))


def _flat(reports: Sequence[Sequence[BatchReport]]) -> list[BatchReport]:
    return [report for each in reports for report in each]


def test_they_are_right_and_found_whole(logs: Logs) -> None:
    assert_logs_are_right(logs.query, logs.case.batches)
    found = verify_operator(LocalStorage(logs.path))
    assert found.is_whole, found.findings
    assert read_status(LocalStorage(logs.path)).is_sound


def test_results_inputs_and_all_records_can_be_read(logs: Logs) -> None:
    reports = _flat(logs.reports)
    wanted = [row for report in reports for row in report.results.to_pylist()]
    found = read_table(logs.path)
    assert found.schema.names == ["key", "cost", "at_left", "gain", "at_right"]
    assert Counter(map(str, found.to_pylist())) == Counter(map(str, wanted))
    for side, name in enumerate(("left", "right")):
        given = sum(batch.tables[side].num_rows for batch in logs.case.batches)
        assert read_table(logs.path, records=f"input:{name}").num_rows == given
    kinds = Counter(read_table(logs.path, records="all")["kind"].to_pylist())
    assert kinds["result"] == len(wanted)
    assert kinds["open"] == sum(report.footprints_opened for report in reports) > 0
    assert kinds["check"] == sum(report.footprints_checked for report in reports) > 0


def test_footprints_show_the_tuples_that_they_hold(tmp_path: Path) -> None:
    logs = _write(tmp_path / "pairs", small_join(3 * _BATCHES))
    found = read_table(logs.path, records="all")
    pieces = found.filter(pa.compute.not_equal(found["kind"], "result"))
    states = [dict(state) for state in pieces["state"].to_pylist()]
    held = [state["left"] for state in states if state["left"] is not None]
    assert held, "one tuple waits far longer than all others"
    assert all(text.startswith("[{key: ") and "cost: 12" in text for text in held)
    assert {state["side"] for state in states} == {"left", "right"}


def test_the_state_can_be_read_and_is_that_of_a_recovery(logs: Logs) -> None:
    found = read_table(logs.path, records="state")
    states = [recovered_states(logs.query, bucket, _BATCHES - 1) for bucket in range(_BUCKETS)]
    names = [[key for key, _ in each] for each in states]
    expected = {(bucket, *key) for bucket, keys in enumerate(names) for key in keys}
    side = {"left": 0, "right": 1}
    rows = found.select(["bucket", "opened", "side", "first"]).to_pylist()
    assert {(r["bucket"], r["opened"], side[r["side"]], r["first"]) for r in rows} == expected
    since = [field.type for field in found.schema if field.name == "since"]
    assert all(map(pa.types.is_timestamp, since))
    assert bool(since) == (logs.case.within is not None)


def test_with_a_condition_the_state_takes_its_code(tmp_path: Path) -> None:
    case = replace(_with_values(small_join(_BATCHES)), condition="in order")
    logs = _write(tmp_path / "pairs", case)
    with pytest.raises(SettingError, match="code of the condition of the full join by key"):
        read_table(logs.path, records="state")
    found = read_table(logs.path, records="state", operator=case.code())
    opened = sum(report.account.open_windows for report in logs.reports[-1])
    assert found.num_rows == opened
    with pytest.raises(SettingError, match="takes a function, and str was given"):
        kind_of(_meta(logs.path)).rebuild(_meta(logs.path), "a text")


def _with_values(case: JoinCase) -> JoinCase:
    """The same with the columns that conditions are about."""
    renamed = [
        replace(rows, tables=tuple(t.rename_columns(["key", "value", "at"]) for t in rows.tables))
        for rows in case.batches
    ]
    schema = renamed[0].tables[0].schema
    return replace(case, schemas=(schema, schema), batches=tuple(renamed))


def test_without_a_condition_code_is_refused(full: Logs) -> None:
    with pytest.raises(SettingError, match="has no condition"):
        read_table(full.path, records="state", operator=lambda left, right: None)


@pytest.mark.parametrize("bucket", range(_BUCKETS))
def test_a_recovery_is_planned_from_files_alone(logs: Logs, bucket: int) -> None:
    plan = plan_bucket(OperatorFiles(LocalStorage(logs.path)), bucket)
    account = logs.reports[-1][bucket].account
    assert (plan.base, plan.replay_from) == (account.base, account.needs)
    assert plan.loads_from == account.loads_from
    assert plan.open_windows == account.open_windows


def test_the_log_shows_the_records_of_a_key(full: Logs, capsys: pytest.CaptureFixture[str]) -> None:
    found = said(capsys, "log", full.path, "--records", "--key", "key=b", "--json")
    assert {each["kind"] for each in found} == {"input:left", "input:right", "results"}
    assert {each["row"]["key"] for each in found} == {"b"}


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["status"], "full join by key within 2 s before to 6 s after"),
        (["verify"], "whole"),
        (["recover", "--dry-run"], "recover to the end of batch"),
        (["log"], "input:right"),
        (["log", "--records"], "since"),
    ],
    ids=["status", "verify", "recover", "log", "records"],
)
def test_every_command_tells_people_of_it(
    full: Logs, command: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *options = command
    assert main([name, str(full.path), *options]) == 0
    assert expected in capsys.readouterr().out


# Descriptions that are none

_WITHIN = {"times": ["at", "at"], "before_us": 0, "after_us": 5, "delays_us": [0, 0]}


def _meta(path: Path) -> OperatorMeta:
    return OperatorFiles(LocalStorage(path)).meta


@pytest.mark.parametrize(
    "change",
    [
        {"how": "semi"},
        {"how": 3},
        {"by": [["cost", "int32"]]},
        {"by": []},
        {"by": None},
        {"suffixes": ["_left"]},
        {"suffixes": ["", ""]},
        {"within": {**_WITHIN, "delays_us": [0]}},
        {"within": {**_WITHIN, "before_us": -1}},
        {"within": {**_WITHIN, "before_us": None}},
        {"within": {**_WITHIN, "nearest": None}},
        {"within": {**_WITHIN, "times": ["at", "no"]}},
        {"within": {**_WITHIN, "times": ["key", "at"]}},
        {"within": []},
        {"piece_rows": 0},
        {"within": {**_WITHIN, "nearest": "after"}},
        {"within": {**_WITHIN, "nearest": "before"}},
        {"piece_rows": "3"},
    ],
    ids=str,
)
def test_a_strange_description_is_unknown_to_readers(full: Logs, change: dict[str, Any]) -> None:
    meta = _meta(full.path)
    strange = replace(meta, operator={**meta.operator, **change})
    with pytest.raises(UnknownFormat):
        form_of(strange)
    with pytest.raises(UnknownFormat):
        kind_of(strange).rebuild(strange, None)
    assert title_of(strange.operator)


_LAST = {"last": 3, "per_key": False}


@pytest.mark.parametrize(
    "change",
    [
        {"windows": []},
        {"windows": [_LAST]},
        {"windows": [_LAST, {**_LAST, "last": -1}]},
        {"windows": [_LAST, {**_LAST, "last": 1 << 40}]},
        {"windows": [_LAST, {**_LAST, "last": True}]},
        {"windows": [_LAST, {**_LAST, "per_key": None}]},
        {"windows": [{**_LAST, "last": 0}, {**_LAST, "last": 0}]},
        {"windows": [_LAST, 3]},
        {"windows": None},
        {"within": _WITHIN},
        {"late": "perhaps"},
        {"late": ["keep"]},
        {"late": "keep"},
        {"by": [5]},
        {"order_by": ["at"]},
        {"order_by": ["at", "key"]},
        {"order_by": {"left": "at"}},
    ],
    ids=str,
)
def test_strange_windows_are_unknown_to_readers(tmp_path: Path, change: dict[str, Any]) -> None:
    meta = _meta(_write(tmp_path / "pairs", small_windows(1)).path)
    strange = replace(meta, operator={**meta.operator, **change})
    with pytest.raises(UnknownFormat):
        form_of(strange)
    assert title_of(strange.operator)
    caution_of(strange.operator)


def test_other_inputs_or_results_than_a_join_has_are_unknown(full: Logs) -> None:
    meta = _meta(full.path)
    for strange in (
        replace(meta, ports=meta.ports[:1]),
        replace(meta, ports=meta.ports[::-1]),
        replace(meta, result_schema=pa.schema([("key", pa.string())])),
    ):
        with pytest.raises(UnknownFormat):
            form_of(strange)
