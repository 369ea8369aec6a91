"""Who waits for a lease, and how ready they are: for people. Nobody goes by it.

Each has a file of its own, written over at every beat; one that does not change any more is of a
process that is gone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from trailmark.leases.terms import TERMS, Holder
from trailmark.leases.work import WORK
from trailmark.log import MonotonicClock, Storage
from trailmark.log.json_text import dump_guarded, load_guarded, read_text, text_of, whole
from trailmark.settings import MINUTE
from trailmark.values import dataclass

_WAITING = "waiting"
_FILE = re.compile(r"([0-9a-f]{32})\.json", re.ASCII)
_MOST_BEATS = 1 << 62
#: Nothing is thrown away sooner, however short terms are.
_GONE_AFTER_US = MINUTE
_GONE_AFTER_TERMS = 20


@dataclass(frozen=True, slots=True)
class Waiting:
    """One that waits.

    Parameters
    ----------
    holder
        Who.
    beats
        Grows as long as it is there.
    readiness
        What would have to be done first if it took over, in words.
    problem
        Why the file cannot be used; empty if it can.
    """

    holder: Holder
    beats: int = 0
    readiness: str = ""
    problem: str = ""


def say_waiting(storage: Storage, waiting: Waiting) -> None:
    """Writes it down."""
    body = {**waiting.holder.to_json(), "beats": waiting.beats, "readiness": waiting.readiness}
    storage.replace(_path(waiting.holder.token), [dump_guarded(body, "waiting")])


def say_not_waiting(storage: Storage, holder: Holder) -> None:
    """Takes it away."""
    storage.delete(_path(holder.token), synced=False)


def all_waiting(storage: Storage) -> dict[str, Waiting]:
    """Who waits or did, by token."""
    names = [_FILE.fullmatch(entry.name) for entry in storage.list(_WAITING)]
    found = {}
    for token in (match[1] for match in names if match is not None):
        try:
            found[token] = _waiting(token, load_guarded(read_text(storage, _path(token))))
        except FileNotFoundError:
            continue  # has gone meanwhile
    return found


@dataclass(slots=True)
class Sweeper:
    """Removes what those have left who are gone, half-written files among it: whoever has the lease
    does so."""

    storage: Storage
    term_us: int
    now_us: MonotonicClock
    _seen: dict[str, tuple[Waiting, float]] = field(default_factory=dict)

    def sweep(self) -> list[str]:
        """Returns the tokens of those whose files have been removed."""
        now_us = self.now_us()
        found = all_waiting(self.storage)
        patience_us = max(_GONE_AFTER_US, _GONE_AFTER_TERMS * self.term_us)
        seen, gone = {}, []
        for token, waiting in found.items():
            last, since_us = self._seen.get(token, (waiting, now_us))
            since_us = since_us if last == waiting else now_us
            if now_us - since_us > patience_us:
                self.storage.delete(_path(token), synced=False)
                gone.append(token)
            else:
                seen[token] = waiting, since_us
        self._seen = seen
        self.storage.clean(_WAITING)
        self.storage.clean(TERMS)
        self.storage.clean(WORK)
        return gone


def _waiting(token: str, body: Mapping[str, Any] | None) -> Waiting:
    try:
        if body is not None:
            return Waiting(
                Holder.from_json(body),
                whole(body["beats"], 0, _MOST_BEATS),
                text_of(body["readiness"]),
            )
    except (KeyError, TypeError, ValueError):
        pass  # whole, and not what one that waits says
    return Waiting(Holder(token, "unknown", "", 0), problem=f"{_path(token)} cannot be read")


def _path(token: str) -> str:
    return f"{_WAITING}/{token}.json"
