"""``trailmark log`` lists what is in the logs, and only what was asked for."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.cases import Case
from tests.support.oracle import Row
from tests.support.plain import plain_rows
from tests.support.written import Written, write_logs
from tests.unit.cli.conftest import Run, Said
from trailmark import units
from trailmark.kernel.columns import contiguous
from trailmark.records import FrameKind
from trailmark.windows import functions as f
from trailmark.windows.spec import CountWindow


def _lines(said: Said) -> list[Any]:
    return [json.loads(line) for line in said.out.splitlines()]


def _logged(logs: Written, stream: str, kind: FrameKind) -> list[tuple[int, int, Row]]:
    """Bucket, batch and row of everything in the logs, read by the engine's own means."""
    opened = logs.place.logs()
    found = []
    for bucket in range(logs.place.buckets):
        log = opened.input(bucket) if stream == "input" else opened.output(bucket)
        for segment in log.read_from():
            table = segment.table(kind)
            if table is not None:
                found += [(bucket, segment.batch, row) for row in plain_rows(contiguous(table))]
    return found


def _rows(said: Said) -> list[tuple[int, int, Row]]:
    return [(each["bucket"], each["batch"], each["row"]) for each in _lines(said)]


def test_every_segment_is_listed_with_its_rows(counted: Written, run: Run) -> None:
    said = run("log", counted.path, "--json")
    assert said.code == 0
    found = _lines(said)
    assert len(found) == 2 * 2 * len(counted.reports)
    for each in found:
        if each["stream"] == "output":
            report = counted.reports[each["batch"]][each["bucket"]]
            rows = each["rows"]
            assert rows["results"] == report.results.num_rows
            assert rows.get("open", 0) == report.footprints_opened
            assert rows.get("check", 0) == report.footprints_checked
            assert each["bytes"] == report.output_bytes
    assert any(each["rows"].get("check") for each in found)


def test_the_listing_for_people_has_a_line_per_segment(counted: Written, run: Run) -> None:
    said = run("log", counted.path, "--stream", "output", "--bucket", 1, "--batch", "3:5")
    head, *lines = said.out.splitlines()
    assert head.split() == ["log", "batch", "written", "size", "rows"]
    assert [line.split()[:2] for line in lines] == [["out/00001", str(n)] for n in (3, 4, 5)]


@pytest.mark.parametrize(
    ("batches", "expected"),
    [("4", [4]), ("2:4", [2, 3, 4]), ("10:", [10, 11]), (":1", [0, 1]), ("50:", []), ("4:2", [])],
)
def test_batches_are_chosen_by_number_or_range(
    batches: str, expected: list[int], counted: Written, run: Run
) -> None:
    said = run(
        *("log", counted.path, "--json", "--stream", "input", "--bucket", 0, "--batch", batches)
    )
    assert said.code == 0
    assert [each["batch"] for each in _lines(said)] == expected


@pytest.mark.parametrize(
    ("kind", "stream", "frame"),
    [
        ("input", "input", FrameKind.INPUT),
        ("results", "output", FrameKind.RESULTS),
        ("footprints", "output", FrameKind.FOOTPRINTS),
    ],
)
def test_the_rows_of_a_kind_are_those_in_the_log(
    kind: str, stream: str, frame: FrameKind, counted: Written, run: Run
) -> None:
    said = run("log", counted.path, "--kind", kind, "--records", "--json")
    expected = _logged(counted, stream, frame)
    assert expected
    assert sorted(map(str, _rows(said))) == sorted(map(str, expected))


def test_footprints_are_told_apart_as_open_and_check(counted: Written, run: Run) -> None:
    found = {
        kind: _rows(run("log", counted.path, "--kind", kind, "--records", "--json"))
        for kind in ("open", "check")
    }
    reports = [report for batch in counted.reports for report in batch]
    assert len(found["open"]) == sum(report.footprints_opened for report in reports)
    assert len(found["check"]) == sum(report.footprints_checked for report in reports) > 0
    assert {row["$kind"] for _, _, row in found["open"]} == {0}
    assert {row["$kind"] for _, _, row in found["check"]} == {1}


def test_late_rows_are_found(timed: Written, run: Run) -> None:
    said = run("log", timed.path, "--kind", "late", "--records", "--json")
    late = sum(report.late_rows for batch in timed.reports for report in batch)
    assert len(_lines(said)) == late > 0


def test_a_key_finds_its_rows_in_input_and_output(counted: Written, run: Run) -> None:
    said = run("log", counted.path, "--key", "item=3", "--records", "--json")
    expected = [
        each
        for stream, frame in (
            ("input", FrameKind.INPUT),
            ("output", FrameKind.RESULTS),
            ("output", FrameKind.FOOTPRINTS),
        )
        for each in _logged(counted, stream, frame)
        if each[2]["item"] == 3
    ]
    assert len(expected) > 12
    assert sorted(map(str, _rows(said))) == sorted(map(str, expected))


def test_a_null_key_and_text_with_spaces_are_found(timed: Written, run: Run) -> None:
    logged = [row["item"] for _, _, row in _logged(timed, "input", FrameKind.INPUT)]
    assert None in logged
    for value, text in ((None, "null"), ("item 3", "item 3"), ("item 3", '"item 3"')):
        said = run(
            *("log", timed.path, "--kind", "input", "--records", "--json", "--key", f"item={text}")
        )
        assert len(_lines(said)) == logged.count(value) > 0
    said = run("log", timed.path, "--key", 'item="null"')
    assert len(said.out.splitlines()) == 1, "nobody has that name"


def test_without_records_a_key_counts_rows_and_leaves_out_other_segments(
    counted: Written, run: Run
) -> None:
    said = run("log", counted.path, "--kind", "results", "--key", "item=3", "--json")
    found = {(each["bucket"], each["batch"]): each["rows"] for each in _lines(said)}
    expected: dict[tuple[int, int], dict[str, int]] = {}
    for bucket, batch, row in _logged(counted, "output", FrameKind.RESULTS):
        if row["item"] == 3:
            counts = expected.setdefault((bucket, batch), {"results": 0})
            counts["results"] += 1
    assert found == expected


_T = pa.types
_KEYS: dict[str, tuple[pa.DataType, list[Any], str, int]] = {
    "bool": (pa.bool_(), [True, False, True], "true", 2),
    "long": (pa.int64(), [2**62, -(2**62), 2**62], str(2**62), 2),
    "date": (pa.date32(), [0, 1, 0], "1970-01-02", 1),
    "decimal": (pa.decimal128(9, 2), [Decimal("1.50"), Decimal("-2.25")], "-2.25", 1),
    "time": (pa.timestamp("us"), [0, 1_500_000], "1970-01-01T00:00:01.5", 1),
    "zone": (pa.timestamp("us", "UTC"), [0, 1_000_000], "1970-01-01T02:00:01+02:00", 1),
    "text": (pa.string(), ["a", "null", None, "a"], '"null"', 1),
}


@pytest.mark.parametrize("name", _KEYS)
def test_keys_of_every_type_are_read_as_they_are_written(
    name: str, tmp_path: Path, run: Run
) -> None:
    kind, values, text, count = _KEYS[name]
    case = Case.of(
        pa.schema([("k", kind), ("v", pa.int64())]),
        by=["k"],
        window=CountWindow(10, 10),
        values={"n": f.count()},
        batches=[(0, [(value, 1) for value in values])],
    )
    logs = write_logs(tmp_path / "a", case, buckets=1)
    said = run(*("log", logs.path, "--kind", "input", "--records", "--key", f"k={text}"))
    assert (said.code, said.err) == (0, "")
    assert len(said.out.splitlines()) == count
    said = run("log", logs.path, "--kind", "input", "--records", "--json")
    assert len(_lines(said)) == len(values)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--key", "price=3"], "'price' is no key of this operator"),
        (["--key", "item=three"], "no value of key 'item', which is int32"),
        (["--key", "item=99999999999"], "no value of key 'item'"),
        (["--bucket", "2"], "There is no bucket 2"),
        (["--stream", "input", "--kind", "results"], "holds no rows of kind results"),
    ],
)
def test_what_cannot_be_asked_for_is_told_in_one_line(
    arguments: list[str], why: str, counted: Written, run: Run
) -> None:
    said = run("log", counted.path, *arguments)
    assert (said.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    assert why in said.err


def test_a_limit_ends_the_listing(counted: Written, run: Run) -> None:
    assert len(run("log", counted.path, "--records", "--limit", 7).out.splitlines()) == 7
    assert len(run("log", counted.path, "--json", "--limit", 3).out.splitlines()) == 3


def test_merged_segments_are_listed_as_before(counted: Written, run: Run) -> None:
    before = run("log", counted.path, "--json").out
    rows = run("log", counted.path, "--json", "--records").out
    assert counted.place.logs().output(0).merge(6).packs
    assert run("log", counted.path, "--json").out == before
    assert run("log", counted.path, "--json", "--records").out == rows


def test_a_damaged_segment_is_named_and_the_others_are_listed(counted: Written, run: Run) -> None:
    results = _logged(counted, "output", FrameKind.RESULTS)
    logged = {batch for bucket, batch, _ in results if bucket == 0}
    assert 4 in logged
    counted.flip(f"out/00000/{4:020d}.seg")
    said = run("log", counted.path, "--stream", "output", "--bucket", 0, "--records", "--json")
    assert said.code == 1
    assert "out/00000, batch 4: " in said.err
    assert {each["batch"] for each in _lines(said) if each["kind"] == "results"} == logged - {4}


def test_text_in_the_logs_plays_no_tricks_on_the_terminal(tmp_path: Path, run: Run) -> None:
    case = Case.of(
        pa.schema([("k", pa.string()), ("v", pa.int64())]),
        by=["k"],
        window=CountWindow(10, 10),
        values={"n": f.count()},
        batches=[(0, [("\x1b[2Jgone\x9b", 1), ("two\nlines", 2), ("a=b", 3), ("", 4)])],
    )
    logs = write_logs(tmp_path / "a", case, buckets=1)
    said = run("log", logs.path, "--kind", "input", "--records")
    assert len(said.out.splitlines()) == 4
    assert not set(said.out) & {"\x1b", "\x9b"}
    assert 'k="a=b"' in said.out


def test_starts_of_time_windows_are_times_for_people_and_numbers_in_json(
    timed: Written, run: Run
) -> None:
    arguments = ("log", timed.path, "--kind", "results", "--records", "--limit", 1)
    (line,) = _lines(run(*arguments, "--json"))
    start = line["row"]["$start"]
    assert isinstance(start, int)
    assert f'$start="{units.moment(start)}"' in run(*arguments).out
