"""Tables kept between batches: one directory per bucket, shared by the processes of a host.

A *token* beside the table says which batch it is the state after. While somebody changes the table
the token is absent, so a table whose writer died is never taken for whole. The token also names the
boot of the machine (after a power failure mapped pages may be lost, and the table is not used) and
the files of the table: where one of them was cleared away, the others are not used either.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import tempfile
from contextlib import suppress
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from trailmark.errors import NoPermission
from trailmark.records import SegmentLink
from trailmark.state.memory import Memory
from trailmark.values import dataclass

#: Seconds after which a table that nobody touched is in the way of others.
ABANDONED_AFTER = 3600.0

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Something that changes when the machine starts anew."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        # Without one, tables are used only by the process that made them.
        return f"process-{os.getpid()}"


def default_cache_root() -> Path:
    """Memory that processes share where there is such a file system, else temporary files."""
    shared = Path("/dev/shm")
    base = shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())
    return base / f"trailmark-{os.geteuid()}"


@dataclass(frozen=True, slots=True)
class Token:
    """What a whole table is the state of."""

    boot: str
    log_id: str
    bucket: int
    output: SegmentLink
    layout: str
    files: dict[str, int]
    notes: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Token:
        stored = json.loads(text)
        stored["output"] = SegmentLink(**stored["output"])
        return cls(**stored)


class CachedBucket:
    """The directory of one bucket's table, held by this process while it is open.

    The lock is on the directory itself, and whatever is in it is reached through the descriptor
    that has the lock. So if the directory is deleted and made anew, those who hold the one and the
    other do not meet.
    """

    def __init__(self, directory: Path, descriptor: int) -> None:
        self.directory = directory
        self._descriptor = descriptor

    def token(self) -> Token | None:
        """The token, unless it is absent, unreadable, of an earlier boot, or not of these files."""
        try:
            token = Token.from_json(self._read("token"))
            sizes = {name: self._size(name) for name in token.files}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return token if token.boot == boot_id() and token.files == sizes else None

    def memory(self, *, is_new: bool) -> Memory:
        if is_new:
            self.clear()
        return Memory(self.directory, self._descriptor)

    def begin_change(self) -> None:
        self._remove("token")

    def end_change(self, token: Token) -> None:
        """Puts the token back. Where there is no room for it the next batch has to recover."""
        try:
            self._write("token.new", token.to_json())
            os.replace(
                "token.new", "token", src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor
            )
        except OSError:
            self._remove("token.new")

    def clear(self) -> None:
        """Forgets the table: first the token, then what it stood for."""
        self._remove("token")
        for name in os.listdir(self._descriptor):
            self._remove(name)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self, name: str) -> str:
        with open(name, encoding="utf-8", opener=self._opener) as file:
            return file.read()

    def _write(self, name: str, text: str) -> None:
        with open(name, "w", encoding="utf-8", opener=self._opener) as file:
            file.write(text)

    def _opener(self, name: str, flags: int) -> int:
        return os.open(name, flags | os.O_CLOEXEC, 0o600, dir_fd=self._descriptor)

    def _size(self, name: str) -> int:
        return os.stat(name, dir_fd=self._descriptor).st_size

    def _remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._descriptor)


class StateCache:
    """Tables of all buckets below one directory of this host."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = default_cache_root() if root is None else root

    def acquire(self, log_id: str, bucket: int) -> CachedBucket | None:
        """The bucket's directory, or None if another process holds it or it cannot be made.

        Whoever gets None works in private memory: correct, but the state is recovered each time.
        """
        directory = self.root / log_id / f"{bucket:05d}"
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_private(self.root)
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return None
        return CachedBucket(directory, descriptor)

    def sweep(self, now: float, older_than: float = ABANDONED_AFTER) -> list[Path]:
        """Removes tables that nobody holds and nobody has used for so many seconds.

        Whose they were recovers from its log if it ever comes back.
        """
        removed = []
        for directory in self._directories():
            try:
                descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError:
                continue
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Every batch replaces the token, which changes the directory.
                if now - os.fstat(descriptor).st_mtime > older_than:
                    CachedBucket(directory, descriptor).clear()
                    directory.rmdir()
                    removed.append(directory)
            except OSError:
                continue  # in use, or somebody else sweeps too
            finally:
                os.close(descriptor)
        for log in {directory.parent for directory in removed}:
            with suppress(OSError):  # it still holds other buckets
                log.rmdir()
        return removed

    def _directories(self) -> list[Path]:
        try:
            _check_private(self.root)
            return [bucket for log in self.root.iterdir() for bucket in log.iterdir()]
        except (OSError, NoPermission):
            return []


def _check_private(root: Path) -> None:
    """In a shared place such as /dev/shm somebody else could have put tables there for us."""
    found = root.lstat()
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if not is_ours or found.st_mode & 0o022:
        raise NoPermission(
            "The cache directory can be written by other users.",
            where=str(root),
            fix="Remove it, or choose a cache directory of your own.",
        )
