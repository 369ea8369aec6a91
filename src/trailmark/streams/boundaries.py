"""Boundaries: the time up to which a written stream is complete.

A writer promises about its own rows: none that it is still to commit has a time before its
boundary. One that has all the same is *late*, wherever it is read, and is counted. The boundary of
a stream is the least of those of its writers.

A promise comes with rows, from their times and the writer's delay; it is in their manifest. Or it
comes alone, in a heartbeat (see `heartbeats`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from trailmark.log.json_text import object_of, whole
from trailmark.streams.heartbeats import Heartbeat, Said
from trailmark.streams.times import EARLIEST, LATEST
from trailmark.values import dataclass


@dataclass(frozen=True, slots=True)
class Boundaries:
    """What is promised at the end of a batch, in microseconds since 1970.

    Parameters
    ----------
    writers
        The boundary of every writer that promises anything; None of one whose rows had no times.
    stream
        The least of them, as long as all are known. It never falls: a writer that is new begins
        where the stream is.
    late_before
        Rows of the batch with an earlier time are late; None if nothing was promised about them.
    late_rows, total_late_rows
        How many are, in this batch and in all up to it.
    gone
        What writers had promised that nobody waits for any more. They are held to it when they come
        back.
    """

    writers: Mapping[str, int | None]
    stream: int | None = None
    late_before: int | None = None
    late_rows: int = 0
    total_late_rows: int = 0
    gone: Mapping[str, int | None] = field(default_factory=dict)

    def own(self, writer: str) -> int | None:
        """What a writer has promised, if anything."""
        return later(self.writers.get(writer), self.gone.get(writer))

    def to_json(self) -> dict[str, Any]:
        return {
            "gone": dict(self.gone),
            "late_before": self.late_before,
            "late_rows": self.late_rows,
            "stream": self.stream,
            "total_late_rows": self.total_late_rows,
            "writers": dict(self.writers),
        }

    @classmethod
    def from_json(cls, stored: object) -> Boundaries:
        """What a manifest holds; raises ``KeyError`` or ``ValueError`` if it does not."""
        body = object_of(stored)
        return cls(
            _times(body["writers"]),
            _time(body["stream"]),
            _time(body["late_before"]),
            whole(body["late_rows"], 0, LATEST),
            whole(body["total_late_rows"], 0, LATEST),
            _times(body["gone"]),
        )


#: Of a stream that nobody has promised anything about.
NO_BOUNDARIES = Boundaries({})


def with_heartbeats(
    before: Boundaries | None,
    heartbeats: Mapping[str, Heartbeat],
    committed: Mapping[str, int],
) -> Boundaries:
    """What a manifest and the heartbeats since say together.

    ``committed`` has the last batch with rows of every writer: one that is gone counts again once
    it has committed another.
    """
    found = before or NO_BOUNDARIES
    writers, gone, stream = dict(found.writers), dict(found.gone), found.stream
    for name, heartbeat in heartbeats.items():
        stream = later(stream, heartbeat.stream_us)
        own = later(later(writers.get(name), gone.get(name)), heartbeat.boundary_us)
        if heartbeat.said is not Said.GONE:
            writers[name] = own
            gone.pop(name, None)
        elif heartbeat.still_holds(committed):
            writers.pop(name, None)
            gone[name] = own
    return _with(replace(found, stream=stream), writers, gone)


def advanced(before: Boundaries, writer: str, boundary_us: int | None) -> Boundaries:
    """The same after a batch of a writer, whose rows reach a boundary of its own."""
    own = later(before.own(writer), boundary_us)
    gone = {name: each for name, each in before.gone.items() if name != writer}
    return _with(before, {**before.writers, writer: own}, gone)


def without(before: Boundaries, writer: str) -> Boundaries:
    """What the others promise."""
    writers = {name: each for name, each in before.writers.items() if name != writer}
    return _with(before, writers, before.gone)


def later(one: int | None, other: int | None) -> int | None:
    """The later of two times, of which either may not be known."""
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


def is_later(time_us: int | None, than_us: int | None) -> bool:
    """Whether a time is known, and later than another, which may not be known."""
    return time_us is not None and (than_us is None or time_us > than_us)


def _with(
    before: Boundaries, writers: Mapping[str, int | None], gone: Mapping[str, int | None]
) -> Boundaries:
    """The same with other promises. The stream has come as far as the last of its writers."""
    known = [each for each in writers.values() if each is not None]
    least = min(known) if known and len(known) == len(writers) else None
    return replace(before, writers=writers, stream=later(before.stream, least), gone=gone)


def _times(stored: object) -> dict[str, int | None]:
    return {name: _time(each) for name, each in object_of(stored).items()}


def _time(value: object) -> int | None:
    return None if value is None else whole(value, EARLIEST, LATEST)
