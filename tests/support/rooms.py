"""Directories that hold so many bytes and no more, as a small ``/dev/shm`` does."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock


class Rooms:
    """Stands before the calls that a cache asks for room with."""

    def __init__(self) -> None:
        self.limits: dict[Path, int] = {}
        self._allocate = os.posix_fallocate
        self._statvfs = os.statvfs

    def allocate(self, descriptor: int, offset: int, length: int) -> None:
        root = self._root(descriptor)
        growth = offset + length - os.fstat(descriptor).st_size
        if root is not None and growth > self._left(root):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._allocate(descriptor, offset, length)

    def statvfs(self, path: Any) -> Any:
        root = self._root(path) if isinstance(path, int) else None
        if root is None:
            return self._statvfs(path)
        return SimpleNamespace(f_bavail=self._left(root), f_frsize=1)

    def _root(self, descriptor: int) -> Path | None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        return next((root for root in self.limits if path.is_relative_to(root)), None)

    def _left(self, root: Path) -> int:
        return max(0, self.limits[root] - used_bytes(root))


def used_bytes(root: Path) -> int:
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())


@contextmanager
def small_rooms() -> Iterator[Rooms]:
    rooms = Rooms()
    with mock.patch.multiple(os, posix_fallocate=rooms.allocate, statvfs=rooms.statvfs):
        yield rooms
