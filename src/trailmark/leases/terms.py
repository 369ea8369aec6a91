"""The terms of a lease as files: one each, published if absent under a number that only grows."""

from __future__ import annotations

import os
import re
import socket
import uuid
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from trailmark.log import Storage
from trailmark.log.json_text import dump_guarded, load_guarded, read_text, text_of, whole
from trailmark.settings import DAY, MILLISECOND
from trailmark.values import dataclass

#: Where they are.
TERMS = "terms"
_DIGITS = 20
_FILE = re.compile(rf"([0-9]{{{_DIGITS}}})\.json", re.ASCII)
#: The newest and the one before: whoever has listed the directory is about to read.
_KEPT = 2
_LARGEST = 10**_DIGITS - 1
_LATEST_US = 1 << 62

SHORTEST_TERM_US = 200 * MILLISECOND
LONGEST_TERM_US = DAY


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that has a lease or waits for one.

    Parameters
    ----------
    token
        Its own, and never another's.
    name
        What people call it.
    host, pid
        Where it runs.
    """

    token: str
    name: str
    host: str
    pid: int

    @classmethod
    def of_process(cls, name: str | None = None) -> Holder:
        """This process, under a new token."""
        host, pid = socket.gethostname(), os.getpid()
        return cls(uuid.uuid4().hex, name or f"{host}:{pid}", host, pid)

    def to_json(self) -> dict[str, Any]:
        """As it is stored."""
        return {"by": self.token, "host": self.host, "name": self.name, "pid": self.pid}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Holder:
        """From what is stored; raises ``KeyError`` or ``ValueError``."""
        return cls(
            text_of(body["by"]),
            text_of(body["name"]),
            text_of(body["host"]),
            whole(body["pid"], 0, _LATEST_US),
        )

    def __str__(self) -> str:
        at = f"{self.host}:{self.pid}"
        return at if self.name == at else f"{self.name} ({at})"


#: Stands for whoever published a file that cannot be read.
_UNKNOWN = Holder("", "unknown", "", 0)


@dataclass(frozen=True, slots=True)
class Term:
    """What a holder said last.

    Parameters
    ----------
    number
        Its place: whatever is said later has a greater one.
    holder
        Who said it.
    turn
        How many times the lease has changed hands.
    term_us
        For how long it holds if nothing more is said.
    is_released
        The lease is given back, and free.
    taken_us
        When the turn began, by the holder's clock: for people.
    problem
        Why the file cannot be used; empty if it can.
    """

    number: int
    holder: Holder = field(default=_UNKNOWN)
    turn: int = 0
    term_us: int = SHORTEST_TERM_US
    is_released: bool = False
    taken_us: int = 0
    problem: str = ""

    def is_of(self, holder: Holder) -> bool:
        """Whether this holder has the lease by it."""
        return self.holder.token == holder.token and not self.is_released


def newest_term(storage: Storage) -> Term | None:
    """What was said last; None if nobody has had the lease."""
    while True:
        numbers = _numbers(storage)
        if not numbers:
            return None
        try:
            return _read(storage, max(numbers))
        except FileNotFoundError:
            continue  # so many have come since that it was removed


def publish_term(storage: Storage, term: Term) -> bool:
    """Says it, if nobody has said anything under this number; False if somebody has."""
    body = {
        **term.holder.to_json(),
        "released": term.is_released,
        "taken_us": term.taken_us,
        "term_us": term.term_us,
        "turn": term.turn,
    }
    return storage.publish(_path(term.number), [dump_guarded(body, "term")])


def forget_terms_before(storage: Storage, number: int, *, all_of_them: bool) -> None:
    """Removes what nobody goes by any more, behind a newer one: the last of them, or all."""
    last = number - _KEPT
    for each in _numbers(storage) if all_of_them else [last]:
        if 0 <= each <= last:
            storage.delete(_path(each), synced=False)


def _numbers(storage: Storage) -> list[int]:
    names = [_FILE.fullmatch(entry.name) for entry in storage.list(TERMS)]
    return [int(match[1]) for match in names if match is not None]


def _read(storage: Storage, number: int) -> Term:
    path = _path(number)
    body = load_guarded(read_text(storage, path))
    try:
        if body is not None:
            return Term(
                number,
                Holder.from_json(body),
                whole(body["turn"], 0, _LARGEST),
                whole(body["term_us"], SHORTEST_TERM_US, LONGEST_TERM_US),
                body["released"] is True,
                whole(body["taken_us"], -_LATEST_US, _LATEST_US),
            )
    except (KeyError, TypeError, ValueError):
        pass  # whole, and not what a holder says
    return Term(number, problem=f"{path} cannot be read")


def _path(number: int) -> str:
    return f"{TERMS}/{number:0{_DIGITS}d}.json"
