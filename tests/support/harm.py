"""Harm done to the files of a log on a simulated disk: as a failing disk or a wrong hand would."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from trailmark.log.names import log_directory, segment_name
from trailmark.records import Stream
from trailmark.testing.disk import SimulatedDisk

#: Places in a segment, as parts of its length: header, frames, footer, trailer.
PLACES = {"header": 0.0, "frames": 0.3, "footer": 0.9, "trailer": 1.0}


def segment_path(stream: Stream, batch: int, bucket: int = 0) -> str:
    return f"{log_directory(stream, bucket)}/{segment_name(batch)}"


def flip_in(
    disk: SimulatedDisk, stream: Stream, batch: int, place: float = 0.3, bucket: int = 0
) -> str:
    """Flips one bit of a segment; returns the name of its file."""
    path = segment_path(stream, batch, bucket)
    size = len(disk.content(path))
    disk.flip(path, min(size - 1, int(size * place)), 4)
    return path


def bring_back(disk: SimulatedDisk, earlier: SimulatedDisk, paths: Iterable[str]) -> None:
    """Files that were deleted are there again: what a power failure may do after a trim."""
    for path in paths:
        assert disk.storage().publish(path, [earlier.content(path)])


def flip_anywhere(disk: SimulatedDisk, stream: Stream, batch: int, rng: random.Random) -> str:
    path = segment_path(stream, batch)
    disk.flip(path, rng.randrange(len(disk.content(path))), rng.randrange(8))
    return path


def _flips(disk: SimulatedDisk, path: str) -> Iterator[str]:
    for offset in range(len(disk.content(path))):
        bit = offset % 8
        disk.flip(path, offset, bit)
        yield f"byte {offset}"
        disk.flip(path, offset, bit)


def _cuts(disk: SimulatedDisk, path: str) -> Iterator[str]:
    whole = disk.content(path)
    for size in range(len(whole)):
        disk.truncate(path, size)
        yield f"cut to {size}"
        disk.overwrite(path, whole)


#: Does harm after harm to a file, each undone before the next; says which it is.
Harm: TypeAlias = Callable[[SimulatedDisk, str], Iterator[str]]
EVERY_BYTE: Mapping[str, Harm] = {"flip": _flips, "cut": _cuts}
