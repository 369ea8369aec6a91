"""kill -9 of all that is active while orders go on: what was committed when, with a warm standby,
with a restart, and on Flink with a restart."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from matplotlib.figure import Figure

from bench.experiment import Effort, Measured, Note, Raw, Repetition, Section, spread, table
from bench.peers.orders import SEED, Workload, prepare
from bench.peers.peer import FLINK_HASHMAP, installable
from bench.peers.run import JobFailed, Running, ground
from bench.standby import Shop, a_shop

NAME = "take-over"
TITLE = "From kill -9 to the next result"

ITEMS = 100_000
#: Orders of a batch that comes, and how often one comes, as in `bench.standby`.
_ROWS, _EVERY_S = 1_000, 0.1
#: What is shown before the kill, and after the first new result.
_BEFORE_S, _AFTER_S = 4.0, 4.0
_WITHIN_S = 300.0
_FLINK_BATCHES = 1_200

_LABELS = {
    "standby": "Trailmark, a warm standby",
    "restart": "Trailmark, Spark started again",
    "flink": "Flink, started again",
}
_COLOURS = {"standby": "#1f6fb4", "restart": "#1f6fb4", "flink": "#e0a458"}


def measure(effort: Effort, note: Note) -> Measured:
    turns = effort.pick(3, 10)
    repetitions = [*_on_spark("standby", turns, note), *_on_spark("restart", turns, note)]
    found, skipped = installable((FLINK_HASHMAP,), note)
    for turn in range(turns if found else 0):
        try:
            repetitions.append(_on_flink(found[FLINK_HASHMAP.name], turn, note))
        except JobFailed as why:
            skipped[f"{FLINK_HASHMAP.label}, turn {turn + 1}"] = str(why)
    settings = {"items": ITEMS, "rows": _ROWS, "every_s": _EVERY_S, "labels": _LABELS}
    return Measured(settings, SEED, repetitions, skipped)


def _on_spark(lane: str, turns: int, note: Note) -> Iterator[Repetition]:
    has_standby = lane == "standby"
    mode = "standby" if has_standby else "alone"
    with a_shop(ITEMS) as shop:
        name = shop.start(mode)
        shop.wait_for_batch(-1)
        if has_standby:
            shop.start(mode)
        with shop.orders_come():
            for turn in range(turns):
                if has_standby:
                    shop.wait_for_warm()
                    name = shop.active()
                shop.wait_for_batch(shop.committed() + 2)
                time.sleep(_BEFORE_S)
                killed_at = time.time()
                shop.kill(name)
                last = shop.committed()
                if not has_standby:
                    name = shop.start(mode)
                shop.wait_for_batch(last)
                time.sleep(_AFTER_S)
                if has_standby:
                    shop.start(mode)  # who waits next
                yield _told(lane, turn, killed_at, _commits(shop), note)


def _commits(shop: Shop) -> list[float]:
    """When Spark committed each batch."""
    with os.scandir(shop.home / "checkpoint/commits") as entries:
        return sorted(entry.stat().st_mtime for entry in entries if entry.name.isdigit())


def _on_flink(interpreter: Path, turn: int, note: Note) -> Repetition:
    orders = prepare(Workload(ITEMS, 2, _ROWS, _FLINK_BATCHES, opens=True))
    asked = {**orders.asked(), "pace_s": _EVERY_S}
    with ground() as here:
        with Running(FLINK_HASHMAP, interpreter, asked, here) as job:
            job.wait_for(lambda event: event.event == "progress", _WITHIN_S)
            began_at = time.time()
            job.wait_for(lambda event: event.at > began_at + _BEFORE_S, _WITHIN_S)
            killed_at = time.time()
            job.kill()
            told = job.newest
            moments = [event.at for event in job.events if event.event == "progress"]
        with Running(FLINK_HASHMAP, interpreter, {**asked, "resume": True}, here) as job:
            first = job.wait_for(lambda event: event.results > told.results, _WITHIN_S)
            job.wait_for(lambda event: event.at > first.at + _AFTER_S, _WITHIN_S)
            moments += [event.at for event in job.events if event.results > told.results]
    return _told("flink", turn, killed_at, moments, note)


def _told(lane: str, turn: int, killed_at: float, moments: list[float], note: Note) -> Repetition:
    """A kill, and the moments at which new results could be seen, counted from it."""
    seconds = [round(at - killed_at, 3) for at in moments]
    gap_s = min(at for at in seconds if at > 0)
    note(f"{lane}, kill {turn + 1}: {gap_s:.2f} s")
    shown = [at for at in seconds if -_BEFORE_S <= at <= gap_s + _AFTER_S]
    return {"lane": lane, "turn": turn, "gap_s": gap_s, "moments_s": shown}


# The page.

_INTRODUCTION = """\
{items:,} ids have an open window, and {rows:,} orders come every {every_s} s. Everything that is
active is killed with -9: driver, JVM, workers. *Started again* means at once; a supervisor would
have to notice first. The time is from the kill to the first new result that anybody can read: of
Spark a batch that is committed, of Flink a file that its checkpoint, one each second, has made
visible.
"""

_CAPTION = "In the picture, a line is a moment at which there were new results; one kill of each.\n"


def show(raw: Raw) -> Section:
    lanes = [lane for lane in raw.settings["labels"] if raw.of(lane=lane)]
    header = ["", "kills", "to the first new result, s"]
    rows = [
        [
            raw.settings["labels"][lane],
            str(len(raw.of(lane=lane))),
            spread(raw.values("gap_s", lane=lane)).show(),
        ]
        for lane in lanes
    ]
    text = f"{_INTRODUCTION.format(**raw.settings)}\n{table(header, rows)}\n\n{_CAPTION}"
    return Section(text, {"take-over.svg": _draw(raw, lanes)})


def _draw(raw: Raw, lanes: list[str]) -> Figure:
    figure = Figure(figsize=(10, 0.8 + 0.75 * len(lanes)), layout="constrained")
    axes = figure.subplots()
    for place, lane in enumerate(reversed(lanes)):
        shown = _usual(raw, lane)
        axes.barh(place, shown["gap_s"], height=0.5, color="#f0d0cc", zorder=0)
        axes.eventplot(
            shown["moments_s"],
            lineoffsets=place,
            linelengths=0.5,
            linewidths=1.4,
            colors=_COLOURS[lane],
        )
        axes.annotate(
            f"{shown['gap_s']:.1f} s", (shown["gap_s"] / 2, place), ha="center", va="center"
        )
    axes.axvline(0, color="#c03028", linewidth=1)
    axes.annotate(" kill -9", (0, len(lanes) - 0.55), va="bottom", color="#c03028")
    names = [raw.settings["labels"][lane] for lane in reversed(lanes)]
    axes.set_yticks(range(len(lanes)), names)
    axes.set_xlabel("seconds")
    axes.grid(visible=False, axis="y")
    return figure


def _usual(raw: Raw, lane: str) -> Repetition:
    """The kill whose gap is nearest to the median."""
    found = raw.of(lane=lane)
    middle = median(each["gap_s"] for each in found)
    return min(found, key=lambda each: abs(each["gap_s"] - middle))
