"""Segments with right checksums that cannot be loaded: a recovery goes around them, or refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.plain import plain_rows
from tests.support.processes import Place
from tests.support.reseal import Opened, open_segment, relink
from tests.support.small import SMALL_WINDOWS, small_case
from trailmark.checkpoint.policy import Continuous
from trailmark.engine import BatchReport
from trailmark.errors import DamagedSegment, MissingInput, TrailmarkError
from trailmark.inspection.verify import verify_operator
from trailmark.log import LocalStorage
from trailmark.records import FILL, KIND, OPENED, START, FrameKind
from trailmark.recovery import plan_recovery

_BATCHES = 4
_CHANGED = _BATCHES - 1

Change = Callable[[Opened], Opened]


def _place(path: Path, window: str) -> Place:
    place = Place(path, small_case(SMALL_WINDOWS[window], _BATCHES + 1), Continuous(q=20))
    bucket = place.bucket()
    for batch in range(_BATCHES):
        bucket.run(batch, place.case.batches[batch])
    bucket.close()
    return place


def _change(place: Place, directory: str, change: Change) -> None:
    """Changes the newest segment of a log; its checksums are right again."""
    paths = sorted((place.path / directory / "00000").glob("*.seg"))
    files = {str(path.relative_to(place.path)): path.read_bytes() for path in paths}
    newest = list(files)[-1]
    files[newest] = change(open_segment(files[newest])).sealed()
    relink(files, f"{directory}/00000")
    for name, data in files.items():
        (place.path / name).write_bytes(data)


def _next(place: Place) -> BatchReport:
    bucket = place.bucket()
    try:
        return bucket.run(_BATCHES, place.case.batches[_BATCHES])
    finally:
        bucket.close()


def _column(name: str, make: Callable[[pa.Table], Any]) -> Change:
    """Another column in the place of one of the footprints."""

    def change(opened: Opened) -> Opened:
        rows = opened.rows(FrameKind.FOOTPRINTS)
        at = rows.schema.get_field_index(name)
        changed = rows.set_column(at, name, make(rows))
        return opened.with_rows(FrameKind.FOOTPRINTS, changed)

    return change


def _all(number: int) -> Callable[[pa.Table], pa.Array]:
    return lambda rows: pa.array(np.full(rows.num_rows, number), pa.int64())


def _attribute(name: str, value: object) -> Change:
    def change(opened: Opened) -> Opened:
        fields = opened.fields
        fields["attributes"][name] = value
        return opened.with_fields(fields)

    return change


def _text_offsets(opened: Opened) -> Opened:
    """The keys point far behind their bytes."""
    rows = opened.rows(FrameKind.FOOTPRINTS)
    keys = rows.column("item").combine_chunks()
    validity, offsets, data = keys.buffers()
    far = np.frombuffer(offsets, np.int32).copy()
    far[1:-1] += 1 << 29
    other = pa.Array.from_buffers(keys.type, len(keys), [validity, pa.py_buffer(far), data])
    return opened.with_rows(FrameKind.FOOTPRINTS, rows.set_column(0, "item", other))


_CHANGES: dict[str, tuple[str, Change]] = {
    "keys of bytes that are not there": ("tumbling", _text_offsets),
    "keys of another type": ("tumbling", _column("item", _all(7))),
    "no keys": (
        "tumbling",
        lambda o: o.with_rows(FrameKind.FOOTPRINTS, o.rows(FrameKind.FOOTPRINTS).remove_column(0)),
    ),
    "opened never": ("tumbling", _column(OPENED, _all(-2))),
    "opened later": ("tumbling", _column(OPENED, _all(_BATCHES))),
    "opened beyond 32 bits": ("tumbling", _column(OPENED, _all(2**40))),
    "full": ("tumbling", _column(FILL, _all(3))),
    "too full": ("gapped", _column(FILL, _all(2**33))),
    "too long to go": ("gapped", _column(FILL, _all(-4))),
    "a kind that is none": ("tumbling", _column(KIND, _all(2))),
    "no starts": ("time", _column(START, lambda rows: pa.nulls(rows.num_rows, pa.int64()))),
    "starts beyond all time": ("time", _column(START, _all(2**63 - 1))),
    "starts in between": ("time", _column(START, _all(1))),
    "starts before the first": ("overlapping", _column(START, _all(-2))),
    "states of another type": (
        "tumbling",
        _column("total.sum", lambda rows: pa.array(["x"] * rows.num_rows)),
    ),
    "states that are null": (
        "tumbling",
        _column("total.sum", lambda rows: pa.nulls(rows.num_rows, pa.int64())),
    ),
    "windows without number": ("tumbling", _attribute("open_windows", 2**62)),
    "windows that are no number": ("tumbling", _attribute("open_windows", "many")),
    "input of the future": ("tumbling", _attribute("needs", 2**62)),
    "a snapshot of nothing": ("tumbling", _attribute("foundation", "snapshot")),
    "a total that is none": ("tumbling", _attribute("inputs_total", 2**100)),
    "lighter than nothing": ("tumbling", _attribute("extent_excess", -1)),
    "heavier than all disks": ("tumbling", _attribute("footprints_excess", 2**62)),
}


@pytest.mark.parametrize("what", _CHANGES)
def test_a_recovery_goes_around_footprints_that_cannot_be_loaded(tmp_path: Path, what: str) -> None:
    window, change = _CHANGES[what]
    expected = _next(_place(tmp_path / "right", window))
    place = _place(tmp_path / "changed", window)
    _change(place, "out", change)
    report = _next(place)
    assert sorted(map(repr, plain_rows(report.results))) == sorted(
        map(repr, plain_rows(expected.results))
    )
    assert report.account.open_windows == expected.account.open_windows
    assert report.recovery is not None
    assert [each.batch for each in report.recovery.plan.skipped][:1] == [_CHANGED]


@pytest.mark.parametrize("what", _CHANGES)
def test_verification_finds_what_a_recovery_goes_around(tmp_path: Path, what: str) -> None:
    window, change = _CHANGES[what]
    place = _place(tmp_path, window)
    assert verify_operator(LocalStorage(tmp_path)).is_whole
    _change(place, "out", change)
    report = verify_operator(LocalStorage(tmp_path))
    # Types of states are known to their functions only, and a snapshot may have been trimmed.
    if what not in ("states of another type", "states that are null", "a snapshot of nothing"):
        (finding,) = report.findings
        assert (finding.trouble, finding.stream, finding.batch) == ("damaged", "output", _CHANGED)


@pytest.mark.parametrize(
    "change",
    [
        lambda o: o.with_rows(FrameKind.INPUT, o.rows(FrameKind.INPUT).remove_column(0)),
        lambda o: o.with_rows(
            FrameKind.INPUT,
            o.rows(FrameKind.INPUT).set_column(1, "price", pa.array([2**40] * 9, pa.int64())),
        ),
        _attribute("watermark", "late"),
        _attribute("late_before", 2**64),
    ],
    ids=["no key", "another type", "no time", "beyond 64 bits"],
)
def test_input_that_cannot_be_replayed_is_refused_by_name(tmp_path: Path, change: Change) -> None:
    place = _place(tmp_path, "time")
    _change(place, "in", change)
    _change(place, "out", _column(OPENED, _all(-2)))  # so that the input is needed
    with pytest.raises(DamagedSegment) as caught:
        _next(place)
    assert caught.value.where.startswith("in/00000/")


def test_windows_that_contradict_one_another_are_refused(tmp_path: Path) -> None:
    """More windows of a key than can be open at once, each of which could be."""
    place = _place(tmp_path, "overlapping")

    def change(opened: Opened) -> Opened:
        rows = opened.rows(FrameKind.FOOTPRINTS)
        keys = rows.column("item").to_pylist()
        rows = rows.take([keys.index(key) for key in dict.fromkeys(keys)])
        many = pa.concat_tables([rows] * 40)
        starts = np.repeat(np.arange(40) * 2, rows.num_rows)
        at = many.schema.get_field_index(START)
        many = many.set_column(at, START, pa.array(starts, pa.int64()))
        fields = opened.with_rows(FrameKind.FOOTPRINTS, many)
        return _attribute("open_windows", many.num_rows)(fields)

    _change(place, "out", change)
    with pytest.raises(TrailmarkError) as caught:
        _next(place)
    assert caught.value.where


def test_a_batch_beyond_all_others_is_no_reason_to_count_down_from_it(tmp_path: Path) -> None:
    place = _place(tmp_path, "tumbling")
    (tmp_path / f"out/00000/{2**62:020d}.seg").touch()
    logs = place.logs()
    with pytest.raises(MissingInput):
        plan_recovery(
            place.case.operator(), logs.output(0), logs.input(0), logs.snapshots(0), 2**62, 0
        )
