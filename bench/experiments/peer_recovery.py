"""kill -9 in the middle, then the time to the first new result, beyond that of a clean start."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.drawing import annotate_bar
from bench.experiment import (
    Effort,
    Measured,
    Note,
    Raw,
    Repetition,
    Section,
    Spread,
    in_turn,
    spread,
    table,
)
from bench.peers.orders import SEED, Orders, Workload, prepare
from bench.peers.peer import (
    APPLY_IN_PANDAS,
    BUILT_IN,
    BY_NAME,
    BYTEWAX,
    FLINK_HASHMAP,
    FLINK_ROCKSDB,
    TRAILMARK,
    TRANSFORM_WITH_STATE,
    Peer,
    installable,
)
from bench.peers.run import Event, Files, Ground, JobFailed, Running, ground

NAME = "peer-recovery"
TITLE = "Recovery against other engines"

#: Every second order of an id gives a result: all ids have an open window after one order each, and
#: every batch after that has results, also on an empty state.
WINDOW = 2
ROWS = 20_000
#: So much input that nobody comes to its end: engines without batches are killed in the middle.
BATCHES = 200
#: Batches after the opening ones, before the kill.
BATCHES_BEFORE = 3
#: Engines without batches keep their state about every second; they are killed in between.
KILL_AFTER_S = 0.5
WITHIN_S = 300.0

_SMALL, _LARGE = 100_000, 2_000_000
_QUICK = (TRAILMARK, BUILT_IN, FLINK_HASHMAP, BYTEWAX)
#: Spark keeps the state of its calls per id in the same way for all of them.
_FULL = (*_QUICK, FLINK_ROCKSDB, TRANSFORM_WITH_STATE, APPLY_IN_PANDAS)
_TOO_SLOW = "It is called once per id: the state alone would take it longer than all other runs."


@dataclass(frozen=True, slots=True)
class Case:
    """What is started again: a peer, on a host that still has its cache or on another one."""

    peer: Peer
    keeps_cache: bool = False

    @property
    def name(self) -> str:
        return f"{self.peer.name}, cache left" if self.keeps_cache else self.peer.name

    @property
    def label(self) -> str:
        return f"{self.peer.label}, its cache left" if self.keeps_cache else self.peer.label


def _cases(peer: Peer) -> list[Case]:
    return [Case(peer), Case(peer, keeps_cache=True)] if peer is TRAILMARK else [Case(peer)]


def _leaves_out(case: Case, turn: int, effort: Effort) -> bool:
    """What `make bench` has no time for: a cache that is left, and slow peers again."""
    return case.keeps_cache if effort.is_quick else bool(turn and case.peer.is_slow)


def measure(effort: Effort, note: Note) -> Measured:
    peers = effort.pick(_QUICK, _FULL)
    found, skipped = installable(peers, note)
    repetitions: list[Repetition] = []
    for items in effort.pick((_SMALL,), (_SMALL, _LARGE)):
        able = [BY_NAME[name] for name in found]
        if items == _LARGE:
            for peer in (peer for peer in able if peer.is_slow):
                skipped[f"{peer.label}, {items:,} ids"] = _TOO_SLOW
            able = [peer for peer in able if not peer.is_slow]
        with tempfile.TemporaryDirectory(prefix="images-") as images:
            size = _Size(items, found, Path(images), skipped, note)
            repetitions += size.measure(able, effort)
    settings = {
        "window": WINDOW,
        "rows": ROWS,
        "batches": BATCHES,
        "batches_before": BATCHES_BEFORE,
        "kill_after_s": KILL_AFTER_S,
        "labels": {case.name: case.label for peer in peers for case in _cases(peer)},
        "peers": {name: asdict(BY_NAME[name]) for name in found},
    }
    return Measured(settings, SEED, repetitions, skipped)


@dataclass(frozen=True, slots=True)
class Image:
    """What a crash has left, and what the job had told before it."""

    directory: Path
    told: Event
    files: int
    bytes: int
    built_s: float


class _Size:
    """All peers with one number of ids. A peer builds its state up and is killed once; what that
    has left is put back before every restart, so that all restarts begin from the same crash."""

    def __init__(
        self,
        items: int,
        found: Mapping[str, Path],
        images: Path,
        skipped: dict[str, str],
        note: Note,
    ) -> None:
        workload = Workload(items, WINDOW, ROWS, BATCHES, opens=True)
        self.items = items
        self.orders = prepare(workload)
        self.clean_orders = prepare(replace(workload, opens=False))
        self._found, self._images = found, images
        self._skipped, self._note = skipped, note

    def measure(self, peers: list[Peer], effort: Effort) -> list[Repetition]:
        repetitions: list[Repetition] = []
        with ground() as here:
            places = {peer.name: self._place(here, peer) for peer in peers}
            images = self._crashes(peers, places)
            cases = {case.name: case for peer in peers for case in _cases(peer)}
            for turn, name, case in in_turn(cases, effort.pick(1, 2)):
                if case.peer.name not in images or _leaves_out(case, turn, effort):
                    continue
                image, place = images[case.peer.name], places[case.peer.name]
                try:
                    timed = self._clean(case, place)
                    timed |= self._again(case, place, image, to_the_end=turn == 0)
                except JobFailed as why:
                    self._leave_out(case.peer, why)
                    del images[case.peer.name]
                    continue
                told = {"items": self.items, "case": name, "turn": turn, **timed}
                self._note(
                    f"{self.items:,} ids: {name} clean {told['clean_s']:.1f} s, "
                    f"after the kill {told['resumed_s']:.1f} s"
                )
                repetitions.append(told)
        return repetitions

    def _place(self, here: Ground, peer: Peer) -> Ground:
        # The same place for all runs of a peer, since some engines keep whole paths.
        return Ground(here.root / peer.name, here.cache.with_name(peer.name))

    def _crashes(self, peers: list[Peer], places: Mapping[str, Ground]) -> dict[str, Image]:
        images = {}
        for peer in peers:
            try:
                images[peer.name] = self._crash(peer, places[peer.name])
            except JobFailed as why:
                self._leave_out(peer, why)
        return images

    def _leave_out(self, peer: Peer, why: JobFailed) -> None:
        if peer is TRAILMARK:
            raise why
        self._skipped[f"{peer.label}, {self.items:,} ids"] = str(why)

    def _crash(self, peer: Peer, place: Ground) -> Image:
        place.begin()
        with Running(peer, self._found[peer.name], self.orders.asked(), place) as job:
            job.wait_for(lambda event: _is_in_the_middle(event, peer, self.orders), WITHIN_S)
            last = job.events[-1]
            time.sleep(last.batch_s / 2 if last.batch_s else KILL_AFTER_S)
            job.kill()
            told = job.newest
        left = Files(place.place)
        left.look()
        directory = self._images / peer.name
        place.keep_image(directory)
        took = told.at - job.started_at
        self._note(f"{self.items:,} ids: {peer.name} killed after {took:.1f} s")
        return Image(directory, told, left.files, left.bytes, took)

    def _clean(self, case: Case, place: Ground) -> dict[str, Any]:
        place.begin()
        with self._start(case, place, self.clean_orders) as job:
            first = job.wait_for(lambda event: event.results > 0, WITHIN_S)
            return {
                "clean_s": round(first.at - job.started_at, 3),
                "clean_ready_s": round(job.events[0].at - job.started_at, 3),
            }

    def _again(self, case: Case, place: Ground, image: Image, *, to_the_end: bool) -> Repetition:
        place.put_back(image.directory, with_cache=case.keeps_cache)
        beyond = image.told.results
        with self._start(case, place, self.orders, resume=True) as job:
            first = job.wait_for(lambda event: event.results > beyond, WITHIN_S)
            timed = {
                "resumed_s": round(first.at - job.started_at, 3),
                "resumed_ready_s": round(job.events[0].at - job.started_at, 3),
            }
            judged = self._judged(case.peer, job, first, to_the_end=to_the_end)
        return {
            **timed,
            **judged,
            "results_before": beyond,
            "rows_before": image.told.rows,
            "bytes": image.bytes,
            "files": image.files,
            "built_s": round(image.built_s, 3),
        }

    def _judged(
        self, peer: Peer, job: Running, first: Event, *, to_the_end: bool
    ) -> dict[str, int | None]:
        """Results after the kill, and how many there should be: of the first batch, which needs
        all of the state; else of all orders, before and after the kill."""
        expected = peer.expected(self.orders.oracle)
        assert expected is not None
        if peer.has_batches:
            right = expected[first.batch] - expected[first.batch - 1]
            return {"results": first.batch_results, "expected": right}
        if not to_the_end:
            return {"results": None, "expected": None}
        done = job.wait_for(lambda event: event.event == "done", WITHIN_S)
        return {"results": done.results, "expected": expected[-1]}

    def _start(self, case: Case, place: Ground, orders: Orders, *, resume: bool = False) -> Running:
        return Running(case.peer, self._found[case.peer.name], orders.asked(resume=resume), place)


def _is_in_the_middle(event: Event, peer: Peer, orders: Orders) -> bool:
    if event.event != "progress":
        return False
    if peer.has_batches:
        opening = orders.batches - orders.workload.batches
        return event.rows >= orders.oracle.rows[opening + BATCHES_BEFORE - 1]
    # They do not read the files in their order; after half of all rows most ids have been seen.
    return event.rows >= orders.rows // 2


# The page.

_INTRODUCTION = """\
One order per id, then batches of {rows:,} orders, windows of {window}. All processes of a peer are
killed with -9: peers with batches in the middle of one, {batches_before} batches after every id had
its first order; the others after half of their input, {kill_after_s} s after they had told of their
progress. What was on its disk is put back before every restart, what was in memory and in temporary
directories is lost, as with a host; Trailmark is shown with its cache in shared memory left, too.

Times are from the start of the process to the first result beyond those before the kill. A clean
start is the same without the opening orders on an empty place; *beyond it* is the difference of
neighbours in time. Engines look for new results at different paces: a result of Spark is there when
its batch is, Flink's when a checkpoint is complete (every second), Bytewax's at once. *Results* are
those of the first batch after the kill, which needs all of the state, or of engines without batches
those at the end of all input, against the number that counting the orders gives.
"""


def show(raw: Raw) -> Section:
    sizes = list(dict.fromkeys(r["items"] for r in raw.repetitions))
    parts = [_INTRODUCTION.format(**raw.settings)]
    for items in sizes:
        parts.append(f"### {items:,} ids\n")
        parts.append(_table(raw, items) + "\n")
    return Section("\n".join(parts), {"peer-recovery.svg": _picture(raw, sizes)})


def _table(raw: Raw, items: int) -> str:
    header = ["", "clean start, s", "after the kill, s", "beyond it, s", "kept, MiB", "results"]
    return table(header, [_row(raw, items, case) for case in _shown(raw, items)])


def _shown(raw: Raw, items: int) -> list[str]:
    return [case for case in raw.settings["labels"] if raw.of(items=items, case=case)]


def _row(raw: Raw, items: int, case: str) -> list[str]:
    runs = raw.of(items=items, case=case)
    return [
        raw.settings["labels"][case],
        spread([run["clean_s"] for run in runs]).show(),
        spread([run["resumed_s"] for run in runs]).show(),
        _beyond(runs).show(),
        f"{median(run['bytes'] for run in runs) / 2**20:,.1f}",
        _verdict(runs),
    ]


def _verdict(runs: list[Repetition]) -> str:
    judged = [run for run in runs if run["expected"] is not None]
    wrong = [run for run in judged if run["results"] != run["expected"]]
    if wrong:
        return f"wrong: {wrong[0]['results']:,}, not {wrong[0]['expected']:,}"
    return "right" if judged else "-"


def _beyond(runs: list[Repetition]) -> Spread:
    return spread([run["resumed_s"] - run["clean_s"] for run in runs])


def _picture(raw: Raw, sizes: list[int]) -> Figure:
    bars = max(len(_shown(raw, items)) for items in sizes)
    figure = Figure(figsize=(8.5, (1.0 + 0.4 * bars) * len(sizes)), layout="constrained")
    axes = figure.subplots(len(sizes), 1, squeeze=False).flat
    for items, ax in zip(sizes, axes, strict=True):
        _bars(ax, raw, items)
    return figure


def _bars(ax: Axes, raw: Raw, items: int) -> None:
    cases = _shown(raw, items)[::-1]
    for place, case in enumerate(cases):
        runs = raw.of(items=items, case=case)
        clean = median(run["clean_s"] for run in runs)
        again = spread([run["resumed_s"] for run in runs])
        color = "#1f6fb4" if case.startswith(TRAILMARK.name) else "#e0a458"
        ax.barh(place, again.middle, color=color, height=0.7)
        ax.barh(place, min(clean, again.middle), color="#cccccc", height=0.7)
        annotate_bar(ax, place, again, f"{_beyond(runs).middle:+.1f} s")
    ax.set_yticks(range(len(cases)), [raw.settings["labels"][case] for case in cases])
    ax.margins(x=0.12)
    ax.grid(visible=False, axis="y")
    ax.set_xlabel("seconds to the first new result; grey: of a clean start")
    ax.set_title(f"{items:,} ids", loc="left", fontsize=11)
