"""A storage in which something happens while somebody reads from it."""

from __future__ import annotations

import builtins
from collections.abc import Callable

from trailmark.log import Entry
from trailmark.log.storage import LocalStorage
from trailmark.testing.disk import ROOT, SimulatedDisk


class Meddled(LocalStorage):
    """Looks at a simulated disk; ``meddle`` is called before the n-th look, counted from 0."""

    def __init__(self, disk: SimulatedDisk, at: int, meddle: Callable[[], None]) -> None:
        super().__init__(ROOT, file_system=disk)
        self._when = at
        self._meddle = meddle
        self.looks = 0

    def _look(self) -> None:
        self.looks += 1
        if self.looks == self._when + 1:
            self._meddle()

    def read(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        self._look()
        return super().read(path, offset, length)

    def read_tail(self, path: str, length: int) -> tuple[memoryview, int]:
        self._look()
        return super().read_tail(path, length)

    def list(self, directory: str) -> builtins.list[Entry]:
        self._look()
        return super().list(directory)
