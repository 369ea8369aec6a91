"""Named readers: who still needs which batches of a log.

A reader registers before it reads and acknowledges what it has committed. Trimming keeps what any
of them still needs. Each has a small file of its own, so that readers do not wait for one another.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from trailmark.errors import DamagedSegment, SettingError, UnknownFormat
from trailmark.log import json_text
from trailmark.log.clock import Clock, wall_clock_us
from trailmark.log.damage import USE_A_NEWER_ONE
from trailmark.log.names import LARGEST_BATCH
from trailmark.log.storage import Storage
from trailmark.records import Stream

_DIRECTORY = "readers"
#: What the queries of readers have decided that follow an operator's tentative results, too.
_FOLLOWING = "following"
DECISIONS, CLAIMS = "decisions", "claims"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", re.ASCII)
_SUFFIX = ".json"
_STREAMS = {stream.name.lower(): stream for stream in Stream}


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader, which log it reads, the first batch it still needs, and when it last said so.

    Of a reader of replicas ``follows`` tells whether it follows this one now; None of all others.
    """

    name: str
    stream: Stream
    needs: int
    seen_us: int
    follows: bool | None = None


def register(
    storage: Storage, name: str, stream: Stream, needs: int, clock: Clock = wall_clock_us
) -> bool:
    """Says for the first time that a reader needs everything from a batch on.

    False if the reader is known: what it said last stands. Synced, unlike an acknowledgement: an
    older one of those keeps more, but a lost registration would keep nothing.
    """
    text = _text(Reader(name, stream, needs, clock()))
    if storage.publish(reader_path(name), [text], force_sync=True):
        return True
    try:
        known = read_reader(storage, name)
    except DamagedSegment:
        # Whoever reads knows what it needs; everybody else can only keep everything.
        storage.replace(reader_path(name), [text])
        return True
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
    storage: Storage,
    name: str,
    stream: Stream,
    needs: int,
    clock: Clock = wall_clock_us,
    *,
    follows: bool | None = None,
) -> None:
    """Says that a reader has committed all batches before this one."""
    storage.replace(reader_path(name), [_text(Reader(name, stream, needs, clock(), follows))])


def forget(storage: Storage, name: str) -> bool:
    """Remove a reader and what it has decided, so that nothing is kept for it; False if there is
    none of this name."""
    path = reader_path(name)
    if not storage.exists(path):
        return False
    # Without a claim its query, if it runs, plans no more; then its decisions may go.
    for directory in (CLAIMS, DECISIONS):
        within = f"{following_directory(name)}/{directory}"
        for entry in storage.list(within):
            storage.delete(f"{within}/{entry.name}")
    storage.delete(path)  # last: as long as anything is left, the reader can be forgotten
    return True


def reader_names(storage: Storage) -> list[str]:
    """The names of all readers, also of those whose file cannot be read."""
    names = [
        entry.name.removesuffix(_SUFFIX)
        for entry in storage.list(_DIRECTORY)
        if entry.name.endswith(_SUFFIX)
    ]
    return [name for name in names if _NAME.fullmatch(name)]


def registered(storage: Storage) -> list[Reader]:
    """All readers, by name."""
    found = [read_reader(storage, name) for name in reader_names(storage)]
    return [reader for reader in found if reader is not None]


def needed_from(storage: Storage, stream: Stream) -> int | None:
    """The first batch of a log that some reader still needs; None if nobody reads it."""
    readers = registered(storage)
    return min((each.needs for each in readers if each.stream is stream), default=None)


def up_to_readers(storage: Storage, stream: Stream, before: int) -> int:
    """The batch up to which a log may be trimmed, or an earlier one that a reader needs."""
    needed = needed_from(storage, stream)
    return before if needed is None else min(before, needed)


def check_reader_name(name: str) -> str:
    """The name, if it can be one."""
    if _NAME.fullmatch(name) is None:
        raise SettingError(
            f"{name!r} cannot be the name of a reader.",
            where="reader",
            fix="Use up to 100 letters, digits, '_', '-' and '.', such as 'billing'.",
        )
    return name


def read_reader(storage: Storage, name: str) -> Reader | None:
    """What a reader said last; None if there is none of this name."""
    path = reader_path(name)
    try:
        body = json_text.load_guarded(json_text.read_text(storage, path))
    except FileNotFoundError:
        return None  # forgotten since the directory was listed
    try:
        if body is not None:
            stream = _stream_of(json_text.text_of(body["stream"]), path)
            needs = json_text.whole(body["needs"], 0, LARGEST_BATCH + 1)
            seen_us = json_text.whole(body["seen_us"], -(2**63), 2**63 - 1)
            follows = body.get("follows")
            if follows not in (None, True, False):
                raise ValueError("neither followed nor not")
            return Reader(name, stream, needs, seen_us, follows)
    except (KeyError, TypeError, ValueError):
        pass  # whole, and not what a reader writes
    # Guessing could trim what somebody needs.
    raise DamagedSegment(
        f"What reader {name!r} needs cannot be read.",
        where=path,
        fix="Start the reader, which writes it anew with the next batch it commits, or remove the "
        f"reader with trailmark readers PATH --forget {name}.",
    )


def _stream_of(name: str, path: str) -> Stream:
    if name not in _STREAMS:
        raise UnknownFormat(
            f"The stream {json_text.shown(name)} is unknown to this Trailmark.",
            where=path,
            fix=USE_A_NEWER_ONE,
        )
    return _STREAMS[name]


def reader_path(name: str) -> str:
    """Where the file of a reader lies in the storage."""
    return f"{_DIRECTORY}/{check_reader_name(name)}{_SUFFIX}"


def following_directory(name: str) -> str:
    """Where the decisions of a reader's query lie in the storage."""
    return f"{_FOLLOWING}/{check_reader_name(name)}"


def _text(reader: Reader) -> bytes:
    body = {
        "name": reader.name,
        "needs": reader.needs,
        "seen_us": reader.seen_us,
        "stream": reader.stream.name.lower(),
    }
    if reader.follows is not None:
        body["follows"] = reader.follows
    return json_text.dump_guarded(body, "reader")
