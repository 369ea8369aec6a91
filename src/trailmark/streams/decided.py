"""Decisions as files: one for each batch, published if absent, by one query alone.

Spark keeps the same in its own checkpoint, as the offset of a source. Here others find it: the
operators behind the source, and whoever looks at it. A decision is written when its batch is
planned, after Spark has logged it and before any task runs. So while a batch runs, the newest one
is its own, as long as nobody else plans batches in the same place: whoever begins to do so claims
it, and who had it before plans no more.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from trailmark.errors import DamagedSegment, OtherQuery
from trailmark.log import Storage
from trailmark.log.json_text import dump_guarded, load_guarded, read_text
from trailmark.log.names import LARGEST_BATCH
from trailmark.log.readers import CLAIMS, DECISIONS
from trailmark.records import NO_BATCH
from trailmark.values import dataclass

_FILE = re.compile(r"([0-9]{20})\.json", re.ASCII)
#: How many are kept. Only the newest is ever needed; the others are for those who look.
_KEPT = 64


class Numbered(Protocol):
    """What a batch is made of, and its place among the others of its query."""

    @property
    def number(self) -> int:
        """Its place; NO_BATCH before the first."""

    def to_json(self) -> dict[str, Any]:
        """As it is kept."""


D = TypeVar("D", bound=Numbered)


@dataclass(frozen=True)
class Kind(Generic[D]):
    """What is decided, and what is said where something is wrong.

    Parameters
    ----------
    from_json
        Makes a decision of what is kept; raises ``KeyError``, ``TypeError`` or ``ValueError``.
    nothing_yet
        Before the first decision.
    whose
        Whose decisions they are, behind "a decision of".
    taken, alone
        What has happened if two of them plan batches in the same place, and what to do.
    gone_on
        What to do if a query knows less than what is published.
    """

    from_json: Callable[[object], D]
    nothing_yet: D
    whose: str
    taken: str
    alone: str
    gone_on: str


class Decided(Generic[D]):
    """Decisions of one that plans batches, from where its query stands.

    Parameters
    ----------
    storage
        Where they are kept.
    start
        Where the query stands.
    planned
        What it has decided after that, if it knows already.

    Attributes
    ----------
    adopted
        What was decided after that and published, if anything: it stands. Spark may have lost it,
        if its checkpoint was on a disk that had lost power.
    """

    def __init__(self, storage: Storage, kind: Kind[D], start: D, planned: D | None = None) -> None:
        self._storage = storage
        self._kind = kind
        self._token = uuid.uuid4().hex
        self._found = newest_number(storage)
        self.adopted: D | None = None
        if self._found > start.number:
            before, decision = _read(storage, kind, self._found)
            # A query that knows of nothing is more likely another one than one that has lost it.
            is_known = planned is not None or start.number != NO_BATCH
            if before != start or not is_known:
                raise self._gone_on(start, self._found)
            self.adopted = decision
        self._claim = self._begin()

    def check(self) -> None:
        """Refuses to go on if another one has begun to plan batches in the same place, or all that
        was there is gone."""
        newest = max(_numbers(self._storage, CLAIMS), default=None)
        if newest != self._claim:
            raise OtherQuery(self._kind.taken, where=CLAIMS, fix=self._kind.alone)

    def publish(self, start: D, end: D) -> None:
        """Keep a decision and the one it follows."""
        self.check()
        body = {"after": start.to_json(), "by": self._token, "decision": end.to_json()}
        path = _path(DECISIONS, end.number)
        if not self._storage.publish(path, [dump_guarded(body, "decision")]):
            stored = load_guarded(read_text(self._storage, path))
            is_own = stored is not None and stored.get("by") == self._token
            is_found = end.number <= self._found
            known = _read(self._storage, self._kind, end.number)
            if not (is_own or is_found) or known != (start, end):
                raise self._gone_on(start, end.number)
        newest = newest_number(self._storage)
        if newest != end.number:
            raise self._gone_on(start, newest)
        if end.number % _KEPT == 0:
            _forget_before(self._storage, DECISIONS, end.number - _KEPT)

    def _begin(self) -> int:
        """The number of a claim that is newer than all others."""
        while True:
            number = max(_numbers(self._storage, CLAIMS), default=-1) + 1
            path = _path(CLAIMS, number)
            mine = dump_guarded({"by": self._token}, "claim")
            # An answer may be lost, and the claim be there all the same.
            if self._storage.publish(path, [mine]) or self._is_mine(path):
                _forget_before(self._storage, CLAIMS, number)
                return number

    def _is_mine(self, path: str) -> bool:
        try:
            stored = load_guarded(read_text(self._storage, path))
        except FileNotFoundError:
            return False
        return stored is not None and stored.get("by") == self._token

    def _gone_on(self, start: D, newest: int) -> OtherQuery:
        return OtherQuery(
            f"The {self._kind.whose} has gone on without this query, which knows of "
            f"{start.number + 1} batches: number {newest} was decided elsewhere.",
            where=DECISIONS,
            fix=self._kind.gone_on,
        )


def is_claimed(storage: Storage) -> bool:
    """Whether anybody plans batches here, or did until it was stopped."""
    return bool(_numbers(storage, CLAIMS))


def newest_of(storage: Storage, kind: Kind[D]) -> D:
    """The newest decision; what is before all if there is none."""
    while True:
        newest = newest_number(storage)
        if newest == NO_BATCH:
            return kind.nothing_yet
        try:
            return _read(storage, kind, newest)[1]
        except FileNotFoundError:
            continue  # so many have come since that it was removed


def newest_number(storage: Storage) -> int:
    """The number of the newest one, or NO_BATCH."""
    return max(_numbers(storage, DECISIONS), default=NO_BATCH)


def _numbers(storage: Storage, directory: str) -> list[int]:
    names = [_FILE.fullmatch(entry.name) for entry in storage.list(directory)]
    found = [int(match[1]) for match in names if match is not None]
    return [number for number in found if number <= LARGEST_BATCH]


def _read(storage: Storage, kind: Kind[D], number: int) -> tuple[D, D]:
    """A decision, behind the one it follows."""
    path = _path(DECISIONS, number)
    body = load_guarded(read_text(storage, path))
    try:
        if body is not None:
            found = kind.from_json(body["after"]), kind.from_json(body["decision"])
            if found[1].number == number:
                return found
    except (KeyError, TypeError, ValueError):
        pass  # whole, and not what was written
    raise DamagedSegment(
        f"The file holds no decision of a {kind.whose}.",
        where=path,
        fix="Delete the file, and start the query again: Spark's checkpoint has the decision, too.",
    )


def _forget_before(storage: Storage, directory: str, number: int) -> None:
    for each in _numbers(storage, directory):
        if each < number:
            storage.delete(_path(directory, each), synced=False)


def _path(directory: str, number: int) -> str:
    return f"{directory}/{number:020d}.json"
