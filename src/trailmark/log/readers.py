"""Named readers: who still needs which batches of a log.

A reader registers before it reads and acknowledges what it has committed. Trimming keeps what any
of them still needs. Each has a small file of its own, so that readers do not wait for one another.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from trailmark.errors import DamagedSegment, SettingError
from trailmark.log import json_text
from trailmark.log.clock import Clock, wall_clock_us
from trailmark.log.storage import Storage
from trailmark.records import Stream

_DIRECTORY = "readers"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", re.ASCII)
_SUFFIX = ".json"
_STREAMS = {stream.name.lower(): stream for stream in Stream}


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader, which log it reads, the first batch it still needs, and when it last said so."""

    name: str
    stream: Stream
    needs: int
    seen_us: int


def register(
    storage: Storage, name: str, stream: Stream, needs: int, clock: Clock = wall_clock_us
) -> bool:
    """Says for the first time that a reader needs everything from a batch on.

    False if the reader is known: what it said last stands. Synced, unlike an acknowledgement: an
    older one of those keeps more, but a lost registration would keep nothing.
    """
    text = _text(Reader(name, stream, needs, clock()))
    if storage.publish(_path(name), [text], force_sync=True):
        return True
    known = _read(storage, name)
    if known is not None and known.stream is not stream:
        # What one of the two acknowledges would let go what the other needs.
        raise SettingError(
            f"{name!r} is the name of a reader that reads the {known.stream.name.lower()} log.",
            where="reader",
            fix="Give every reader a name of its own, or remove the other one with "
            f"trailmark readers PATH --forget {name}.",
        )
    return False


def acknowledge(
    storage: Storage, name: str, stream: Stream, needs: int, clock: Clock = wall_clock_us
) -> None:
    """Says that a reader has committed all batches before this one."""
    storage.replace(_path(name), [_text(Reader(name, stream, needs, clock()))])


def forget(storage: Storage, name: str) -> bool:
    """Remove a reader, so that nothing is kept for it; False if there is none of this name."""
    path = _path(name)
    if not storage.exists(path):
        return False
    storage.delete(path)
    return True


def registered(storage: Storage) -> list[Reader]:
    """All readers, by name."""
    found = []
    for entry in storage.list(_DIRECTORY):
        name = entry.name.removesuffix(_SUFFIX)
        if entry.name.endswith(_SUFFIX) and _NAME.fullmatch(name):
            reader = _read(storage, name)
            if reader is not None:
                found.append(reader)
    return found


def needed_from(storage: Storage, stream: Stream) -> int | None:
    """The first batch of a log that some reader still needs; None if nobody reads it."""
    readers = registered(storage)
    return min((each.needs for each in readers if each.stream is stream), default=None)


def check_reader_name(name: str) -> str:
    """The name, if it can be one."""
    if _NAME.fullmatch(name) is None:
        raise SettingError(
            f"{name!r} cannot be the name of a reader.",
            where="reader",
            fix="Use up to 100 letters, digits, '_', '-' and '.', such as 'billing'.",
        )
    return name


def _read(storage: Storage, name: str) -> Reader | None:
    path = _path(name)
    try:
        body = json_text.load_guarded(storage.read(path))
    except FileNotFoundError:
        return None  # forgotten since the directory was listed
    if body is None or body.get("stream") not in _STREAMS:
        # Guessing could trim what somebody needs.
        raise DamagedSegment(
            f"What reader {name!r} needs cannot be read.",
            where=path,
            fix="Start the reader, which writes it anew, or remove the reader with "
            f"trailmark readers PATH --forget {name}.",
        )
    return Reader(name, _STREAMS[body["stream"]], int(body["needs"]), int(body["seen_us"]))


def _path(name: str) -> str:
    return f"{_DIRECTORY}/{check_reader_name(name)}{_SUFFIX}"


def _text(reader: Reader) -> bytes:
    body = {
        "name": reader.name,
        "needs": reader.needs,
        "seen_us": reader.seen_us,
        "stream": reader.stream.name.lower(),
    }
    return json_text.dump_guarded(body, "reader")
