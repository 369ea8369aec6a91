"""A written stream stopped, refused and harmed at every place: no row is lost, none is twice."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from tests.support.disk import FillingDisk
from tests.support.harm import EVERY_BYTE, Harm
from tests.support.streams import SECOND, SetClock, batch_of, often, rows_by_batch, rows_in
from trailmark.errors import DiskFull, MissingSegment, StorageError, TrailmarkError
from trailmark.log import Storage
from trailmark.log.readers import acknowledge, needed_from, register
from trailmark.log.segment import HEADER
from trailmark.records import Stream
from trailmark.streams.description import open_stream
from trailmark.streams.files import DataFile
from trailmark.streams.manifest import manifest_log
from trailmark.streams.retention import Retention, left_over_files
from trailmark.streams.times import Span
from trailmark.streams.view import open_view
from trailmark.streams.writer import StreamWriter
from trailmark.testing.disk import REPEATABLE, Crashed, SimulatedDisk

_SCHEMA = pa.schema([("item", pa.int32()), ("time", pa.timestamp("us"))])
_STEPS = 6
_KEPT = 3
_ITEMS = (0, 1, 4, 5)


def _rows(step: int) -> list[tuple[int, int]]:
    return [(item, (10 * step + item) * SECOND) for item in _ITEMS]


@dataclass
class Life:
    """Two queries that write to one stream in turn, trims, merges, and a reader that follows.

    A step that was stopped or failed is done again as Spark does: the same number, the rows
    written anew.
    """

    disk: SimulatedDisk
    done: int = 0
    clock: SetClock = field(default_factory=SetClock)
    written: list[DataFile] = field(default_factory=list)

    def step(self) -> None:
        """The next batch: written, committed, and read by whoever follows."""
        storage = self.disk.storage()
        self.written = []
        meta = open_stream(storage, _SCHEMA, time_column="time", keys=["item"], buckets=2)
        register(storage, "reader", Stream.BATCHES, 0, self.clock)
        writer = StreamWriter(storage, meta, None, Retention(batches=_KEPT), self.clock)
        self.clock.now_us += SECOND
        self.written = writer.write([batch_of(_rows(self.done), _SCHEMA)])
        with often(trim=2, merge=4, unmerged=1):
            writer.commit(self.written, "ab"[self.done % 2], self.done // 2)
        acknowledge(storage, "reader", Stream.BATCHES, self.done, self.clock)
        self.done += 1

    def abort(self) -> None:
        """What Spark does when a commit fails."""
        storage = self.disk.storage()
        if self.written:
            meta = open_stream(storage, _SCHEMA)
            StreamWriter(storage, meta, clock=self.clock).discard(self.written)

    def check(self, *, is_stopped: bool = False) -> None:
        """Every step that is done is a batch, once and whole; one more may be, if it was stopped.

        What no batch names may be removed, and it makes no difference.
        """
        storage = self.disk.storage()
        if "meta.json" not in self.disk.files():
            assert self.done == 0
            return
        log = manifest_log(storage, open_stream(storage, _SCHEMA))
        assert log.verify().problems == []
        for is_cleaned in (False, True):
            found = {batch: sorted(rows) for batch, rows in rows_by_batch(storage).items()}
            end = max(found, default=-1) + 1
            assert end == self.done or (is_stopped and end == self.done + 1)
            assert found == {batch: _rows(batch) for batch in range(min(found, default=0), end)}
            if end:
                needed = needed_from(storage, Stream.BATCHES)
                assert needed is not None
                assert min(found) <= max(0, min(end - _KEPT, needed))
            if not is_cleaned:
                meta = open_stream(storage, _SCHEMA)
                for path in left_over_files(storage, meta, log, self.clock.now_us + 1):
                    storage.delete(path)

    def check_tidy(self) -> None:
        """A life without crashes leaves nothing behind; rows are in both buckets."""
        files = [path for path in self.disk.files() if path.startswith("data/")]
        assert len(files) == 2 * len(rows_by_batch(self.disk.storage()))


def _operations() -> int:
    life = Life(SimulatedDisk())
    was_merged = False
    for _ in range(_STEPS):
        life.step()
        was_merged |= any(path.endswith(".pack") for path in life.disk.files())
    life.check()
    life.check_tidy()
    assert was_merged
    assert list(rows_by_batch(life.disk.storage())) == [3, 4, 5], "it was trimmed, pack and all"
    return life.disk.operations


@pytest.mark.parametrize("power_fails", [False, True], ids=["kill", "power"])
@pytest.mark.parametrize("part", range(2))
def test_stopping_at_any_operation_loses_no_row_and_doubles_none(
    part: int, power_fails: bool
) -> None:
    operations = _operations()
    assert operations > 150
    for stop in range(part, operations, 2):
        life = Life(SimulatedDisk())
        life.disk.stop_after(stop)
        with suppress(Crashed):
            while True:
                life.step()
        rng = random.Random(stop)
        if power_fails:
            life.disk.crash(rng)
        else:
            life.disk.kill()
        life.check(is_stopped=True)
        life.step()
        life.disk.crash(rng)  # at once, before anybody else has synced anything
        life.check()
        life.step()
        life.check()


# Calls that fail


def _live_through(life: Life, expected: type[StorageError], relieve: Callable[[], None]) -> int:
    """Aborts and repeats the step that fails, and does two more; returns how many there were."""
    refused = 0
    last = _STEPS
    while life.done < last:
        try:
            life.step()
            continue
        except expected as error:
            refusal = error
        assert refusal.where.startswith("/disk")
        refused += 1
        relieve()
        life.abort()
        life.check(is_stopped=True)
        last = min(last, life.done + 3)
    life.check()
    return refused


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES], ids=["EIO", "EACCES"])
def test_a_call_that_fails_wherever_it_is_loses_no_row_and_doubles_none(code: int) -> None:
    refused = 0
    for call in range(1 + (code == errno.EIO), _calls() + 1, 2):
        life = Life(SimulatedDisk())
        life.disk.fail_on(call, code)
        refused += _live_through(life, StorageError, life.disk.relax)
    assert refused > 100


@pytest.mark.parametrize("code", [None, errno.EIO], ids=["repeated", "EIO"])
def test_an_answer_that_is_lost_wherever_it_is_loses_no_row_and_doubles_none(
    code: int | None,
) -> None:
    for call in range(1 + (code == errno.EIO), _calls() + 1, 2):
        life = Life(SimulatedDisk())
        life.disk.lose_answer(call, code)
        refused = _live_through(life, StorageError, life.disk.relax)
        assert life.disk.failed is not None
        name, _ = life.disk.failed
        is_looked_at = name == "link" or (name in REPEATABLE and code is None)
        assert refused <= (0 if is_looked_at else 1), life.disk.failed


def _calls() -> int:
    whole = Life(SimulatedDisk())
    for _ in range(_STEPS):
        whole.step()
    return whole.disk.calls


@pytest.mark.parametrize("code", [None, errno.EIO], ids=["repeated", "EIO"])
def test_a_job_whose_answer_is_lost_has_its_rows_in_the_stream_once(code: int | None) -> None:
    """It has no number by which a second commit could be told, and fails only if it must."""
    seen = set()
    for call in range(1, 70):
        life = Life(SimulatedDisk())
        life.step()
        storage = life.disk.storage()
        writer = StreamWriter(storage, open_stream(storage, _SCHEMA), clock=life.clock)
        life.disk.lose_answer(call, code)
        try:
            writer.commit(writer.write([batch_of(_rows(1), _SCHEMA)]))
            is_told = False
        except StorageError:
            is_told = True
        life.disk.relax()
        found = {b: sorted(rows) for b, rows in rows_by_batch(life.disk.storage()).items()}
        assert found in ({0: _rows(0)}, {0: _rows(0), 1: _rows(1)})
        failed, _ = life.disk.failed or ("", "")
        seen.add(failed)
        if is_told:
            # It may not last; or whether it came in time could not be looked up.
            assert len(found) == 1 or failed in ("sync_directory", "size"), failed
            assert failed not in REPEATABLE or code is not None
    assert {"link", "unlink", "create", "sync_directory"} <= seen


def test_a_disk_that_is_full_at_any_write_loses_no_row_and_doubles_none() -> None:
    whole = FillingDisk()
    life = Life(whole)
    for _ in range(_STEPS):
        life.step()
    assert whole.writes > 20
    for full_at in range(1, whole.writes + 1):
        disk = FillingDisk(full_at=full_at)

        def make_room(disk: FillingDisk = disk) -> None:
            disk.capacity = None

        refused = _live_through(Life(disk), DiskFull, make_room)
        assert refused <= 1
        assert not [path for path in disk.files() if path.endswith(".tmp")]


def test_what_a_failed_commit_has_published_is_never_discarded() -> None:
    """Each call of a commit fails in turn; then power fails, too."""
    outcomes = set()
    for call in range(1, 60):
        life = Life(SimulatedDisk())
        life.step()
        storage = life.disk.storage()
        meta = open_stream(storage, _SCHEMA)
        writer = StreamWriter(storage, meta, clock=life.clock)
        files = writer.write([batch_of(_rows(1), _SCHEMA)])
        life.disk.fail_on(call, errno.EIO)
        try:
            writer.commit(files)
            is_committed = True
        except StorageError:
            is_committed = False
        life.disk.relax()
        is_there = 1 in rows_by_batch(life.disk.storage())
        assert is_there or not is_committed
        if not is_committed:
            StreamWriter(life.disk.storage(), meta, clock=life.clock).discard(files)
        kept = [file.path in life.disk.files() for file in files]
        assert kept == [is_there] * len(files)
        outcomes.add((is_committed, is_there))
        for seed in range(3):
            disk = life.disk.copy()
            disk.crash(random.Random(seed))
            found = {b: sorted(rows) for b, rows in rows_by_batch(disk.storage()).items()}
            assert found in ({0: _rows(0)}, {0: _rows(0), 1: _rows(1)})
            assert len(found) == 2 or not is_committed
    assert outcomes == {(True, True), (False, True), (False, False)}


# Harm


class _SmallStream:
    """Two batches, the older one in a pack or not, a reader and an index."""

    def __init__(self, which: str) -> None:
        is_merged = which == "pack"
        self._which = which
        self.disk = SimulatedDisk()
        storage = self.disk.storage()
        clock = SetClock()
        meta = open_stream(storage, _SCHEMA, time_column="time")
        writer = StreamWriter(storage, meta, clock=clock)
        for batch in range(3 if is_merged else 2):
            writer.commit(writer.write([batch_of(_rows(batch)[:2], _SCHEMA)]), "query", batch)
        register(storage, "reader", Stream.BATCHES, 1, clock)
        log = manifest_log(storage, meta)
        if is_merged:
            log.merge(1)
        log.time_index()
        self.answers = self.ask()

    def ask(self) -> list[object]:
        """What is in the stream, in every way to ask that may meet the harm."""
        storage: Storage = self.disk.storage()
        if self._which == "reader":
            return [_answer(lambda: needed_from(storage, Stream.BATCHES))]
        everything = _answer(lambda: rows_in(storage))
        if self._which in ("data", "meta"):
            return [everything]
        return [everything, _answer(lambda: rows_in(storage, Span(first_us=10 * SECOND)))]

    def find(self) -> object:
        return _answer(lambda: open_view(self.disk.storage()).find(10 * SECOND))


class _Refused:
    """Stands for a refusal by name."""


def _answer(ask: Callable[[], object]) -> object:
    try:
        return ask()
    except TrailmarkError as error:
        refusal = error
    assert refusal.what
    assert refusal.where
    assert not isinstance(refusal, MissingSegment), "harm is not loss"
    return _Refused


@pytest.mark.parametrize("harm", EVERY_BYTE.values(), ids=EVERY_BYTE)
@pytest.mark.parametrize("which", ["data", "manifest", "pack", "reader", "index", "meta"])
def test_harm_to_any_byte_gives_the_same_answer_or_a_refusal(which: str, harm: Harm) -> None:
    stream = _SmallStream(which)
    ending = {
        "data": "data/",
        "manifest": "batches/00000/00000000000000000000.seg",
        "pack": "batches/00000/00000000000000000000-",
        "reader": "readers/",
        "index": "batches/00000/index.json",
        "meta": "meta.json",
    }[which]
    path = next(each for each in stream.disk.files() if each.startswith(ending))
    assert _Refused not in stream.answers
    index = stream.disk.content("batches/00000/index.json")
    refused = tried = 0
    for what in harm(stream.disk, path):
        found = stream.ask()
        tried += 1
        refused += _Refused in found
        for have, want in zip(found, stream.answers, strict=True):
            assert have == want or have is _Refused, f"{path}, {what}"
        if which == "index":
            assert _Refused not in found, "it is made again"
        if which in ("index", "manifest"):
            # What cannot be read may hold any time, so the search may begin there.
            assert stream.find() in ((1,) if which == "index" else (0, 1)), f"{path}, {what}"
            stream.disk.overwrite("batches/00000/index.json", index)
    if which == "data":
        assert refused == tried, "every byte is verified"
    if which == "manifest":
        assert refused >= tried - HEADER.size, "all that is read is verified"
    assert stream.ask() == stream.answers, "undone"
