"""Writing to a stream from plain Python."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import trailmark as tm
from tests.support.left_behind import dead_process, left_behind
from tests.support.streams import ORDERS, SECOND, batch_of, orders, plain
from trailmark.errors import (
    BatchGoesBackward,
    InputDiffers,
    LeaseLost,
    SchemaChanged,
    SettingError,
    TrailmarkError,
)
from trailmark.leases import Holder, Lease, Pass, Term, open_lease
from trailmark.leases.terms import publish_term
from trailmark.streams import writer as writer_module
from trailmark.streams.own_writer import OwnWriter


def _open(path: Path, name: str = "eu", **more: Any) -> OwnWriter:
    return tm.stream_writer(path, ORDERS, name=name, **{"time_column": "time", **more})


def test_what_is_appended_is_read_back(tmp_path: Path) -> None:
    writer = _open(tmp_path)
    assert writer.append(batch_of(orders(0)))
    assert writer.append(pa.Table.from_batches([batch_of(orders(1)), batch_of(orders(2))]))
    assert plain(tm.read_table(tmp_path)) == [*orders(0), *orders(1), *orders(2)]
    assert plain(tm.read_table(tmp_path, starting_batch=1)) == [*orders(1), *orders(2)]


def test_whoever_goes_on_knows_what_is_there(tmp_path: Path) -> None:
    assert _open(tmp_path).last == -1
    _open(tmp_path).append(batch_of(orders(0)))
    _open(tmp_path, "us").append(batch_of(orders(1)), number=40)
    assert (_open(tmp_path).last, _open(tmp_path, "us").last) == (0, 40)
    _open(tmp_path, "us").append(batch_of(orders(2)))
    assert _open(tmp_path, "us").last == 41


def test_rows_that_are_appended_again_under_their_number_are_there_once(tmp_path: Path) -> None:
    assert _open(tmp_path).append(batch_of(orders(0)), number=7)
    assert not _open(tmp_path).append(batch_of(orders(0)), number=7)
    assert plain(tm.read_table(tmp_path)) == orders(0)
    with pytest.raises(InputDiffers):
        _open(tmp_path).append(batch_of(orders(1)), number=7)
    with pytest.raises(BatchGoesBackward):
        _open(tmp_path).append(batch_of(orders(1)), number=6)
    assert plain(tm.read_table(tmp_path)) == orders(0)


def test_a_table_without_rows_is_no_batch(tmp_path: Path) -> None:
    writer = _open(tmp_path)
    assert not writer.append(batch_of([]))
    assert writer.last == -1


def test_it_promises_by_its_rows_and_by_heartbeats(tmp_path: Path) -> None:
    writer = _open(tmp_path, delay=timedelta(seconds=2), clock=lambda: 100 * SECOND)
    assert writer.boundary is None
    writer.append(batch_of(orders(1)))
    assert writer.boundary == datetime(1970, 1, 1, 0, 0, 10, tzinfo=timezone.utc)
    for _ in range(3):
        writer.heartbeat("1970-01-01 00:01:00")
    assert writer.boundary == datetime(1970, 1, 1, 0, 0, 58, tzinfo=timezone.utc)
    writer.heartbeat()
    assert writer.boundary == datetime(1970, 1, 1, 0, 1, 38, tzinfo=timezone.utc)


def test_a_boundary_beyond_all_dates_can_be_asked_for(tmp_path: Path) -> None:
    schema = pa.schema([("time", pa.timestamp("s"))])
    writer = tm.stream_writer(tmp_path, schema, name="a", time_column="time", delay="0 seconds")
    writer.append(batch_of([(2**62,)], schema))
    assert writer.boundary == datetime.max.replace(tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"name": "a b"}, "cannot be the name of a writer"),
        ({"name": ""}, "cannot be the name of a writer"),
        ({"name": None}, "cannot be the name of a writer"),
        ({"delay": "soon"}, "not a duration"),
        ({"time_column": "tiem"}, "no column 'tiem'"),
        ({"time_column": None, "delay": "1 second"}, "no time column"),
        ({"partition_by": ["colour"]}, "no column 'colour'"),
        ({"durability": "maybe"}, "not a durability"),
        ({"retention_bytes": "much"}, "not a size"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(
    tmp_path: Path, more: dict[str, Any], why: str
) -> None:
    with pytest.raises(SettingError, match=why):
        tm.stream_writer(tmp_path, ORDERS, **{"name": "eu", "time_column": "time", **more})


@pytest.mark.parametrize("wrong", [{"time_column": None, "delay": "1 s"}, {"retention": "often"}])
def test_who_is_refused_has_begun_no_stream(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingError):
        tm.stream_writer(tmp_path, ORDERS, **{"name": "eu", "time_column": "time", **wrong})
    assert not list(tmp_path.iterdir())
    _open(tmp_path, delay="1 second")


def test_rows_that_are_appended_again_are_found_without_reading_all_batches(tmp_path: Path) -> None:
    for batch in range(40):
        _open(tmp_path).append(batch_of(orders(batch)))
    with mock.patch.object(writer_module, "read_manifest") as read:
        assert not _open(tmp_path).append(batch_of(orders(39)), number=39)
    assert not read.called


def test_heartbeats_need_a_delay(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="a delay that was not given"):
        _open(tmp_path).heartbeat()


@pytest.mark.parametrize("number", [-1, 1.5, True, 10**30])
def test_numbers_are_whole(tmp_path: Path, number: Any) -> None:
    with pytest.raises(SettingError, match="no number of a batch"):
        _open(tmp_path).append(batch_of(orders(0)), number=number)


def test_other_columns_than_the_stream_has_are_refused(tmp_path: Path) -> None:
    _open(tmp_path).append(batch_of(orders(0)))
    with pytest.raises(TrailmarkError):
        _open(tmp_path).append(pa.table({"item": ["x"]}))
    with pytest.raises(SchemaChanged):
        tm.stream_writer(tmp_path, ORDERS.append(pa.field("more", pa.int64())), name="eu")
    assert plain(tm.read_table(tmp_path)) == orders(0)


def test_in_a_process_that_has_lost_its_lease_it_writes_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that was opened before the process took part in it."""
    before = _open(tmp_path / "stream", delay="1 second")
    path, storage = open_lease(tmp_path / "lease")
    lease = Lease(storage, Holder("a", "a", "host", 1), SECOND)
    assert lease.take()
    monkeypatch.setenv("TRAILMARK_LEASE", Pass(path, "a", SECOND).to_text())
    assert before.append(batch_of(orders(0)))
    within = _open(tmp_path / "stream", "us", delay="1 second")
    own = lease.own
    assert own is not None
    publish_term(storage, Term(own.number + 1, Holder("b", "b", "host", 2)))
    monkeypatch.setenv("TRAILMARK_LEASE", Pass(path, "a", 2 * SECOND).to_text())  # looks at once
    kept = sorted((tmp_path / "stream").rglob("*"))
    for writer in (before, within):
        with pytest.raises(LeaseLost, match="is held by b"):
            writer.append(batch_of(orders(1)))
        with pytest.raises(LeaseLost, match="is held by b"):
            writer.heartbeat()
    assert sorted((tmp_path / "stream").rglob("*")) == kept


def test_what_killed_processes_have_half_written_goes_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_TRIM_EVERY", 2)
    monkeypatch.setattr(writer_module, "_MERGE_EVERY", 4)
    writer = _open(tmp_path, delay="1 second")
    dead = dead_process()
    places = {kind: tmp_path / f"{kind}" for kind in ("heartbeats", "batches/00000", "data/00000")}
    half = {kind: place / left_behind(place, dead) for kind, place in places.items()}
    alive = places["heartbeats"] / left_behind(places["heartbeats"], os.getppid())
    gone = []
    for batch in range(4):
        writer.append(batch_of(orders(batch)))
        gone.append([kind for kind, file in half.items() if not file.exists()])
    often = ["heartbeats", "batches/00000"]
    assert gone == [[], often, often, [*often, "data/00000"]]
    assert alive.exists()
