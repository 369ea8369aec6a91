"""Heartbeats: what a writer promises while it has no rows.

A heartbeat is a small file beside the manifests, published if absent under the writer's name and a
number that only grows. The newest of each writer counts and replaces those before, so a stream that
is silent for a year does not grow, and nobody who reads its rows is disturbed.

Only a writer whose source was asked and had nothing more may send one: the rows of a source that
merely does not answer are still to come.

There are two kinds beside those that a writer sends when it is silent. With the first, a writer
that is new says that it is there, before anything else: from then on nobody goes on without it.
With the last, somebody else says that nobody waits for it any more.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from enum import IntEnum
from typing import TypeAlias

from trailmark.errors import SettingError, TrailmarkError
from trailmark.log import Storage
from trailmark.log.json_text import dump_guarded, load_guarded, read_text, whole
from trailmark.log.names import LARGEST_BATCH
from trailmark.records import NO_BATCH
from trailmark.streams.times import EARLIEST, LATEST
from trailmark.values import dataclass

_log = logging.getLogger("trailmark")

#: Where they are.
HEARTBEATS = "heartbeats"
_DIGITS = 20
_WRITER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", re.ASCII)
_FILE = re.compile(rf"({_WRITER.pattern})-([0-9]{{{_DIGITS}}})(\.gone|\.new)?\.json", re.ASCII)
#: The newest and the one before: whoever has listed the directory is about to read.
_KEPT = 2


class Said(IntEnum):
    """What a heartbeat says. Of those with one number, the greatest counts: who says that a writer
    is gone, or that it is there, takes none of its own numbers."""

    GONE = 0
    NEW = 1
    SILENT = 2


_SUFFIXES = {Said.GONE: ".gone", Said.NEW: ".new", Said.SILENT: ""}
_KINDS = {suffix: said for said, suffix in _SUFFIXES.items()}

_Place: TypeAlias = tuple[int, Said]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What a writer last said, or what was said of it.

    Parameters
    ----------
    writer, number
        Whose it is, and its place among those of this writer.
    said
        What it is about.
    after
        The newest batch of the stream when it was sent: who has not read that yet must not go by
        the boundary.
    boundary_us
        No row that the writer is still to commit has an earlier time; None if it does not say.
    stream_us
        How far the stream had come without it; None if that was not known.
    sent_us
        When it was sent, by the sender's clock.
    committed
        The last batch with rows of a writer that is new or gone, in its own numbers: once there is
        another, it is neither.
    problem
        Why the file cannot be used; empty if it can.
    """

    writer: str
    number: int
    said: Said = Said.SILENT
    after: int = NO_BATCH
    boundary_us: int | None = None
    stream_us: int | None = None
    sent_us: int = 0
    committed: int = NO_BATCH
    problem: str = ""

    def still_holds(self, committed: Mapping[str, int]) -> bool:
        """Whether a writer that is new or gone has committed nothing since."""
        return committed.get(self.writer, NO_BATCH) <= self.committed


def check_writer(name: str) -> str:
    """The name, if a writer can have it."""
    if not isinstance(name, str) or _WRITER.fullmatch(name) is None:
        raise SettingError(
            f"{name!r} cannot be the name of a writer.",
            where="name",
            fix="Use up to 100 letters, digits, '_', '-' and '.', such as 'eu-1'.",
        )
    return name


def next_number(newest: Heartbeat | None) -> int:
    """The number of whatever is said after a heartbeat."""
    return 0 if newest is None else newest.number + 1


def newest_heartbeats(storage: Storage) -> dict[str, Heartbeat]:
    """The newest heartbeat of each writer."""
    found: dict[str, Heartbeat] = {}
    missing = _places(storage)
    while missing:
        for writer, places in missing.items():
            with suppress(FileNotFoundError):  # two newer ones have come since it was listed
                found[writer] = _newest(storage, writer, places)
        if len(found.keys() & missing.keys()) == len(missing):
            break
        missing = {each: at for each, at in _places(storage).items() if each not in found}
    return found


def send(storage: Storage, heartbeat: Heartbeat) -> bool:
    """Publish a heartbeat and remove those it replaces.

    False if its place is taken, or a later one: then the writer, or one that took it for dead, has
    said as much or more.
    """
    place = (heartbeat.number, heartbeat.said)
    known = _places(storage).get(heartbeat.writer, [])
    if known and known[-1] >= place:
        settle(storage, heartbeat.writer, known[-1])
        return False
    body = {
        "after": heartbeat.after,
        "boundary_us": heartbeat.boundary_us,
        "committed": heartbeat.committed,
        "sent_us": heartbeat.sent_us,
        "stream_us": heartbeat.stream_us,
    }
    path = _path(heartbeat.writer, place)
    created = storage.publish(path, [dump_guarded(body, "heartbeat")])
    try:
        for old in known[: 1 - _KEPT]:
            storage.delete(_path(heartbeat.writer, old), synced=False)
    except TrailmarkError as error:
        # It is sent, and nobody goes by those that are left.
        _log.warning("The heartbeats before %s are not removed: %s", path, error)
    return created


def settle(storage: Storage, writer: str, place: tuple[int, Said]) -> None:
    """Make sure that a heartbeat which was found lasts: who sent it may have been killed before it
    was on disk, and others have seen it since."""
    with suppress(FileNotFoundError):  # it has been replaced
        storage.settle(_path(writer, place))


def _places(storage: Storage) -> dict[str, list[_Place]]:
    """Where heartbeats of each writer are, in order."""
    found: dict[str, list[_Place]] = {}
    for entry in storage.list(HEARTBEATS):
        match = _FILE.fullmatch(entry.name)
        if match is not None:
            found.setdefault(match[1], []).append((int(match[2]), _KINDS[match[3] or ""]))
    return {writer: sorted(places) for writer, places in found.items()}


def _newest(storage: Storage, writer: str, places: list[_Place]) -> Heartbeat:
    """The newest; where that is damaged, the one before: it promises less, but it does."""
    newest = _read(storage, writer, places[-1])
    if not newest.problem or len(places) == 1:
        return newest
    before = _read(storage, writer, places[-2])
    return newest if before.problem else before


def _read(storage: Storage, writer: str, place: _Place) -> Heartbeat:
    number, said = place
    path = _path(writer, place)
    body = load_guarded(read_text(storage, path))
    try:
        if body is not None:
            return Heartbeat(
                writer,
                number,
                said,
                whole(body["after"], NO_BATCH, LARGEST_BATCH),
                _time(body["boundary_us"]),
                _time(body["stream_us"]),
                whole(body["sent_us"], EARLIEST, LATEST),
                whole(body["committed"], NO_BATCH, LARGEST_BATCH),
            )
    except (KeyError, TypeError, ValueError):
        pass  # whole, and not what a writer sends
    return Heartbeat(writer, number, problem=f"{path} cannot be read")


def _time(value: object) -> int | None:
    return None if value is None else whole(value, EARLIEST, LATEST)


def _path(writer: str, place: _Place) -> str:
    number, said = place
    return f"{HEARTBEATS}/{writer}-{number:0{_DIGITS}d}{_SUFFIXES[said]}.json"
