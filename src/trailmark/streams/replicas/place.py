"""Where a reader of replicas is: an offset of Spark's.

Results that stand have numbers, which are the same on all replicas. Tentative ones are each
replica's own, so those that a reader has are of one of them, and they go by decisions: each has a
number and gives out one part, and what stands is all from one part on. Numbers of decisions only
grow, whoever is followed, so one number says all that is void.
"""

from __future__ import annotations

from typing import Any

from trailmark.log.json_text import object_of, text_of, whole
from trailmark.records import NO_BATCH
from trailmark.streams.following import Followed
from trailmark.streams.replicas.positions import Position, position_from_json, position_to_json
from trailmark.streams.replicas.reading import Suffix
from trailmark.values import dataclass

#: Of an offset. What a reader of stable results writes has no suffix.
_RESULTS, _REPLICA, _SUFFIX = "results", "replica", "suffix"


@dataclass(frozen=True, slots=True)
class Place:
    """How far a reader has come.

    Parameters
    ----------
    position
        What it has of the results that stand.
    path
        The replica that it followed to get there; empty if none.
    told
        What it has of the tentative results of that one, by its decisions.
    complete_until
        The time up to which it has all results that stand; None where that is not known.
    decided_us
        When it was decided to come here.
    """

    position: Position
    path: str = ""
    told: Followed = Followed()
    complete_until: int | None = None
    decided_us: int = 0

    @property
    def suffix(self) -> Suffix:
        """The tentative results that the last decision has given out."""
        batches = range(self.told.tentative_from, self.told.batch)
        return Suffix(self.path, self.told.log, batches)

    def undoes(self, start: Place) -> int | None:
        """The number of the decision before which everything tentative is void by now; None if
        nothing has become void since another place."""
        before, now = start.told.upstream().since, self.told.upstream().since
        if before is None or before == now:
            return None
        return self.told.number if now is None else now

    def to_json(self) -> dict[str, Any]:
        """As it is kept."""
        body = {_RESULTS: position_to_json(self.position), _REPLICA: self.path}
        if self.told.number == NO_BATCH:
            return body
        suffix = {
            "complete_until": self.complete_until,
            "decided_us": self.decided_us,
            "told": self.told.to_json(),
        }
        return {**body, _SUFFIX: suffix}

    @classmethod
    def from_json(cls, stored: object) -> Place:
        """From what is kept; raises ``KeyError``, ``TypeError`` or ``ValueError``."""
        body = object_of(stored)
        position, path = position_from_json(body[_RESULTS]), text_of(body[_REPLICA])
        if _SUFFIX not in body:
            return cls(position, path)
        suffix = object_of(body[_SUFFIX])
        until = suffix["complete_until"]
        return cls(
            position,
            path,
            Followed.from_json(suffix["told"]),
            None if until is None else whole(until, -(2**63), 2**63 - 1),
            whole(suffix["decided_us"], -(2**63), 2**63 - 1),
        )
