"""Cost per tuple and recovery time as ids, state, batches and buckets grow."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from bench.experiment import Effort, Measured, Note, Raw, Repetition, Section, in_turn
from bench.growth.picture import draw
from bench.growth.points import UNITS, Axis, Point, axes
from bench.growth.runs import Run, recover, split, write_crashed
from bench.growth.tables import describe
from bench.one_core import one_core
from bench.orders import opening_orders, orders
from trailmark.checkpoint.policy import Continuous

NAME = "growth"
TITLE = "How cost and recovery grow"

_SEED = 5
_OBJECTIVE = "2 seconds"
_OPENING_TUPLES = 1_000_000


def measure(effort: Effort, note: Note) -> Measured:
    turns = effort.pick(5, 9)
    repetitions: list[Repetition] = []
    with one_core():
        for axis in axes(effort):
            sizes = ", ".join(f"{point.size:,}" for point in axis.points)
            note(f"{UNITS[axis.name]}: {sizes}")
            with tempfile.TemporaryDirectory(prefix="trailmark-bench-") as folder:
                repetitions += _costs(axis, Path(folder) / "live", turns)
                repetitions += _recoveries(axis, Path(folder) / "crashed", turns)
    settings = {
        "policy": f'Continuous.within("{_OBJECTIVE}")',
        "turns": turns,
        "sizes": {axis.name: [point.size for point in axis.points] for axis in axes(effort)},
    }
    return Measured(settings, _SEED, repetitions)


def _costs(axis: Axis, place: Path, turns: int) -> list[Repetition]:
    """Batches of all points in turn; the first turn does not count."""
    rng = np.random.default_rng(_SEED)
    runs = {point.name: _opened(place / point.name, point, rng) for point in axis.points}
    found = []
    for turn, name, point in in_turn({point.name: point for point in axis.points}, turns + 1):
        batches = [
            split(orders(rng, point.ids, point.tuples), point.buckets) for _ in range(point.batches)
        ]
        seconds = sum(runs[name].feed(parts) for parts in batches)
        if turn:
            cost = {"seconds": seconds, "batches": len(batches), "tuples": point.tuples}
            found.append(_repetition(point, "cost", turn, cost))
    for run in runs.values():
        run.close()
    return found


def _opened(place: Path, point: Point, rng: np.random.Generator) -> Run:
    """A run in which every id has an open window."""
    run = Run(place, point, Continuous.within(_OBJECTIVE))
    for rows in opening_orders(rng, point.ids, _OPENING_TUPLES):
        run.feed(split(rows, point.buckets))
    return run


def _recoveries(axis: Axis, place: Path, turns: int) -> list[Repetition]:
    """Recoveries of all points in turn; the first turn does not count."""
    rng = np.random.default_rng(_SEED)
    for point in axis.points:
        write_crashed(place / point.name, point, orders(rng, point.ids, point.tuples))
    found = []
    for turn, name, point in in_turn({point.name: point for point in axis.points}, turns + 1):
        recovered = recover(place / name, point)
        if turn:
            times = {
                "seconds": sum(r.took_us for r in recovered) / 1e6,
                "open_s": sum(r.open_us for r in recovered) / 1e6,
                "load_s": sum(r.load_us for r in recovered) / 1e6,
                "replay_s": sum(r.replay_us for r in recovered) / 1e6,
                "windows": sum(r.work.records for r in recovered),
                "tuples": sum(r.work.tuples for r in recovered),
            }
            found.append(_repetition(point, "recovery", turn, times))
    return found


def _repetition(point: Point, what: str, turn: int, found: dict[str, Any]) -> Repetition:
    return {"axis": point.axis, "size": point.size, "what": what, "turn": turn, **found}


def show(raw: Raw) -> Section:
    return Section(describe(raw), {f"{NAME}.svg": draw(raw)})
