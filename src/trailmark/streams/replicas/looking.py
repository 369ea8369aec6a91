"""The replicas of an operator, what each of them has, and which cannot be read."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

from trailmark import units
from trailmark.engine.tentative import Tentative
from trailmark.errors import (
    DamagedSegment,
    DataLoss,
    MissingSegment,
    OtherQuery,
    StorageError,
    TrailmarkError,
    UnknownFormat,
    Unreachable,
)
from trailmark.log import (
    Clock,
    MonotonicClock,
    Storage,
    monotonic_us,
    read_meta,
    wall_clock_us,
)
from trailmark.streams.asking import Asking, Hands, InThreads, Unreached
from trailmark.streams.replicas.numbered import NotThereYet, NumberedResults, check_alike
from trailmark.streams.replicas.positions import Position, results_at
from trailmark.values import dataclass

_log = logging.getLogger("trailmark")

#: What of a replica makes it one that cannot be read, while others can.
BROKEN = (DamagedSegment, MissingSegment, UnknownFormat, OtherQuery, StorageError)
#: How long the storage of a replica may take to answer before it is left out.
_PATIENCE_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Seen:
    """What a replica had when it was looked at.

    Parameters
    ----------
    log
        Which one it is: what is made anew at its path is another one.
    there
        Its batches.
    given
        What it had given with the last of them.
    complete_until
        The time up to which that is complete; None if it does not go by time.
    standing
        What was tentative then; None if nothing was.
    """

    log: str
    there: range
    given: Position
    complete_until: int | None = None
    standing: Tentative | None = None

    @property
    def results(self) -> int:
        """How many results it has given."""
        return results_at(self.given)

    @property
    def is_stable(self) -> bool:
        """Whether nothing was tentative."""
        return self.standing is None

    @property
    def tentative(self) -> range:
        """The batches whose tentative results stood, of those that are there."""
        if self.standing is None:
            return range(0)
        return range(max(self.standing.stands_from, self.there.start), self.there.stop)

    @property
    def answers_until(self) -> float:
        """The time up to which it has given anything, tentative or not."""
        found = self.complete_until if self.standing is None else self.standing.at
        return float("-inf") if found is None else found

    def up_to(self, target: Seen) -> Seen:
        """The same, but no more than the log had when it was looked at before."""
        assert self.log == target.log
        if self.there.stop <= target.there.stop:
            return self
        return replace(target, there=range(self.there.start, target.there.stop))


class Opened:
    """The replicas of an operator, by their paths.

    Parameters
    ----------
    storages
        Where the logs of each are.
    hands
        Who looks at them.
    now_us, clock
        A clock that never goes back, and the time of day.
    """

    def __init__(
        self,
        storages: Mapping[str, Storage],
        *,
        hands: Hands | None = None,
        now_us: MonotonicClock = monotonic_us,
        clock: Clock = wall_clock_us,
    ) -> None:
        self._storages = storages
        self._now_us = now_us
        self._asking = Asking(hands or InThreads(), _PATIENCE_US, now_us, clock, _TellOfReplicas())
        self._opened: dict[str, NumberedResults] = {}
        #: What was told of those that cannot be read, and of those that cannot be followed.
        self._broken: dict[str, str] = {}
        self._refused: dict[str, str] = {}

    def first(self) -> NumberedResults | None:
        """Any of them that can be read; None as long as nobody has begun to write one."""
        for path in self._storages:
            if path in self._opened:
                return self._opened[path]
        self.look()
        return next(iter(self._opened.values()), None)

    def look(self) -> dict[str, Seen]:
        """What those have that can be read. If none answers in time, they are waited for."""
        work = {path: partial(self._look, path) for path in self._storages}
        answers = self._asking.ask("look", work)
        if not answers:
            self._asking.insists = True
            try:
                answers = self._asking.ask("look", work)
            finally:
                self._asking.insists = False
        opened = list(self._opened.values())  # who answers late may add to them meanwhile
        for one, other in pairwise(opened):
            check_alike(one, other)
        return {path: seen for path, seen in answers.items() if seen is not None}

    def _look(self, path: str) -> Seen | None:
        try:
            replica = self._open(path)
            if replica is None:
                return None
            seen = _seen(replica)
        except Unreachable:
            raise
        except BROKEN as error:
            self._tell_of_broken(path, error, self._broken)
            return None
        self._broken.pop(path, None)
        return seen

    def _open(self, path: str) -> NumberedResults | None:
        if path in self._opened:
            return self._opened[path]
        storage = self._storages[path]
        if read_meta(storage) is None:
            return None
        found = NumberedResults(storage, path)
        self._opened[path] = found
        return found

    def _tell_of_broken(self, path: str, error: TrailmarkError, told: dict[str, str]) -> None:
        self._opened.pop(path, None)  # it may be made anew
        text = f"{error.what} ({error.where})"
        if told.get(path) != text:
            told[path] = text
            _log.warning("replicas: %s cannot be followed: %s", path, text)

    def _unreadable(self, problems: Sequence[TrailmarkError]) -> TrailmarkError:
        """The error to raise where none of them can be read."""
        told = "; ".join(f"{each.what.rstrip('.')} ({each.where})" for each in problems)
        what = f"No replica has the results that are asked for: {told or 'none can be read'}."
        is_lost = all(
            isinstance(each, MissingSegment) and not isinstance(each, NotThereYet)
            for each in problems
        )
        if is_lost and len(problems) == len(self._storages):
            return DataLoss(
                what,
                where=", ".join(self._storages),
                fix="Give the reader a name (option reader), for which they are kept.",
            )
        return StorageError(
            what,
            where=", ".join(self._storages),
            fix="Bring one of them back; the query goes on where it was.",
        )


class _TellOfReplicas:
    """Implements ``Told``."""

    def gone(self, name: str, unreached: Unreached) -> None:
        _log.warning("replicas: %s cannot be reached: %s.", name, unreached.why)

    def back(self, name: str, after_us: float) -> None:
        _log.warning("replicas: %s can be reached again, after %s.", name, units.duration(after_us))


def _seen(replica: NumberedResults) -> Seen:
    log, there = replica.log_id, replica.there()
    given = replica.position(there.stop, there)
    if not there:
        return Seen(log, there, given)
    end = replica.tentative.end(there[-1])
    return Seen(log, there, given, end.complete_until, end.standing)


def differs(path: str, bucket: int, number: int) -> OtherQuery:
    """The error to raise of a replica that has given others than were read."""
    return OtherQuery(
        f"Up to number {number}, bucket {bucket} has given other results than were read from "
        "another replica.",
        where=path,
        fix="trailmark compare says where they first differ. Make this one anew: with an empty "
        "path and checkpoint.",
    )
