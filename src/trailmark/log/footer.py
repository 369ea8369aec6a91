"""The footer of a segment: everything about a batch that is not its rows."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import field

from trailmark.errors import DamagedSegment, OtherQuery, UnknownFormat
from trailmark.log import json_text
from trailmark.log.damage import Origin
from trailmark.log.json_text import JsonObject, object_of, shown, text_of, whole
from trailmark.log.names import LARGEST_BATCH, LARGEST_BUCKET
from trailmark.records import NO_BATCH, Fingerprint, FrameKind, SegmentLink, Stream
from trailmark.values import dataclass

#: What is written, and what is read.
FORMAT_VERSION = 2
KNOWN_VERSIONS = (1, 2)
LARGEST_DIGEST = 2**128 - 1

_STREAMS = {stream.name.lower(): stream for stream in Stream}
_KINDS = {kind.label: kind for kind in FrameKind if kind is not FrameKind.FOOTER}
_MOST_ROWS = 2**62
_INT64 = (-(2**63), 2**63 - 1)
#: Event times come in other units, too.
_INT128 = (-(2**127), 2**127 - 1)


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """Which log a segment belongs to."""

    stream: Stream
    log_id: uuid.UUID
    bucket: int

    @classmethod
    def from_json(cls, stored: JsonObject) -> LogIdentity:
        """As footers and packs have it, of a stream that is known; raises ``KeyError`` or
        ``ValueError``."""
        return cls(
            _STREAMS[text_of(stored["stream"])],
            uuid.UUID(text_of(stored["log_id"])),
            whole(stored["bucket"], 0, LARGEST_BUCKET),
        )

    def check(self, other: LogIdentity, origin: Origin) -> None:
        """Refuse a segment of another log."""
        for name in ("log_id", "stream", "bucket"):
            ours, theirs = getattr(self, name), getattr(other, name)
            if ours != theirs:
                raise OtherQuery(
                    f"This segment belongs to another log: its {name} is {theirs!s}, not {ours!s}.",
                    where=origin.at(0),
                    fix="Give every operator a path of its own; do not copy files between logs.",
                )


@dataclass(frozen=True, slots=True)
class TimeRange:
    """The smallest and the largest event time of a batch, in microseconds, both included."""

    min_us: int
    max_us: int

    @classmethod
    def from_json(cls, min_us: object, max_us: object) -> TimeRange | None:
        """From the two ends as they are stored, or nulls; raises ``ValueError``."""
        if min_us is None and max_us is None:
            return None
        return cls(whole(min_us, *_INT128), whole(max_us, *_INT128))


@dataclass(frozen=True, slots=True)
class Footer:
    """What a segment says about itself.

    Parameters
    ----------
    identity, batch
        Which log, and which batch of it.
    previous
        The segment before this one in the same log; ``START_OF_LOG`` for the first.
    fingerprint
        Digest of the batch's input.
    written_us
        When the segment was encoded.
    time_range
        Event times of the batch; None if it has none.
    rows
        Rows per kind of frame. Filled in by the encoder.
    attributes
        A JSON object for the layers above; the log does not look into it.
    version
        Of the format it is written in.
    """

    identity: LogIdentity
    batch: int
    previous: SegmentLink
    fingerprint: Fingerprint
    written_us: int
    time_range: TimeRange | None = None
    rows: Mapping[FrameKind, int] = field(default_factory=dict)
    attributes: JsonObject = field(default_factory=dict)
    version: int = FORMAT_VERSION

    def to_json(self) -> bytes:
        """The footer as it is stored."""
        times = self.time_range
        return json_text.dump(
            {
                "attributes": self.attributes,
                "batch": self.batch,
                "bucket": self.identity.bucket,
                "fingerprint": {
                    "digest": self.fingerprint.digest,
                    "rows": self.fingerprint.rows,
                },
                "log_id": str(self.identity.log_id),
                "previous": {"batch": self.previous.batch, "checksum": self.previous.checksum},
                "rows": {kind.label: count for kind, count in self.rows.items()},
                "stream": self.identity.stream.name.lower(),
                "time_range": None if times is None else [times.min_us, times.max_us],
                "version": self.version,
                "written_us": self.written_us,
            },
            "attributes",
        )

    @classmethod
    def from_json(cls, text: bytes | memoryview, origin: Origin) -> Footer:
        """Read a footer whose checksum was verified; fields it does not know are left alone.

        A version, stream or kind of frame that it does not know is refused as such, before
        anything else is believed.
        """
        stored = json_text.load(text)
        if stored is None:
            raise origin.mismatch(0, "the footer is not a JSON object")
        check_version(stored.get("version"), origin)
        check_stream(stored.get("stream"), origin)
        _check_kinds(stored.get("rows"), origin)
        try:
            return cls._from_fields(stored)
        except (KeyError, TypeError, ValueError) as error:
            raise _strange_footer(error, origin) from error

    @classmethod
    def _from_fields(cls, stored: JsonObject) -> Footer:
        batch = whole(stored["batch"], 0, LARGEST_BATCH)
        previous = object_of(stored["previous"])
        digest = object_of(stored["fingerprint"])
        first, last = (None, None) if stored["time_range"] is None else stored["time_range"]
        rows = object_of(stored["rows"])
        return cls(
            identity=LogIdentity.from_json(stored),
            batch=batch,
            previous=SegmentLink(
                whole(previous["batch"], NO_BATCH, batch - 1),
                whole(previous["checksum"], 0, 2**32 - 1),
            ),
            fingerprint=Fingerprint(
                whole(digest["rows"], 0, _MOST_ROWS), whole(digest["digest"], 0, LARGEST_DIGEST)
            ),
            written_us=whole(stored["written_us"], *_INT64),
            time_range=TimeRange.from_json(first, last),
            rows={_KINDS[name]: whole(count, 0, _MOST_ROWS) for name, count in rows.items()},
            attributes=object_of(stored["attributes"]),
            version=stored["version"],
        )


def check_version(version: object, origin: Origin) -> None:
    """Refuse what a version of the format has written that is not known."""
    if type(version) is not int or version not in KNOWN_VERSIONS:
        known = " and ".join(map(str, KNOWN_VERSIONS))
        raise origin.unknown(
            0,
            f"This is version {shown(version)} of the log format; this Trailmark reads versions "
            f"{known}.",
        )


def check_stream(name: object, origin: Origin) -> None:
    """Refuse what belongs to a stream whose name is not known."""
    if isinstance(name, str) and name not in _STREAMS:
        raise unknown_stream(name, origin)


def unknown_stream(stream: str | int, origin: Origin) -> UnknownFormat:
    """The error to raise about a segment of a stream that is not known."""
    return origin.unknown(0, f"The stream {shown(stream)} is unknown to this Trailmark.")


def _check_kinds(rows: object, origin: Origin) -> None:
    names = sorted(rows.keys() - _KINDS.keys()) if isinstance(rows, dict) else []
    if names:
        raise origin.unknown(0, f"Frames of kind {shown(names[0])} are unknown to this Trailmark.")


def _strange_footer(error: Exception, origin: Origin) -> DamagedSegment:
    return origin.mismatch(0, f"a field of the footer is missing or strange ({error!r})")
