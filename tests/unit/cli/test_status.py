"""``trailmark status`` shows what the engine knows, in numbers people can read."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from tests.support.written import Written, count_orders, write_logs
from tests.unit.cli.conftest import Run
from trailmark import units
from trailmark.checkpoint.policy import Continuous
from trailmark.cli import main
from trailmark.engine import OperatorLogs
from trailmark.engine.commits import mark_rolled_back
from trailmark.log import LocalStorage
from trailmark.operators.aggregate import Aggregate
from trailmark.windows.functions import count
from trailmark.windows.spec import CountWindow


def _row(out: str, first: str) -> list[str]:
    """The cells of the table's row that begins so."""
    (line,) = [each for each in out.splitlines() if re.match(rf" *{first}  ", each)]
    return re.split(r"  +", line.strip())


def test_the_table_has_the_account_of_every_bucket(counted: Written, run: Run) -> None:
    said = run("status", counted.path)
    assert (said.code, said.err) == (0, "")
    for number, report in enumerate(counted.reports[-1]):
        account = report.account
        assert account.oldest is not None
        row = dict(zip(_row(said.out, "bucket"), _row(said.out, str(number)), strict=True))
        assert row["batch"] == row["committed"] == str(counted.newest)
        assert row["windows"] == f"{account.open_windows:,}"
        assert row["oldest"] == str(account.oldest)
        assert row["age"] == str(counted.newest - account.oldest)
        assert row["extent"] == f"{account.extent:,}"
        assert row["replay"] == f"{account.replay:,}"
        assert row["recovery"] == units.duration(account.predicted_us)
    windows = sum(report.account.open_windows for report in counted.reports[-1])
    assert _row(said.out, "all")[3] == f"{windows:,}"


def test_an_order_is_told_with_the_operator(tmp_path: Path, run: Run) -> None:
    schema = pa.schema([("item", pa.int64()), ("seq", pa.int64())])
    window, values = CountWindow(10, 10), {"n": count()}
    operator = Aggregate(schema, by="item", window=window, values=values, order_by=["seq", "item"])
    OperatorLogs(LocalStorage(str(tmp_path)), operator, buckets=1)
    said = run("status", tmp_path).out.splitlines()[0]
    assert said.endswith("aggregate by item, windows of 10 tuples, ordered by seq, item")


def test_what_was_written_is_told_with_what_it_covers(timed: Written, run: Run) -> None:
    said = run("status", timed.path, "--look-back", 5)
    reports = [report for batch in timed.reports[-5:] for report in batch]
    results = sum(report.results.num_rows for report in reports)
    late = sum(report.late_rows for report in reports)
    assert late > 0
    (line,) = [each for each in said.out.splitlines() if each.startswith("last 5 batches")]
    assert f" {results} results" in line
    assert f"late: {late} tuple" in line
    total = sum(report.account.records_total for report in timed.reports[-1])
    assert f"{total} records (results and footprints)" in said.out


def test_the_last_recovery_is_told(counted: Written, run: Run) -> None:
    said = run("status", counted.path)
    recoveries = [report.recovery for report in counted.reports[7]]
    (line,) = [each for each in said.out.splitlines() if each.startswith("last recovery")]
    assert "before batch 7" in line
    assert any(
        recovery is not None and f"{recovery.plan.open_windows} windows" in line
        for recovery in recoveries
    )
    said = run("status", counted.path, "--look-back", 2)
    assert "none in the last 2 batches" in said.out


def test_json_has_the_exact_numbers(counted: Written, run: Run) -> None:
    said = run("status", counted.path, "--json")
    found = said.json
    assert found["path"] == str(counted.path)
    for bucket, report in zip(found["buckets"], counted.reports[-1], strict=True):
        assert bucket["account"] == report.account.to_attributes()
        assert bucket["policy"] == counted.place.policy.describe()
    assert found["last_batch"] == found["committed_batch"] == counted.newest
    assert found["buckets"][0]["output"]["bytes"] == sum(
        each.stat().st_size for each in (counted.path / "out" / "00000").iterdir()
    )


def test_looking_changes_nothing(counted: Written, run: Run) -> None:
    before = counted.files()
    for command in (["status"], ["log"], ["log", "--records"], ["verify"]):
        assert run(command[0], counted.path, *command[1:]).code == 0
    assert run("recover", counted.path, "--dry-run").code == 0
    assert run("trim", counted.path, "--before-batch", 9, "--dry-run").code == 0
    assert counted.files() == before


def test_an_objective_that_is_missed_is_pointed_out(tmp_path: Path, run: Run) -> None:
    logs = write_logs(tmp_path / "a", count_orders(), Continuous.within("1 ms"))
    said = run("status", logs.path)
    assert said.code == 0
    assert "objective 1 ms" in said.out
    assert re.search(r"^! bucket 0: .*(objective|target)", said.out, re.MULTILINE)


def test_a_damaged_newest_segment_gives_code_1_and_the_figures_before_it(
    counted: Written, run: Run
) -> None:
    name = f"out/00001/{counted.newest:020d}.seg"
    counted.flip(name, -40)
    said = run("status", counted.path)
    assert said.code == 1
    assert f"! bucket 1: A file of the log does not match: checksum of the footer. ({name}" in (
        said.out
    )
    assert f"Figures are those of batch {counted.newest - 1}." in said.out


def test_a_query_that_went_back_gives_code_1(counted: Written, run: Run) -> None:
    mark_rolled_back(LocalStorage(counted.path), 4, 9, "a run")
    said = run("status", counted.path)
    assert said.code == 1
    assert (
        "! the query has gone back and is refused: batch 4 was committed again by run" in said.out
    )


def test_no_batch_yet_is_a_picture_too(tmp_path: Path, run: Run) -> None:
    logs = write_logs(tmp_path / "a", count_orders(batches=0))
    logs.place.logs()
    said = run("status", logs.path)
    assert said.code == 0
    assert "no batch yet" in said.out


def test_colours_are_only_for_terminals(counted: Written, run: Run) -> None:
    assert "\x1b" not in run("status", counted.path).out


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long a watch has waited; the third time somebody presses Ctrl-C."""
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            raise KeyboardInterrupt

    # Not of the module time itself: threads of other tests may sleep, too.
    monkeypatch.setattr("trailmark.cli.status.time", SimpleNamespace(sleep=sleep))
    return waited


def test_watching_draws_again_and_again_until_ctrl_c(
    counted: Written, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("LINES", "50")
    assert main(["status", str(counted.path), "--watch", "0.5"]) == 0
    assert pauses == [0.5] * 3
    said = terminal.getvalue()
    assert "\x1b[2J" not in said, "what was on the screen before stays"
    first, *later = said.split("windows of 10 tuples")
    assert len(later) >= 3
    assert "\x1b[1A" not in first
    assert all(between.count("\x1b[1A\x1b[2K") > 10 for between in later[:-1]), "drawn over"


def test_a_picture_is_cut_where_the_terminal_ends(
    counted: Written, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("LINES", "6")
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["status", str(counted.path), "--watch"]) == 0
    first, *_ = terminal.getvalue().split("\r\x1b[2K")
    assert first.count("\n") == 5
    assert re.sub(r"\x1b\[[\d;]*m", "", first.splitlines()[-1]).strip() == "..."


def test_watching_without_rich_gives_one_picture_after_another(
    counted: Written, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert main(["status", str(counted.path), "--watch"]) == 0
    said = terminal.getvalue()
    assert "\x1b" not in said
    assert said.count("windows of 10 tuples") == 3


def test_watching_into_a_file_gives_one_json_per_line(
    counted: Written, pauses: list[float], run: Run
) -> None:
    said = run("status", counted.path, "--watch", "--json")
    assert said.code == 0
    assert pauses == [2.0] * 3
    lines = said.out.splitlines()
    assert [json.loads(line)["last_batch"] for line in lines] == [counted.newest] * 3
