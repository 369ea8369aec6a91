"""A written stream on the simulated disk against a list of batches, through all that happens."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.compare import multiset
from tests.support.plain import batch_of, plain_rows
from tests.support.strategies import _key_type, _maker, _value_type
from tests.support.stream_oracle import PlainStream, Row
from tests.support.streams import SECOND, SetClock, often
from trailmark.errors import BatchGoesBackward, InputDiffers
from trailmark.log import OperatorMeta
from trailmark.log.readers import acknowledge, forget, register, registered
from trailmark.records import NO_BATCH, Stream
from trailmark.streams.description import open_stream
from trailmark.streams.files import DataFile
from trailmark.streams.manifest import manifest_log
from trailmark.streams.retention import Retention, left_over_files, trim_stream
from trailmark.streams.table import bounds
from trailmark.streams.times import Span
from trailmark.streams.view import StreamView, open_view
from trailmark.streams.writer import StreamWriter
from trailmark.testing.disk import Crashed, SimulatedDisk

_SEEDS = st.integers(0, 2**32 - 1)
_RETENTIONS = st.one_of(
    st.builds(Retention, batches=st.integers(0, 5)),
    st.builds(Retention, bytes=st.integers(0, 4000)),
    st.builds(Retention, duration_us=st.integers(0, 6).map(lambda n: n * SECOND)),
    st.builds(
        Retention,
        duration_us=st.none() | st.integers(0, 3).map(lambda n: n * SECOND),
        bytes=st.none() | st.integers(0, 2000),
        batches=st.none() | st.integers(0, 3),
    ),
)


class StreamAgainstList(RuleBasedStateMachine):
    """``plain`` is the list; ``numbers`` is what each query commits next."""

    @initialize(seed=_SEEDS)
    def start(self, seed: int) -> None:
        rng = random.Random(seed)
        self.clock = SetClock(0)
        self.disk = SimulatedDisk()
        keys = [f"k{place}" for place in range(rng.choice((0, 1, 2)))]
        kinds: dict[str, pa.DataType] = {name: _key_type(rng) for name in keys}
        kinds |= {f"c{place}": _value_type(rng) for place in range(rng.randint(1, 3))}
        self.makers = {name: _maker(rng, kind, name in keys) for name, kind in kinds.items()}
        self.time = rng.choice((None, "time"))
        zone = rng.choice((None, "UTC"))
        names = [*kinds, "time"]
        rng.shuffle(names)
        kinds["time"] = pa.timestamp("us", zone)
        self.makers["time"] = lambda rng: rng.choice((None, rng.randint(0, 20) * SECOND))
        self.schema = pa.schema([(name, kinds[name]) for name in names])
        self.meta: OperatorMeta = open_stream(
            self.disk.storage(),
            self.schema,
            time_column=self.time,
            keys=keys,
            buckets=rng.choice((1, 2, 5)) if keys else None,
        )
        self.plain = PlainStream(self.time)
        self.numbers = {"a": 0, "b": 0}
        #: The rows of the last batch of each query.
        self.last: dict[str, Counter[str]] = {}
        self.follower = open_view(self.disk.storage())
        self.followed = 0

    # Those who write.

    @rule(seed=_SEEDS, count=st.integers(1, 4), repeats=st.integers(0, 1))
    def commit(self, seed: int, count: int, repeats: int) -> None:
        rng = random.Random(seed)
        for _ in range(count):
            query = rng.choice(("a", "b", None))
            rows = self._rows(rng.randrange(2**32), rng.choice((0, 1, 1, 2, 3)))
            number = None if query is None else self.numbers[query]
            for _ in range(1 + (repeats if query is not None else 0)):
                self._commit(rows, query, number)
            if query is not None:
                self.numbers[query] += 1

    @precondition(lambda self: self.numbers["a"] > 0)
    @rule(seed=_SEEDS, back=st.integers(1, 5))
    def commit_an_old_batch_again(self, seed: int, back: int) -> None:
        """A query's newest number is in the stream with other rows, unless these are the same; and
        who asks for an older one has gone back."""
        number = self.numbers["a"] - back
        newest = max((n for query, n in self.plain.committed if query == "a"), default=NO_BATCH)
        if number > newest or number < 0:
            return
        rows = self._rows(seed, 1)
        files = self._writer().write(rows)
        if number == newest and _counted(rows) == self.last["a"]:
            assert self._writer().commit(files, "a", number) == NO_BATCH
        else:
            with pytest.raises(InputDiffers if number == newest else BatchGoesBackward):
                self._writer().commit(files, "a", number)
        assert not any(file.path in self.disk.files() for file in files)

    @rule(
        seed=_SEEDS,
        query=st.sampled_from(["a", "b"]),
        stop=st.integers(0, 25),
        power=st.booleans(),
    )
    def commit_is_stopped_and_repeated(self, seed: int, query: str, stop: int, power: bool) -> None:
        self.clock.now_us += SECOND
        rows = self._rows(seed, 2)
        number = self.numbers[query]
        self.disk.stop_after(stop)
        try:
            self._writer().commit(self._writer().write(rows), query, number)
        except Crashed:
            if power:
                self.disk.crash(random.Random(seed))
            else:
                self.disk.kill()
        self.disk.relax()
        files = self._writer().write(rows)
        self._writer().commit(files, query, number)
        self.numbers[query] += 1
        self._take(rows, files, (query, number))

    @rule(seed=_SEEDS)
    def job_fails_and_discards(self, seed: int) -> None:
        writer = self._writer()
        writer.discard(writer.write(self._rows(seed, 2)))

    # Those who tend it.

    @rule(retention=_RETENTIONS)
    def trim(self, retention: Retention) -> None:
        storage = self.disk.storage()
        needed = [each.needs for each in registered(storage)]
        keep = self.plain.oldest_kept(retention, needed, self.clock.now_us)
        log = manifest_log(storage, self.meta)
        trim_stream(storage, log, retention, self.clock.now_us)
        oldest = open_view(storage).oldest()
        if self.plain.batches:
            is_packed = any(path.endswith(".pack") for path in self.disk.files())
            least = max(keep, self._oldest())  # what earlier trims removed does not come back
            assert oldest <= least if is_packed else oldest == least
        self.plain.trim(oldest)

    @rule(up_to=st.integers(0, 12))
    def merge(self, up_to: int) -> None:
        manifest_log(self.disk.storage(), self.meta).merge(up_to)

    @rule()
    def clean(self) -> None:
        storage = self.disk.storage()
        log = manifest_log(storage, self.meta)
        for path in left_over_files(storage, self.meta, log, self.clock.now_us + 1):
            storage.delete(path)

    # Those who read.

    @rule(name=st.sampled_from(["r", "s"]), behind=st.integers(0, 5), is_gone=st.booleans())
    def reader_says(self, name: str, behind: int, is_gone: bool) -> None:
        storage = self.disk.storage()
        needs = max(0, self.plain.end - behind)
        register(storage, name, Stream.BATCHES, needs)
        acknowledge(storage, name, Stream.BATCHES, needs)
        if is_gone:
            forget(storage, name)

    @rule(seed=_SEEDS)
    def read(self, seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(8):
            first, last = _ordered(rng, -1, self.plain.end + 1)
            now_s = self.clock.now_us // SECOND
            first_s, last_s = _ordered(rng, -1, 21 if self.time else now_s + 1)
            first_us, last_us = (None if s is None else s * SECOND for s in (first_s, last_s))
            span = Span(first, last, first_us, last_us)
            self._compare(span, self.plain.read(first, last, first_us, last_us))

    @rule(at_s=st.integers(-3, 25))
    def find(self, at_s: int) -> None:
        found = open_view(self.disk.storage()).find(at_s * SECOND)
        assert found == self.plain.find(at_s * SECOND)

    @rule()
    def follow(self) -> None:
        """A view that stays open sees what there is now."""
        assert self.follower.end() == self.plain.end
        assert self.follower.oldest() == (self._oldest() if self.plain.batches else 0)
        first = max(self.followed, self.follower.oldest())
        numbers = [b.batch for b in self.follower.batches(first, self.plain.end, Span())]
        assert numbers == list(range(first, self.plain.end))
        self.followed = self.plain.end

    @rule(seed=_SEEDS, retention=_RETENTIONS)
    def follow_after_a_trim(self, seed: int, retention: Retention) -> None:
        self.follow()
        self.commit(seed, 4, 0)
        self.trim(retention)
        self.follow()

    @invariant()
    def the_stream_holds_what_the_list_holds(self) -> None:
        self._compare(Span(), self.plain.read())

    # How it is done.

    def _writer(self) -> StreamWriter:
        return StreamWriter(self.disk.storage(), self.meta, clock=self.clock)

    def _rows(self, seed: int, tasks: int) -> list[pa.RecordBatch]:
        rng = random.Random(seed)
        names = self.schema.names
        made = []
        for _ in range(tasks):
            count = rng.choice((0, 1, 3, 3, 12))
            rows = [tuple(self.makers[name](rng) for name in names) for _ in range(count)]
            made.append(batch_of(self.schema, rows, rng.choice((0, 0, 3))))
        return made

    def _commit(self, rows: list[pa.RecordBatch], query: str | None, number: int | None) -> None:
        self.clock.now_us += SECOND
        files = [file for task in rows for file in self._writer().write([task])]
        with often(trim=3, merge=6, unmerged=2):
            found = self._writer().commit(files, query, number)
        wanted = self._take(rows, files, None if query is None else (query, number or 0))
        assert found == wanted

    def _take(
        self, rows: list[pa.RecordBatch], files: list[DataFile], query: tuple[str, int] | None
    ) -> int:
        plain: list[Row] = [row for task in rows for row in plain_rows(task)]
        if query is not None and plain and query not in self.plain.committed:
            self.last[query[0]] = _counted(rows)
        size = sum(file.bytes for file in files)
        written_us = self.clock.now_us
        return self.plain.commit(plain, written_us, size, query)

    def _oldest(self) -> int:
        return self.plain.batches[0].number

    def _compare(self, span: Span, wanted: dict[int, list[Row]]) -> None:
        view = open_view(self.disk.storage())
        found: dict[int, list[Row]] = {}
        first, end = bounds(view, span)
        for batch in view.batches(first, end, span):
            rows = self._read(view, batch.chunks, span)
            if rows:
                found[batch.batch] = rows
        assert list(found) == list(wanted)
        names = self.schema.names
        for number, rows in wanted.items():
            assert multiset(found[number], names) == multiset(rows, names), f"batch {number}"

    def _read(self, view: StreamView, chunks: Any, span: Span) -> list[Row]:
        names = self.schema.names
        return [
            row
            for chunk in chunks
            for rows in view.read(chunk, names, span)
            for row in plain_rows(rows)
        ]


def _ordered(rng: random.Random, low: int, high: int) -> tuple[int | None, int | None]:
    """The ends of a range, each of them open now and then."""
    first, last = sorted((rng.randint(low, high), rng.randint(low, high)))
    return rng.choice((None, first, first)), rng.choice((None, last, last))


def _counted(rows: list[pa.RecordBatch]) -> Counter[str]:
    return Counter(repr(row) for task in rows for row in plain_rows(task))


StreamAgainstList.TestCase.settings = settings(
    max_examples=50,
    stateful_step_count=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestStreamAgainstList = StreamAgainstList.TestCase
