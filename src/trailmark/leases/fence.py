"""A process that has lost its lease, and does not know it yet, is stopped before it publishes.

This is not what keeps the logs right: between the look and the write a process may sleep. That is
what publish-if-absent is for. It keeps a process that wakes from going on for long beside its
successor.
"""

from __future__ import annotations

import builtins
import json
import os
from collections.abc import Sequence

from trailmark.errors import LeaseLost
from trailmark.leases.lease import boot_us
from trailmark.leases.place import open_lease_storage
from trailmark.leases.terms import newest_term
from trailmark.log import Entry, MonotonicClock, Part, Storage
from trailmark.log.storage.urls import redacted
from trailmark.values import dataclass

#: Where the processes that Spark starts for an application find its pass.
VARIABLE = "TRAILMARK_LEASE"
#: Looks in a term: a process that sleeps for longer than a term looks when it wakes.
_LOOKS = 4


@dataclass(slots=True)
class Pass:
    """Lets a process publish as long as its application has the lease.

    Parameters
    ----------
    path
        The lease.
    token
        Of the process that took it for the application.
    term_us
        For how long it is taken at a time.
    free
        A directory of the application's own, where it may write at any time.
    """

    path: str
    token: str
    term_us: int
    free: str = ""
    now_us: MonotonicClock = boot_us
    _storage: Storage | None = None
    _looked_us: float | None = None

    def to_text(self) -> str:
        """For the environment of another process."""
        return json.dumps([self.path, self.token, self.term_us, self.free])

    @classmethod
    def from_text(cls, text: str) -> Pass:
        """From the environment."""
        path, token, term_us, free = json.loads(text)
        return cls(path, token, term_us, free)

    def is_for(self, path: str) -> bool:
        """Whether what is written at a path depends on the lease."""
        return not self.free or not path.startswith(self.free)

    def check(self) -> None:
        """Refuses to go on when the lease is another's, or nobody's."""
        now_us = self.now_us()
        if self._looked_us is not None and now_us - self._looked_us < self.term_us / _LOOKS:
            return
        if self._storage is None:
            self._storage = open_lease_storage(self.path)
        newest = newest_term(self._storage)
        if newest is not None and not newest.problem and newest.holder.token == self.token:
            if newest.is_released:
                raise self._lost("was given back")
        elif newest is None or not newest.problem:
            raise self._lost("is not held" if newest is None else f"is held by {newest.holder}")
        self._looked_us = now_us

    def _lost(self, what: str) -> LeaseLost:
        return LeaseLost(
            f"The lease of this application {what}.",
            where=redacted(self.path),
            fix="Nothing has to be done: whoever has it goes on.",
        )


@dataclass(slots=True)
class Fenced:
    """A storage that is only changed while the lease is held."""

    storage: Storage
    passed: Pass

    def publish(self, path: str, parts: Sequence[Part], *, force_sync: bool = False) -> bool:
        self.passed.check()
        return self.storage.publish(path, parts, force_sync=force_sync)

    def replace(self, path: str, parts: Sequence[Part]) -> None:
        self.passed.check()
        self.storage.replace(path, parts)

    def delete(self, path: str, *, synced: bool = True) -> None:
        self.passed.check()
        self.storage.delete(path, synced=synced)

    def recycle(self, path: str) -> None:
        self.passed.check()
        self.storage.recycle(path)

    def set_aside(self, path: str) -> str:
        self.passed.check()
        return self.storage.set_aside(path)

    def clean(self, directory: str) -> builtins.list[str]:
        self.passed.check()
        return self.storage.clean(directory)

    def settle(self, path: str) -> None:
        self.storage.settle(path)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        return self.storage.read(path, offset, length)

    def read_tail(self, path: str, length: int) -> tuple[memoryview, int]:
        return self.storage.read_tail(path, length)

    def size(self, path: str) -> int:
        return self.storage.size(path)

    def exists(self, path: str) -> bool:
        return self.storage.exists(path)

    def list(self, directory: str) -> builtins.list[Entry]:
        return self.storage.list(directory)

    def directories(self, directory: str) -> builtins.list[str]:
        return self.storage.directories(directory)


_passes: dict[str, Pass] = {}


def pass_of_process() -> Pass | None:
    """The pass that this process was given; None if its application has no lease."""
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    if text not in _passes:
        _passes[text] = Pass.from_text(text)
    return _passes[text]
