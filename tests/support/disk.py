"""A simulated disk that fills up at a given write, and what need not be told of failing calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trailmark.log.storage import Part
from trailmark.testing.disk import SimulatedDisk


def may_go_untold(disk: SimulatedDisk) -> bool:
    """Whether nobody need be told of the call that was made to fail.

    Because it leaves no more than a temporary behind, because what lies above the root is not the
    storage's own, or because a file that could not be synced is written anew.
    """
    assert disk.failed is not None
    name, path = disk.failed
    return (
        (name == "unlink" and path.endswith(".tmp"))
        or (name, path) == ("sync_directory", "/")
        or name == "sync_file"
    )


@dataclass
class FillingDisk(SimulatedDisk):
    """Has room for all but the last byte of the n-th write, and so for none after it."""

    full_at: int | None = None
    writes: int = 0

    def write(self, descriptor: int, parts: Sequence[Part]) -> int:
        self.writes += 1
        if self.writes == self.full_at:
            self.capacity = self._used() + sum(map(len, parts)) - 1
        return super().write(descriptor, parts)
