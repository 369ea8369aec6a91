"""Up to which time a stream is complete: what its writers promise, and who breaks it."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from tests.support.meddling import Meddled
from tests.support.promises import PlainPromises
from tests.support.seeds import seeds
from tests.support.streams import ORDERS, SECOND, SetClock, Written, batch_of, orders, written
from trailmark.errors import NoPermission, SettingError
from trailmark.log import LocalStorage, Storage
from trailmark.records import NO_BATCH
from trailmark.streams import promises
from trailmark.streams.boundaries import Boundaries
from trailmark.streams.heartbeats import Heartbeat, newest_heartbeats, send
from trailmark.streams.manifest import read_manifest
from trailmark.streams.status import StreamStatusReader
from trailmark.streams.writer import StreamWriter
from trailmark.testing.disk import Crashed, SimulatedDisk

_DELAY = 2 * SECOND


def _stream(disk: SimulatedDisk | None = None) -> Written:
    return written(None if disk is None else disk.storage(), time_column="time")


def _writer(stream: Written, delay_us: int | None = _DELAY) -> StreamWriter:
    return StreamWriter(stream.storage, stream.meta, clock=stream.clock, delay_us=delay_us)


def _add(
    stream: Written,
    writer: str | None,
    number: int | None,
    times_s: list[int | None],
    *,
    delay_us: int | None = _DELAY,
    asked_s: int | None = None,
) -> int:
    rows = [("item", 1, None if each is None else each * SECOND) for each in times_s]
    into = _writer(stream, delay_us)
    files = into.write([batch_of(rows)], writer)
    asked_us = None if asked_s is None else asked_s * SECOND
    return into.commit(files, writer, number, asked_us)


def let_go(storage: Storage, writer: str) -> bool:
    return promises.let_go(storage, writer, 0, newest_heartbeats(storage).get(writer))


def _last(stream: Written) -> Boundaries:
    found = read_manifest(stream.log(), stream.log().newest()).boundaries
    assert found is not None
    return found


def _reached(stream: Written) -> int | None:
    found = _writer(stream).boundaries()
    return None if found is None or found.stream is None else found.stream // SECOND


# With rows


def test_a_boundary_is_the_newest_time_less_the_delay() -> None:
    stream = _stream()
    _add(stream, "a", 0, [7, 10, None])
    assert _reached(stream) == 8
    _add(stream, "a", 1, [9])
    assert _reached(stream) == 8, "it never falls"
    assert _last(stream) == Boundaries({"a": 8 * SECOND}, 8 * SECOND, 8 * SECOND)


def test_rows_behind_the_boundary_of_their_writer_are_late_and_counted() -> None:
    stream = _stream()
    _add(stream, "a", 0, [10])
    _add(stream, "a", 1, [7, 8, 9, 7, None])
    assert (_last(stream).late_rows, _last(stream).total_late_rows) == (2, 2)
    _add(stream, "a", 2, [1, 30])
    assert (_last(stream).late_rows, _last(stream).total_late_rows) == (1, 3)
    assert len(stream.rows()) == 8, "they are kept"


def test_a_stream_that_nobody_promises_anything_about_has_none() -> None:
    stream = _stream()
    _add(stream, "a", 0, [10], delay_us=None)
    _add(stream, None, None, [10])
    assert read_manifest(stream.log(), 1).boundaries is None
    assert _writer(stream).boundaries() is None
    footer, _ = stream.log().read_footer(1)
    assert "boundaries" not in footer.attributes


def test_of_several_writers_the_least_counts() -> None:
    stream = _stream()
    _add(stream, "a", 0, [10])
    _add(stream, "b", 0, [50])
    assert _reached(stream) == 8
    _add(stream, "a", 1, [100])
    assert _reached(stream) == 48
    _add(stream, "b", 1, [48])
    assert _last(stream).late_rows == 0, "late by what its own writer promised, and it is not"


def test_a_writer_that_begins_later_begins_where_the_stream_is() -> None:
    stream = _stream()
    _add(stream, "a", 0, [100])
    _add(stream, "b", 0, [50, 99])
    assert _reached(stream) == 98, "the boundary does not fall"
    assert _last(stream).late_rows == 1
    _add(stream, "a", 1, [200])
    assert _reached(stream) == 98, "but waits"


def test_a_writer_whose_rows_have_no_times_holds_the_boundary() -> None:
    stream = _stream()
    _add(stream, "b", 0, [None])
    _add(stream, "a", 0, [10])
    assert _reached(stream) is None
    _add(stream, "b", 1, [5])
    assert _reached(stream) == 3


def test_rows_of_a_job_and_of_a_query_without_delay_are_late_by_the_stream() -> None:
    stream = _stream()
    _add(stream, "a", 0, [10])
    _add(stream, None, None, [7, 8])
    assert _last(stream).late_rows == 1
    _add(stream, "other", 0, [1, 2, 99], delay_us=None)
    assert (_last(stream).late_rows, _reached(stream)) == (2, 8), "and move nothing"
    assert set(_last(stream).writers) == {"a"}


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_any_unit_are_compared_exactly(unit: str) -> None:
    per_s = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    schema = pa.schema([("time", pa.timestamp(unit))])
    stream = written(schema=schema, time_column="time")
    for number, times in enumerate([[10 * per_s], [8 * per_s - 1, 8 * per_s, 8 * per_s + 1]]):
        into = _writer(stream)
        files = into.write([batch_of([(time,) for time in times], schema)], "a")
        into.commit(files, "a", number)
    assert _last(stream).late_rows == 1


@pytest.mark.parametrize("time", [-(2**63), 2**63 - 1])
@pytest.mark.parametrize("delay_us", [0, 2**64])
def test_times_at_the_ends_of_the_range_neither_fail_nor_wrap(time: int, delay_us: int) -> None:
    stream = written(schema=pa.schema([("time", pa.timestamp("s"))]), time_column="time")
    for number in range(2):
        into = _writer(stream, delay_us)
        files = into.write([batch_of([(time,), (None,)], stream.meta.result_schema)], "a")
        into.commit(files, "a", number)
    assert _last(stream).late_rows == 0


def test_late_rows_are_counted_at_the_commit_where_a_task_could_not_know() -> None:
    stream = _stream()
    slow = _writer(stream)
    files = slow.write([batch_of([("item", 1, at * SECOND) for at in (5, 20)])], "a")
    _writer(stream).commit([], "a", 0, 12 * SECOND)
    assert slow.commit(files, "a", 1) == 0
    assert _last(stream).late_rows == 1


# Heartbeats


def test_a_heartbeat_moves_the_boundary_and_is_no_batch() -> None:
    stream = _stream()
    _add(stream, "a", 0, [10])
    assert _add(stream, "a", 1, [], asked_s=60) == NO_BATCH
    assert (_reached(stream), stream.log().newest()) == (58, 0)
    _add(stream, "a", 2, [57, 59])
    assert (_last(stream).late_before, _last(stream).late_rows) == (58 * SECOND, 1)
    assert _reached(stream) == 58


def test_a_heartbeat_may_come_with_rows_and_before_any() -> None:
    stream = _stream()
    _add(stream, "a", 0, [], asked_s=60)
    assert _reached(stream) == 58
    _add(stream, "a", 1, [59], asked_s=70)
    assert (_reached(stream), _last(stream).late_rows) == (68, 0)


def test_a_heartbeat_that_says_nothing_new_is_not_sent() -> None:
    disk = SimulatedDisk()
    stream = _stream(disk)
    _add(stream, "a", 0, [10])
    for number, asked_s in enumerate([9, 10]):
        _add(stream, "a", 1 + number, [], asked_s=asked_s)
    sent = [path for path in disk.files() if path.startswith("heartbeats/")]
    assert sent == [f"heartbeats/a-{0:020d}.new.json"], "only that it is there"


def test_only_the_newest_heartbeats_of_each_writer_are_kept() -> None:
    disk = SimulatedDisk()
    stream = _stream(disk)
    for number in range(50):
        for writer in ("a", "a-1"):
            _add(stream, writer, number, [], asked_s=60 + number)
    assert len([path for path in disk.files() if path.startswith("heartbeats/")]) == 4
    assert _reached(stream) == 107


def test_a_writer_that_wakes_up_late_does_not_take_the_boundary_back() -> None:
    """Its number has been used and removed: it publishes it again, and nobody goes by it."""
    stream = _stream()
    for number in range(5):
        _add(stream, "a", number, [], asked_s=60 + number)
    asleep = Heartbeat("a", 1, boundary_us=5 * SECOND)
    assert not send(stream.storage, asleep)
    path = "heartbeats/a-00000000000000000001.json"
    newest = newest_heartbeats(stream.storage)
    stream.storage.publish(path, [stream.storage.read("heartbeats/a-00000000000000000003.json")])
    assert newest_heartbeats(stream.storage) == newest
    _add(stream, "a", 9, [], asked_s=90)
    assert not stream.storage.exists(path), "the next one clears it away"
    assert _reached(stream) == 88


def test_a_writer_whose_heartbeats_cannot_be_read_is_waited_for() -> None:
    stream = _stream()
    _add(stream, "a", 0, [10])
    _add(stream, "b", 0, [], asked_s=100)
    _add(stream, "a", 1, [200])
    assert _reached(stream) == 98
    _add(stream, "c", 0, [], asked_s=300)
    for suffix in (".new", ""):
        stream.storage.replace(f"heartbeats/c-{0:020d}{suffix}.json", [b"{}"])
    _add(stream, "b", 1, [], asked_s=400)
    assert _reached(stream) == 98, "nobody knows how far c is"
    (problem,) = StreamStatusReader(stream.storage).read().heartbeat_problems
    assert "heartbeats/c-00000000000000000000.json cannot be read" in problem
    _add(stream, "c", 1, [], asked_s=301)
    assert _reached(stream) == 198


def test_a_reader_that_is_overtaken_while_it_looks_looks_again() -> None:
    stream = _stream()
    for number in range(3):
        _add(stream, "a", number, [], asked_s=60 + number)
    overtaken: Any = _Overtaken(stream)
    assert newest_heartbeats(overtaken)["a"].boundary_us == 88 * SECOND


class _Overtaken:
    """Between listing and reading, two newer heartbeats come."""

    def __init__(self, stream: Written) -> None:
        self._stream = stream
        self._is_done = False

    def list(self, directory: str) -> object:
        return self._stream.storage.list(directory)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        if not self._is_done:
            self._is_done = True
            for number in (7, 8, 9):
                _add(self._stream, "a", number, [], asked_s=81 + number)
        return self._stream.storage.read(path, offset, length)


@pytest.mark.parametrize(("first", "second"), [("eu", "us"), ("us", "eu"), ("zz", "us")])
def test_what_counts_does_not_depend_on_names(first: str, second: str) -> None:
    stream = _stream()
    _add(stream, first, 0, [10])
    _add(stream, second, 0, [], asked_s=52)
    _add(stream, first, 1, [], asked_s=102)
    assert _reached(stream) == 50, "it waits for the second"
    _add(stream, second, 1, [60])
    assert _last(stream).late_rows == 0, "which has kept its promise"


@pytest.mark.parametrize(("first", "second"), [("aa", "zz"), ("zz", "aa")])
def test_a_boundary_that_heartbeats_alone_have_reached_never_falls(first: str, second: str) -> None:
    stream = _stream()
    _add(stream, first, 0, [], asked_s=102)
    _add(stream, second, 0, [], asked_s=52)
    assert _reached(stream) == 100
    _add(stream, second, 1, [60, 101])
    assert (_last(stream).late_rows, _reached(stream)) == (1, 100)


@pytest.mark.parametrize("says", ["rows", "heartbeat"])
def test_a_new_writer_is_held_to_what_others_went_by_before_they_knew_of_it(says: str) -> None:
    """At every look of it, another writer goes on, and so does whoever reads."""
    seen: list[int | None] = []
    for at in range(100):
        disk = SimulatedDisk()
        stream = _stream(disk)
        _add(stream, "a", 0, [10])

        def go_on(stream: Written = stream) -> None:
            _add(stream, "a", 1, [], asked_s=102)
            seen.append(_reached(stream))

        storage = Meddled(disk, at, go_on)
        into = StreamWriter(storage, stream.meta, clock=stream.clock, delay_us=_DELAY)
        if says == "heartbeat":
            into.commit([], "c", 0, 40 * SECOND)
        rows = [("item", 1, time * SECOND) for time in (50, 130)]
        into.commit(into.write([batch_of(rows)], "c"), "c", 1)
        if storage.looks <= at:
            break
        reached = seen[-1]
        assert reached is not None
        assert _last(stream).late_rows == 1 or reached <= 50, at
        assert (_reached(stream) or 0) >= reached, "it never falls"
    assert {8, 100} <= {each for each in seen if each is not None}


def test_a_damaged_heartbeat_leaves_what_the_one_before_said() -> None:
    stream = _stream()
    for number, asked_s in enumerate([102, 202]):
        _add(stream, "a", number, [], asked_s=asked_s)
    assert _reached(stream) == 200
    stream.storage.replace("heartbeats/a-00000000000000000001.json", [b"{}"])
    assert _reached(stream) == 100


def test_a_heartbeat_that_cannot_clear_up_is_sent_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = _stream()
    for number in range(2):
        _add(stream, "a", number, [], asked_s=60 + number)

    class Keeps(LocalStorage):
        def delete(self, path: str, *, synced: bool = True) -> None:
            raise NoPermission("may not", where=path)

    storage = stream.storage
    assert isinstance(storage, LocalStorage)
    storage.__class__ = Keeps
    _add(stream, "a", 2, [], asked_s=90)
    assert _reached(stream) == 88
    assert "are not removed" in caplog.text


# Writers that are gone


def test_what_a_writer_promised_by_heartbeats_stands_when_it_is_let_go() -> None:
    stream = _stream()
    _add(stream, "a", 0, [10])
    _add(stream, "a", 1, [], asked_s=102)
    assert let_go(stream.storage, "a")
    assert _reached(stream) == 100
    _add(stream, None, None, [50])
    assert _last(stream).late_rows == 1
    _add(stream, "a", 2, [99])
    assert _last(stream).late_rows == 1


def test_a_writer_that_is_let_go_is_not_waited_for() -> None:
    stream = _stream()
    _add(stream, "a", 0, [10])
    _add(stream, "b", 0, [100])
    let_go(stream.storage, "a")
    assert _reached(stream) == 98
    _add(stream, "b", 1, [200])
    assert set(_last(stream).writers) == {"b"}


@pytest.mark.parametrize("returns_with", ["rows", "heartbeat"])
def test_a_writer_that_comes_back_counts_again(returns_with: str) -> None:
    stream = _stream()
    _add(stream, "a", 3, [10])
    _add(stream, "b", 0, [100])
    let_go(stream.storage, "a")
    if returns_with == "rows":
        _add(stream, "a", 4, [20, 99])
        assert _last(stream).late_rows == 1
    else:
        _add(stream, "a", 5, [], asked_s=100)
    _add(stream, "b", 1, [500])
    assert _reached(stream) == 98
    assert set(_last(stream).writers) == {"a", "b"}


# All of it, at random and through crashes


@pytest.mark.parametrize("seed", seeds(60))
def test_boundaries_and_late_rows_are_those_of_plain_python(seed: int) -> None:
    rng = random.Random(seed)
    disk = SimulatedDisk()
    stream = _stream(disk)
    plain = PlainPromises()
    delays = {name: rng.randint(0, 5) * SECOND for name in ("a", "b", "z")} | {"c": None}
    numbers = dict.fromkeys(delays, 0)
    for now_s in range(30):
        writer = rng.choice(["a", "a", "b", "z", "c", None])
        delay = None if writer is None else delays[writer]
        times: list[int | None] = [
            rng.choice([None, (now_s + rng.randint(-8, 4)) * SECOND])
            for _ in range(rng.choice([0, 0, 1, 5]))
        ]
        asked = now_s * SECOND if delay is not None and rng.random() < 0.4 else None
        number = None if writer is None else numbers[writer]
        if writer is not None and rng.random() < 0.08:
            let_go(disk.storage(), writer)
            plain.let_go(writer)
            continue
        rows = [("item", 1, each) for each in times]
        if rng.random() < 0.3 and writer is not None:
            disk.stop_after(rng.randint(0, 12))
        for _ in range(2 if writer is not None else 1):  # as a query that was killed repeats it
            try:
                into = StreamWriter(disk.storage(), stream.meta, clock=SetClock(), delay_us=delay)
                into.commit(into.write([batch_of(rows)], writer), writer, number, asked)
            except Crashed:
                disk.crash(rng) if rng.random() < 0.5 else disk.kill()
                disk.relax()
        disk.relax()
        if times:
            plain.commit(writer, times, delay, asked)
        elif asked is not None and writer is not None and delay is not None:
            plain.heartbeat(writer, asked, delay)
        if writer is not None:
            numbers[writer] += 1
        found = StreamWriter(disk.storage(), stream.meta, delay_us=0).boundaries()
        assert (None if found is None else found.stream) == plain.stream, seed
        assert ({} if found is None else dict(found.writers)) == plain.own, seed
    log = Written(disk.storage(), stream.meta, SetClock()).log()
    manifests = [read_manifest(log, batch) for batch in range(log.newest() + 1)]
    # Those without rows say that a writer was let go.
    promised = [each.boundaries for each in manifests if each.files]
    late = [0 if each is None else each.late_rows for each in promised]
    assert late == plain.late_rows, seed


def test_status_shows_how_far_each_writer_has_got() -> None:
    stream = _stream()
    _add(stream, "a", 0, [10])
    _add(stream, "b", 0, [], asked_s=60)
    status = StreamStatusReader(stream.storage, clock=stream.clock).read()
    assert status.boundaries is not None
    assert status.boundaries.stream == 8 * SECOND
    assert status.describe()["boundaries"]["writers"] == {"a": 8 * SECOND, "b": 58 * SECOND}
    assert status.describe()["heartbeats"]["b"]["after"] == 0


@pytest.mark.parametrize(
    "changed", [{"writers": []}, {"stream": "x"}, {"late_rows": -1}, {"late_before": 2**70}]
)
def test_a_manifest_whose_boundaries_cannot_be_understood_is_damaged(changed: object) -> None:
    good = Boundaries({"a": 1}, 1, None, 0, 0).to_json()
    assert Boundaries.from_json(good).writers == {"a": 1}
    with pytest.raises((KeyError, ValueError)):
        Boundaries.from_json({**good, **changed})  # type: ignore[dict-item]


def test_a_heartbeat_without_a_delay_is_refused() -> None:
    with pytest.raises(SettingError, match="a delay that was not given"):
        _writer(_stream(), None).send_heartbeat("a", 0)


def test_the_columns_of_a_stream_and_its_rows_are_as_without_boundaries() -> None:
    stream = _stream()
    _writer(stream).commit(_writer(stream).write([batch_of(orders(0))], "a"), "a", 0)
    assert stream.rows() == orders(0)
    assert ORDERS.equals(stream.meta.result_schema)
