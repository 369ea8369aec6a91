"""What a batch of a union is: a decision that is made once, and never again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from trailmark.log.json_text import object_of, text_of, whole
from trailmark.log.names import LARGEST_BATCH
from trailmark.records import MOST_PORTS, NO_BATCH
from trailmark.streams.times import EARLIEST, LATEST
from trailmark.streams.union.ahead import Ahead, Phase
from trailmark.values import dataclass


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a union has come with one of its streams.

    Parameters
    ----------
    log
        Which stream it is: another one in the same place has another number.
    begun
        The batch of the stream that the union began with.
    first
        From this batch on, any may hold rows which are not released yet.
    end
        Batches before this one were looked at.
    latest_us
        The latest time in the batches before ``end``; None if there was none.
    boundary_us
        Up to which time the stream was complete; None if that was not known.
    early
        Single batches before ``first`` that hold such rows, too: of one that is far ahead of its
        time, not everything since has to be looked at.
    """

    log: str
    begun: int
    first: int
    end: int
    latest_us: int | None
    boundary_us: int | None
    early: tuple[int, ...] = ()

    @property
    def needs(self) -> int:
        """The first batch that may still be asked for."""
        return min(self.first, *self.early) if self.early else self.first

    def to_json(self) -> list[Any]:
        """As it is kept, in offsets of Spark's too: short, for there is one for every batch."""
        batches = [self.begun, self.first, self.end]
        return [self.log, *batches, self.latest_us, self.boundary_us, list(self.early)]

    @classmethod
    def from_json(cls, stored: object) -> Reached:
        """From what is kept; raises ``ValueError``."""
        if not isinstance(stored, list):
            raise ValueError("no list")
        log, begun, first, end, latest, boundary, early = stored
        if not isinstance(early, list):
            raise ValueError("no list of batches")
        return cls(
            text_of(log),
            whole(begun, 0, LARGEST_BATCH + 1),
            whole(first, 0, LARGEST_BATCH + 1),
            whole(end, 0, LARGEST_BATCH + 1),
            _time(latest),
            _time(boundary),
            tuple(whole(batch, 0, LARGEST_BATCH) for batch in early),
        )


@dataclass(frozen=True, slots=True)
class Turn:
    """Whether it was the turn of a union, of all replicas of it, to correct when it decided.

    Parameters
    ----------
    is_own
        Whether it was; else it waited, and went on answering.
    whose
        Whose it was then, for people; empty if that was not known.
    problem
        Why it could not be asked; empty if it could.
    """

    is_own: bool
    whose: str = ""
    problem: str = ""

    @property
    def line(self) -> str:
        """For people."""
        if self.is_own:
            return "it is its turn"
        if self.problem:
            return f"waits for its turn and cannot ask: {self.problem}"
        return f"waits for its turn, {f'{self.whose} has it' if self.whose else 'nobody has it'}"

    def to_json(self) -> dict[str, Any]:
        """As it is kept, within a decision."""
        return {"is_own": self.is_own, "problem": self.problem, "whose": self.whose}

    @classmethod
    def from_json(cls, stored: object) -> Turn:
        """From what is kept; raises ``KeyError`` or ``ValueError``."""
        body = object_of(stored)
        return cls(body["is_own"] is True, text_of(body["whose"]), text_of(body["problem"]))


@dataclass(frozen=True, slots=True)
class Decision:
    """Up to where everything has been released, after so many batches.

    Parameters
    ----------
    number
        Its place among the decisions of the union.
    released_us
        Rows before this time are released; None if none are.
    inputs
        How far each stream was looked at, by its name in the union; without those that could never
        be reached so far.
    late_rows
        Rows so far that came after the boundary of their own stream, and were left out.
    ahead
        What was given out beyond ``released_us``, as tentative; None if nothing was.
    unreachable
        Streams that could not be reached: they stand where they stood, and nothing is read of them.
    idle
        Streams that were not waited for, because they promise nothing and had nothing new for long.
    turn
        Whether it was its turn to correct; None where there was nothing to correct, or there are no
        turns.
    """

    number: int = NO_BATCH
    released_us: int | None = None
    inputs: Mapping[str, Reached] = field(default_factory=dict)
    late_rows: int = 0
    ahead: Ahead | None = None
    unreachable: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    turn: Turn | None = None

    @property
    def waits_for_turn(self) -> bool:
        """Whether all streams were back, and what was tentative was not replaced yet because it was
        another replica's turn."""
        return self.turn is not None and not self.turn.is_own

    @property
    def phase(self) -> Phase:
        """What the union is doing."""
        return Phase.STABLE if self.ahead is None else self.ahead.phase

    @property
    def until_us(self) -> int | None:
        """Rows before this time were given out, as stable or as tentative; None if none were."""
        return self.released_us if self.ahead is None else self.ahead.until_us

    def to_json(self) -> dict[str, Any]:
        """As it is kept: an offset of Spark's."""
        body: dict[str, Any] = {
            "inputs": {name: each.to_json() for name, each in self.inputs.items()},
            "late_rows": self.late_rows,
            "number": self.number,
            "released_us": self.released_us,
        }
        if self.ahead is not None:
            body["ahead"] = self.ahead.to_json()
        if self.unreachable:
            body["unreachable"] = list(self.unreachable)
        if self.idle:
            body["idle"] = list(self.idle)
        if self.turn is not None:
            body["turn"] = self.turn.to_json()
        return body

    @classmethod
    def from_json(cls, stored: object) -> Decision:
        """From what is kept; raises ``KeyError`` or ``ValueError``."""
        body = object_of(stored)
        inputs = object_of(body["inputs"])
        return cls(
            whole(body["number"], NO_BATCH, LARGEST_BATCH),
            _time(body["released_us"]),
            {name: Reached.from_json(each) for name, each in inputs.items()},
            whole(body["late_rows"], 0, LATEST),
            None if body.get("ahead") is None else Ahead.from_json(body["ahead"]),
            _names(body.get("unreachable", [])),
            _names(body.get("idle", [])),
            None if body.get("turn") is None else Turn.from_json(body["turn"]),
        )


#: Before the first decision: nothing was looked at.
NOTHING_YET = Decision()


def _names(stored: object) -> tuple[str, ...]:
    if not isinstance(stored, list) or len(stored) > MOST_PORTS:
        raise ValueError("no list, or too many inputs")
    return tuple(text_of(name) for name in stored)


def _time(value: object) -> int | None:
    return None if value is None else whole(value, EARLIEST, LATEST)
