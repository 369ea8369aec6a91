"""What a log asks of the place it is stored in.

Paths are relative and separated by ``/``: the storage decides what they are relative to. A file
that is not there raises the built-in ``FileNotFoundError``; everything else that goes wrong is a
``StorageError``, ``DiskFull`` or ``NoPermission``.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Protocol, TypeAlias

from trailmark.values import dataclass

#: One piece of a file to be written. A file is given in pieces so that nobody has to join them.
Part: TypeAlias = bytes | memoryview


def is_made_of(content: memoryview, parts: Sequence[Part]) -> bool:
    """Whether these are the bytes of the parts, one after another."""
    at = 0
    for part in parts:
        size = memoryview(part).nbytes
        if content[at : at + size] != memoryview(part).cast("B"):
            return False
        at += size
    return at == len(content)


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a directory."""

    name: str
    size: int


class Storage(Protocol):
    """Immutable files, published if absent."""

    def publish(self, path: str, parts: Sequence[Part], *, force_sync: bool = False) -> bool:
        """Create a file whole, or not at all.

        True: the file that is there is this call's. False: it is another's, and stays as it is.
        Which of the two, the storage finds out by looking where an answer was lost; an object
        store cannot tell files with the same bytes apart, and calls either of them this call's.
        Either way a file is there that a failure does not take away, as far as the storage's
        ``Durability`` goes; ``force_sync`` asks for the strictest one.

        After an error it is unknown whether the file is there, or whether it lasts: look.
        """

    def replace(self, path: str, parts: Sequence[Part]) -> None:
        """Create or overwrite a file in one step. Only for data that can be derived again."""

    def settle(self, path: str) -> None:
        """Make sure that a file found here survives a power failure, whoever wrote it."""

    def read(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        """Bytes of a file, up to its end or up to ``length``; fewer if the file ends before."""

    def read_tail(self, path: str, length: int) -> tuple[memoryview, int]:
        """The last ``length`` bytes, or all if there are fewer, and the size of the whole file."""

    def size(self, path: str) -> int:
        """Size of a file in bytes."""

    def exists(self, path: str) -> bool:
        """Whether a file is there."""

    # `builtins` because inside a class with this method, `list` is the method.
    def list(self, directory: str) -> builtins.list[Entry]:
        """The files of a directory by name, without temporaries; none if there is no directory."""

    def directories(self, directory: str) -> builtins.list[str]:
        """The names of the directories in a directory, which has to be there.

        An object store knows no empty directories, and so finds none where there is nothing.
        """

    def delete(self, path: str, *, synced: bool = True) -> None:
        """Remove a file if it is there, so that no power failure brings it back.

        Deletions therefore survive in the order they were made in. Those that are not ``synced``
        do not: until something else in the directory is synced, a power failure may bring any of
        the files back and leave the others away.
        """

    def recycle(self, path: str) -> None:
        """`delete`, not synced, that may leave the file's space to one that is written later.

        Who reads the file at the moment may find anything in it, but then finds it gone. Only a
        file that has a second name may stay, as it was.
        """

    def set_aside(self, path: str) -> str:
        """Move a file below ``aside/``, never over an earlier one; returns where it is now."""

    def clean(self, directory: str) -> builtins.list[str]:
        """Remove what dead writers left half written in a directory; returns the names."""
