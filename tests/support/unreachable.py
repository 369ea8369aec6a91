"""A disk behind a line that may be cut: calls fail, or hang until it is mended."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from trailmark.errors import TrailmarkError
from trailmark.log import LocalStorage
from trailmark.testing.disk import ROOT, SimulatedDisk

_T = TypeVar("_T")


class Hangs(BaseException):
    """A call that does not return."""


@dataclass
class Line:
    """Stands before a disk, as its file system.

    ``fails_with`` is an ``errno``, or None where calls hang; ``calls_left`` are answered before.
    """

    disk: SimulatedDisk
    is_cut: bool = False
    fails_with: int | None = None
    calls_left: int = 0
    calls: int = 0

    def storage(self) -> LocalStorage:
        return LocalStorage(ROOT, file_system=self, clock=lambda: self.disk.now_us)

    def cut(self, fails_with: int | None = errno.EHOSTUNREACH, calls_left: int = 0) -> None:
        self.is_cut, self.fails_with, self.calls_left = True, fails_with, calls_left

    def mend(self) -> None:
        self.is_cut = False

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self.disk, name)

        def carried_out(*given: Any) -> Any:
            self.calls += 1
            if self.is_cut and self.calls_left <= 0:
                if self.fails_with is None:
                    raise Hangs
                raise OSError(self.fails_with, os.strerror(self.fails_with))
            self.calls_left -= 1
            return call(*given)

        return carried_out


@dataclass
class Hands:
    """Does what it is asked at once; what hangs is tried anew whenever somebody waits."""

    hanging: list[tuple[Callable[[], Any], Future[Any]]] = field(default_factory=list)

    def begin(self, work: Callable[[], _T]) -> Future[_T]:
        future: Future[_T] = Future()
        self._try(work, future)
        return future

    def wait(self, begun: Sequence[Future[Any]], seconds: float | None) -> None:
        assert seconds is not None, "nobody comes back from this"

    def go_on(self) -> None:
        """What hangs is done if it can be."""
        hanging, self.hanging = self.hanging, []
        for work, future in hanging:
            self._try(work, future)

    def _try(self, work: Callable[[], Any], future: Future[Any]) -> None:
        try:
            future.set_result(work())
        except Hangs:
            self.hanging.append((work, future))
        except TrailmarkError as error:
            future.set_exception(error)
