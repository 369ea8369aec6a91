"""The decisions of a union as files: one each, published if absent.

Spark keeps the same in its own checkpoint. Here others find it: operators behind the union, which
go by its boundary, and whoever looks at it. A decision is written when its batch is planned, after
Spark has logged it and before any task runs. So while a batch runs, the newest one is its own, as
long as nobody else plans batches of the union: whoever begins to do so claims it, and who had it
before plans no more.
"""

from __future__ import annotations

import re
import uuid

from trailmark.errors import DamagedSegment, OtherQuery
from trailmark.log import Storage
from trailmark.log.json_text import dump_guarded, load_guarded, read_text
from trailmark.log.names import LARGEST_BATCH
from trailmark.records import NO_BATCH
from trailmark.streams.union.decision import NOTHING_YET, Decision

_DECISIONS, _CLAIMS = "decisions", "claims"
_FILE = re.compile(r"([0-9]{20})\.json", re.ASCII)
#: How many are kept. Only the newest is ever needed; the others are for those who look.
_KEPT = 64


class Decisions:
    """Those of one that plans the batches of a union, from where its query stands.

    Parameters
    ----------
    storage
        The files of the union.
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

    def __init__(self, storage: Storage, start: Decision, planned: Decision | None = None) -> None:
        self._storage = storage
        self._token = uuid.uuid4().hex
        self._found = newest_number(storage)
        self.adopted: Decision | None = None
        if self._found > start.number:
            before, decision = _read(storage, self._found)
            # A query that knows of nothing is more likely another one than one that has lost it.
            is_known = planned is not None or start != NOTHING_YET
            if before != start or not is_known:
                raise _gone_on(start, self._found)
            self.adopted = decision
        self._claim = self._begin()

    def check(self) -> None:
        """Refuses to go on if another one has begun to plan batches of the union."""
        newest = max(_numbers(self._storage, _CLAIMS), default=self._claim)
        if newest != self._claim:
            raise OtherQuery(
                "Another query, or another part of this one, has begun to run the same union.",
                where=_CLAIMS,
                fix="Give each query that runs a union a path of its own. One that uses a union "
                "twice, to join it with itself for example, needs two of them with two paths.",
            )

    def publish(self, start: Decision, end: Decision) -> None:
        """Keep a decision and the one it follows."""
        self.check()
        body = {"after": start.to_json(), "by": self._token, "decision": end.to_json()}
        path = _path(_DECISIONS, end.number)
        if not self._storage.publish(path, [dump_guarded(body, "decision")]):
            stored = load_guarded(read_text(self._storage, path))
            is_own = stored is not None and stored.get("by") == self._token
            is_found = end.number <= self._found
            if not (is_own or is_found) or _read(self._storage, end.number) != (start, end):
                raise _gone_on(start, end.number)
        newest = newest_number(self._storage)
        if newest != end.number:
            raise _gone_on(start, newest)
        if end.number % _KEPT == 0:
            _forget_before(self._storage, _DECISIONS, end.number - _KEPT)

    def _begin(self) -> int:
        """The number of a claim that is newer than all others."""
        while True:
            number = max(_numbers(self._storage, _CLAIMS), default=-1) + 1
            path = _path(_CLAIMS, number)
            mine = dump_guarded({"by": self._token}, "claim")
            # An answer may be lost, and the claim be there all the same.
            if self._storage.publish(path, [mine]) or self._is_mine(path):
                _forget_before(self._storage, _CLAIMS, number)
                return number

    def _is_mine(self, path: str) -> bool:
        try:
            stored = load_guarded(read_text(self._storage, path))
        except FileNotFoundError:
            return False
        return stored is not None and stored.get("by") == self._token


def newest_decision(storage: Storage) -> Decision:
    """The newest one; `NOTHING_YET` if there is none."""
    while True:
        newest = newest_number(storage)
        if newest == NO_BATCH:
            return NOTHING_YET
        try:
            return _read(storage, newest)[1]
        except FileNotFoundError:
            continue  # so many have come since that it was removed


def newest_number(storage: Storage) -> int:
    """The number of the newest one, or NO_BATCH."""
    return max(_numbers(storage, _DECISIONS), default=NO_BATCH)


def _numbers(storage: Storage, directory: str) -> list[int]:
    names = [_FILE.fullmatch(entry.name) for entry in storage.list(directory)]
    found = [int(match[1]) for match in names if match is not None]
    return [number for number in found if number <= LARGEST_BATCH]


def _read(storage: Storage, number: int) -> tuple[Decision, Decision]:
    """A decision, behind the one it follows."""
    path = _path(_DECISIONS, number)
    body = load_guarded(read_text(storage, path))
    try:
        if body is not None:
            found = Decision.from_json(body["after"]), Decision.from_json(body["decision"])
            if found[1].number == number:
                return found
    except (KeyError, TypeError, ValueError):
        pass  # whole, and not what was written
    raise DamagedSegment(
        "The file holds no decision of a union.",
        where=path,
        fix="Delete the file, and start the query again: Spark's checkpoint has the decision, too.",
    )


def _forget_before(storage: Storage, directory: str, number: int) -> None:
    for each in _numbers(storage, directory):
        if each < number:
            storage.delete(_path(directory, each), synced=False)


def _path(directory: str, number: int) -> str:
    return f"{directory}/{number:020d}.json"


def _gone_on(start: Decision, newest: int) -> OtherQuery:
    return OtherQuery(
        f"The union has gone on without this query, which knows of {start.number + 1} batches: "
        f"number {newest} was decided elsewhere.",
        where=_DECISIONS,
        fix="Give each query that runs a union a path of its own. If this is the same query and "
        "its Spark checkpoint was deleted or went back, restore the checkpoint or start with an "
        "empty path.",
    )
