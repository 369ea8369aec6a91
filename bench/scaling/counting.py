"""A storage that counts what it is asked for, in the requests that an object store would answer."""

from __future__ import annotations

import builtins
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from trailmark.log import Entry, Storage
from trailmark.log.storage import Part


class Request(Enum):
    """What an object store is asked for; stores charge for each of these by its kind."""

    PUT = "put"
    GET = "get"
    HEAD = "head"
    LIST = "list"
    DELETE = "delete"


@dataclass(slots=True)
class Tally:
    """Requests of several threads: all of them, and those that ``waiting`` made itself.

    A batch waits for these one after another; the others go on beside it.
    """

    waiting: int = field(default_factory=threading.get_ident)
    all: Counter[Request] = field(default_factory=Counter)
    in_turn: Counter[Request] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, request: Request) -> None:
        with self._lock:
            self.all[request] += 1
            if threading.get_ident() == self.waiting:
                self.in_turn[request] += 1

    def take(self) -> tuple[Counter[Request], Counter[Request]]:
        """What was counted since this was called last."""
        with self._lock:
            taken = self.all, self.in_turn
            self.all, self.in_turn = Counter(), Counter()
            return taken


class CountedStorage:
    """Implements `Storage` on another one; counts as `ObjectStorage` asks its store.

    A put that loses a race looks at what is there, with one or two requests more: they are not
    counted, for the caller cannot see them.
    """

    def __init__(self, inner: Storage, tally: Tally) -> None:
        self._inner = inner
        self._tally = tally

    def publish(self, path: str, parts: Sequence[Part], *, force_sync: bool = False) -> bool:
        self._tally.add(Request.PUT)
        return self._inner.publish(path, parts, force_sync=force_sync)

    def replace(self, path: str, parts: Sequence[Part]) -> None:
        self._tally.add(Request.PUT)
        self._inner.replace(path, parts)

    def settle(self, path: str) -> None:
        self._tally.add(Request.HEAD)
        self._inner.settle(path)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        self._tally.add(Request.GET)
        return self._inner.read(path, offset, length)

    def read_tail(self, path: str, length: int) -> tuple[memoryview, int]:
        self._tally.add(Request.GET)
        return self._inner.read_tail(path, length)

    def size(self, path: str) -> int:
        self._tally.add(Request.HEAD)
        return self._inner.size(path)

    def exists(self, path: str) -> bool:
        self._tally.add(Request.HEAD)
        return self._inner.exists(path)

    def list(self, directory: str) -> builtins.list[Entry]:
        self._tally.add(Request.LIST)
        return self._inner.list(directory)

    def directories(self, directory: str) -> builtins.list[str]:
        self._tally.add(Request.LIST)
        return self._inner.directories(directory)

    def delete(self, path: str, *, synced: bool = True) -> None:
        self._tally.add(Request.DELETE)
        self._inner.delete(path, synced=synced)

    def recycle(self, path: str) -> None:
        self._tally.add(Request.DELETE)
        self._inner.recycle(path)

    def set_aside(self, path: str) -> str:
        raise AssertionError("nothing of a batch sets files aside")

    def clean(self, directory: str) -> builtins.list[str]:
        return self._inner.clean(directory)  # a store has nothing half-written
