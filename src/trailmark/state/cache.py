"""Tables kept between batches: one directory per bucket, shared by the processes of a host.

A *token* beside the table says which batch it is the state after. While somebody changes the table
the token is absent, so a table whose writer died is never taken for whole. The token also names the
boot of the machine (after a power failure mapped pages may be lost, and the table is not used) and
the files of the table: where one of them was cleared away, the others are not used either.

The files of a table are memory that the processes of one user share, and are trusted like memory.
A token is text: what it names is looked up in the log, and what it notes is only about costs.

Where one directory has no room for a table, the next one takes it. A note stays behind that says
how much room was not enough, so that the following batches go where the table is.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import asdict, field
from pathlib import Path
from typing import Any, NamedTuple

from trailmark.errors import NoPermission
from trailmark.records import NO_BATCH, SegmentLink
from trailmark.state.memory import Memory
from trailmark.state.places import default_roots, is_private
from trailmark.values import dataclass

#: Seconds after which a table that nobody touched is in the way of others.
ABANDONED_AFTER = 3600.0

#: How the names of tables begin that no log stands behind, and how many times longer they are kept:
#: their query may only be waiting for rows, and cannot recover them.
UNLOGGED = "unlogged-"
_TIMES_LONGER = 24 * 7

#: A table that did not fit is tried again where so many times the room of then is free.
_ENOUGH_MORE = 1.25

_NO_ROOM = "there is no room in the cache"
#: What the system counts the room of files in.
_BLOCK = 512
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

#: More than any token has.
_MOST_BYTES = 1 << 24

#: What the fields of a token are.
_KINDS = {
    **dict.fromkeys(("boot", "log_id", "layout"), str),
    "bucket": int,
    **dict.fromkeys(("output", "files", "notes"), dict),
}

#: Three hundred years after the machine started.
_LATEST_US = 1e16

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Something that changes when the machine starts anew."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        # Without one, tables are used only by the process that made them.
        return f"process-{os.getpid()}"


@dataclass(frozen=True, slots=True)
class Token:
    """What a whole table is the state of; ``ended_us`` is when that batch ended, by a clock that
    never goes back."""

    boot: str
    log_id: str
    bucket: int
    output: SegmentLink
    layout: str
    files: dict[str, int]
    notes: dict[str, Any] = field(default_factory=dict)
    ended_us: float | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Token:
        """Raises ``ValueError``, ``TypeError`` or ``KeyError`` if it is no token."""
        try:
            stored = json.loads(text)
        except RecursionError:
            raise ValueError("nested too deep") from None
        for name, kind in _KINDS.items():
            if type(stored[name]) is not kind:
                raise TypeError(f"{name} is no {kind.__name__}")
        token = cls(**{**stored, "output": SegmentLink(**stored["output"])})
        if not type(token.output.batch) is type(token.output.checksum) is int:
            raise TypeError("output names no segment")
        if token.ended_us is not None and not 0 <= token.ended_us <= _LATEST_US:
            raise ValueError("ended_us is no time")
        return token


class CachedBucket:
    """The directory of one bucket's table, held by this process while it is open.

    The lock is on the directory itself, and whatever is in it is reached through the descriptor
    that has the lock. So if the directory is deleted and made anew, those who hold the one and the
    other do not meet.
    """

    def __init__(self, root: Path, directory: Path, descriptor: int) -> None:
        self.root = root
        self.directory = directory
        self._descriptor = descriptor

    def lock(self) -> bool:
        """Tells whether the directory is ours until it is closed, and nobody else's."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def token(self) -> Token | None:
        """The token, unless it is absent, unreadable, of an earlier boot, or not of these files."""
        try:
            token = Token.from_json(self._read("token"))
            sizes = {name: self._size(name) for name in token.files}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return token if token.boot == boot_id() and token.files == sizes else None

    def said_batch(self) -> int:
        """The batch that the token names, believed or not: hosts may share a directory that they
        should not. NO_BATCH if there is none."""
        try:
            return Token.from_json(self._read("token")).output.batch
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return NO_BATCH

    def age(self, now_us: float, steady_us: float) -> float:
        """Seconds since the table was used. What has no whole table, or one from the future, has
        only a time on the wall, which may lie ahead."""
        token = self.token()
        if token is not None and token.ended_us is not None and token.ended_us <= steady_us:
            return (steady_us - token.ended_us) / 1e6
        # Every batch replaces the token, which changes the directory.
        return abs(now_us / 1e6 - os.fstat(self._descriptor).st_mtime)

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
        for name in self._names():
            self._remove(name)

    def give_up(self) -> None:
        """Forgets the table, because there was no room for it, and notes how little room that was.

        Where there is none for the note either, the next batch tries in vain once more.
        """
        # A deleted file takes room until nobody maps it, so the table is counted by itself.
        free = self._free_bytes() + self._own_bytes()
        self.clear()
        with suppress(OSError):
            self._write("full", str(free))

    def has_room(self) -> bool:
        """Whether a table may fit: none was given up, or much more is free now."""
        try:
            free_then = int(self._read("full"))
        except (OSError, ValueError):
            return True
        return self._free_bytes() > _ENOUGH_MORE * free_then

    def _own_bytes(self) -> int:
        blocks = 0
        for name in self._names():
            with suppress(FileNotFoundError):  # a cleaner was faster
                blocks += os.stat(name, dir_fd=self._descriptor).st_blocks
        return blocks * _BLOCK

    def _free_bytes(self) -> int:
        status = os.statvfs(self._descriptor)
        return status.f_bavail * status.f_frsize

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self, name: str) -> str:
        with open(name, encoding="utf-8", opener=self._opener) as file:
            return file.read(_MOST_BYTES)

    def _write(self, name: str, text: str) -> None:
        with open(name, "w", encoding="utf-8", opener=self._opener) as file:
            file.write(text)

    def _opener(self, name: str, flags: int) -> int:
        return os.open(name, flags | os.O_CLOEXEC, 0o600, dir_fd=self._descriptor)

    def _size(self, name: str) -> int:
        return os.stat(name, dir_fd=self._descriptor).st_size

    def _names(self) -> list[str]:
        return os.listdir(self._descriptor)

    def _remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._descriptor)


class Acquired(NamedTuple):
    """A bucket's directory, and the token of the table in it; or why there is no such table, and
    where to build it anew, if anywhere."""

    cached: CachedBucket | None
    token: Token | None
    why: str


class StateCache:
    """Tables of all buckets, below a directory of this host, or below the next if it is full."""

    def __init__(self, root: Path | None = None, *others: Path) -> None:
        self.roots = default_roots() if root is None else [root, *others]

    @property
    def place(self) -> str:
        """Names the memory that tables are in first: the same for all processes that share it, and
        for no others. Empty if there is none."""
        for root in self.roots[:1]:
            with suppress(OSError):
                root.mkdir(mode=0o700, parents=True, exist_ok=True)
                found = root.stat()
                return f"{boot_id()} {found.st_dev} {found.st_ino}"
        return ""

    def acquire(
        self,
        log_id: str,
        bucket: int,
        is_current: Callable[[Token], bool] = lambda token: True,
        *,
        without: Collection[Path] = (),
    ) -> Acquired:
        """The bucket's table, wherever there is one that is current; else the first directory that
        may have room for it.

        Whoever gets no directory works in private memory: correct, but the state is recovered each
        time. So does whoever meets another process: two would only be in each other's way.
        """
        if without and set(self.roots) <= set(without):
            return Acquired(None, None, _NO_ROOM)
        roots = [root for root in self.roots if root not in without]
        opened: list[CachedBucket] = []
        found = None
        try:
            found = _look(roots, f"{log_id}/{bucket:05d}", is_current, opened)
            return found
        finally:
            for cached in opened:
                if found is None or cached is not found.cached:
                    cached.close()

    def newest_of(self, log_id: str, bucket: int) -> int:
        """The newest batch that a table of the bucket is said to be the state after, by whatever
        host, or NO_BATCH; looked up without taking the bucket from anybody."""
        newest = NO_BATCH
        for root in self.roots:
            cached = _open(root, f"{log_id}/{bucket:05d}", is_made=False)
            if cached is not None:
                newest = max(newest, cached.said_batch())
                cached.close()
        return newest

    def sweep(
        self, now_us: float, steady_us: float, older_than: float = ABANDONED_AFTER
    ) -> list[Path]:
        """Removes tables that nobody holds and nobody has used for so many seconds.

        Whose they were recovers from its log if it ever comes back. Clocks on the wall jump:
        ``steady_us`` is that of the batches, which does not.
        """
        removed = []
        for directory in self._directories():
            try:
                descriptor = os.open(directory, _DIRECTORY)
            except OSError:
                continue
            cached = CachedBucket(directory.parent.parent, directory, descriptor)
            is_logged = not directory.parent.name.startswith(UNLOGGED)
            patience = older_than if is_logged else older_than * _TIMES_LONGER
            try:
                if cached.lock() and cached.age(now_us, steady_us) > patience:
                    cached.clear()
                    directory.rmdir()
                    removed.append(directory)
            except OSError:
                continue  # somebody else sweeps too
            finally:
                cached.close()
        for log in {directory.parent for directory in removed}:
            with suppress(OSError):  # it still holds other buckets
                log.rmdir()
        return removed

    def _directories(self) -> list[Path]:
        found: list[Path] = []
        for root in self.roots:
            with suppress(OSError):
                if is_private(root):
                    found += [bucket for log in root.iterdir() for bucket in log.iterdir()]
        return found


def _look(
    roots: list[Path], name: str, is_current: Callable[[Token], bool], opened: list[CachedBucket]
) -> Acquired:
    build_in, why = None, "the cache cannot be used"
    for root in roots:
        cached = _open(root, name, is_made=build_in is None)
        if cached is None:
            continue
        opened.append(cached)
        if not cached.lock():
            return Acquired(None, None, "the cache is in use by another process")
        token = cached.token()
        if token is not None and is_current(token):
            return Acquired(cached, token, "")
        if build_in is not None:
            cached.clear()  # whatever it is, it will not be used again
        elif cached.has_room():
            build_in = cached
            is_another = token is not None
            why = "the cached table is another's" if is_another else "no whole table in the cache"
        else:
            why = _NO_ROOM
    return Acquired(build_in, None, why)


def _open(root: Path, name: str, *, is_made: bool) -> CachedBucket | None:
    """A bucket's directory; None if it is not there, or cannot be made."""
    directory = root / name
    try:
        if is_made:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_private(root)
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        elif not is_private(root):
            return None
        descriptor = os.open(directory, _DIRECTORY)
    except OSError:
        return None
    return CachedBucket(root, directory, descriptor)


def _check_private(root: Path) -> None:
    """In a shared place such as /dev/shm somebody else could have put tables there for us."""
    if not is_private(root):
        raise NoPermission(
            "The cache directory can be written by other users.",
            where=str(root),
            fix="Remove it, or choose a cache directory of your own.",
        )
