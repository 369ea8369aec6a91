"""The decisions of a union as files: one each, published if absent.

Spark keeps the same in its own checkpoint. Here others find it: operators behind the union, which
go by its boundary, and whoever looks at it. A decision is written when its batch is planned, after
Spark has logged it and before any task runs. So while a batch runs, the newest one is its own.
"""

from __future__ import annotations

import re

from trailmark.errors import DamagedSegment, OtherQuery
from trailmark.log import Storage
from trailmark.log.json_text import dump_guarded, load_guarded, read_text
from trailmark.log.names import LARGEST_BATCH
from trailmark.records import NO_BATCH
from trailmark.streams.union.decision import NOTHING_YET, Decision

_DIRECTORY = "decisions"
_FILE = re.compile(r"([0-9]{20})\.json", re.ASCII)
#: How many are kept. Only the newest is ever needed; the others are for those who look.
_KEPT = 64


def publish(storage: Storage, start: Decision, end: Decision) -> None:
    """Keep a decision and the one it follows; refused if the union has taken another one since."""
    body = {"after": start.to_json(), "decision": end.to_json()}
    if not storage.publish(_path(end.number), [dump_guarded(body, "decision")]):
        stored = _read(storage, end.number)
        if stored != (start, end):
            raise _other_query(storage, end.number)
    if newest_number(storage) != end.number:
        raise _other_query(storage, end.number)
    if end.number % _KEPT == 0:
        _forget_before(storage, end.number - _KEPT)


def decided_after(storage: Storage, start: Decision) -> Decision | None:
    """What was decided after a decision, if that was published already: it stands.

    Spark may have lost it, if its checkpoint was on a disk that had lost power.
    """
    newest = newest_number(storage)
    if newest <= start.number:
        return None
    if newest > start.number + 1:
        raise _other_query(storage, start.number + 1)
    before, decision = _read(storage, newest)
    if before != start:
        raise _other_query(storage, newest)
    return decision


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
    return max(_numbers(storage), default=NO_BATCH)


def _numbers(storage: Storage) -> list[int]:
    found = [_FILE.fullmatch(entry.name) for entry in storage.list(_DIRECTORY)]
    return [
        int(match[1]) for match in found if match is not None and int(match[1]) <= LARGEST_BATCH
    ]


def _read(storage: Storage, number: int) -> tuple[Decision, Decision]:
    """A decision, behind the one it follows."""
    path = _path(number)
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


def _forget_before(storage: Storage, number: int) -> None:
    for each in _numbers(storage):
        if each < number:
            storage.delete(_path(each), synced=False)


def _path(number: int) -> str:
    return f"{_DIRECTORY}/{number:020d}.json"


def _other_query(storage: Storage, number: int) -> OtherQuery:
    return OtherQuery(
        f"The union has gone on without this query: batch {number} was decided otherwise, and the "
        f"newest one is {newest_number(storage)}.",
        where=_DIRECTORY,
        fix="Give each query that runs a union a path of its own. If this is the same query and "
        "its Spark checkpoint was deleted or went back, restore the checkpoint or start with an "
        "empty path.",
    )
