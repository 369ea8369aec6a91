"""An operator that is right passes, whatever it is and wherever it crashes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import trailmark as tm
from tests.support.policies import ONE_OF_EACH
from tests.unit.testing.samples import add, counted, sales, total
from trailmark.checkpoint.policy import Policy
from trailmark.engine import BatchReport, Bucket
from trailmark.testing import Crash, aggregate, run
from trailmark.testing.disk import SimulatedDisk

_QUERIES = {
    "count": counted(tm.avg("price")),
    "overlapping": aggregate(
        by="item", window=tm.count_window(4, 2), values={"low": tm.min("price")}
    ),
    "time": aggregate(
        by="item",
        window=tm.time_window("at", "10 seconds", "5 seconds", delay="3 seconds"),
        values={"n": tm.count(), "sum": tm.sum("price")},
        late="keep",
    ),
    "own function": counted(total(add)),
    "ordered": aggregate(
        by="item", window=tm.count_window(5), values={"last": tm.last("price")}, order_by="at"
    ),
}


@pytest.mark.parametrize("query", _QUERIES.values(), ids=_QUERIES.keys())
def test_what_is_right_passes_crashes_everywhere(query: tm.testing.Query) -> None:
    report = run(query, sales(2), crash_at="everywhere", power_failures=True)
    assert report.crashes == report.runs == 2 * report.operations > 60
    assert report.recoveries >= report.runs
    assert report.results.num_rows > 0


@pytest.mark.parametrize("policy", ONE_OF_EACH.values(), ids=ONE_OF_EACH.keys())
def test_what_is_right_passes_under_every_policy(policy: Policy) -> None:
    crashes: list[int | Crash] = [1, Crash(2, 4), 4]
    report = run(_QUERIES["time"], sales(6), crashes, checkpoint=policy, buckets=2)
    assert report.crashes == 3


def _expected_averages(batches: list[pa.Table], size: int) -> list[list[dict[str, Any]]]:
    prices: dict[int, list[float]] = defaultdict(list)
    results: list[list[dict[str, Any]]] = []
    for table in batches:
        results.append([])
        for row in table.to_pylist():
            window = prices[row["item"]]
            window.append(row["price"])
            if len(window) == size:
                results[-1].append({"item": row["item"], "value": sum(window) / size})
                window.clear()
    return results


def _sorted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["item"], row["value"]))


def test_results_are_those_of_each_batch() -> None:
    batches = sales(4, 30)
    expected = _expected_averages(batches, 5)
    for crash_at, buckets in ((None, 1), (2, 1), ([1, 3], 3)):
        report = run(_QUERIES["count"], batches, crash_at, buckets=buckets)
        found = [_sorted(table.to_pylist()) for table in report.batches]
        assert found == [_sorted(rows) for rows in expected]
        assert report.results.num_rows == sum(map(len, expected)) > 10


def test_windows_that_have_ended_close_in_a_batch_without_rows() -> None:
    batches = [[{"k": "a", "at": 5}], [{"k": "a", "at": 30}]]
    schema = pa.schema([("k", pa.string()), ("at", pa.timestamp("s"))])
    query = aggregate(by="k", window=tm.time_window("at", "10 seconds"), values={"n": tm.count()})
    report = run(query, batches, crash_at="everywhere", schema=schema)
    assert [table.num_rows for table in report.batches] == [0, 0, 1]
    (row,) = report.results.to_pylist()
    assert (row["k"], row["n"], row["window"]["end"].second) == ("a", 1, 10)


def test_the_numbers_are_those_of_an_independent_count(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = {"kill": 0, "crash": 0}
    for name in ended:
        monkeypatch.setattr(SimulatedDisk, name, _counting(name, ended))
    crashes: list[int | Crash] = [Crash(0, 9), 1, Crash(1, 2, "power failure"), Crash(2, 5)]
    report = run(_QUERIES["count"], sales(3, 20), crashes, checkpoint=tm.Continuous())
    assert ended == {"kill": 3, "crash": 1}
    assert (report.runs, report.crashes, report.tuples) == (1, 4, 60)
    # Batch 0 begins anew, batches 1 and 2 follow a recovery, and one comes in the end.
    assert report.recoveries == 3
    # Without targets a window has one footprint, from the batch that opened it.
    opened, replayed = _opened_and_replayed(sales(3, 20), 5)
    assert report.footprints == opened
    assert report.tuples_replayed == replayed


def _counting(name: str, ended: dict[str, int]) -> Callable[..., None]:
    """A method of the disk that counts its calls."""
    end = getattr(SimulatedDisk, name)

    def counted_end(disk: SimulatedDisk, *rest: Any) -> None:
        ended[name] += 1
        end(disk, *rest)

    return counted_end


def _opened_and_replayed(batches: list[pa.Table], size: int) -> tuple[int, int]:
    """Windows that outlive the batch that opens them; tuples since the oldest that is open, at the
    end of each batch."""
    fill: dict[int, int] = defaultdict(int)
    born: dict[int, int] = {}
    opened = replayed = 0
    for number, table in enumerate(batches):
        for item in table.column("item").to_pylist():
            if fill[item] % size == 0:
                born[item] = number
            fill[item] += 1
            if fill[item] % size == 0:
                del born[item]
        opened += sum(batch == number for batch in born.values())
        oldest = min(born.values(), default=number)
        replayed += sum(each.num_rows for each in batches[oldest + 1 : number + 1])
    return opened, replayed


def test_a_crash_can_be_at_any_operation_and_of_any_kind() -> None:
    query, batches = _QUERIES["count"], sales()
    operations = run(query, batches).operations
    assert run(query, batches, crash_at=Crash(0, 0)).crashes == 1
    everywhere = run(query, batches, crash_at="everywhere", reorder=False)
    assert (everywhere.runs, everywhere.operations) == (operations, operations)


def test_a_batch_comes_back_in_another_order_once_it_is_logged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[tuple[int, pa.RecordBatch]] = []
    take = Bucket.run

    def looking(bucket: Bucket, batch: int, rows: Any) -> BatchReport:
        given.append((batch, rows))
        return take(bucket, batch, rows)

    monkeypatch.setattr(Bucket, "run", looking)
    for crash, reorder, is_same in (
        (Crash(1), True, False),
        (Crash(1), False, True),
        (Crash(1, 0), True, True),  # nothing is logged yet, so another order would count
    ):
        given.clear()
        run(_QUERIES["count"], sales(), crash, reorder=reorder)
        interrupted = [rows.tables[0] for batch, rows in given[-4:] if batch == 1]
        assert len(interrupted) == 2
        assert interrupted[0].equals(interrupted[1]) is is_same


def test_the_same_seed_makes_the_same_test() -> None:
    crashes = [Crash(1, 6, "power failure"), Crash(2, 3, "power failure")]
    reports = [run(_QUERIES["time"], sales(), crashes, seed=5) for _ in range(2)]
    assert str(reports[0]) == str(reports[1])
    assert "seed 5" in str(reports[0])


def test_a_report_says_in_words_what_was_done() -> None:
    batches = [[{"item": 1, "price": 1.0}], [{"item": 1, "price": 3.0}]]
    report = run(counted(tm.avg("price"), 2), batches)
    assert str(report).endswith("on the storage.\nNothing was made to crash.")
    assert "2 batches with 2 tuples gave 1 result and 1 footprint" in str(report)
    report = run(counted(tm.avg("price"), 2), batches, crash_at=1)
    assert "1 crash in 1 run, 2 recoveries that replayed 0 tuples" in str(report)


def test_progress_is_shown_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(_QUERIES["count"], sales(), crash_at=1)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    run(_QUERIES["count"], sales(), crash_at=1)
    shown = capsys.readouterr().err
    assert "running: killed in batch 1" in shown
    assert "0/1" in shown
