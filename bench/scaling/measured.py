"""Buckets and hosts, by a model of what a batch, a task and a recovery cost, and beside batches
that were measured on a small cluster."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

from bench.cluster import SET, Place
from bench.experiment import Effort, Measured, Note, Raw, Repetition, Section, table
from bench.growth.points import Point
from bench.growth.runs import recover, write_crashed
from bench.one_core import one_core
from bench.orders import orders
from bench.scaling import model, tables
from bench.scaling.batches import batch_times, stage_times
from bench.scaling.model import Cluster, Costs
from bench.scaling.requests import Shape
from bench.session import start_session
from tests.support.cluster import Cluster as Processes
from tests.support.network import hosts_on_a_switch
from trailmark.log import LocalStorage

NAME = "scaling"
TITLE = "Growth to many hosts"

_SLOTS = 2
_WINDOWS = (1_000, 100_000, 1_000_000)
#: Files in a directory, and how often it is listed.
_FILES, _LISTED = (100, 1_000, 10_000), 5

#: What nobody has measured: of the reader's hosts and store.
_CORES, _STORE_MS = 4, 30.0
_TUPLES, _OPEN_WINDOWS, _RETAINED = 1_000_000, 10_000_000, 100


def measure(effort: Effort, note: Note) -> Measured:
    rounds = effort.pick(3, 5)
    skipped: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="trailmark-bench-") as folder:
        root = Path(folder)
        note("recoveries and listings")
        found = _named("recovery", _recoveries(root, rounds)) + _named("listing", _listings(root))
        note("one machine: batches with few and many buckets, tasks that do nothing")
        spark = start_session(_SLOTS)
        try:
            found += _named("local", batch_times(spark, root / "local", rounds))
            found += _named("stage", stage_times(spark, rounds))
        finally:
            spark.stop()
        note("two workers of one core, on hosts of their own")
        try:
            found += _named("cluster", _on_cluster(root, rounds))
        except pytest.skip.Exception as error:
            skipped["the small cluster"] = str(error)
    settings = {
        "slots": _SLOTS,
        "rounds": rounds,
        "assumed": {"cores": _CORES, "store_ms": _STORE_MS},
        "tuples": _TUPLES,
        "open_windows": _OPEN_WINDOWS,
        "retained": _RETAINED,
    }
    return Measured(settings, seed=1, repetitions=found, skipped=skipped)


def _named(what: str, found: list[dict[str, Any]]) -> list[Repetition]:
    return [{"what": what, **each} for each in found]


def _recoveries(root: Path, rounds: int) -> list[dict[str, Any]]:
    """A bucket with few and with many windows, in this process; the first one does not count."""
    found = []
    rng = np.random.default_rng(1)
    with one_core():
        for windows in _WINDOWS:
            point = Point("ids", windows, ids=windows)
            place = root / f"windows-{windows}"
            write_crashed(place, point, orders(rng, point.ids, point.tuples))
            for turn in range(rounds + 1):
                took_us = sum(each.open_us + each.load_us for each in recover(place, point))
                if turn:
                    found.append({"turn": turn, "windows": windows, "ms": took_us / 1e3})
    return found


def _listings(root: Path) -> list[dict[str, Any]]:
    storage = LocalStorage(root / "listed")
    found = []
    for files in _FILES:
        directory = root / "listed" / str(files)
        directory.mkdir(parents=True)
        for number in range(files):
            (directory / f"{number:020d}.seg").touch()
        for _ in range(_LISTED):
            began = time.perf_counter()
            storage.list(directory.name)
            found.append({"files": files, "ms": 1e3 * (time.perf_counter() - began)})
    return found


def _on_cluster(root: Path, rounds: int) -> list[dict[str, Any]]:
    with (
        hosts_on_a_switch(4) as (master, driver, *workers),
        Processes(root / "processes", workers, master=master) as cluster,
    ):
        said = Place(cluster, driver, root).run(SET, "grow", str(rounds))
    found: list[dict[str, Any]] = json.loads(said.splitlines()[-1])
    return found


def show(raw: Raw) -> Section:
    costs = Costs.fitted(
        raw.settings["slots"],
        raw.of(what="local"),
        raw.of(what="stage"),
        raw.of(what="recovery"),
        raw.of(what="listing"),
    )
    assumed = raw.settings["assumed"]
    cores, store_ms = assumed["cores"], assumed["store_ms"]
    given = (costs, cores)
    tuples, windows = raw.settings["tuples"], raw.settings["open_windows"]
    parts = [
        _HOW,
        _measured(costs),
        "**The model beside what it was fitted to, and beside the cluster, which it has not "
        "seen.** Medians over the rounds, ms a batch.",
        _compared(raw, costs),
        f"**A batch of 1,000 tuples**, ms. Hosts with {cores} cores (assumed), logs on disks that "
        "answer at once.",
        tables.batches(*given, 0.0, 1_000, has_event_time=False),
        f"**A batch of {tuples:,} tuples**, ms, likewise.",
        tables.batches(*given, 0.0, tuples, has_event_time=False),
        f"**The same on a store that answers after {store_ms:g} ms** (assumed), with event time, "
        "ms.",
        tables.batches(*given, store_ms, tuples, has_event_time=True),
        f"**A host is lost**: what the next batch takes longer, s, with {windows:,} windows open "
        "in all buckets together, loaded from logs that answer at once.",
        tables.recoveries(*given, windows),
        f"**Beside the batches**, with {raw.settings['retained']} batches kept and event time; "
        "the store answers as above.",
        tables.following(costs, store_ms, raw.settings["retained"]),
    ]
    return Section("\n\n".join(parts))


def _measured(costs: Costs) -> str:
    rows = [
        ["a batch on Spark, whatever it has", f"{costs.batch_ms:,.0f} ms"],
        ["a task, for the driver", f"{costs.launch_ms:,.2f} ms"],
        ["a task with hardly any rows, in its slot", f"{costs.task_ms:,.0f} ms"],
        ["a row, on one core", f"{costs.row_ns:,.0f} ns"],
        ["a recovery without windows", f"{costs.recovery_ms:,.1f} ms"],
        ["a window in a recovery", f"{costs.window_ns:,.0f} ns"],
        ["a file in a listing from a disk", f"{costs.listed_us:,.2f} us"],
    ]
    return table(["measured", "costs"], rows)


def _compared(raw: Raw, costs: Costs) -> str:
    rows = []
    points = sorted({(each["tuples"], each["buckets"]) for each in raw.of(what="local")})
    for tuples, buckets in points:
        shape = Shape(buckets)
        modelled = model.batch_ms(costs, Cluster(1, costs.slots), shape, tuples)
        row = [f"{tuples:,} tuples, {buckets} buckets", f"{modelled:,.0f}"]
        for what in ("local", "cluster"):
            times = raw.values("ms", what=what, tuples=tuples, buckets=buckets)
            if times:
                row += [f"{median(times):,.0f}", f"{modelled / median(times):.2f} x"]
            else:
                row += ["", ""]
        rows.append(row)
    return table(["", "model", "one machine", "model / it", "cluster", "model / it"], rows)


_HOW = """\
A model (`bench/scaling`) of an operator that counts windows of ten orders, from a few measured
costs: Spark `local[2]`, batches of 1,000 tuples in 2 to 32 buckets (one to sixteen waves of tasks)
and of 1,000,000 in 2 and 8; stages of 2 to 1,000 tasks that do nothing; recoveries of one bucket
with 1,000 to 1,000,000 windows; listings of 100 to 10,000 files. A batch takes what every batch
takes, and then what all waves of its tasks take, or what the driver needs to launch them if that is
longer. The cluster is that of `make bench-cluster`: two workers of one core each, as hosts of their
own on this machine. docs/scaling.md says what follows from it, and counts requests."""
