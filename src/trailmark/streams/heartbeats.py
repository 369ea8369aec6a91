"""Heartbeats: what a writer promises while it has no rows.

A heartbeat is a small file beside the manifests, published if absent under the writer's name and a
number that only grows. The newest of each writer counts and replaces those before, so a stream that
is silent for a year does not grow, and nobody who reads its rows is disturbed.

Only a writer whose source was asked and had nothing more may send one: the rows of a source that
merely does not answer are still to come.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from trailmark.errors import SettingError
from trailmark.log import Storage
from trailmark.log.json_text import dump_guarded, load_guarded, read_text, whole
from trailmark.log.names import LARGEST_BATCH
from trailmark.records import NO_BATCH
from trailmark.streams.times import EARLIEST, LATEST
from trailmark.values import dataclass

_DIRECTORY = "heartbeats"
_DIGITS = 20
_WRITER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", re.ASCII)
_FILE = re.compile(rf"({_WRITER.pattern})-([0-9]{{{_DIGITS}}})(\.gone)?\.json", re.ASCII)
#: The newest and the one before: whoever has listed the directory is about to read.
_KEPT = 2


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What a writer last said.

    Parameters
    ----------
    writer, number
        Whose it is, and its place among those of this writer.
    after
        The newest batch of the stream when it was sent: who has not read that yet must not go by
        the boundary.
    boundary_us
        No row that the writer is still to commit has an earlier time. None where the file cannot be
        read: then nothing is known of its writer.
    sent_us
        When that was, by the writer's clock.
    gone_after
        Its last batch with rows, if somebody has said that the writer will not come back.
    """

    writer: str
    number: int
    after: int = NO_BATCH
    boundary_us: int | None = None
    sent_us: int = 0
    gone_after: int | None = None


def check_writer(name: str) -> str:
    """The name, if a writer can have it."""
    if not isinstance(name, str) or _WRITER.fullmatch(name) is None:
        raise SettingError(
            f"{name!r} cannot be the name of a writer.",
            where="name",
            fix="Use up to 100 letters, digits, '_', '-' and '.', such as 'eu-1'.",
        )
    return name


def newest_heartbeats(storage: Storage) -> dict[str, Heartbeat]:
    """The newest heartbeat of each writer."""
    while True:
        newest = {writer: places[-1] for writer, places in _places(storage).items()}
        try:
            return {writer: _read(storage, writer, place) for writer, place in newest.items()}
        except FileNotFoundError:
            continue  # replaced by two newer ones since the directory was listed


def send(storage: Storage, heartbeat: Heartbeat) -> bool:
    """Publish a heartbeat and remove those it replaces.

    False if its place is taken, or a later one: then the writer, or one that took it for dead, has
    said as much or more.
    """
    place = (heartbeat.number, heartbeat.gone_after is None)
    known = _places(storage).get(heartbeat.writer, [])
    if known and known[-1] >= place:
        return False
    body = {
        "after": heartbeat.after,
        "boundary_us": heartbeat.boundary_us,
        "gone_after": heartbeat.gone_after,
        "sent_us": heartbeat.sent_us,
    }
    path = _path(heartbeat.writer, place)
    created = storage.publish(path, [dump_guarded(body, "heartbeat")])
    for old in known[: 1 - _KEPT]:
        storage.delete(_path(heartbeat.writer, old), synced=False)  # a newer one counts
    return created


#: A number, and whether the writer itself has used it: who says that it is gone takes none of its
#: numbers, and comes before the one that it uses next.
_Place: TypeAlias = tuple[int, bool]


def _places(storage: Storage) -> dict[str, list[_Place]]:
    """Where heartbeats of each writer are, in order."""
    found: dict[str, list[_Place]] = {}
    for entry in storage.list(_DIRECTORY):
        match = _FILE.fullmatch(entry.name)
        if match is not None:
            found.setdefault(match[1], []).append((int(match[2]), match[3] is None))
    return {writer: sorted(places) for writer, places in found.items()}


def _read(storage: Storage, writer: str, place: _Place) -> Heartbeat:
    number, _ = place
    body = load_guarded(read_text(storage, _path(writer, place)))
    try:
        if body is not None:
            gone, boundary = body["gone_after"], body["boundary_us"]
            return Heartbeat(
                writer,
                number,
                whole(body["after"], NO_BATCH, LARGEST_BATCH),
                None if boundary is None else whole(boundary, EARLIEST, LATEST),
                whole(body["sent_us"], EARLIEST, LATEST),
                None if gone is None else whole(gone, NO_BATCH, LARGEST_BATCH),
            )
    except (KeyError, TypeError, ValueError):
        pass  # whole, and not what a writer sends
    return Heartbeat(writer, number)


def _path(writer: str, place: _Place) -> str:
    number, is_its_own = place
    return f"{_DIRECTORY}/{writer}-{number:0{_DIGITS}d}{'' if is_its_own else '.gone'}.json"
