"""Executors that do what they are given when a test says so, in the thread of the test."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from trailmark.errors import TrailmarkError


class Held(Executor):
    """Keeps what it is given until it is let go."""

    def __init__(self) -> None:
        self.held: list[Callable[[], None]] = []

    def submit(self, work: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(work(*given, **named))
            except TrailmarkError as error:
                future.set_exception(error)

        self.held.append(run)
        return future

    def let_go(self) -> None:
        while self.held:
            self.held.pop(0)()


class AtOnce(Held):
    """Does it before it returns."""

    def submit(self, work: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        future = super().submit(work, *given, **named)
        self.let_go()
        return future
