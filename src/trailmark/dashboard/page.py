"""All that the page shows, as JSON: one text for every round of looks."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from trailmark import units
from trailmark.dashboard.elements import Shown, State, worst
from trailmark.dashboard.layers import layers
from trailmark.dashboard.leases import show_lease
from trailmark.dashboard.operators import show_operator
from trailmark.dashboard.streams import show_stream
from trailmark.dashboard.unions import show_union
from trailmark.inspection import OperatorStatus
from trailmark.leases.status import LeaseStatus
from trailmark.log.storage.urls import redacted
from trailmark.streams.union.status import UnionStatus
from trailmark.watch import Point, Sampler, Seen, Snapshot, warnings_of

#: Sentences about one place that are shown; of a thousand buckets each may have one.
_MOST_TROUBLE = 20
#: In the order in which they are shown.
_KINDS = ("problem", "operator", "union", "stream", "lease")


class Page:
    """Tells what a sampler has seen."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._lock = threading.Lock()
        self._told: tuple[int, dict[str, Any]] = (-1, {})

    def now(self, after_us: int) -> dict[str, Any]:
        """Everything as of the last round, and what histories hold after a moment."""
        snapshot = self._sampler.snapshot
        with self._lock:  # whoever asks for the same round waits, and is not told it again
            if self._told[0] != snapshot.number:
                self._told = (snapshot.number, self._tell(snapshot))
            told = self._told[1]
        with self._sampler.lock:
            points = {identity(each.path): each.history.after(after_us) for each in snapshot.seen}
        return {**told, "history": {name: _series(found) for name, found in points.items()}}

    def bucket(self, place: str, bucket: int, after_us: int) -> dict[str, Any] | None:
        """The predicted recovery of one bucket; None if there is no such place."""
        for each in self._sampler.snapshot.seen:
            if identity(each.path) == place:
                with self._sampler.lock:
                    found = each.history.of_bucket(bucket, after_us)
                times, predicted = zip(*found, strict=True) if found else ((), ())
                return {"at_us": times, "predicted_us": predicted}
        return None

    def _tell(self, snapshot: Snapshot) -> dict[str, Any]:
        by_kind = {identity(each.path): self._show(each) for each in snapshot.seen}
        shown = dict(sorted(by_kind.items(), key=lambda item: _KINDS.index(item[1].kind)))
        names = _short_names({key: each.path for key, each in shown.items()})
        words = {identity(each.path): self._in_words(each) for each in snapshot.seen}
        places = [
            {"id": key, "name": names[key], "summary": words[key], **each.to_json()}
            for key, each in shown.items()
        ]
        edges = [(identity(edge.source), identity(edge.target)) for edge in snapshot.edges]
        state, text = _summary(list(shown.values()), snapshot)
        return {
            "number": snapshot.number,
            "at_us": snapshot.at_us,
            "interval_s": self._sampler.interval_s,
            "state": state,
            "summary": text,
            "places": places,
            "layers": layers([key for key, each in shown.items() if each.kind != "lease"], edges),
            "edges": edges,
        }

    def _show(self, seen: Seen) -> Shown:
        path, picture = redacted(seen.path), seen.picture
        if picture is None:
            return Shown("problem", path, seen.problem, "bad", "cannot be read")
        trouble = warnings_of(picture, path)
        more = len(trouble) - _MOST_TROUBLE
        if more > 0:
            trouble[_MOST_TROUBLE:] = [f"and {more:,} more like these"]
        if seen.problem:
            trouble.insert(0, f"The last look failed, what is shown is older: {seen.problem}")
        with self._sampler.lock:
            if isinstance(picture, OperatorStatus):
                return show_operator(path, picture, seen.history, trouble)
            if isinstance(picture, UnionStatus):
                return show_union(path, picture, trouble)
            if isinstance(picture, LeaseStatus):
                return show_lease(path, picture, trouble)
            return show_stream(path, picture, seen.history, trouble)

    def _in_words(self, seen: Seen) -> str:
        """What the chart shows, for those who do not see it."""
        with self._sampler.lock:
            points = seen.history.after(0)
        return in_words(points)


def in_words(points: Sequence[Point]) -> str:
    """A line of predicted recoveries as a sentence."""
    known = [point for point in points if point.predicted_us is not None]
    if not known:
        return "No recovery has been predicted yet."
    values = [point.predicted_us for point in known if point.predicted_us is not None]
    span = units.duration(known[-1].at_us - known[0].at_us)
    text = (
        f"Predicted recovery over the last {span}: now {units.duration(values[-1])}, "
        f"at least {units.duration(min(values))}, at most {units.duration(max(values))}."
    )
    limited = [point for point in known if point.objective_us is not None]
    if not limited:
        return f"{text} There is no objective."
    over = sum((point.predicted_us or 0) > (point.objective_us or 0) for point in limited)
    objective = units.duration(limited[-1].objective_us or 0)
    kept = "kept all the time" if not over else f"exceeded in {over:,} of {len(limited):,} looks"
    return f"{text} Objective {objective}: {kept}."


def identity(path: str) -> str:
    """A name for a path that can stand in an address, and says nothing of the path."""
    return "p" + hashlib.sha256(path.encode(errors="surrogatepass")).hexdigest()[:12]


def _series(points: Sequence[Point]) -> dict[str, list[Any]]:
    return {
        "at_us": [point.at_us for point in points],
        "predicted_us": [point.predicted_us for point in points],
        "objective_us": [point.objective_us for point in points],
        "rate": [None if point.rate is None else round(point.rate, 1) for point in points],
    }


def _short_names(paths: Mapping[str, str]) -> dict[str, str]:
    """The last part of every path, or two of them where that tells places apart."""
    parts = {
        key: [part for part in path.split("/") if part] or [path] for key, path in paths.items()
    }
    last = [each[-1] for each in parts.values()]
    return {
        key: units.printable(each[-1] if last.count(each[-1]) == 1 else "/".join(each[-2:]))
        for key, each in parts.items()
    }


def _summary(shown: Sequence[Shown], snapshot: Snapshot) -> tuple[State, str]:
    if snapshot.number == 0:
        return "none", "Looking for the first time"
    if not shown:
        return "none", "Nothing is there yet"
    state = worst([each.state for each in shown])
    troubled = [each for each in shown if each.state in ("warning", "bad")]
    if not troubled:
        counted = [each.kind for each in shown]
        kinds = [units.some(counted.count(kind), kind) for kind in _KINDS if kind in counted]
        return state, f"All is well: {', '.join(kinds)}"
    return state, f"{len(troubled)} of {len(shown)} need a look"
