"""What a query gets of the tentative results of an operator of another query, and what of it still
stands.

A batch of the query may cover several batches of the operator. Its tentative rows are a *part*,
which is void as a whole: the operators behind it know no less. So what stands of a part, once the
operator says that some of it does not, is given out again, with all tentative rows that came later,
for they are in order then. All this is decided when the batch is planned, once, and kept in Spark's
offset and beside the operator's logs, as a union keeps what it has decided.
"""

from __future__ import annotations

from typing import Any

from trailmark.engine.tentative import STABLE, Tentative, Upstream
from trailmark.errors import OtherQuery
from trailmark.log import Storage
from trailmark.log.json_text import object_of, text_of, whole
from trailmark.log.names import LARGEST_BATCH
from trailmark.log.readers import following_directory
from trailmark.records import NO_BATCH
from trailmark.streams.decided import Decided, Kind, is_claimed, newest_of
from trailmark.values import dataclass

#: Parts that are told apart. Others are void together with the one before them.
_MOST_PARTS = 64


@dataclass(frozen=True, slots=True)
class Part:
    """The tentative rows that a decision has given out: those of the batches of the operator from
    ``first`` on, up to the next part."""

    number: int
    first: int


@dataclass(frozen=True, slots=True)
class Followed:
    """How far a query has come with the answers of an operator.

    Parameters
    ----------
    number
        Its place among the decisions of the query.
    log
        Which operator it is: another one in the same place has another number.
    begun
        The batch of the operator that the query began with.
    batch
        Batches before this one have been read.
    phase
        What the unions behind the operator were doing.
    parts
        What was given out and still stands, in order.
    """

    number: int = NO_BATCH
    log: str = ""
    begun: int = 0
    batch: int = 0
    phase: str = STABLE
    parts: tuple[Part, ...] = ()

    @property
    def tentative_from(self) -> int:
        """The first batch whose tentative rows this decision has given out; ``batch`` if none."""
        if self.parts and self.parts[-1].number == self.number:
            return self.parts[-1].first
        return self.batch

    def before_first(self) -> Followed:
        """Where the query began."""
        return Followed(NO_BATCH, self.log, self.begun, self.begun)

    def upstream(self) -> Upstream:
        """As operators behind it see it."""
        since = self.parts[0].number if self.parts else None
        return Upstream(self.number, since, self.phase)

    def next(self, log: str, first: int, end: int, standing: Tentative | None) -> Followed:
        """The decision that reads from one batch of the operator to before another, at whose end so
        much stands."""
        is_same = self.number != NO_BATCH and self.log == log
        number, begun = self.number + 1, self.begun if is_same else first
        if standing is None:
            return Followed(number, log, begun, end)
        stands_from = max(standing.stands_from, begun)
        parts = self.parts if is_same else ()
        kept = tuple(part for part in parts if part.first >= stands_from)
        given = kept[0].first if kept else self.batch
        if parts and stands_from < given:
            kept, first = (), stands_from
        new = Part(number, max(first, stands_from))
        return Followed(number, log, begun, end, standing.phase, _fewer((*kept, new)))

    def to_json(self) -> dict[str, Any]:
        """As it is kept: an offset of Spark's."""
        return {
            "batch": self.batch,
            "begun": self.begun,
            "log": self.log,
            "number": self.number,
            "parts": [[part.number, part.first] for part in self.parts],
            "phase": self.phase,
        }

    @classmethod
    def from_json(cls, stored: object) -> Followed:
        """From what is kept; raises ``KeyError``, ``TypeError`` or ``ValueError``. A reader that
        does not know yet what is there has a batch and nothing else."""
        body = object_of(stored)
        batch, log = whole(body["batch"], 0, LARGEST_BATCH + 1), text_of(body["log"])
        if "number" not in body:
            return cls(NO_BATCH, log, batch, batch)
        parts = body["parts"]
        if not isinstance(parts, list) or len(parts) > _MOST_PARTS:
            raise ValueError("no parts")
        return cls(
            whole(body["number"], NO_BATCH, LARGEST_BATCH),
            log,
            whole(body["begun"], 0, LARGEST_BATCH + 1),
            batch,
            text_of(body["phase"]),
            tuple(map(_part, parts)),
        )


_KIND = Kind(
    from_json=Followed.from_json,
    nothing_yet=Followed(),
    whose="reader",
    taken="Another query, or another part of this one, has begun to read an operator's answers "
    "under the same name, or the reader was forgotten.",
    alone="Give each query that reads them a name of its own (option reader). One that reads them "
    "twice needs two names, or one DataFrame that it uses in both places.",
    gone_on="Give each query that reads an operator's answers a name of its own (option reader). "
    "If this is the same query and its Spark checkpoint was deleted or went back, restore the "
    "checkpoint, or forget the reader: trailmark readers PATH --forget NAME.",
)


class FollowedDecisions(Decided[Followed]):
    """Those of the query that reads under a name."""

    def __init__(self, storage: Storage, start: Followed, planned: Followed | None = None) -> None:
        super().__init__(storage, _KIND, start, planned)


def newest_followed(storage: Storage) -> Followed:
    """The newest decision of the query whose files these are."""
    return newest_of(storage, _KIND)


def upstream_of(storage: Storage, reader: str) -> Upstream:
    """The newest decision of the query that reads under a name, as operators behind it see it while
    a batch runs. Its source has claimed the place by then."""
    found = newest_followed(storage)
    if found.number == NO_BATCH and not is_claimed(storage):
        raise OtherQuery(
            f"The reader {reader!r} was forgotten while its query ran, and what was decided for "
            "the batch is gone.",
            where="reader",
            fix="Start the query again: it decides the same. To begin with another checkpoint, "
            "stop the query before its reader is forgotten.",
        )
    return found.upstream()


def following_path(path: str, reader: str) -> str:
    """Where the decisions of the query are that reads the operator at a path under a name."""
    return f"{path.rstrip('/')}/{following_directory(reader)}"


def _fewer(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """At most so many; those that are left out count as the end of the one before."""
    return parts if len(parts) <= _MOST_PARTS else (*parts[:-1][::2], parts[-1])


def _part(stored: object) -> Part:
    if not isinstance(stored, list) or len(stored) != 2:
        raise ValueError("no part")
    number, first = stored
    return Part(whole(number, 0, LARGEST_BATCH), whole(first, 0, LARGEST_BATCH + 1))
