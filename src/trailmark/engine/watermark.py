"""The watermark of a batch: one value for all buckets, whichever of them asks first.

It is the greatest event time of the batches before, in any bucket, less the delay. The input
footers of the batch before hold all that is needed: its own event times, and its watermark, which
covers everything older. Where an input knows more, such as a union, it says up to which time it is
complete with the batch itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any
from zlib import crc32

from trailmark.engine.footers import read_footers
from trailmark.engine.ports import PORT_WATERMARKS, PortTimes
from trailmark.engine.refusals import LEFT_OUT
from trailmark.engine.tentative import (
    TENTATIVE,
    InputsTold,
    Tentative,
    Told,
    Upstream,
    logged_times,
    marks_ahead,
    worst_phase,
)
from trailmark.errors import BatchSkipped, DamagedSegment, MissingSegment
from trailmark.log import Footer, Origin, Storage, StreamLog, TimeRange
from trailmark.log.json_text import load, read_text, whole
from trailmark.log.names import log_directory, segment_name
from trailmark.operators.protocol import Port
from trailmark.recovery.restore import logged_time
from trailmark.values import dataclass

_DIRECTORY = "watermark"
#: Attribute of footers.
_AT = "watermark"

#: Watermarks that are kept, and after how many batches the others are removed.
_KEPT = 64


@dataclass(frozen=True, slots=True)
class Watermark:
    """``at`` closes windows at the end of the batch; ``before`` did so in the batch before.

    With several ports, ``ports`` has the watermark of each, and ``at`` is the least of those that
    have event times: nothing before it can come on any of them. None is a port without event time,
    or without any tuple so far.

    ``tentative`` is there where something is.
    """

    at: int | None = None
    before: int | None = None
    ports: tuple[int | None, ...] = ()
    tentative: Tentative | None = None

    @classmethod
    def behind(cls, footers: Sequence[Footer], ports: Sequence[Port]) -> Watermark:
        """The watermark of the next batch, from a footer of each bucket, of input or output."""
        origins = [_origin(footer) for footer in footers]
        before = logged_time(footers[0], _AT, origins[0])
        times = [
            PortTimes.logged(footer, len(ports), origin).ranges
            for footer, origin in zip(footers, origins, strict=True)
        ]
        marks = [before] if len(ports) == 1 else _logged_ports(footers[0], len(ports), origins[0])
        reached = tuple(
            _latest(marks[place], [each[place] for each in times], port.delay_us)
            for place, port in enumerate(ports)
        )
        return cls._of(reached, before, ports)

    @classmethod
    def before_all(cls, ports: Sequence[Port]) -> Watermark:
        """That of the first batch, of whose rows nothing is known yet."""
        return cls._of((None,) * len(ports), None, ports)

    def told(self, boundaries: Sequence[int | None], ports: Sequence[Port]) -> Watermark:
        """The same where it is known from elsewhere up to which time inputs are complete."""
        marks = self.ports or (self.at,)
        reached = tuple(
            mark if told is None else told if mark is None else max(mark, told)
            for mark, told in zip(marks, boundaries, strict=True)
        )
        return self._of(reached, self.before, ports)

    @classmethod
    def _of(
        cls, reached: tuple[int | None, ...], before: int | None, ports: Sequence[Port]
    ) -> Watermark:
        if len(ports) == 1:
            return cls(reached[0], before)
        driving = [
            reached[place] for place, port in enumerate(ports) if port.event_time is not None
        ]
        known = [at for at in driving if at is not None]
        at = min(known, default=None) if len(known) == len(driving) else None
        return cls(at, before, reached)

    def to_attributes(self) -> dict[str, Any]:
        """As input segments have it."""
        named: dict[str, Any] = {_AT: self.at, "late_before": self.before}
        if self.ports:
            named[PORT_WATERMARKS] = list(self.ports)
        if self.tentative is not None:
            named[TENTATIVE] = self.tentative.to_json()
        return named

    @classmethod
    def is_fork_due(cls, footers: Sequence[Footer], ports: Sequence[Port]) -> bool:
        """Whether tentative tuples have moved their watermark, so that the next batch may have
        other tentative results though nothing comes; from a footer of each bucket."""
        origin = _origin(footers[0])
        before = Tentative.logged(footers[0], origin)
        if before is None:
            return False
        stable = cls.behind(footers, ports)
        reached = marks_ahead(
            stable.ports or (stable.at,),
            InputsTold(()),
            before,
            [logged_times(footer, len(ports), _origin(footer)) for footer in footers],
            ports,
        )
        return cls._of(reached, None, ports).at != before.at

    @property
    def has_moved(self) -> bool:
        """Whether it may close windows that the batch before could not."""
        return self.at != self.before


class Watermarks:
    """Watermarks of one operator, published if absent."""

    def __init__(
        self,
        storage: Storage,
        inputs: Sequence[StreamLog],
        ports: Sequence[Port],
        first_batch: int,
        told: Told | None = None,
    ) -> None:
        self._storage = storage
        self._inputs = inputs
        self._ports = ports
        self._first_batch = first_batch
        self._told = told

    def of(self, batch: int) -> Watermark:
        """The watermark of a batch; all earlier batches must be in the log."""
        if batch <= self._first_batch and self._told is None:
            return Watermark.before_all(self._ports)
        path = watermark_path(batch)
        try:
            return self._read(path)
        except FileNotFoundError:
            found = self._compute(batch)
        body: dict[str, Any] = {"at": found.at, "before": found.before}
        if found.ports:
            body["ports"] = found.ports
        if found.tentative is not None:
            body[TENTATIVE] = found.tentative.to_json()
        text = json.dumps(body).encode()
        self._storage.publish(path, [text, b"\n%08x\n" % crc32(text)])
        if batch % _KEPT == 0:
            self._forget_before(batch - _KEPT)
        return self._read(path)

    def _forget_before(self, batch: int) -> None:
        """Only the newest batch can be asked for again; the input log has the older watermarks."""
        oldest = watermark_path(batch)
        for entry in self._storage.list(_DIRECTORY):
            path = f"{_DIRECTORY}/{entry.name}"
            if path < oldest:
                self._storage.delete(path)

    def _read(self, path: str) -> Watermark:
        return read_watermark(self._storage, path)

    def _compute(self, batch: int) -> Watermark:
        footers: list[Footer] = []
        if batch <= self._first_batch:
            found = Watermark.before_all(self._ports)
        else:
            footers = read_footers(self._inputs, batch, self._footer)
            found = Watermark.behind(footers, self._ports)
        if self._told is None:
            return found
        told = self._told()
        found = found.told(told.boundaries, self._ports)
        if not told.is_ahead:
            return found
        return replace(found, tentative=self._tentative(batch, found, told, footers))

    def _tentative(
        self, batch: int, stable: Watermark, told: InputsTold, footers: Sequence[Footer]
    ) -> Tentative:
        """What is tentative, where something is."""
        before = None if not footers else Tentative.logged(footers[0], _origin(footers[0]))
        count = len(self._ports)
        if before is not None and len(before.marks) != count:
            raise _origin(footers[0]).mismatch(0, f"{TENTATIVE!r} is not of {count} inputs")
        times = [logged_times(footer, count, _origin(footer)) for footer in footers]
        marks = stable.ports or (stable.at,)
        reached = marks_ahead(marks, told, before, times, self._ports)
        first = batch
        if before is not None:
            first = self._stands_from(before.stands_from, batch, told)
        # Where nothing of before stands, a fork begins with the state alone. For it nothing is late
        # that is not late for the state: what was given out may be given out again.
        late = stable.before if before is None or first == batch else before.at
        ahead = Watermark._of(reached, late, self._ports)
        return Tentative(
            first,
            tuple(each.number for each in told.unions),
            worst_phase(told.unions),
            ahead.at,
            ahead.before,
            ahead.ports,
        )

    def _stands_from(self, first: int, batch: int, told: InputsTold) -> int:
        """The first batch since another one that has something of what still stands."""
        # What a bucket that has done this batch has trimmed does not stand any more.
        for earlier in range(max(first, self._inputs[0].start()), batch):
            footer = self._footer(self._inputs[0], earlier + 1)
            logged = Tentative.logged(footer, _origin(footer))
            numbers = () if logged is None else logged.numbers
            if any(map(Upstream.stands, told.unions, numbers)):
                return earlier
        return batch

    def _footer(self, log: StreamLog, batch: int) -> Footer:
        """The footer of the batch before, in one bucket."""
        try:
            return log.read_footer(batch - 1)[0]
        except MissingSegment as error:
            raise BatchSkipped(
                f"Batch {batch} needs batch {batch - 1} of every bucket, but it is missing in "
                f"bucket {log.identity.bucket}.",
                where=error.where,
                fix=LEFT_OUT,
            ) from error


def read_watermark(storage: Storage, path: str) -> Watermark:
    """The watermark that a file holds."""
    text, _, checksum = bytes(read_text(storage, path)).partition(b"\n")
    if checksum != b"%08x\n" % crc32(text):
        raise _damaged("The watermark does not match its checksum.", path)
    stored = load(text)
    try:
        if stored is not None:
            ports = stored.get("ports", [])
            if not isinstance(ports, list):
                raise ValueError("ports are no list")
            named = stored.get(TENTATIVE)
            tentative = None if named is None else Tentative.from_json(named)
            if tentative is not None and watermark_path(tentative.stands_from) > path:
                raise ValueError("what is tentative stands from a later batch")
            return Watermark(
                _time(stored["at"]),
                _time(stored["before"]),
                tuple(map(_time, ports)),
                tentative,
            )
    except (KeyError, ValueError):
        pass  # whole, and not what was written
    raise _damaged("The file does not hold a watermark.", path)


def _latest(known: int | None, times: Iterable[TimeRange | None], delay_us: int) -> int | None:
    """The watermark of a port: never before the one that is known."""
    found = [each.max_us - delay_us for each in times if each is not None]
    return max(found if known is None else [*found, known], default=None)


def _logged_ports(footer: Footer, ports: int, origin: Origin) -> Sequence[int | None]:
    """The watermarks of several ports, as the footers of a batch have them."""
    stored = footer.attributes.get(PORT_WATERMARKS)
    try:
        if not isinstance(stored, list) or len(stored) != ports:
            raise ValueError(f"no watermarks of {ports} inputs")
        return [_time(each) for each in stored]
    except ValueError as error:
        raise origin.mismatch(0, f"{PORT_WATERMARKS!r} cannot be read ({error})") from error


def _origin(footer: Footer) -> Origin:
    directory = log_directory(footer.identity.stream, footer.identity.bucket)
    return Origin(f"{directory}/{segment_name(footer.batch)}")


def _time(stored: object) -> int | None:
    return None if stored is None else whole(stored, -(2**63), 2**63 - 1)


def _damaged(what: str, path: str) -> DamagedSegment:
    return DamagedSegment(
        what, where=path, fix="Delete the file: it is computed again from the input log."
    )


def watermark_path(batch: int) -> str:
    return f"{_DIRECTORY}/{batch:020d}.json"
