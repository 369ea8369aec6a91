"""Rows per second, bytes, files and memory of Trailmark and its peers on the same orders."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from bench.drawing import annotate_bar
from bench.experiment import (
    Measured,
    Note,
    Raw,
    Repetition,
    in_turn,
    ratios,
    spread,
    table,
)
from bench.peers.orders import SEED, Orders, Workload, prepare
from bench.peers.peer import ALL, BY_NAME, PASS_THROUGH, TRAILMARK, Peer, installable
from bench.peers.rates import rows_per_s
from bench.peers.run import HEAP_GIB, JobFailed, Running, ground

#: Batches that are not counted: the first ones start workers and fill caches.
WARM_UP = 2
#: Slow peers get a part of every batch: of so many ids fewer, as many orders of each.
PARTS = 40
WITHIN_S = 600.0
BATCHES = 4


@dataclass(frozen=True, slots=True)
class Stream:
    """A workload of the page, in words, with the batches that fast peers get."""

    label: str
    workload: Workload


_ROWS = 1_000_000
STREAMS = {
    "uniform": Stream("100,000 ids, windows of 10", Workload(100_000, 10, _ROWS, 0)),
    "few": Stream("2 ids, windows of 1,000", Workload(2, 1000, _ROWS, 0)),
    "single": Stream("100,000 ids, windows of 1", Workload(100_000, 1, _ROWS, 0)),
    "text": Stream("100,000 string keys, windows of 10", Workload(100_000, 10, _ROWS, 0, "text")),
    "zipf": Stream(
        "100,000 ids by Zipf's law, windows of 10",
        Workload(100_000, 10, _ROWS, 0, is_skewed=True),
    ),
}


def sized(workload: Workload, peer: Peer) -> Workload:
    """The workload in a size that this peer can do in seconds."""
    if peer.is_slow and workload.items > PARTS:
        return replace(workload, rows=workload.rows // PARTS, blocks=PARTS, batches=BATCHES)
    # Fewer rows in as many files: some engines read several files at a time.
    return replace(workload, rows=round(workload.rows * peer.input_times), batches=BATCHES)


def measure_streams(names: Sequence[str], turns: int, repeats_all: bool, note: Note) -> Measured:
    """All peers on these streams, in turn; those that run once are repeated only with
    ``repeats_all``."""
    found, skipped = installable(ALL, note)
    repetitions: list[Repetition] = []
    for name in names:
        repetitions += _stream(name, turns, repeats_all, found, skipped, note)
    settings = {
        "batches": BATCHES,
        "warm_up": WARM_UP,
        "parts": PARTS,
        "heap_gib": HEAP_GIB,
        "streams": {name: asdict(STREAMS[name]) for name in names},
        "peers": {name: asdict(BY_NAME[name]) for name in found},
    }
    return Measured(settings, SEED, repetitions, skipped)


def _stream(
    name: str,
    turns: int,
    repeats_all: bool,
    found: Mapping[str, Path],
    skipped: dict[str, str],
    note: Note,
) -> Iterator[Repetition]:
    stream = STREAMS[name]
    orders = {peer: prepare(sized(stream.workload, BY_NAME[peer])) for peer in found}
    failed = set()
    for turn, peer, interpreter in in_turn(found, turns):
        if peer in failed or (turn and BY_NAME[peer].runs_once and not repeats_all):
            continue
        try:
            run = _run(BY_NAME[peer], interpreter, orders[peer])
        except JobFailed as why:
            if BY_NAME[peer] is TRAILMARK:
                raise
            failed.add(peer)
            skipped[f"{BY_NAME[peer].label}, {stream.label}"] = str(why)
            continue
        note(f"{stream.label}: {peer} {run['rows_per_s']:,.0f} rows/s, {run['took_s']:.0f} s")
        yield {"stream": name, "peer": peer, "turn": turn, **run}


def _run(peer: Peer, interpreter: Path, orders: Orders) -> dict[str, Any]:
    with ground() as here, Running(peer, interpreter, orders.asked(), here) as job:
        done = job.wait_for(lambda event: event.event == "done", WITHIN_S)
        began = job.events[0].at
        job.kill()
        watched, expected = job.watched, peer.expected(orders.oracle)
        return {
            "rows": done.rows,
            "rows_expected": orders.rows,
            "batches": orders.batches,
            "results": done.results,
            "expected": expected and expected[-1],
            "rows_per_s": rows_per_s(job.events, orders.rows, WARM_UP),
            "batch_s": [event.batch_s for event in job.events if event.batch_s],
            "told": [[round(e.at - began, 3), e.rows, e.results] for e in job.events],
            "startup_s": round(began - job.started_at, 3),
            "took_s": round(done.at - job.started_at, 3),
            "files": watched.files.files,
            "bytes": watched.files.bytes,
            "stored_bytes": watched.stored_bytes,
            "checkpoint_bytes": max(event.checkpoint_bytes for event in job.events),
            "peak_bytes": watched.peak_bytes,
        }


# The page.


def tables(raw: Raw) -> str:
    """A table for each stream, under its name."""
    parts = []
    for stream in _streams(raw):
        parts.append(f"### {raw.settings['streams'][stream]['label']}\n")
        parts.append(_table(raw, stream) + "\n")
    return "\n".join(parts)


def _streams(raw: Raw) -> list[str]:
    return list(dict.fromkeys(r["stream"] for r in raw.repetitions))


def introduction(raw: Raw) -> str:
    """What was done, and what the columns are."""
    return _INTRODUCTION.format(**raw.settings, **_sizes(raw))


_INTRODUCTION = """\
Fault tolerance is on:

{tolerances}

All engines have two cores, JVMs {heap_gib} GiB of heap, and each run is a process of its own.
Batches have {batch:,} orders; rows per second are those of the median batch after the first
{warm_up}. Those of engines without batches are counted between the first and the last time they
told of their progress, after a quarter of their input. Flink with RocksDB and Bytewax read a
quarter of the orders, so that a run does not take minutes.

*Smaller batches*: peers that are called once per id would take minutes for a batch. Theirs have
{small:,} orders of {fewer_ids:,} ids, other ids in every batch: as many orders per id as in the
others' batches, which is what their speed depends on. Less state comes together, in their favour.

*Bytes* are those of every file that appeared where the engine keeps what has to survive. *Disk
writes* are all bytes its processes had written to disks: shuffles, local copies of the state, and
whatever is written over again. *Files* are counted per batch, or per {batch:,} rows where there are
no batches. *Memory* is the peak of all processes together. *Results* are compared with the number
that counting the orders gives; a running average has one per id and batch, and the pass-through
none to compare.
"""


def _sizes(raw: Raw) -> dict[str, Any]:
    workload = next(iter(raw.settings["streams"].values()))["workload"]
    parts = raw.settings["parts"]
    return {
        "tolerances": _tolerances(raw),
        "batch": workload["rows"],
        "small": workload["rows"] // parts,
        "fewer_ids": workload["items"] // parts,
    }


def _tolerances(raw: Raw) -> str:
    """A line for each kind, with all that have it."""
    having: dict[str, list[str]] = {}
    for peer in raw.settings["peers"].values():
        having.setdefault(peer["tolerance"], []).append(peer["label"])
    return "\n".join(f"- {', '.join(labels)}: {kind}" for kind, labels in having.items())


def _table(raw: Raw, stream: str) -> str:
    header = [
        "",
        "rows/s",
        "of the pass-through",
        "bytes per row",
        "disk writes per row",
        "files per batch",
        "memory, MiB",
        "results",
    ]
    return table(header, [_row(raw, stream, peer) for peer in _peers(raw, stream)])


def _peers(raw: Raw, stream: str) -> list[str]:
    return [name for name in raw.settings["peers"] if raw.of(stream=stream, peer=name)]


def _row(raw: Raw, stream: str, peer: str) -> list[str]:
    runs = raw.of(stream=stream, peer=peer)
    about = raw.settings["peers"][peer]
    return [
        about["label"] + (" (smaller batches)" if _has_smaller_batches(raw, runs[0]) else ""),
        spread([run["rows_per_s"] for run in runs]).show(",.0f"),
        _against_ceiling(raw, stream, peer),
        f"{median(run['bytes'] / run['rows'] for run in runs):,.1f}",
        f"{median(run['stored_bytes'] / run['rows'] for run in runs):,.1f}",
        f"{median(_files_per_batch(raw, stream, run) for run in runs):,.1f}",
        f"{median(run['peak_bytes'] for run in runs) / 2**20:,.0f}",
        _verdict(runs),
    ]


def _has_smaller_batches(raw: Raw, run: Repetition) -> bool:
    usual: int = raw.settings["streams"][run["stream"]]["workload"]["rows"]
    return bool(run["batch_s"]) and run["rows"] < usual * run["batches"]


def _files_per_batch(raw: Raw, stream: str, run: Repetition) -> float:
    if run["batch_s"]:
        return float(run["files"] / run["batches"])
    batch = raw.settings["streams"][stream]["workload"]["rows"]
    return float(run["files"] * batch / run["rows"])


def _against_ceiling(raw: Raw, stream: str, peer: str) -> str:
    ceiling = {"stream": stream, "peer": PASS_THROUGH.name}
    turns = {run["turn"] for run in raw.of(stream=stream, peer=peer)}
    if not turns <= {run["turn"] for run in raw.of(**ceiling)}:
        return "-"
    return ratios(raw, "rows_per_s", {"stream": stream, "peer": peer}, ceiling).show(".3f")


def _verdict(runs: list[Repetition]) -> str:
    if any(run["rows"] != run["rows_expected"] for run in runs):
        return "rows are missing"
    if runs[0]["expected"] is None:
        return "-"
    wrong = [run for run in runs if run["results"] != run["expected"]]
    if not wrong:
        return "right"
    return f"wrong: {wrong[0]['results']:,} of {wrong[0]['expected']:,}"


def picture(raw: Raw) -> Figure:
    """Rows per second of all peers, a panel for each stream."""
    streams = _streams(raw)
    columns = min(2, len(streams))
    lines = -(-len(streams) // columns)
    bars = max(len(_peers(raw, stream)) for stream in streams)
    size = (7.5 * columns, (1.0 + 0.4 * bars) * lines)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False).flat
    for stream, ax in zip(streams, axes, strict=False):
        _bars(ax, raw, stream)
    for ax in list(axes)[len(streams) :]:
        ax.set_visible(False)
    return figure


def _bars(ax: Axes, raw: Raw, stream: str) -> None:
    peers = sorted(
        _peers(raw, stream),
        key=lambda peer: median(raw.values("rows_per_s", stream=stream, peer=peer)),
    )
    for place, peer in enumerate(peers):
        rate = spread(raw.values("rows_per_s", stream=stream, peer=peer))
        ax.barh(place, rate.middle, color=_color(peer), height=0.7)
        annotate_bar(ax, place, rate, f"{rate.middle:,.0f}")
    ax.set_yticks(range(len(peers)), [_bar_label(raw, stream, peer) for peer in peers])
    ax.set_xscale("log")
    rates = raw.values("rows_per_s", stream=stream)
    # Whole powers of ten, the same in all pictures unless somebody is slower than that.
    ax.set_xlim(min(1_000, 10 ** math.floor(math.log10(min(rates)))), max(rates) * 5)
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    ax.grid(visible=False, axis="y")
    ax.set_xlabel("rows per second (logarithmic)")
    ax.set_title(raw.settings["streams"][stream]["label"], loc="left", fontsize=11)


def _bar_label(raw: Raw, stream: str, peer: str) -> str:
    label: str = raw.settings["peers"][peer]["label"]
    is_small = _has_smaller_batches(raw, raw.of(stream=stream, peer=peer)[0])
    return f"{label}\n(smaller batches)" if is_small else label


def _color(peer: str) -> str:
    if peer == TRAILMARK.name:
        return "#1f6fb4"
    return "#bbbbbb" if peer == PASS_THROUGH.name else "#e0a458"
