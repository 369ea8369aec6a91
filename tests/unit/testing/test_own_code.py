"""Every process has the user's code as it was sent, and none has what another has left in it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from trailmark.testing.own_code import OwnCode

_seen: list[int] = []
_count = 0


def _note(value: int) -> int:
    _seen.append(value)
    return len(_seen)


def _with_globals(value: int = 1) -> tuple[int, int]:
    global _count
    _count += 1
    return _note(value), _count


def _with_defaults(value: int = 1, seen: Any = [], *, more: Any = {}) -> int:  # noqa: B006
    seen.append(value)
    more[len(seen)] = value
    return len(seen) + len(more)


def _with_closure() -> Callable[[], int]:
    calls = [0]

    def call() -> int:
        calls[0] += 1
        return calls[0]

    return call


class _Counter:
    def __init__(self) -> None:
        self.calls = 0
        self.me = self
        self.held: list[Any] = [_with_closure()]

    def call(self) -> tuple[int, int, int]:
        global _count
        _count += 1
        self.calls += 1
        return self.calls, _count, self.held[0]()

    def __call__(self) -> tuple[int, int, int]:
        return self.call()


_CODE: dict[str, Callable[[], Any]] = {
    "globals": _with_globals,
    "defaults": _with_defaults,
    "closure": _with_closure(),
    "method": _Counter().call,
    "partial": partial(_with_globals, 2),
    "lambda": lambda: _with_globals(3),
}


@pytest.mark.parametrize("code", _CODE.values(), ids=_CODE.keys())
def test_a_new_process_does_not_remember(code: Callable[[], Any]) -> None:
    own = OwnCode({"code": code})
    first = own.new()["code"]
    once, twice = first(), first()
    assert once != twice, "it remembers"
    assert own.new()["code"]() == once
    assert (_seen, _count) == ([], 0), "what was given is left alone"


def test_code_is_taken_as_it_was_when_it_was_given() -> None:
    counter = _Counter()
    counter.calls = 5
    own = OwnCode(counter)
    counter.calls = 50
    assert own.new().calls == 5


def test_what_was_one_object_is_one_in_the_copy() -> None:
    counter = _Counter()
    both: list[Any] = [counter, counter.call, counter.me]
    copied = OwnCode(both).new()
    copied[1]()
    assert copied[0].calls == 1
    assert copied[2] is copied[0]
    assert counter.calls == 0


def test_functions_that_know_themselves_are_copied() -> None:
    def factorial(n: int) -> int:
        return 1 if n == 0 else n * factorial(n - 1)

    around: list[Any] = [factorial]
    around.append(around)
    copied = OwnCode(around).new()
    assert copied[0](5) == 120
    assert copied[0] is not factorial
    assert copied[1] is copied


def test_what_cannot_be_copied_is_shared() -> None:
    lock = threading.Lock()
    assert OwnCode(lambda: lock).new()() is lock
