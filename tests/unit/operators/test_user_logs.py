"""The logs of users' operators, for whoever does not have their code, and for whoever does."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.committed import Logs, commit_all
from tests.support.small import small_case_of
from tests.support.verdict import assert_logs_are_right, recovered_states
from trailmark.checkpoint.policy import Continuous
from trailmark.cli import main
from trailmark.engine.commits import mark_committed
from trailmark.errors import SchemaChanged, SettingError
from trailmark.inspection import read_status
from trailmark.inspection.logs import OperatorFiles
from trailmark.inspection.plan import plan_bucket
from trailmark.inspection.verify import verify_operator
from trailmark.log import LocalStorage
from trailmark.operators.keyed import Keyed
from trailmark.streams.table import read_table

_BATCHES = 6
_BUCKETS = 2
_KINDS = ("keyed", "whole")


@pytest.fixture(params=_KINDS)
def logs(request: pytest.FixtureRequest, tmp_path: Path) -> Logs:
    case = small_case_of(request.param, _BATCHES)
    return commit_all(tmp_path / "logs", case, Continuous(q=4, u=12), _BUCKETS)


def test_they_are_right_and_found_whole(logs: Logs) -> None:
    assert_logs_are_right(logs.query, logs.case.batches)
    found = verify_operator(LocalStorage(logs.path))
    assert found.is_whole, found.findings


def test_results_and_all_records_can_be_read_without_code(logs: Logs) -> None:
    reports = [report for reports in logs.reports for report in reports]
    wanted = [row for report in reports for row in report.results.to_pylist()]
    assert Counter(map(str, read_table(logs.path).to_pylist())) == Counter(map(str, wanted))
    found = read_table(logs.path, records="all")
    kinds = Counter(found["kind"].to_pylist())
    assert kinds["result"] == len(wanted)
    assert kinds["open"] == sum(report.footprints_opened for report in reports) > 0
    assert kinds["check"] == sum(report.footprints_checked for report in reports)
    pieces = found.filter(pa.compute.not_equal(found["kind"], "result"))
    assert all(dict(state)["opened"].isdecimal() for state in pieces["state"].to_pylist())


def test_lists_and_maps_of_a_state_are_shown_as_text(tmp_path: Path) -> None:
    (shown,) = [
        row["state"]
        for row in read_table(_one_key(tmp_path), records="all").to_pylist()
        if row["kind"] == "open"
    ]
    assert dict(shown) | {"opened": ""} == {
        "opened": "",
        "n": "1",
        "words": "[a, null]",
        "seen": "{x: 1, y: null}",
    }


def _one_key(path: Path) -> Path:
    from trailmark.engine import Bucket, OperatorLogs

    class Shown:
        state = {  # noqa: RUF012  (as users write it)
            "n": pa.int64(),
            "words": pa.list_(pa.string()),
            "seen": pa.map_(pa.string(), pa.int64()),
        }

        def process(self, keys: Any, rows: Any, state: Any) -> None:
            state["n"] += 1
            state["words"] = [["a", None]]
            state["seen"] = [[("x", 1), ("y", None)]]

    schema = pa.schema([("key", pa.int64())])
    operator = Keyed(schema, Shown, by="key", output=schema)
    logs = OperatorLogs(LocalStorage(path), operator, buckets=1)
    bucket = Bucket(operator, logs, 0, Continuous(q=4))
    bucket.run(0, pa.record_batch({"key": [1]}, schema=schema))
    bucket.close()
    mark_committed(LocalStorage(path), 0, "a run")
    return path


def test_the_state_can_be_read_with_the_code_and_is_that_of_a_recovery(logs: Logs) -> None:
    found = read_table(logs.path, records="state", operator=logs.case.code())
    states = [recovered_states(logs.query, bucket, _BATCHES - 1) for bucket in range(_BUCKETS)]
    assert Counter(found["bucket"].to_pylist()) == Counter(
        {bucket: len(each) for bucket, each in enumerate(states) if each}
    )
    assert set(found["batch"].to_pylist()) == {_BATCHES - 1}
    opened = Counter(state["$opened"] for each in states for state in each.values())
    assert Counter(found["opened"].to_pylist()) == opened


def test_without_the_code_the_state_is_refused_with_what_to_do(logs: Logs) -> None:
    with pytest.raises(SettingError, match="takes the code of") as caught:
        read_table(logs.path, records="state")
    assert "records='all'" in str(caught.value)


@pytest.mark.parametrize("logs", ["keyed"], indirect=True)
def test_other_code_than_wrote_them_is_refused(logs: Logs) -> None:
    class Other:
        state = {"m": pa.string()}  # noqa: RUF012  (as users write it)

        def process(self, keys: Any, rows: Any, state: Any) -> None:
            return None

    with pytest.raises(SchemaChanged, match="state column n: int64 -> absent"):
        read_table(logs.path, records="state", operator=Other)


@pytest.mark.parametrize("bucket", range(_BUCKETS))
def test_a_recovery_is_planned_from_files_alone(logs: Logs, bucket: int) -> None:
    plan = plan_bucket(OperatorFiles(LocalStorage(logs.path)), bucket)
    account = logs.reports[-1][bucket].account
    assert (plan.base, plan.replay_from) == (account.base, account.needs)
    assert plan.open_windows == account.open_windows


def test_their_status_has_the_name_of_the_class(
    logs: Logs, capsys: pytest.CaptureFixture[str]
) -> None:
    status = read_status(LocalStorage(logs.path))
    assert status.is_sound
    assert status.last_batch == _BATCHES - 1
    assert main(["status", str(logs.path)]) == 0
    name = type(logs.case.code()).__name__
    name = logs.case.code().__name__ if name == "type" else name
    assert name in capsys.readouterr().out


@pytest.mark.parametrize("options", [[], ["--records"], ["--records", "--json"]])
def test_the_log_shows_them(
    logs: Logs, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["log", str(logs.path), *options]) == 0
    shown = capsys.readouterr().out
    assert shown
    if "--json" in options:
        kinds = {json.loads(line)["kind"] for line in shown.splitlines()}
        assert {"input", "results", "open"} <= kinds
