"""What a standby on another host does while it waits: it has the tables of the queries ready.

The active process says which operators it runs. They are made again from what their logs say, and
each bucket is followed. Where the tables of the active process are in memory of this very host they
are current, and nothing is done.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from trailmark import units
from trailmark.engine.follower import Follower
from trailmark.engine.logs import OperatorLogs, has_ticks
from trailmark.errors import TrailmarkError
from trailmark.inspection import ReadOnly
from trailmark.inspection.logs import existing_meta
from trailmark.leases import Work, read_work, say_work
from trailmark.log import Storage, open_storage
from trailmark.log.storage.urls import is_url, redacted
from trailmark.spark import paths
from trailmark.state.cache import StateCache
from trailmark.streams.operator_state import operator_of

_log = logging.getLogger("trailmark")

#: How long it rests between two looks at all logs; where each look is a request that costs money.
_EVERY_S, _EVERY_REQUEST_S = 1.0, 5.0
#: After so many looks it asks what there is to follow.
_LOOKS = 5
#: How long whoever takes over waits for the step that is under way.
_PATIENCE_S = 1.0


def say_own_work(storage: Storage) -> None:
    """Says which operators this process runs."""
    found = [
        Work(path, where, _cache_of(where).place) for path, where in paths.cache_dirs().items()
    ]
    say_work(storage, found)


def _cache_of(cache_dir: str | None) -> StateCache:
    return StateCache(None if cache_dir is None else Path(cache_dir))


class TablesAhead:
    """Follows what the active process works on, in a thread.

    Parameters
    ----------
    lease
        Where the active process says that.
    say
        Told how ready the tables are, in words; nothing where there is nothing to follow.
    """

    def __init__(self, lease: Storage, say: Callable[[str], None]) -> None:
        self._lease = lease
        self._say = say
        self._followers: dict[Work, list[Follower]] = {}
        self._told: dict[str, str] = {}
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trailmark tables", daemon=True)

    def start(self) -> None:
        """Begins to follow."""
        self._thread.start()

    def end(self) -> None:
        """Follows no more, once the step is done that is under way. One that hangs has its bucket
        still: that one recovers in private memory."""
        self._ends.set()
        if self._thread.is_alive():
            self._thread.join(_PATIENCE_S)

    def _run(self) -> None:
        look = 0
        try:
            while not self._ends.is_set():
                try:
                    if look % _LOOKS == 0:
                        self._find()
                    self._step()
                except TrailmarkError as error:
                    _log.debug("tables are not followed: %s", error.line)
                look += 1
                self._ends.wait(self._pause_s())
        finally:
            self._say("")  # whatever has ended it, nobody follows any more

    def _pause_s(self) -> float:
        is_asked = any(is_url(work.path) for work in self._followers)
        return _EVERY_REQUEST_S if is_asked else _EVERY_S

    def _find(self) -> None:
        """Looks what there is to follow."""
        before, self._followers = self._followers, {}
        for work in read_work(self._lease):
            found = before.get(work)
            if found is None:
                found = self._followers_of(work)
            if found is not None:
                self._followers[work] = found

    def _followers_of(self, work: Work) -> list[Follower] | None:
        """Those of an operator, none where its tables are here; None if it cannot be made again."""
        cache = _cache_of(work.cache_dir)
        if not cache.place or cache.place == work.place:
            return []
        try:
            storage = ReadOnly(open_storage(work.path))
            meta = existing_meta(storage)
            operator = operator_of(meta, None)
        except TrailmarkError as error:
            if self._told.get(work.path) != error.line:  # once, not at every look
                self._told[work.path] = error.line
                what = "its buckets recover when this process takes over"
                _log.info("%s is not followed, %s: %s", redacted(work.path), what, error.line)
            return None
        logs = OperatorLogs(storage, operator, buckets=meta.buckets, ticks=has_ticks(meta))
        return [Follower(operator, logs, number, cache) for number in range(meta.buckets)]

    def _step(self) -> None:
        behind: list[int | None] = []
        for follower in (each for found in self._followers.values() for each in found):
            if self._ends.is_set():
                return
            behind.append(follower.step())
        self._say(_readiness(behind))


def _readiness(behind: Sequence[int | None]) -> str:
    """In words."""
    if not behind:
        return ""
    known = [each for each in behind if each is not None]
    most = units.some(max(known, default=0), "batch")
    text = f"{len(known)} of {units.some(len(behind), 'bucket')}"
    return f"{text} at most {most} behind" if known else text
