"""A disk in memory that loses power, tears writes, fills up and fails, under `LocalStorage`.

`SimulatedDisk` stands behind the file-system seam, so what is tested is the very order in which
`LocalStorage` writes, syncs, links and unlinks. It knows two truths: what the operating system
shows, and what would be found after a power failure. ``sync`` of a file moves its bytes, ``sync``
of a directory its names, from the first to the second. As on Linux, bytes whose ``sync`` failed
count as written from then on: the next one says that all is well, and moves nothing.
"""

from __future__ import annotations

import copy
import errno
import os
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from trailmark.log.storage import LocalStorage, Part
from trailmark.log.storage.file_system import DirectoryEntry
from trailmark.settings import Durability
from trailmark.testing.disk_nodes import Crashed, Directory, File, Node, survivors

__all__ = ["REPEATABLE", "ROOT", "Crashed", "SimulatedDisk"]

ROOT = "/disk"


@dataclass(slots=True)
class _Opened:
    """A file that is being written, by the name it was opened under, and up to where."""

    file: File
    path: str
    end: int = 0

    def put(self, data: bytes) -> None:
        self.file.data[self.end : self.end + len(data)] = data
        self.file.is_lost = False
        self.end += len(data)


@dataclass(slots=True)
class _Schedule:
    stop_at: int | None = None
    stop_before: str | None = None
    fail_at: int | None = None
    fail_with: int | None = None
    is_carried_out: bool = False
    is_down: bool = False

    def stops_at(self, name: str, path: str) -> bool:
        """Whether this makes the file before which the disk is to stop."""
        stop = self.stop_before
        return stop is not None and name in ("create", "rename") and path.startswith(stop)


#: What a request that was carried out says when it comes again, as a network file system's does
#: that got no answer to the first. Others can be repeated, or fail for want of an answer.
REPEATABLE = {
    "create": errno.EEXIST,
    "link": errno.EEXIST,
    "make_directory": errno.EEXIST,
    "rename": errno.ENOENT,
    "unlink": errno.ENOENT,
}
#: The calls that change nothing.
_LOOKS = frozenset({"open", "links", "close", "is_same", "read", "size", "list_directory"})


@dataclass
class SimulatedDisk:
    """Implements `FileSystem`; thread-safe.

    ``operations`` counts the calls that change something, ``calls`` counts all of them. ``failed``
    is the last that was made to fail, ``stopped`` the last in which the disk stopped: the name of
    the call and the path.
    ``capacity`` is in bytes of file content; None is boundless. ``largest_write`` makes one call
    take no more than that, as the real one may.
    """

    capacity: int | None = None
    largest_write: int | None = None
    now_us: int = 0
    operations: int = 0
    calls: int = 0
    failed: tuple[str, str] | None = None
    stopped: tuple[str, str] | None = None
    _root: Directory = field(default_factory=Directory)
    _opened: dict[int, _Opened] = field(default_factory=dict)
    _next_descriptor: int = 3
    _schedule: _Schedule = field(default_factory=_Schedule)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    # What a test does with it.

    def storage(self, durability: Durability = Durability.SYNCED) -> LocalStorage:
        """A new process's view of the disk. Make a new one after every crash or kill."""
        return LocalStorage(ROOT, durability, file_system=self, clock=lambda: self.now_us)

    def stop_after(self, operations: int) -> None:
        """Let that many changes happen from now on, then raise `Crashed` in the next one.

        A write is interrupted half-way, everything else before it happens. From then on every
        call raises, until `crash` or `kill` says what became of the machine.
        """
        self._schedule.stop_at = self.operations + operations + 1

    def stop_before_writing(self, path: str) -> None:
        """Raise `Crashed` when the file is about to be made, under a temporary name."""
        directory, _, name = f"{ROOT}/{path}".rpartition("/")
        self._schedule.stop_before = f"{directory}/.{name}."

    def fail_on(self, call: int, code: int) -> None:
        """Fail the n-th call from now, counted from 1, with an ``errno``; once."""
        self._schedule.fail_at = self.calls + call
        self._schedule.fail_with = code

    def lose_answer(self, call: int, code: int | None = None) -> None:
        """Carry out the n-th call from now, but report a failure; once.

        Without a code it fails as if the request had been sent twice and only the second answer
        had come.
        """
        self._schedule.fail_at = self.calls + call
        self._schedule.fail_with = code
        self._schedule.is_carried_out = True

    def relax(self) -> None:
        """Forget what has been planned."""
        self._schedule = _Schedule()

    def crash(self, rng: random.Random) -> None:
        """Power failure: what was synced survives, of the rest a random part, torn."""
        with self._lock:
            self._root = survivors(self._root, rng)
            self._restart()

    def kill(self) -> None:
        """kill -9: all that was written stays as it is, finished or not."""
        with self._lock:
            self._restart()

    def flip(self, path: str, offset: int, bit: int) -> None:
        """Change one bit of a file, below everything that could notice."""
        data = bytearray(self.content(path))
        data[offset] ^= 1 << bit
        self._overwrite(path, data)

    def truncate(self, path: str, size: int) -> None:
        """Cut a file off."""
        self._overwrite(path, bytearray(self.content(path)[:size]))

    def overwrite(self, path: str, data: bytes) -> None:
        """Give a file other bytes."""
        self._overwrite(path, bytearray(data))

    def content(self, path: str) -> bytes:
        """The bytes of a file, named as the storage names it."""
        return bytes(self._file(f"{ROOT}/{path}").data)

    def files(self) -> list[str]:
        """All files, temporaries too, named as the storage names them."""
        return sorted(path.removeprefix(f"{ROOT}/") for path in _walk(self._root, ""))

    def copy(self) -> SimulatedDisk:
        """Another disk with the same files."""
        with self._lock:
            root = copy.deepcopy(self._root)
            return SimulatedDisk(capacity=self.capacity, now_us=self.now_us, _root=root)

    # The calls of `FileSystem`.

    def create(self, path: str) -> int:
        with self._call("create", path):
            directory, name = self._parent(path)
            if name in directory.names:
                raise _error(errno.EEXIST, path)
            file = File()
            directory.change({name: file})
            return self._give(file, path)

    def open(self, path: str) -> int:
        with self._call("open", path):
            return self._give(self._file(path), path)

    def links(self, descriptor: int) -> int:
        with self._call("links", self._path(descriptor)):
            file = self._opened[descriptor].file
            return sum(each is file for each in _files_below(self._root))

    def write(self, descriptor: int, parts: Sequence[Part]) -> int:
        data = b"".join(parts)[: self.largest_write]
        with self._lock:
            opened = self._opened.get(descriptor)
            try:
                with self._call("write", self._path(descriptor)):
                    assert opened is not None
                    data = data[: self._room_for(opened)]
                    opened.put(data)
                    return len(data)
            except Crashed:
                if opened is not None:
                    opened.put(data[: len(data) // 2])
                raise

    def _room_for(self, opened: _Opened) -> int | None:
        if self.capacity is None:
            return None
        # What is written over takes no more room than it has.
        room = len(opened.file.data) - opened.end + self.capacity - self._used()
        if room <= 0:
            raise _error(errno.ENOSPC, "")
        return room

    def cut(self, descriptor: int, size: int) -> None:
        with self._call("cut", self._path(descriptor)):
            del self._opened[descriptor].file.data[size:]

    def sync(self, descriptor: int) -> None:
        self._sync("sync", self._path(descriptor), lambda: self._opened[descriptor].file)

    def close(self, descriptor: int) -> None:
        with self._call("close", self._path(descriptor)):
            del self._opened[descriptor]

    def link(self, source: str, target: str) -> None:
        with self._call("link", target):
            file = self._file(source)
            directory, name = self._parent(target)
            if name in directory.names:
                raise _error(errno.EEXIST, target)
            directory.change({name: file})

    def rename(self, source: str, target: str) -> None:
        with self._call("rename", target):
            file = self._file(source)
            directory, name = self._parent(target)
            origin, old_name = self._parent(source)
            assert origin is directory, "only renames within a directory are in one step"
            if directory.names.get(name) is not file:  # of two names for one file both stay
                directory.change({name: file, old_name: None})

    def unlink(self, path: str) -> None:
        with self._call("unlink", path):
            self._file(path)
            directory, name = self._parent(path)
            directory.change({name: None})

    def make_directory(self, path: str) -> None:
        with self._call("make_directory", path):
            directory, name = self._parent(path)
            if name in directory.names:
                raise _error(errno.EEXIST, path)
            directory.change({name: Directory()})

    def is_same(self, path: str, other: str) -> bool:
        with self._call("is_same", other):
            return self._node(path) is self._node(other)

    def sync_file(self, path: str) -> None:
        self._sync("sync_file", path, lambda: self._file(path))

    def sync_directory(self, path: str) -> None:
        with self._call("sync_directory", path):
            self._directory(path).sync()

    def read(self, path: str, offset: int, length: int | None) -> tuple[memoryview, int]:
        with self._call("read", path):
            data = bytes(self._file(path).data)
            start = offset if offset >= 0 else max(0, len(data) + offset)
            end = len(data) if length is None else start + length
            return memoryview(data)[start:end], len(data)

    def size(self, path: str) -> int:
        with self._call("size", path):
            return len(self._file(path).data)

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        with self._call("list_directory", path):
            names = self._directory(path).names.items()
            return [
                DirectoryEntry(name, _size_of(node), self.now_us, isinstance(node, File))
                for name, node in names
            ]

    # How they are carried out.

    @contextmanager
    def _call(self, name: str, path: str) -> Iterator[None]:
        """Counts a call; fails it, before or after it is carried out, if that is planned."""
        with self._lock:
            failure = self._begin(name, path)
            yield
            if failure is not None:
                raise failure

    def _begin(self, name: str, path: str) -> OSError | None:
        """The failure that is to be reported once the call is carried out."""
        schedule = self._schedule
        if schedule.is_down:
            raise Crashed
        self.calls += 1
        failure = None
        if self.calls == schedule.fail_at:
            code = schedule.fail_with
            failure = _error(REPEATABLE.get(name, errno.EIO) if code is None else code, path)
            self.failed = name, path
            if not schedule.is_carried_out:
                raise failure
        if name not in _LOOKS:
            self.operations += 1
            if self.operations == schedule.stop_at or schedule.stops_at(name, path):
                schedule.is_down = True
                self.stopped = name, path
                raise Crashed
        return failure

    def _sync(self, name: str, path: str, find: Callable[[], File]) -> None:
        with self._lock:
            try:
                with self._call(name, path):
                    find().sync()
            except OSError:
                with suppress(OSError):
                    find().is_lost = True
                raise

    def _path(self, descriptor: int) -> str:
        opened = self._opened.get(descriptor)
        return "" if opened is None else opened.path

    def _give(self, file: File, path: str) -> int:
        descriptor = self._next_descriptor
        self._next_descriptor += 1
        self._opened[descriptor] = _Opened(file, path)
        return descriptor

    def _restart(self) -> None:
        self._opened.clear()
        self._schedule = _Schedule()

    def _node(self, path: str) -> Node:
        node: Node = self._root
        for name in path.split("/"):
            if not name:
                continue
            if isinstance(node, File):
                raise _error(errno.ENOTDIR, path)
            if name not in node.names:
                raise _error(errno.ENOENT, path)
            node = node.names[name]
        return node

    def _directory(self, path: str) -> Directory:
        node = self._node(path)
        if isinstance(node, File):
            raise _error(errno.ENOTDIR, path)
        return node

    def _file(self, path: str) -> File:
        node = self._node(path)
        if isinstance(node, Directory):
            raise _error(errno.EISDIR, path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        above, _, name = path.rpartition("/")
        return self._directory(above), name

    def _overwrite(self, path: str, data: bytearray) -> None:
        file = self._file(f"{ROOT}/{path}")
        file.data, file.on_disk = data, bytes(data)

    def _used(self) -> int:
        held = {*_files_below(self._root), *(opened.file for opened in self._opened.values())}
        return sum(len(file.data) for file in held)


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


def _size_of(node: Node) -> int:
    return len(node.data) if isinstance(node, File) else 0


def _walk(directory: Directory, prefix: str) -> Iterator[str]:
    for name, node in directory.names.items():
        if isinstance(node, Directory):
            yield from _walk(node, f"{prefix}/{name}")
        else:
            yield f"{prefix}/{name}"


def _files_below(directory: Directory) -> Iterator[File]:
    for node in directory.names.values():
        if isinstance(node, Directory):
            yield from _files_below(node)
        else:
            yield node
