"""Files and directories of the simulated disk, and what a power failure leaves of them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

#: A disk writes this many bytes whole or not at all.
SECTOR = 512


class Crashed(BaseException):
    """The machine or process stopped here. Not an `Exception`, so that nothing swallows it."""


@dataclass(eq=False, slots=True)
class File:
    """Bytes as they are seen, and as they were when they were synced last."""

    data: bytearray = field(default_factory=bytearray)
    on_disk: bytes = b""
    #: Whether a sync has failed since they were written.
    is_lost: bool = False

    def sync(self) -> None:
        if not self.is_lost:
            self.on_disk = bytes(self.data)


@dataclass(eq=False, slots=True)
class Directory:
    """Names as they are seen, as they are on disk, and the changes that are not there yet.

    A change is a set of names that changes in one step (a rename changes two).
    """

    names: dict[str, File | Directory] = field(default_factory=dict)
    on_disk: dict[str, File | Directory] = field(default_factory=dict)
    pending: list[Mapping[str, File | Directory | None]] = field(default_factory=list)

    def change(self, step: Mapping[str, File | Directory | None]) -> None:
        _apply(self.names, step)
        self.pending.append(step)

    def sync(self) -> None:
        self.on_disk = dict(self.names)
        self.pending.clear()


Node: TypeAlias = File | Directory


def _apply(names: dict[str, Node], step: Mapping[str, Node | None]) -> None:
    for name, node in step.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def survivors(root: Directory, rng: random.Random) -> Directory:
    """What a power failure leaves: all that was synced, and any part of what was not."""
    return _surviving_directory(root, rng, {})


def _surviving_directory(
    directory: Directory, rng: random.Random, files: dict[File, File]
) -> Directory:
    names = dict(directory.on_disk)
    chance = rng.choice((0.0, 0.5, 0.5, 1.0))
    for step in directory.pending:
        if rng.random() < chance:
            _apply(names, step)
    kept: dict[str, Node] = {}
    for name, node in names.items():
        if isinstance(node, Directory):
            kept[name] = _surviving_directory(node, rng, files)
        else:
            if node not in files:
                files[node] = _surviving_file(node, rng)
            kept[name] = files[node]
    return Directory(kept, dict(kept))


def _surviving_file(file: File, rng: random.Random) -> File:
    """Any size between the two, and of every sector either what it was or what it was to be."""
    synced, seen = len(file.on_disk), len(file.data)
    length = rng.choice((synced, seen, rng.randint(min(synced, seen), max(synced, seen))))
    before, after = (bytes(of).ljust(length, b"\0") for of in (file.on_disk, file.data))
    data = bytearray(before[:length])
    chance = rng.choice((0.0, 0.5, 1.0))
    for first in range(0, length, SECTOR):
        if rng.random() < chance:
            data[first : first + SECTOR] = after[:length][first : first + SECTOR]
    return File(data, bytes(data))
