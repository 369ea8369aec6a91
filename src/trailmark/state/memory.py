"""Memory that the table lives in: mapped files that processes share, or private memory.

Space is allocated when a region grows, never by touching a hole: a full disk is an error here and
not a signal that kills the process later.
"""

from __future__ import annotations

import errno
import mmap
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trailmark.errors import CacheFull, CacheLost, StorageError
from trailmark.kernel.library import address

PAGE = 4096
_LARGE = 4 << 20


class Region:
    """A run of bytes that can grow. Views taken before a growth must not be used after it."""

    def __init__(self, path: Path | None, size: int, descriptor: int | None = None) -> None:
        self.path = path
        self._fd = -1
        if path is not None:
            self._fd = _open(path, size, descriptor)
            size = max(size, os.fstat(self._fd).st_size)
        try:
            self._map(size)
        except BaseException:
            self.close()
            raise

    def _map(self, size: int) -> None:
        size = (size + PAGE - 1) // PAGE * PAGE
        if self.path is not None:
            self._allocate(self.path, size)
            self._mapping = mmap.mmap(self._fd, size)
        else:
            # Without the flags a forked process would go on writing into its parent's table.
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
            self._mapping = mmap.mmap(-1, size, flags=flags)
        if size >= _LARGE and hasattr(mmap, "MADV_HUGEPAGE"):
            _ask_for_large_pages(self._mapping)
        self.bytes: npt.NDArray[np.uint8] = np.frombuffer(self._mapping, dtype=np.uint8)
        self.size = size

    def _allocate(self, path: Path, size: int) -> None:
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._fd, 0, size)
            else:
                os.ftruncate(self._fd, size)
        except OSError as error:
            raise _refused(error, path, size) from error

    def grow(self, size: int) -> None:
        if size <= self.size:
            return
        before = self.bytes
        self._map(size)
        if self._fd < 0:
            self.bytes[: len(before)] = before

    @property
    def address(self) -> int:
        return int(address(self.bytes) or 0)

    def view(self, dtype: Any, count: int, offset: int = 0) -> npt.NDArray[Any]:
        return np.frombuffer(self._mapping, dtype=dtype, count=count, offset=offset)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _ask_for_large_pages(mapping: mmap.mmap) -> None:
    """Lookups go anywhere in a table: with small pages most of them miss the TLB."""
    # Where the system has no large pages for such memory, small ones do.
    with suppress(OSError):
        mapping.madvise(mmap.MADV_HUGEPAGE)


def _open(path: Path, size: int, descriptor: int | None) -> int:
    name = path if descriptor is None else path.name
    try:
        return os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=descriptor)
    except OSError as error:
        raise _refused(error, path, size) from error


def _refused(error: OSError, path: Path, size: int) -> StorageError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return CacheFull(
            f"No room for {size:,} bytes of operator state.",
            where=str(path),
            fix="Make room there (for a container's /dev/shm: --shm-size), or set cache_dir.",
        )
    if error.errno in (errno.ENOENT, errno.ESTALE):
        return CacheLost(
            "The directory of operator state was deleted.",
            where=str(path),
            fix="Keep cleaners away from it; the state is recovered from the log.",
        )
    return StorageError(
        f"Operator state cannot grow: {error.strerror}.",
        where=str(path),
        fix="Choose a cache directory on a local file system.",
    )


class Memory:
    """Named regions: files of one directory, or private memory when there is none.

    With ``descriptor``, the files are those of the directory that it has open, whatever has become
    of its name.
    """

    def __init__(self, directory: Path | None = None, descriptor: int | None = None) -> None:
        self.directory = directory
        self._descriptor = descriptor
        self._regions: list[Region] = []

    def region(self, name: str, size: int) -> Region:
        path = self.directory / name if self.directory is not None else None
        region = Region(path, size, self._descriptor)
        self._regions.append(region)
        return region

    def files(self) -> dict[str, int]:
        """Names and sizes of the files in use."""
        return {r.path.name: r.size for r in self._regions if r.path is not None}

    @property
    def size(self) -> int:
        return sum(region.size for region in self._regions)

    def close(self) -> None:
        for region in self._regions:
            region.close()
        self._regions.clear()
