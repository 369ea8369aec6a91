"""A union that answers without streams that are missing: what it may give out and when, one row at
a time, slow and obviously right; and such a union through a life in simulated time."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from tests.support.streams import SetClock, Written, batch_of, written
from tests.support.union import PlainIdleness, PlainInput, PlainUnion, UnionRow
from tests.support.unreachable import Hands, Line
from trailmark.log.readers import acknowledge, register
from trailmark.streams import promises
from trailmark.streams.asking import Unreached
from trailmark.streams.heartbeats import newest_heartbeats
from trailmark.streams.promises import has_ended
from trailmark.streams.retention import Retention
from trailmark.streams.union.ahead import Phase
from trailmark.streams.union.answering import Answering
from trailmark.streams.union.deciding import Deciding, tentative_range
from trailmark.streams.union.decision import NOTHING_YET, Decision
from trailmark.streams.union.inputs import UnionInput
from trailmark.streams.union.rows import Piece, read_stretch, stretches
from trailmark.streams.union.turns import Turns
from trailmark.streams.view import StreamView, open_view
from trailmark.streams.writer import StreamWriter
from trailmark.testing.disk import SimulatedDisk

SCHEMA = pa.schema([("time", pa.timestamp("us", "UTC")), ("value", pa.int64())])
#: How long it is from one look to the next.
LOOK = 50_000
_READER = "union"
#: As many parts as are told apart.
_MOST_PARTS = 64
#: More decisions than there could be before time goes on.
_MANY = 5_000


@dataclass
class Part:
    """What one decision gave out as tentative: the rows from a time to before another."""

    number: int
    first: int | None
    end: int


@dataclass
class PlainAnswers:
    """What a union may give out as tentative, what it must, and what of it stands.

    ``union.released`` is how far the union says that it has released stable rows, and ``until`` how
    far it has given out tentative ones; None if none of those stands. With ``is_thinned``, several
    parts may be replaced together.
    """

    union: PlainUnion
    answering: Answering | None
    idleness: PlainIdleness
    most_rows: int | None = None
    is_thinned: bool = False
    has_ended: bool = False
    until: int | None = None
    parts: list[Part] = field(default_factory=list)
    #: The end of a part that was replaced in part, and is void as a whole.
    gap: int | None = None
    began: set[int] = field(default_factory=set)
    #: Times and values of all rows, and when each was first seen.
    committed: list[tuple[int, int]] = field(default_factory=list)
    seen: dict[int, int] = field(default_factory=dict)
    #: The furthest boundary of any stream, and when it was seen there.
    reached: list[tuple[int, int]] = field(default_factory=list)
    #: How long the last batches took, when the one began that runs, and what has waited as long as
    #: it may: whatever was seen by then.
    took: list[int] = field(default_factory=list)
    runs_since: int | None = None
    ripe: float = float("-inf")
    #: Which stream a value is in, and the streams that cannot be reached now.
    places: dict[int, int] = field(default_factory=dict)
    away: set[int] = field(default_factory=set)
    #: The boundary of a stream, and the latest time in it, when it was last reached by a decision.
    stood: dict[int, tuple[int | None, int | None]] = field(default_factory=dict)
    #: What was released.
    given_out: set[int] = field(default_factory=set)
    #: Whether it is its turn to correct; None if it takes no turns.
    has_turn: Callable[[], bool] | None = None

    @property
    def boundaries(self) -> list[int | None]:
        """The slice that every stream has come to, or that the others have come to without it."""
        return self.own_boundaries if self.has_ended else self.idleness.lifted(self.own_boundaries)

    @property
    def idle(self) -> set[int]:
        """The streams that are not waited for. In the end they all are: nobody looks again."""
        return set() if self.has_ended else self.idleness.idle(self.own_boundaries)

    @property
    def own_boundaries(self) -> list[int | None]:
        """The slice that every stream has come to by itself."""
        interval = self.union.interval
        found = [self._boundary(place) for place in range(len(self.union.inputs))]
        return [None if each is None else each // interval * interval for each in found]

    def _boundary(self, place: int) -> int | None:
        """A stream that cannot be reached is complete up to where it was, if nothing is left there
        that would have to be read."""
        if place not in self.away:
            return self.union.inputs[place].boundary
        boundary, latest_row = self.stood.get(place, (None, None))
        if latest_row is None or is_less(latest_row, self.union.released):
            return boundary
        if boundary is None or self.union.released is None:
            return None
        return min(boundary, self.union.released)

    @property
    def complete(self) -> int | None:
        """The slice that all streams have come to; nothing more than is released while it waits."""
        return self.union.released if self.waits else self.all_complete

    @property
    def waits(self) -> bool:
        """Whether all streams are back, and it is not its turn to correct."""
        if self.has_turn is None or self.until is None or self.has_ended:
            return False
        return not is_less(self.all_complete, self.until) and not self.has_turn()

    @property
    def is_silent(self) -> bool:
        """Whether new rows wait until what was tentative is replaced."""
        return self.until is not None and self.choice == "suspend"

    @property
    def all_complete(self) -> int | None:
        """The slice that all streams have come to."""
        known = [each for each in self.boundaries if each is not None]
        return min(known) if len(known) == len(self.boundaries) else None

    def go_on(self, now: int) -> None:
        """Somebody asks for what comes next: the last batch, if any ran, is over."""
        if self.runs_since is not None:
            self.took = [*self.took, now - self.runs_since][-8:]
            self.runs_since = None
        if self.answering is not None or not self.away:
            self.idleness.go_on(self.own_boundaries)
        if self.answering is not None:
            self.ripe = max(self.ripe, now - self.wait)

    @property
    def wait(self) -> int:
        """How long something waits. A tenth of the bound is left for processing it; more, up to a
        quarter, where the longest of the last eight batches took more than two thirds of that. New
        rows that wait though others are tentative leave room for three such batches, up to half of
        the bound."""
        assert self.answering is not None
        within, longest = self.answering.within_us, max(self.took, default=0)
        if self.until is not None and self.choice == "delay":
            return int(within - min(max(within / 10, 3.2 * longest), within / 2))
        return int(within - min(max(2 * within, 30 * longest) / 20, within / 4))

    @property
    def grace(self) -> int:
        """How long the others are waited for, at least, when a stream is complete."""
        assert self.answering is not None
        return self.answering.within_us * 3 // 10

    @property
    def long(self) -> int:
        """What is longer need not be replaced as a whole."""
        within = 0 if self.answering is None else self.answering.within_us
        return max(2 * self.union.interval, within)

    @property
    def given(self) -> int | None:
        """Up to which time rows were given out, whether they stand or not."""
        return self.union.released if self.until is None else self.until

    def look(self, now: int) -> None:
        """All that is there is seen now, if it was not before."""
        self.idleness.look(now, self.away)
        for _, value in self.committed:
            if self.places[value] not in self.away:
                self.seen.setdefault(value, now)
        own = self.own_boundaries
        known = [each for each in own if each is not None and not has_ended(each)]
        # One that has ended is complete for all of its rows; beyond, it says nothing.
        over = [n for n, each in enumerate(own) if has_ended(each) and n not in self.away]
        known += [self._slice_end(time) for n in over for time, _ in self.union.inputs[n].in_time]
        if known:
            self.reached.append((max(known), now))

    def restart(self, answering: Answering | None) -> None:
        """Whoever looks from now on has not seen anything yet."""
        self.answering, self.has_ended = answering, False
        self.idleness = PlainIdleness(self.union.inputs, self.idleness.after)
        self.seen, self.reached = {}, []
        self.took, self.runs_since, self.ripe = [], None, float("-inf")

    def must(self) -> int | None:
        """The end of what has to be given out: some stream has been complete up to it so long."""
        return max((time for time, seen in self.reached if seen <= self.ripe), default=None)

    def may(self, now: int) -> int | None:
        """The end of what may be given out: also if it is only rows that have waited so long, and a
        stream came to the end of their slice a while ago."""
        ripe = self.ripe
        ends = {
            self._slice_end(time)
            for time, value in self.committed
            if self.seen.get(value, now) <= ripe
        }
        furthest = [time for time, seen in self.reached if seen <= now - self.grace]
        waited = [end for end in ends if furthest and end <= max(furthest)]
        return latest(self.must(), *waited)

    def wanted(self, due: int | None) -> int | None:
        """The end of what is given out now, if what is before ``due`` has waited for too long."""
        if self.until is None:
            return due if is_less(self.complete, due) else None
        if self.choice == "suspend":
            return self.until
        waited_for = [each for n, each in enumerate(self.boundaries) if n not in self.idle]
        going_on = [each for each in waited_for if not has_ended(each)]
        passed = [each for each in going_on if each is not None and each >= self.until]
        at_once = min(passed) if passed and self.choice == "process" else None
        return latest(self.until, due, at_once)

    @property
    def choice(self) -> str:
        """What becomes of new rows, as long as there are tentative ones."""
        if self.answering is None or self.has_ended:
            return "suspend"
        is_back = self.until is not None and not is_less(self.complete, self.until)
        return self.answering.on_correction if is_back else self.answering.on_failure

    def decided(
        self, before: Decision, after: Decision, tentative: Sequence[UnionRow], now: int, clock: int
    ) -> None:
        """The union has decided something: it must be right."""
        assert after.number == before.number + 1
        self.go_on(now)
        assert set(after.unreachable) == {str(place) for place in self.away}
        assert set(after.idle) == {str(place) for place in self.idle}
        assert not self.away or self.answering is not None, "it waits for all"
        assert after.waits_for_turn == self.waits
        low = high = None
        if self.answering is not None and not self.has_ended:
            low, high = self.must(), self.may(now)
        self._check_released(after)
        self._check_until(after, self.wanted(low), self.wanted(high))
        first, end = tentative_range(before, after)
        assert (end is None) == (after.ahead is None)
        if end is not None and is_less(first, end):
            assert first == latest(self.until, after.released_us)
            given = self.rows_between(first, end)
            assert list(tentative) == [row for row in given if row[1] not in self.away]
            self.parts.append(Part(after.number, first, end))
            self.began.add(clock)
        else:
            assert not tentative
        self.union.released = after.released_us
        self.until = None if after.ahead is None else after.ahead.until_us
        for place, each in enumerate(self.union.inputs):
            if place not in self.away:
                self.stood[place] = (each.boundary, each.latest)
        self._check_parts(after)
        self.runs_since = now

    def _check_released(self, after: Decision) -> None:
        old, new, complete = self.union.released, after.released_us, self.complete
        if new != old:
            assert is_less(old, new)
            assert new is not None
            assert not is_less(complete, new)
            assert new % self.union.interval == 0
        is_back = self.until is None or not is_less(complete, self.until)
        # What is left of a part that is void already need not be replaced as a whole.
        is_void = is_less(old, self.gap)
        ends = [*([self.gap] if is_void else []), *(each.end for each in self.parts)]
        end = self.until if self.is_thinned or not ends else ends[0]
        is_free = is_void or end is None or old is None or end - old > self.long
        if new != old and is_less(new, self.until) and new not in ends:
            assert is_free, "a part is replaced as a whole"
        if self.most_rows is None and is_back:
            assert new == latest(old, complete)
        elif self.most_rows is None and not self.is_thinned:
            reached = [each for each in ends if not is_less(complete, each)]
            assert new == latest(old, *(reached or [complete if is_free else None]))

    def _check_until(self, after: Decision, low: int | None, high: int | None) -> None:
        end = None if after.ahead is None else after.ahead.until_us
        if end is not None:
            assert is_less(after.released_us, end)
            assert self.until is None or end >= self.until
            assert end % self.union.interval == 0
            assert not is_less(latest(self.until, high), end), "it was too early"
            if self.until is None:
                assert after.released_us == latest(self.union.released, self.complete)
        if self.most_rows is None:
            assert not is_less(latest(end, after.released_us), low), "it has waited for too long"
        if is_less(self.given, low):
            assert is_less(self.given, latest(end, after.released_us)), "it has waited for nothing"

    def _check_parts(self, after: Decision) -> None:
        """Those that stand are all that was given out beyond what is released."""
        ahead, released = after.ahead, after.released_us
        if ahead is None:
            assert after.phase is Phase.STABLE
            self.parts, self.began, self.gap = [], set(), None
            return
        is_missing = is_less(self.complete, ahead.until_us)
        assert after.phase is (Phase.UP_FAILURE if is_missing else Phase.STABILIZATION)
        if self.has_turn is not None and not self.has_ended and not is_missing:
            assert after.turn is not None
            assert after.turn.is_own
        behind = [
            n
            for n, each in enumerate(self.boundaries)
            if is_less(each, ahead.until_us) and n not in self.idle
        ]
        assert ahead.missing == tuple(str(n) for n in behind)
        assert ahead.began_us in self.began
        self.is_thinned = self.is_thinned or len(self.parts) >= _MOST_PARTS
        standing = [each for each in self.parts if each.number >= ahead.since]
        void = [each for each in self.parts if each.number < ahead.since]
        cut = [each for each in void if is_less(released, each.end)]
        if cut and not self.is_thinned:
            assert len(cut) == 1
            assert is_less(cut[0].first, released), "what is not replaced at all stands"
        self.gap = latest(self.gap, *(each.end for each in cut))
        end = latest(released, self.gap)
        for each in standing:
            assert each.first == end
            end = each.end
        assert end == ahead.until_us
        self.parts = standing

    def settled(self, now: int) -> None:
        """Nothing more is given out now: nothing is left that would have to be."""
        self.go_on(now)
        if self.answering is None and self.away:
            return
        if self.until is None or not is_less(self.complete, self.until):
            assert self.until is None, "all streams are back"
            assert self.union.released == latest(self.union.released, self.complete)
        if self.answering is None or self.has_ended:
            return
        for row in self.rows_between(self.given, None):
            if row[1] in self.away or row[2] not in self.seen:
                continue
            passed = [seen for time, seen in self.reached if time >= self._slice_end(row[0])]
            assert not passed or max(min(passed), self.seen[row[2]]) > self.ripe, row

    def rows_between(self, first: int | None, end: int | None) -> list[UnionRow]:
        """Rows that are in time, in order."""
        found = [
            (time, place, value)
            for place, each in enumerate(self.union.inputs)
            for time, value in each.in_time
            if (first is None or time >= first) and (end is None or time < end)
        ]
        return sorted(found, key=lambda row: row[:2])  # and those of an input as they came

    def _slice_end(self, time: int) -> int:
        return time // self.union.interval * self.union.interval + self.union.interval


def is_less(one: int | None, other: int | None) -> bool:
    """None is before all times."""
    return other is not None and (one is None or one < other)


def latest(*times: int | None) -> int | None:
    """The last of some times; None if there is none."""
    return max((each for each in times if each is not None), default=None)


@dataclass
class Source:
    """A stream, and the same in plain Python; ``delays`` are those of its writers, None of one that
    promises nothing."""

    stream: Written
    line: Line
    plain: PlainInput
    delays: dict[str, int | None]
    numbers: dict[str, int] = field(default_factory=dict)
    seen: StreamView | None = None

    def view(self) -> StreamView:
        """The stream as tasks of the union read it: only what the line lets through."""
        if self.seen is None:
            self.seen = open_view(self.line.storage())
        return self.seen

    def writer(self, name: str) -> StreamWriter:
        to, delay = self.stream, self.delays[name]
        return StreamWriter(
            to.storage, to.meta, retention=to.retention, clock=to.clock, delay_us=delay
        )


class Given(NamedTuple):
    """A tentative row, and when it was given out."""

    moment: int
    phase: Phase
    time: int
    place: int
    value: int


class Life:
    """A union of streams in simulated time, each decision of which is checked.

    Parameters
    ----------
    delays
        Of the writers of every stream; None of one that promises nothing.
    decisions_per_look
        How many there are before time goes on; None goes on when there are none left.
    turns, has_turn
        Makes those that a process of this union takes with its replicas; and whether it has one.
    """

    def __init__(
        self,
        delays: Sequence[dict[str, int | None]],
        interval: int,
        answering: Answering | None,
        *,
        most_rows: int | None = None,
        delay: int = 0,
        decisions_per_look: int | None = None,
        is_thinned: bool = False,
        trims: bool = False,
        idle_after: int | None = None,
        turns: Callable[[], Turns] | None = None,
        has_turn: Callable[[], bool] | None = None,
    ) -> None:
        self.now, self.clock = 1_000 * LOOK, SetClock()
        retention = Retention(None, None, 1) if trims else None
        self.sources = []
        for each in delays:
            line = Line(SimulatedDisk())
            storage = line.disk.storage()
            stream = written(storage, SCHEMA, time_column="time", retention=retention)
            if trims:
                register(stream.storage, _READER, stream.log().identity.stream, 0)
            self.sources.append(Source(stream, line, PlainInput(delay), each))
        plain = PlainUnion([each.plain for each in self.sources], interval)
        idleness = PlainIdleness(plain.inputs, idle_after)
        self.oracle = PlainAnswers(
            plain, answering, idleness, most_rows, is_thinned, has_turn=has_turn
        )
        self._turns = turns
        self.decision = NOTHING_YET
        self.stable: list[UnionRow] = []
        self.tentative: list[Given] = []  # ever
        self.phases: list[Phase] = [Phase.STABLE]
        self._decisions_per_look, self._trims, self._delay = decisions_per_look, trims, delay
        self._last: tuple[Decision, list[list[UnionRow]]] = (NOTHING_YET, [[], []])
        self._value = 0
        self.restart(answering)

    def commit(self, place: int, times: Sequence[int], writer: str = "w0") -> None:
        """A batch with rows of these times."""
        source, rows = self.sources[place], []
        for time in times:
            self._value += 1
            rows.append((time, self._value))
        source.stream.clock.now_us += 1
        source.numbers[writer] = number = source.numbers.get(writer, -1) + 1
        into = source.writer(writer)
        into.commit(into.write([batch_of(rows, SCHEMA)], writer), writer, number)
        source.plain.commit(writer, rows, source.delays[writer], self.decision.released_us)
        self.oracle.committed += rows
        self.oracle.places |= {value: place for _, value in rows}

    def heartbeat(self, place: int, asked: int, writer: str = "w0") -> None:
        """A writer has nothing more that is older."""
        source = self.sources[place]
        delay = source.delays[writer]
        assert delay is not None
        source.writer(writer).send_heartbeat(writer, asked)
        source.plain.promises.heartbeat(writer, asked, delay)

    def let_go(self, place: int, writer: str) -> None:
        """Nobody waits for a writer any more."""
        source, storage = self.sources[place], self.sources[place].stream.storage
        promises.let_go(storage, writer, 0, newest_heartbeats(storage).get(writer))
        source.plain.promises.let_go(writer)

    def cut(self, place: int, fails_with: int | None = errno.EHOSTUNREACH) -> None:
        """A stream does not answer any more; without a code, it does not say so either."""
        if self.oracle.answering is None and fails_with is None:
            fails_with = errno.ETIMEDOUT  # who waits for all would hang with it
        self.sources[place].line.cut(fails_with)
        self.oracle.away.add(place)

    def mend(self, place: int) -> None:
        """It can be reached again. What came behind what is released by now is late."""
        source, released = self.sources[place], self.decision.released_us
        source.line.mend()
        self.oracle.away.discard(place)
        unseen = [
            (time, value)
            for time, value in source.plain.in_time
            if value not in self.oracle.given_out and is_less(time, released)
        ]
        for each in unseen:
            source.plain.in_time.remove(each)
            source.plain.late_rows += 1

    @property
    def unreachable(self) -> Mapping[str, Unreached]:
        """What the union says of streams that it cannot reach."""
        return self._deciding.looking.unreachable

    def restart(self, answering: Answering | None) -> None:
        """Another process goes on."""
        inputs = [
            UnionInput(str(place), "/somewhere", each.line.storage(), self._delay)
            for place, each in enumerate(self.sources)
        ]
        interval, most_rows = self.oracle.union.interval, self.oracle.most_rows
        self._hands = Hands()
        self._deciding = Deciding(
            inputs,
            interval,
            most_rows,
            answering,
            idle_after_us=self.oracle.idleness.after,
            now_us=lambda: self.now,
            clock=self.clock,
            hands=None if answering is None else self._hands,
            turns=None if self._turns is None else self._turns(),
        )
        self.oracle.restart(answering)
        for place in self.oracle.away:
            self.cut(place, self.sources[place].line.fails_with)

    def end(self) -> None:
        """The union goes on with what is there, and ends; another process would go on."""
        self.end_with_next_look()
        self._look(None)
        self.restart(self.oracle.answering)

    def end_with_next_look(self) -> None:
        """What comes later is not for the union that runs."""
        self._deciding.end_with_next_look()
        self.oracle.has_ended = True

    def look(self) -> None:
        """Time goes on, and the union looks."""
        self.now += LOOK
        self.clock.now_us += LOOK
        self._look(self._decisions_per_look)

    def _look(self, decisions: int | None) -> None:
        self._hands.go_on()
        self.oracle.look(self.now)
        for _ in range(_MANY if decisions is None else decisions):
            found = self._deciding.next(self.decision)
            if found == self.decision:
                self.oracle.settled(self.now)
                return
            self._decided(found)
        assert decisions is not None, "it never comes to an end"

    def _decided(self, found: Decision) -> None:
        before, self.decision = self.decision, found
        assert Decision.from_json(json.loads(json.dumps(found.to_json()))) == found
        old = self.oracle.union.released
        stable, tentative = self._read(before)
        self._last = before, [stable, tentative]
        if found.released_us is not None:
            assert stable == self.oracle.rows_between(old, found.released_us)
        self.oracle.decided(before, found, tentative, self.now, self.clock.now_us)
        self.stable += stable
        self.oracle.given_out |= {value for *_, value in stable}
        self.tentative += [Given(self.now, found.phase, *row) for row in tentative]
        self.phases += [found.phase] if found.phase is not self.phases[-1] else []
        for place, each in enumerate(self.sources if self._trims else []):
            if before is not NOTHING_YET and str(place) in before.inputs:
                first = before.inputs[str(place)].needs
                acknowledge(each.stream.storage, _READER, each.stream.log().identity.stream, first)

    def read_again(self) -> None:
        """The last batch once more, whatever has come since: the same rows."""
        before, rows = self._last
        if before != self.decision:
            assert self._read(before) == rows

    def _read(self, before: Decision) -> list[list[UnionRow]]:
        """Stable rows and tentative ones."""
        after = self.decision
        pieces = self._deciding.pieces(before, after)
        tentative = self._deciding.tentative_pieces(before, after)
        return [
            self._rows(pieces, before.released_us, after.released_us),
            self._rows(tentative, *tentative_range(before, after)),
        ]

    def _rows(self, pieces: Sequence[Piece], first: int | None, end: int | None) -> list[UnionRow]:
        found: list[UnionRow] = []
        for stretch in [] if end is None else stretches(pieces, first, end, 2_000):
            views = {place: self.sources[place].view() for place in stretch.places}
            table = read_stretch(stretch, views, SCHEMA.names, "time", _with_place)
            if table is not None:
                times = table["time"].cast(pa.int64()).to_pylist()
                values = table["value"].to_pylist()
                found += zip(times, table["place"].to_pylist(), values, strict=True)
        return found


def _with_place(rows: pa.RecordBatch, place: int) -> pa.RecordBatch:
    return rows.append_column("place", pa.array([place] * rows.num_rows, pa.int64()))
