"""What is tentative in a batch: one answer for all buckets, published with its watermark.

Where a union gives out rows before all its streams are complete, the operators behind it take them
in on a fork of their state, and the results are tentative, too. The tuples are in the input log and
the results in the output log, each with the batch that they came in. They stand until the union has
replaced its rows; from which batch on they do is in the footers of every batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from trailmark.engine.ports import TENTATIVE_TIMES, PortTimes
from trailmark.log import Footer, Origin, TimeRange
from trailmark.log.json_text import object_of, text_of, whole
from trailmark.log.names import LARGEST_BATCH
from trailmark.operators.protocol import Port
from trailmark.records import MOST_PORTS, NO_BATCH
from trailmark.values import dataclass

#: Attribute of footers: what is tentative.
TENTATIVE = "tentative"
#: What a union is doing that is ahead of nothing.
STABLE = "STABLE"


@dataclass(frozen=True, slots=True)
class Upstream:
    """A union whose rows reach an operator, in a batch.

    Parameters
    ----------
    number
        The decision that the batch is made of; NO_BATCH of a union that has decided nothing yet.
    since
        The first decision whose tentative rows still stand; None if none do.
    phase
        What the union is doing.
    """

    number: int
    since: int | None
    phase: str

    def stands(self, number: int) -> bool:
        """Whether tentative rows of a decision still stand."""
        return self.since is not None and number >= self.since


@dataclass(frozen=True, slots=True)
class InputsTold:
    """What is known from elsewhere of the inputs of the batch that runs, by port.

    Parameters
    ----------
    boundaries
        Up to which time each is complete; None where that is not known.
    ahead
        Up to which time each has tentative tuples; None where that is not known.
    unions
        The unions that tentative tuples may come from, whatever lies in between.
    """

    boundaries: Sequence[int | None]
    ahead: Sequence[int | None] = ()
    unions: tuple[Upstream, ...] = ()

    @property
    def is_ahead(self) -> bool:
        """Whether anything is tentative."""
        return any(each.since is not None for each in self.unions)


#: Asked once for each batch, by whichever bucket is first.
Told: TypeAlias = Callable[[], InputsTold]


@dataclass(frozen=True, slots=True)
class Tentative:
    """What is tentative at the end of a batch.

    Parameters
    ----------
    stands_from
        The first batch whose tentative tuples and results stand.
    numbers
        The decision of each union that the batch is made of.
    phase
        What the unions are doing; of several the worst.
    at, before
        The watermark of the tentative tuples, and what it was in the batch before.
    ports
        The same for each port, where there are several.
    """

    stands_from: int
    numbers: tuple[int, ...]
    phase: str
    at: int | None
    before: int | None
    ports: tuple[int | None, ...] = ()

    @property
    def marks(self) -> tuple[int | None, ...]:
        """The watermark of every port."""
        return self.ports or (self.at,)

    def to_json(self) -> dict[str, Any]:
        """As files and footers have it."""
        body = {
            "at": self.at,
            "before": self.before,
            "numbers": list(self.numbers),
            "phase": self.phase,
            "stands_from": self.stands_from,
        }
        return {**body, "ports": list(self.ports)} if self.ports else body

    @classmethod
    def from_json(cls, stored: object) -> Tentative:
        """From a file or a footer; raises ``KeyError`` or ``ValueError``."""
        body = object_of(stored)
        numbers, ports = body["numbers"], body.get("ports", [])
        if not isinstance(numbers, list) or not isinstance(ports, list):
            raise ValueError("no list")
        if len(ports) > MOST_PORTS:
            raise ValueError(f"{len(ports)} ports")
        return cls(
            whole(body["stands_from"], 0, LARGEST_BATCH),
            tuple(whole(each, NO_BATCH, LARGEST_BATCH) for each in numbers),
            text_of(body["phase"]),
            _time(body["at"]),
            _time(body["before"]),
            tuple(map(_time, ports)),
        )

    @classmethod
    def logged(cls, footer: Footer, origin: Origin) -> Tentative | None:
        """What the footer of a batch says, of its input or its output; None if nothing is
        tentative."""
        stored = footer.attributes.get(TENTATIVE)
        if stored is None:
            return None
        try:
            found = cls.from_json(stored)
            if found.stands_from > footer.batch:
                raise ValueError(f"it names a batch after {footer.batch}")
            return found
        except (KeyError, ValueError) as error:
            raise origin.mismatch(0, f"{TENTATIVE!r} cannot be read ({error!r})") from error


def times_attribute(times: PortTimes) -> dict[str, Any]:
    """The event times of tentative tuples, as a footer has them."""
    return {TENTATIVE_TIMES: [each and [each.min_us, each.max_us] for each in times.ranges]}


def logged_times(footer: Footer, ports: int, origin: Origin) -> Sequence[TimeRange | None]:
    """The event times of tentative tuples that a footer tells of, by port."""
    stored = footer.attributes.get(TENTATIVE_TIMES)
    if stored is None:
        return (None,) * ports
    try:
        if not isinstance(stored, list) or len(stored) != ports:
            raise ValueError(f"no times of {ports} inputs")
        return tuple(None if each is None else TimeRange.from_json(*each) for each in stored)
    except (TypeError, ValueError) as error:
        raise origin.mismatch(0, f"{TENTATIVE_TIMES!r} cannot be read ({error})") from error


def marks_ahead(
    stable: Sequence[int | None],
    told: InputsTold,
    before: Tentative | None,
    times: Sequence[Sequence[TimeRange | None]],
    ports: Sequence[Port],
) -> tuple[int | None, ...]:
    """The watermarks of tentative tuples: as a union says; else, like those of stable ones, by the
    times of the batches before."""
    found: list[int | None] = []
    for place, port in enumerate(ports):
        known = told.ahead[place] if told.ahead else None
        reached = [] if stable[place] is None else [stable[place]]
        if port.event_time is not None and known is not None:
            reached.append(known)
        elif port.event_time is not None and before is not None:
            reached.append(before.marks[place])
            of_bucket = (each[place] for each in times)
            reached += [each.max_us - port.delay_us for each in of_bucket if each is not None]
        found.append(max((each for each in reached if each is not None), default=None))
    return tuple(found)


def phase_of(footer: Footer) -> str:
    """What the unions behind an operator were doing in a batch, for those who look."""
    stored = footer.attributes.get(TENTATIVE)
    phase = stored.get("phase") if isinstance(stored, dict) else None
    return phase if isinstance(phase, str) else STABLE


def worst_phase(unions: Sequence[Upstream]) -> str:
    """What several unions are doing: whether one of them misses streams, else whether one is
    correcting."""
    order: Mapping[str, int] = {"UP_FAILURE": 0, "STABILIZATION": 1}
    return min((each.phase for each in unions), key=lambda phase: order.get(phase, len(order)))


def _time(stored: object) -> int | None:
    return None if stored is None else whole(stored, -(2**63), 2**63 - 1)
