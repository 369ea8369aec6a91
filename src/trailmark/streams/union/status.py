"""A picture of a union from files alone: what it has decided, and which stream it waits for."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from trailmark.errors import LogError, StorageError
from trailmark.inspection.read_only import ReadOnly
from trailmark.log import Clock, Origin, Storage, open_storage, read_meta, wall_clock_us
from trailmark.log.meta import META_PATH
from trailmark.streams.asking import Hands, InThreads, Unreached
from trailmark.streams.boundaries import later
from trailmark.streams.description import is_stream
from trailmark.streams.status import StreamStatusReader
from trailmark.streams.union.decision import NOTHING_YET, Decision, Reached
from trailmark.streams.union.decisions import newest_decision
from trailmark.streams.union.description import UnionDescription
from trailmark.streams.union.unreachable import read_unreachable
from trailmark.values import dataclass

#: Who looks waits no longer for a stream.
_PATIENCE_S = 5


@dataclass(frozen=True, slots=True)
class InputStatus:
    """A stream of a union.

    Attributes
    ----------
    name, path
        What the union calls it, and where it is.
    reached
        How far the union has come with it; None if it has not looked yet.
    newest
        The newest batch of the stream; None if that is not known.
    boundary_us
        Up to which time the stream is complete now, by what its writers promise; None if they
        promise nothing.
    problem
        Why it cannot be looked at; empty if it can.
    unreached
        Since when whoever runs the union cannot reach it, and why; None if it can.
    """

    name: str
    path: str
    reached: Reached | None
    newest: int | None = None
    boundary_us: int | None = None
    problem: str = ""
    unreached: Unreached | None = None


@dataclass(frozen=True, slots=True)
class UnionStatus:
    """A union.

    Attributes
    ----------
    looked_us
        When the picture was made.
    log_id, description
        As in ``meta.json``.
    decision
        The newest one; `NOTHING_YET` if there is none.
    inputs
        Its streams, in their order.
    problem
        Why the newest decision cannot be read; empty if it can.
    """

    looked_us: int
    log_id: str
    description: UnionDescription
    decision: Decision
    inputs: tuple[InputStatus, ...]
    problem: str = ""

    @property
    def slowest(self) -> InputStatus | None:
        """The stream that all others wait for; None if that is not known, or there is one only."""
        known = [each for each in self.inputs if each.reached is not None]
        if len(known) < 2 or len(known) < len(self.inputs):
            return None
        waited_for = [each for each in known if each.name not in self.idle]
        return min(waited_for, key=_boundary, default=None)

    @property
    def idle(self) -> tuple[str, ...]:
        """The streams that were not waited for, and have had nothing since."""
        return tuple(
            each.name
            for each in self.inputs
            if each.name in self.decision.idle
            and each.reached is not None
            and each.newest in (None, each.reached.end - 1)
        )

    @property
    def is_sound(self) -> bool:
        """Whether the decision and all streams can be read."""
        return not self.problem and not any(
            each.problem or each.unreached is not None for each in self.inputs
        )

    def describe(self) -> dict[str, Any]:
        """All of it as JSON."""
        union, decision = self.description, self.decision
        return {
            "looked_us": self.looked_us,
            "log_id": self.log_id,
            "operator": "union",
            "time_column": union.time,
            "interval_us": union.interval_us,
            "delay_us": union.delay_us,
            "columns": {field.name: str(field.type) for field in union.schema},
            "decision": decision.number,
            "released_us": decision.released_us,
            "late_rows": decision.late_rows,
            "phase": decision.phase.value,
            "ahead": None if decision.ahead is None else decision.ahead.to_json(),
            "turn": None if decision.turn is None else decision.turn.to_json(),
            "waits_for": None if self.slowest is None else self.slowest.name,
            "idle": list(self.idle),
            "inputs": {each.name: _described(each) for each in self.inputs},
            "problem": self.problem,
        }


def _described(each: InputStatus) -> dict[str, Any]:
    reached = None if each.reached is None else asdict(each.reached)
    return {
        "path": each.path,
        "reached": reached,
        "newest": each.newest,
        "boundary_us": each.boundary_us,
        "problem": each.problem,
        "unreached": None if each.unreached is None else asdict(each.unreached),
    }


def _boundary(each: InputStatus) -> tuple[bool, int]:
    reached_us = None if each.reached is None else each.reached.boundary_us
    boundary_us = later(reached_us, each.boundary_us)
    return boundary_us is not None, boundary_us or 0


class UnionStatusReader:
    """Makes one picture after another. A stream that hangs is not looked at again meanwhile."""

    def __init__(
        self, storage: Storage, *, clock: Clock = wall_clock_us, hands: Hands | None = None
    ) -> None:
        self._storage = ReadOnly(storage)
        self._clock = clock
        self._hands = hands or InThreads()
        self._looks: dict[str, Future[InputStatus]] = {}
        meta = read_meta(self._storage)
        if meta is None:
            raise Origin(META_PATH).mismatch(0, "the description is gone")
        self._log_id = str(meta.log_id)
        self._union = UnionDescription.of(meta)

    def read(self) -> UnionStatus:
        """The picture as of now."""
        decision, problem = NOTHING_YET, ""
        try:
            decision = newest_decision(self._storage)
        except LogError as error:
            problem = error.line
        inputs = self._inputs(decision, read_unreachable(self._storage))
        return UnionStatus(self._clock(), self._log_id, self._union, decision, inputs, problem)

    def _inputs(
        self, decision: Decision, unreached: Mapping[str, Unreached]
    ) -> tuple[InputStatus, ...]:
        """All streams, side by side."""
        begun = {
            name: self._hands.begin(partial(_look, name, path, decision.inputs.get(name)))
            for name, path in self._union.paths.items()
            if name not in self._looks or self._looks[name].done()
        }
        self._looks |= begun
        self._hands.wait([*begun.values()], _PATIENCE_S)
        late = f"no answer within {_PATIENCE_S} s"
        return tuple(
            replace(
                look.result()
                if name in begun and look.done()
                else InputStatus(name, path, decision.inputs.get(name), problem=late),
                unreached=unreached.get(name),
            )
            for name, path in self._union.paths.items()
            for look in [self._looks[name]]
        )


def _look(name: str, path: str, reached: Reached | None) -> InputStatus:
    try:
        storage = open_storage(path)
        meta = read_meta(storage)
        if meta is None or not is_stream(meta):
            return InputStatus(name, path, reached, problem=f"there is no stream at {path}")
        status = StreamStatusReader(storage, look_back=1).read()
        boundary_us = None if status.boundaries is None else status.boundaries.stream
        newest = status.manifests.newest
        return InputStatus(name, path, reached, newest, boundary_us, status.problem)
    except (LogError, StorageError) as error:
        return InputStatus(name, path, reached, problem=error.line)
