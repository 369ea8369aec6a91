"""One thread that looks at all paths, again and again, and keeps what it has seen."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from trailmark.errors import TrailmarkError
from trailmark.log import Clock, wall_clock_us
from trailmark.values import dataclass
from trailmark.watch.graph import Edge, QuerySources, edges_between
from trailmark.watch.history import History
from trailmark.watch.pictures import Looker, Picture, log_of

_log = logging.getLogger("trailmark")

#: Newest batches whose footers are read with the first look at a bucket.
_LOOK_BACK = 20


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of a path.

    Attributes
    ----------
    path
        As it was given.
    picture
        The last one; None if there was none yet.
    problem
        Why the last look gave no picture; empty if it did.
    looked_us, took_us
        When the last look began, and how long it took.
    history
        What is kept of all looks. It goes on growing: ask it under `Sampler.lock`.
    """

    path: str
    picture: Picture | None
    problem: str
    looked_us: int
    took_us: int
    history: History


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All paths after one round of looks; ``number`` counts the rounds."""

    number: int
    at_us: int
    seen: tuple[Seen, ...]
    edges: tuple[Edge, ...]


class Sampler:
    """Looks at paths at an interval.

    A round that takes longer than the interval delays the next one: none begins before the last one
    has ended and as much time again has passed, so at most half of the time goes into looking.

    Parameters
    ----------
    paths
        Which paths there are; asked with every round.
    interval_s
        Seconds from the beginning of a round to that of the next.
    clock
        Where the times of the looks come from.
    """

    def __init__(
        self,
        paths: Callable[[], Sequence[str]],
        interval_s: float = 2.0,
        *,
        clock: Clock = wall_clock_us,
    ) -> None:
        self.interval_s = interval_s
        #: Held while histories are read or grow.
        self.lock = threading.Lock()
        self._paths = paths
        self._clock = clock
        self._lookers: dict[str, Looker] = {}
        self._seen: dict[str, Seen] = {}
        self._sources = QuerySources()
        self._snapshot = Snapshot(0, clock(), (), ())
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def snapshot(self) -> Snapshot:
        """What the last round has seen."""
        return self._snapshot

    def look(self) -> Snapshot:
        """One round: the thread makes them, or whoever has not started it."""
        paths = list(dict.fromkeys(self._paths()))
        seen = {path: self._look_at(path) for path in paths}
        pictures = {path: each.picture for path, each in seen.items() if each.picture is not None}
        edges = edges_between(pictures, self._sources)
        self._seen = seen
        self._lookers = {path: each for path, each in self._lookers.items() if path in seen}
        number = self._snapshot.number + 1
        self._snapshot = Snapshot(number, self._clock(), tuple(seen.values()), tuple(edges))
        return self._snapshot

    def start(self) -> None:
        """Goes on looking in a thread of its own."""
        assert self._thread is None
        self._thread = threading.Thread(target=self._go_on, name="trailmark-looks", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; a look that has begun is waited for."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _go_on(self) -> None:
        while not self._stopped.is_set():
            began = time.monotonic()
            try:
                self.look()
            except TrailmarkError as error:
                _log.warning("the round of looks ended early: %s", error.line)
            took = time.monotonic() - began
            self._stopped.wait(max(self.interval_s - took, took))

    def _look_at(self, path: str) -> Seen:
        before = self._seen.get(path)
        history = History() if before is None else before.history
        began, began_us = time.monotonic(), self._clock()
        picture, problem = None if before is None else before.picture, ""
        try:
            looker = self._lookers.get(path)
            if looker is None:
                looker = self._lookers[path] = Looker(path, _LOOK_BACK, self._clock)
            picture = looker()
            known = picture if before is None or before.picture is None else before.picture
            if log_of(picture) != log_of(known):
                history = History()  # another log, in the same place
            with self.lock:
                history.add(picture)
        except (TrailmarkError, FileNotFoundError) as error:
            problem = error.line if isinstance(error, TrailmarkError) else f"{path} is gone"
        took_us = int((time.monotonic() - began) * 1e6)
        return Seen(path, picture, problem, began_us, took_us, history)
