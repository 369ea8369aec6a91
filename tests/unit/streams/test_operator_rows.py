from __future__ import annotations

import contextlib
import io
import json
import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from tests.support.cases import Case
from tests.support.engine import Query
from tests.support.orders import SCHEMA, SECOND, TIMED, count_case, random_orders, time_case
from tests.support.orders import random_timed_orders as timed
from tests.support.plain import plain_rows
from tests.support.userfunctions import spread, trail, weighted
from tests.support.written import Written, write_logs
from trailmark.checkpoint.policy import Continuous
from trailmark.cli import main
from trailmark.engine.commits import mark_committed
from trailmark.errors import MissingSegment, SettingError
from trailmark.inspection.logs import OperatorFiles
from trailmark.log import LocalStorage
from trailmark.records import FrameKind, Stream
from trailmark.streams.table import read_table, table_of
from trailmark.streams.times import Span
from trailmark.streams.view import open_view
from trailmark.testing.disk import SimulatedDisk
from trailmark.windows import functions as f
from trailmark.windows.functions import AnyFunction
from trailmark.windows.spec import CountWindow

_RNG = random.Random(4)


def _own_functions() -> Case:
    """Functions with states of all kinds: bytes, texts, floats, decimals, nulls."""
    schema = pa.schema(
        [
            ("item", pa.string()),
            ("shop", pa.int16()),
            ("n", pa.int64()),
            ("x", pa.float64()),
            ("d", pa.decimal128(12, 3)),
        ]
    )
    rows = [
        [
            (
                _RNG.choice(["a", "b", "ä", None]),
                _RNG.choice([1, 2, None]),
                _RNG.choice([None, -5, 2**40, 1]),
                _RNG.choice([0.1, -0.0, float("inf"), float("nan"), None]),
                None,
            )
            for _ in range(25)
        ]
        for _ in range(8)
    ]
    values: dict[str, AnyFunction] = {
        "trail": trail("n"),
        "spread": spread("x"),
        "weighted": weighted("n", "shop"),
        "text": f.last("item"),
        "sum": f.sum("d"),
        "avg": f.avg("n"),
        "least": f.min("x"),
    }
    return Case.of(
        schema,
        by=["item", "shop"],
        window=CountWindow(6, 4),
        values=values,
        batches=[(0, each) for each in rows],
    )


_CASES = {
    "count": lambda: count_case(random_orders(_RNG, batches=8, rows=40, items=9), size=4),
    "overlapping": lambda: count_case(
        random_orders(_RNG, batches=8, rows=40, items=9), size=4, slide=2
    ),
    "gapped": lambda: count_case(random_orders(_RNG, batches=8, rows=40, items=9), size=2, slide=5),
    "time": lambda: time_case(timed(_RNG, batches=10, rows=40, items=8), late="keep"),
    "sliding": lambda: time_case(timed(_RNG, batches=8, rows=20, items=4), slide=3 * SECOND),
    "own functions": _own_functions,
}


@pytest.fixture(scope="module", params=_CASES)
def logs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    place = tmp_path_factory.mktemp("operator") / "logs"
    return write_logs(place, _CASES[request.param](), Continuous(q=10, u=30), stop_before=5)


def _logged(written: Written, kind: FrameKind) -> list[dict[str, Any]]:
    """The rows of all segments, batch by batch and bucket by bucket."""
    files = OperatorFiles(LocalStorage(written.path))
    stream = Stream.INPUT if kind is FrameKind.INPUT else Stream.OUTPUT
    found = []
    for batch in range(len(written.reports)):
        for bucket in files.buckets:
            table = files.log(stream, bucket).read(batch).table(kind)
            for rows in [] if table is None else table.to_batches():
                found += plain_rows(rows)
    return found


def _plain(table: pa.Table) -> list[dict[str, Any]]:
    return [row for rows in table.to_batches() for row in plain_rows(rows)]


def _exact(rows: list[dict[str, Any]]) -> list[str]:
    return [repr(row) for row in rows]


# Results


def test_results_are_those_that_the_query_gave(logs: Written) -> None:
    given = [row for batch in logs.reports for each in batch for row in plain_rows(each.results)]
    found = read_table(logs.path)
    has_bounds = "window" in found.schema.names
    assert has_bounds == ("window_start" in logs.reports[0][0].results.schema.names)
    shown = _plain(found.drop_columns(["window"]) if has_bounds else found)
    if has_bounds:
        bounds = found["window"].combine_chunks()
        ends = [bounds.field(name).view(pa.int64()).to_pylist() for name in ("start", "end")]
        for row, start, end in zip(shown, *ends, strict=True):
            row |= {"window_start": start, "window_end": end}
    assert len(given) > 10
    names = given[0]
    assert _exact([{name: row[name] for name in names} for row in shown]) == _exact(given)
    assert _exact(read_table(logs.path, records="results").to_pylist()) == _exact(found.to_pylist())


# Input and late tuples


def test_input_is_what_was_logged(logs: Written) -> None:
    found = read_table(logs.path, records="input")
    assert _exact(_plain(found)) == _exact(_logged(logs, FrameKind.INPUT))
    assert found.num_rows == sum(batch.num_rows for batch in logs.place.case.batches)


def test_late_tuples_are_those_that_were_kept(logs: Written) -> None:
    found = read_table(logs.path, records="late")
    logged = _logged(logs, FrameKind.LATE)
    assert _exact(_plain(found)) == _exact(logged)
    keeps = logs.place.case.late == "keep"
    assert (found.num_rows > 0) == keeps
    if keeps:
        counted = [each.late_rows for batch in logs.reports for each in batch]
        assert found.num_rows == sum(counted)
        times = [row["time"] for row in logged]
        at = sorted(times)[len(times) // 2]
        view = open_view(LocalStorage(logs.path), "late")
        some = table_of(view, Span(last_us=at))
        assert _exact(_plain(some)) == _exact([row for row in logged if row["time"] <= at])


def test_input_of_time_windows_is_found_by_event_time(logs: Written) -> None:
    view = open_view(LocalStorage(logs.path), "input")
    assert view.time_column == ("time" if "time" in logs.place.case.schema.names else None)
    if view.time_column is None:
        return
    logged = _logged(logs, FrameKind.INPUT)
    for first, last in ((0, 9), (5, 5), (-99, 3), (20, 99), (500, 900)):
        span = Span(first_us=first * SECOND, last_us=last * SECOND)
        wanted = [
            row
            for row in logged
            if row["time"] is not None and first * SECOND <= row["time"] <= last * SECOND
        ]
        assert _exact(_plain(table_of(view, span))) == _exact(wanted)


# All records


def _told(written: Written) -> Iterator[dict[str, Any]]:
    """What ``trailmark log --records`` says of the output logs."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main(["log", str(written.path), "--records", "--json", "--stream", "output"])
    return map(json.loads, out.getvalue().splitlines())


def _same(text: str | None, value: Any) -> bool:
    if text is None or value is None:
        return text is value
    if isinstance(value, bool):
        return text == str(value).lower()
    return float(text) == value if isinstance(value, float) else text == str(value)


def test_all_records_are_what_the_command_line_shows(logs: Written) -> None:
    table = read_table(logs.path, records="all")
    keys = list(logs.place.case.by)
    found = table.to_pylist()
    told = [each for each in _told(logs) if each["kind"] in ("results", "open", "check")]
    kinds = {"results": "result", "open": "open", "check": "check"}
    order = {"result": 0, "open": 1, "check": 1}
    told.sort(key=lambda each: (each["batch"], each["bucket"], order[kinds[each["kind"]]]))
    unseen = list(told)
    assert {row["kind"] for row in found} == {"result", "open", "check"}
    assert len(found) == len(told)
    for row in found:
        place = (row["batch"], row["bucket"], row["kind"])
        match = next(
            each
            for each in unseen
            if (each["batch"], each["bucket"], kinds[each["kind"]]) == place
            and _agrees(row, each["row"], keys)
        )
        unseen.remove(match)
    assert unseen == []


def _agrees(row: dict[str, Any], told: dict[str, Any], keys: list[str]) -> bool:
    if any(row[key] != told[key] for key in keys):
        return False
    start = told.get("$start")
    if "window" in row:
        begin = row["window"]["start"]
        if round(begin.timestamp() * SECOND) != start:
            return False
    if row["kind"] == "result":
        values = [name for name in told if name not in keys and not name.startswith("$")]
        return row["state"] is None and all(
            str(row[name]) == str(told[name]) or row[name] == told[name] for name in values
        )
    state = dict(row["state"])
    left = {name: value for name, value in told.items() if name not in (*keys, "$kind")}
    if "window" in row:
        del left["$start"]
    return state.keys() == {name.removeprefix("$") for name in left} and all(
        _same(state[name.removeprefix("$")], value) for name, value in left.items()
    )


def test_all_records_say_how_many_windows_were_open(logs: Written) -> None:
    opened = {
        (batch, bucket): report.account.open_windows
        for batch, reports in enumerate(logs.reports)
        for bucket, report in enumerate(reports)
    }
    for row in read_table(
        logs.path, records="all", columns=["batch", "bucket", "open_windows"]
    ).to_pylist():
        assert row["open_windows"] == opened[row["batch"], row["bucket"]]


def test_values_are_null_in_footprints_and_there_in_results(logs: Written) -> None:
    rows = read_table(logs.path, records="all").to_pylist()
    values = list(logs.place.case.values)
    assert all(row[name] is None for row in rows if row["kind"] != "result" for name in values)
    found = [{name: row[name] for name in values} for row in rows if row["kind"] == "result"]
    assert _exact(found) == _exact(read_table(logs.path, columns=values).to_pylist())


# What is committed


def test_the_newest_batch_of_an_operator_is_not_there_before_it_is_committed() -> None:
    case = count_case([[(1, n), (1, n + 1)] for n in range(4)], size=2)
    disk = SimulatedDisk()
    query = Query(case, disk, Continuous(q=10))
    query.logs()
    views = {name: open_view(disk.storage(), name) for name in ("results", "all", "input", "late")}
    assert {view.end() for view in views.values()} == {0}
    for batch, rows in enumerate(case.batches):
        query.run(batch, [rows])
        assert {view.end() for view in views.values()} == {batch}
        found = {name: table_of(view, Span()).num_rows for name, view in views.items()}
        assert found["results"] == batch
        assert found["input"] == 2 * batch
        if batch % 2 == 0:
            mark_committed(disk.storage(), batch, "a run")
            assert {view.end() for view in views.values()} == {batch + 1}
            assert table_of(views["results"], Span()).num_rows == batch + 1
    assert table_of(views["results"], Span()).num_rows == 3
    query.stop()


def test_a_batch_that_only_some_buckets_have_is_not_there() -> None:
    case = count_case([[(n, n) for n in range(6)]] * 3, size=1)
    disk = SimulatedDisk()
    query = Query(case, disk, Continuous(q=10), buckets=2)
    for batch in range(2):
        for bucket, rows in zip(query.open(), [case.batches[0]] * 2, strict=True):
            bucket.run(batch, rows)
    query.open()[1].run(2, case.batches[0])
    view = open_view(disk.storage())
    assert view.end() == 2
    found = list(view.batches(0, 2, Span()))
    assert [[chunk.bucket for chunk in batch.chunks] for batch in found] == [[0, 1], [0, 1]]
    assert table_of(view, Span()).num_rows == 24
    query.stop()


def test_input_that_was_trimmed_is_missing_and_results_are_not() -> None:
    case = count_case([[(1, n), (2, n)] for n in range(12)], size=2)
    disk = SimulatedDisk()
    query = Query(case, disk, Continuous(q=4, u=4))
    for batch, rows in enumerate(case.batches):
        query.run(batch, [rows])
    query.open()[0].trim()
    query.stop()
    view = open_view(disk.storage(), "input")
    assert 0 < view.oldest() < view.end() == 11
    with pytest.raises(MissingSegment):
        list(view.batches(0, 3, Span()))
    assert table_of(view, Span()).num_rows == 2 * (11 - view.oldest())
    assert table_of(open_view(disk.storage()), Span()).num_rows == 10


# Names


@pytest.mark.parametrize("records", ["", "rows", "footprints", "Results"])
def test_records_of_another_name_are_refused(logs: Written, records: str) -> None:
    if records == "":
        assert open_view(LocalStorage(logs.path), records).end() == len(logs.reports)
        return
    with pytest.raises(SettingError, match="are no records") as caught:
        open_view(LocalStorage(logs.path), records)
    assert "results, all, input, late" in caught.value.fix


def _run(case: Case) -> SimulatedDisk:
    disk = SimulatedDisk()
    query = Query(case, disk, Continuous(q=10))
    for batch, rows in enumerate(case.batches):
        query.run(batch, [rows])
        mark_committed(disk.storage(), batch, "a run")
    query.stop()
    return disk


@pytest.mark.parametrize("name", ["kind", "batch", "bucket", "open_windows", "state"])
def test_columns_that_all_records_have_too_are_refused_there_only(name: str) -> None:
    case = Case.of(
        SCHEMA,
        by=["item"],
        window=CountWindow(2, 2),
        values={name: f.count()},
        batches=[(0, [(1, 1), (1, 2)])],
    )
    disk = _run(case)
    assert table_of(open_view(disk.storage()), Span()).to_pylist() == [{"item": 1, name: 2}]
    with pytest.raises(SettingError, match=name):
        open_view(disk.storage(), "all")


def test_count_windows_may_have_columns_named_like_the_bounds_of_time_windows() -> None:
    case = Case.of(
        SCHEMA,
        by=["item"],
        window=CountWindow(2, 1),
        values={"window_start": f.first("price"), "window_end": f.last("price"), "n": f.count()},
        batches=[(0, [(1, 5), (1, 7)])],
    )
    disk = _run(case)
    wanted = {"item": 1, "window_start": 5, "window_end": 7, "n": 2}
    assert table_of(open_view(disk.storage()), Span()).to_pylist() == [wanted]
    kinds = table_of(open_view(disk.storage(), "all"), Span())["kind"].to_pylist()
    assert kinds[0] == "result"


def test_a_value_named_like_the_bounds_together_is_refused() -> None:
    rows = [("a", 1, 1 * SECOND), ("a", 1, 99 * SECOND)]
    case = time_case([rows, [("b", 1, 99 * SECOND)]])
    case = Case.of(
        TIMED,
        by=["item"],
        window=case.window,
        values={"window": f.count()},
        batches=[(0, rows)],
    )
    with pytest.raises(SettingError, match="window"):
        open_view(_run(case).storage())
