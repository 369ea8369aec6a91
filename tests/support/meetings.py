"""Who meets whom over one storage, and what must hold afterwards: cases for `interleaving`.

A meeting is a function that prepares a disk and returns the actors and a judge of what they left.
Whatever the order of their calls: what an append or commit has returned is in the log with exactly
its rows, once, unless it lies before the trim mark; the log is whole; and nobody is told of an
error that is not theirs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest import mock

import pyarrow as pa

from tests.support.crashes import kept_short
from tests.support.engine_meetings import ENGINE_MEETINGS
from tests.support.executors import AtOnce
from tests.support.interleaving import Actor, Choice, Chooser, Outcome, Stage, random_chooser
from tests.support.logs import append, fill, open_log, rows_of
from tests.support.streams import often
from trailmark.errors import BatchGoesBackward, MissingSegment
from trailmark.log import LocalStorage, StreamLog, stream_log
from trailmark.records import NO_BATCH, START_OF_LOG, FrameKind, SegmentLink
from trailmark.streams.description import open_stream
from trailmark.streams.manifest import manifest_log, read_manifest
from trailmark.streams.retention import Retention, trim_stream
from trailmark.streams.times import Span
from trailmark.streams.verify import verify_stream
from trailmark.streams.view import StreamView, open_view
from trailmark.streams.writer import StreamWriter
from trailmark.testing.disk import SimulatedDisk

Judge = Callable[[dict[str, Outcome]], None]
Meeting = Callable[[SimulatedDisk], tuple[dict[str, Actor], Judge]]

SCHEMA = pa.schema([("writer", pa.string()), ("number", pa.int64())])

#: About so many calls meetings take, for choosers that spread their changes over them.
_CALLS = (60, 120, 240)


def _at_once(*_: object) -> AtOnce:
    return AtOnce()


@contextmanager
def in_one_thread() -> Iterator[None]:
    """What is done in the background is done at once: an actor is one thread."""
    with (
        mock.patch.object(stream_log, "ThreadPoolExecutor", side_effect=_at_once),
        often(),
        kept_short(),
    ):
        yield


def meet(meeting: Meeting, choose: Chooser) -> Sequence[Choice]:
    """One run of a meeting, judged."""
    disk = SimulatedDisk()
    with in_one_thread():
        actors, judge = meeting(disk)
        stage = Stage(disk, choose)
        judge(stage.run(actors))
    return stage.choices


def run_random_meeting(seed: int) -> None:
    """Some meeting in some order, from one seed."""
    rng = random.Random(seed)
    name = rng.choice(sorted(MEETINGS))
    try:
        meet(MEETINGS[name], random_chooser(rng, rng.choice(_CALLS)))
    except BaseException:
        print(f"TRAILMARK_SEED={seed} TRAILMARK_CASES=1 repeats it: {name}")
        raise


# Written streams.


def _rows(writer: str, number: int) -> list[tuple[str, int]]:
    return [(writer, number)] * 2


@dataclass
class _Stream:
    """A written stream, and what its writers say of it."""

    disk: SimulatedDisk
    before: int = 0
    committed: dict[int, tuple[str, int]] = field(default_factory=dict)
    expected: set[tuple[str, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.meta = open_stream(self.disk.storage(), SCHEMA)
        self.write("before", range(self.before))(self.disk.storage())

    def write(self, name: str, numbers: Sequence[int], retention: Retention | None = None) -> Actor:
        """Commits batches of a query; two with the same name commit each batch once."""
        self.expected.update((name, number) for number in numbers)

        def act(storage: LocalStorage) -> None:
            for number in numbers:
                writer = StreamWriter(storage, self.meta, retention=retention)
                rows = pa.RecordBatch.from_pylist(
                    [dict(zip(SCHEMA.names, row, strict=True)) for row in _rows(name, number)],
                    SCHEMA,
                )
                place = writer.commit(writer.write([rows]), name, number)
                if place != NO_BATCH:
                    assert place not in self.committed, "two commits of one place"
                    self.committed[place] = (name, number)

        return act

    def trim(self, batches: int) -> Actor:
        def act(storage: LocalStorage) -> None:
            log = manifest_log(storage, self.meta)
            trim_stream(storage, log, Retention(batches=batches), 0)

        return act

    def merge(self) -> Actor:
        def act(storage: LocalStorage) -> None:
            log = manifest_log(storage, self.meta)
            report = log.merge(log.newest() - 1)
            assert report.stopped_by is None

        return act

    def follow(self, rounds: int) -> Actor:
        """Reads what there is, and then what has come since, batch by batch."""

        def act(storage: LocalStorage) -> dict[int, list[tuple[str, int]]]:
            view = open_view(storage)
            found: dict[int, list[tuple[str, int]]] = {}
            at = 0
            for _ in range(rounds):
                end = view.end()
                while at < end:
                    try:
                        found[at] = _read_batch(view, at)
                    except MissingSegment:
                        assert view.oldest() > at, f"batch {at} is gone, and not trimmed"
                    at += 1
            return found

        return act

    def verify(self, rounds: int) -> Actor:
        def act(storage: LocalStorage) -> None:
            for _ in range(rounds):
                assert verify_stream(storage).findings == ()

        return act

    def judge(self, outcomes: dict[str, Outcome]) -> None:
        for name, outcome in outcomes.items():
            if name != "zombie" or not isinstance(outcome.raised, BatchGoesBackward):
                outcome.value()  # raises what went wrong
        storage = self.disk.storage()
        assert verify_stream(storage).findings == ()
        catalog = manifest_log(storage, self.meta).reader.look()
        held = catalog.batches()
        assert held == list(range(catalog.start, catalog.newest() + 1)), "no gap"
        self._judge_total(catalog.newest())
        assert set(held) <= set(self.committed), "nothing that nobody has committed"
        view = open_view(storage)
        rows = {batch: _read_batch(view, batch) for batch in held}
        for place, given in self.committed.items():
            if place >= catalog.start:
                assert rows.get(place) == _rows(*given), f"place {place}"
        for name in {name for name, _ in self.committed.values()}:
            order = [number for _, (who, number) in sorted(self.committed.items()) if who == name]
            assert order == sorted(set(order)), f"the batches of {name} in their order, once"
        for outcome in outcomes.values():
            for place, read in (outcome.returned or {}).items():
                assert read == _rows(*self.committed[place]), f"place {place} as it was read"

    def _judge_total(self, newest: int) -> None:
        """The newest manifest counts all rows since the beginning, trimmed ones as well."""
        manifest = read_manifest(manifest_log(self.disk.storage(), self.meta), newest)
        expected = sum(len(_rows(*given)) for given in self.expected)
        assert manifest.total_rows == expected, "every batch once"


def _read_batch(view: StreamView, batch: int) -> list[tuple[str, int]]:
    (found,) = view.batches(batch, batch + 1, Span())
    return [
        (row["writer"], row["number"])
        for chunk in found.chunks
        for part in view.read(chunk, SCHEMA.names, Span())
        for row in part.to_pylist()
    ]


def two_begin_a_stream(disk: SimulatedDisk) -> tuple[dict[str, Actor], Judge]:
    stream = _Stream(disk)
    actors = {name: stream.write(name, range(1)) for name in "ab"}
    return actors, stream.judge


def three_begin_a_stream(disk: SimulatedDisk) -> tuple[dict[str, Actor], Judge]:
    stream = _Stream(disk)
    actors = {name: stream.write(name, range(2)) for name in "abc"}
    return actors, stream.judge


def a_query_and_its_zombie(disk: SimulatedDisk) -> tuple[dict[str, Actor], Judge]:
    stream = _Stream(disk, before=2)
    zombie = stream.write("a", range(1))
    actors = {"zombie": zombie, "a": stream.write("a", range(2)), "b": stream.write("b", range(2))}
    return actors, stream.judge


def writers_and_a_trim(disk: SimulatedDisk) -> tuple[dict[str, Actor], Judge]:
    stream = _Stream(disk, before=2)
    actors = {
        "a": stream.write("a", range(2)),
        "b": stream.write("b", range(2), Retention(batches=1)),
        "trim": stream.trim(1),
    }
    return actors, stream.judge


def a_writer_a_trim_and_a_reader(disk: SimulatedDisk) -> tuple[dict[str, Actor], Judge]:
    stream = _Stream(disk, before=2)
    actors = {
        "a": stream.write("a", range(3)),
        "trim": stream.trim(2),
        "reader": stream.follow(3),
    }
    return actors, stream.judge


def two_merges_and_a_reader(disk: SimulatedDisk) -> tuple[dict[str, Actor], Judge]:
    stream = _Stream(disk, before=4)
    actors = {"one": stream.merge(), "other": stream.merge(), "reader": stream.follow(1)}
    return actors, stream.judge


def a_zombie_a_merge_and_a_reader(disk: SimulatedDisk) -> tuple[dict[str, Actor], Judge]:
    stream = _Stream(disk, before=2)

    def write_and_merge(storage: LocalStorage) -> None:
        stream.write("b", range(2))(storage)
        stream.merge()(storage)

    actors = {
        "zombie": stream.write("a", range(1)),
        "b": write_and_merge,
        "reader": stream.follow(2),
    }
    return actors, stream.judge


def a_trim_a_merge_and_a_check(disk: SimulatedDisk) -> tuple[dict[str, Actor], Judge]:
    stream = _Stream(disk, before=4)
    actors = {"trim": stream.trim(2), "merge": stream.merge(), "check": stream.verify(2)}
    return actors, stream.judge


# Logs as the engine writes them: several processes append the same batches.


@dataclass
class _Log:
    """A log, and the links that its writers were given."""

    disk: SimulatedDisk
    before: int = 0
    links: dict[int, set[SegmentLink]] = field(default_factory=dict)
    given: dict[SegmentLink, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for link in fill(open_log(self.disk.storage()), self.before):
            self.links[link.batch] = {link}
            self.given[link] = 3

    def append(self, last: int, count: int, most: int | None = None) -> Actor:
        """Appends batches with rows of its own; what others have appended it goes on from."""

        def act(storage: LocalStorage) -> None:
            log = open_log(storage)
            newest = log.newest()
            link = START_OF_LOG if newest == NO_BATCH else self._link(log, newest)
            for batch in range(newest + 1, last + 1 if most is None else newest + 1 + most):
                published = append(log, batch, link, count)
                link = published.link
                self.links.setdefault(batch, set()).add(link)
                if published.created:
                    self.given[link] = count

        return act

    def _link(self, log: StreamLog, batch: int) -> SegmentLink:
        _, checksum = log.read_footer(batch)
        return SegmentLink(batch, checksum)

    def trim(self, before: int) -> Actor:
        return lambda storage: open_log(storage).trim(before)

    def merge(self, up_to: int) -> Actor:
        def act(storage: LocalStorage) -> None:
            assert open_log(storage).merge(up_to).stopped_by is None

        return act

    def read(self) -> Actor:
        """Reads everything from the oldest batch on."""

        def act(storage: LocalStorage) -> None:
            log = open_log(storage)
            before = NO_BATCH
            try:
                for segment in log.read_from():
                    assert before in (NO_BATCH, segment.batch - 1), "no gap"
                    before = segment.batch
                    self.links.setdefault(segment.batch, set()).add(segment.link)
            except MissingSegment:
                assert log.oldest() > before + 1, "nothing is gone that was not trimmed"

        return act

    def judge(self, outcomes: dict[str, Outcome]) -> None:
        log = open_log(self.disk.storage())
        report = log.verify()
        assert report.is_whole, report.problems
        catalog = log.reader.look()
        for outcome in outcomes.values():
            if isinstance(outcome.raised, (BatchGoesBackward, MissingSegment)):
                assert catalog.start > 0, "nothing was trimmed"
            else:
                outcome.value()
        assert catalog.batches() == list(range(catalog.start, catalog.newest() + 1)), "no gap"
        assert set(catalog.batches()) >= {b for b in self.links if b >= catalog.start}
        for batch in catalog.batches():
            segment = log.read(batch)
            assert self.links[batch] == {segment.link}, f"everybody saw the same batch {batch}"
            assert segment.table(FrameKind.INPUT) == rows_of(batch, self.given[segment.link])


def two_begin_a_log(disk: SimulatedDisk) -> tuple[dict[str, Actor], Judge]:
    log = _Log(disk)
    return {"one": log.append(2, 4), "other": log.append(2, 5)}, log.judge


def a_zombie_of_the_first_batch(disk: SimulatedDisk) -> tuple[dict[str, Actor], Judge]:
    log = _Log(disk)
    actors = {
        "zombie": log.append(0, 4, most=1),
        "other": log.append(3, 5),
        "merge": log.merge(1),
    }
    return actors, log.judge


def a_zombie_where_a_trim_ends(disk: SimulatedDisk) -> tuple[dict[str, Actor], Judge]:
    log = _Log(disk, before=2)

    def append_and_trim(storage: LocalStorage) -> None:
        log.append(4, 5)(storage)
        log.trim(2)(storage)

    return {"zombie": log.append(2, 4, most=1), "other": append_and_trim}, log.judge


def two_writers_a_trim_and_a_merge(disk: SimulatedDisk) -> tuple[dict[str, Actor], Judge]:
    log = _Log(disk, before=2)
    actors = {
        "one": log.append(4, 4),
        "other": log.append(4, 5),
        "trim": log.trim(3),
        "merge": log.merge(3),
    }
    return actors, log.judge


def a_reader_beside_a_merge_and_a_trim(disk: SimulatedDisk) -> tuple[dict[str, Actor], Judge]:
    log = _Log(disk, before=4)
    actors = {"reader": log.read(), "merge": log.merge(2), "trim": log.trim(2)}
    return actors, log.judge


MEETINGS: dict[str, Meeting] = {
    meeting.__name__: meeting
    for meeting in (
        two_begin_a_stream,
        three_begin_a_stream,
        a_query_and_its_zombie,
        writers_and_a_trim,
        a_writer_a_trim_and_a_reader,
        two_merges_and_a_reader,
        a_zombie_a_merge_and_a_reader,
        a_trim_a_merge_and_a_check,
        two_begin_a_log,
        a_zombie_of_the_first_batch,
        a_zombie_where_a_trim_ends,
        two_writers_a_trim_and_a_merge,
        a_reader_beside_a_merge_and_a_trim,
    )
} | ENGINE_MEETINGS
