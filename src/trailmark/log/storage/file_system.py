"""The file calls that local storage is made of, one system call each.

They are a seam: the tests put a simulated disk behind it that loses power at any one of them, so
that the very order in which `LocalStorage` writes, syncs and links is what gets tested.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from trailmark.log.storage.protocol import Part
from trailmark.values import dataclass

#: The most pieces one `writev` takes (POSIX promises 16, Linux and macOS give 1024).
_PIECES_PER_WRITE = min(1024, os.sysconf("SC_IOV_MAX")) if hasattr(os, "sysconf") else 16

# Linux: data and the size, not the times. Where there is no such call, all of it.
_sync_data = getattr(os, "fdatasync", os.fsync)


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """One name of a directory, as the file system sees it."""

    name: str
    size: int
    changed_us: int
    is_file: bool


class FileSystem(Protocol):
    """Calls behave, and raise ``OSError``, as their POSIX namesakes do."""

    def create(self, path: str) -> int:
        """Open a new file for writing; refuses an existing one."""

    def open(self, path: str) -> int:
        """Open an existing file, to be written over from its beginning."""

    def links(self, descriptor: int) -> int:
        """How many names the file has."""

    def write(self, descriptor: int, parts: Sequence[Part]) -> int:
        """Write at the end of what was written; may write less, says how much."""

    def cut(self, descriptor: int, size: int) -> None:
        """Give the file this size; what it held behind that is gone."""

    def sync(self, descriptor: int) -> None:
        """Put the file's bytes on disk."""

    def close(self, descriptor: int) -> None:
        """Give the descriptor back."""

    def link(self, source: str, target: str) -> None:
        """Give a file a second name; refuses an existing one."""

    def is_same(self, path: str, other: str) -> bool:
        """Whether both are names of one file."""

    def rename(self, source: str, target: str) -> None:
        """Change a file's name in one step, over an existing one."""

    def unlink(self, path: str) -> None:
        """Take a name away."""

    def make_directory(self, path: str) -> None:
        """Create one directory; refuses an existing one."""

    def sync_file(self, path: str) -> None:
        """Put the bytes of an existing file on disk, whoever wrote them."""

    def sync_directory(self, path: str) -> None:
        """Put the names of a directory on disk."""

    def read(self, path: str, offset: int, length: int | None) -> tuple[memoryview, int]:
        """Bytes of a file and the file's size; a negative offset counts from the end."""

    def size(self, path: str) -> int:
        """Size of a file."""

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        """The names of a directory, in no order."""


class OperatingSystem:
    """The real calls."""

    def create(self, path: str) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def open(self, path: str) -> int:
        return os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def links(self, descriptor: int) -> int:
        return os.fstat(descriptor).st_nlink

    def write(self, descriptor: int, parts: Sequence[Part]) -> int:
        return os.writev(descriptor, parts[:_PIECES_PER_WRITE])

    def cut(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        _sync_data(descriptor)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def link(self, source: str, target: str) -> None:
        os.link(source, target)

    def is_same(self, path: str, other: str) -> bool:
        return os.path.samestat(os.lstat(path), os.lstat(other))

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def make_directory(self, path: str) -> None:
        os.mkdir(path)

    def sync_file(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_directory(self, path: str) -> None:
        self.sync_file(path)

    def read(self, path: str, offset: int, length: int | None) -> tuple[memoryview, int]:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            start = offset if offset >= 0 else max(0, size + offset)
            wanted = max(0, size - start) if length is None else min(length, max(0, size - start))
            # Read, not mapped: a failing disk then raises here, in place of killing the process
            # when the page is first touched.
            return _read_into(descriptor, pa.allocate_buffer(wanted), start), size
        finally:
            os.close(descriptor)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        found = []
        with os.scandir(path) as entries:
            for entry in entries:
                try:
                    status = entry.stat()
                except FileNotFoundError:
                    continue  # deleted since the directory was read: it is not there
                # Of its name, too: a spare was written long before it is taken.
                changed_us = max(status.st_mtime_ns, status.st_ctime_ns) // 1_000
                is_file = entry.is_file()
                found.append(DirectoryEntry(entry.name, status.st_size, changed_us, is_file))
        return found


def _read_into(descriptor: int, buffer: pa.Buffer, start: int) -> memoryview:
    view = memoryview(buffer).cast("B")
    filled = 0
    while filled < len(view):
        count = os.preadv(descriptor, [view[filled:]], start + filled)
        if count == 0:
            break  # the file became shorter while it was read
        filled += count
    return view[:filled].toreadonly()
