"""Speed of the engine: one process, one core, ratios within one run.

Prints one line per figure: name, value, limit, ok or short. Exit code 1 if any is short.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np

from bench.contest import Contest
from bench.figures import Figure, Report
from bench.one_core import one_core
from bench.orders import Run, aggregate, opening_orders, orders
from bench.workloads import UNIFORM
from trailmark.checkpoint.policy import Continuous, NoCheckpoint, Policy
from trailmark.log import LocalStorage, StreamLog
from trailmark.operators.protocol import BatchInput
from trailmark.records import START_OF_LOG, Fingerprint, FrameKind, Stream
from trailmark.state.memory import Memory
from trailmark.state.table import StateTable

_LOG_ID = uuid.UUID(int=1)
TUPLES = 100_000
ITEMS = 100_000
#: What `recover_within="2 seconds"` stands for; and targets: an extent of four times the open
#: windows, for a twentieth of the time.
POLICIES: dict[str, Policy] = {
    "NoCheckpoint": NoCheckpoint(),
    "Continuous.within": Continuous.within("2 seconds"),
    "Continuous(q)": Continuous(q=360_000, interval="5 ms", period="100 ms"),
}


def throughput(report: Report, root: Path, batches: int) -> None:
    """The operator with logs, with footprints and without, over the same stream in turn."""
    report.note("throughput and overhead")
    contest = Contest(UNIFORM, batches, repetitions=5)
    found = contest.run(POLICIES, root, report.note)
    start = contest.counted_from
    seconds = {name: measured.total(start) for name, measured in found.items()}
    tuples = TUPLES * (batches - start)
    for name in POLICIES:
        rate = tuples / seconds[name] / 1e6
        limit = 8 if name == "Continuous.within" else None
        report.add(Figure(f"throughput, {name}, synced", rate, "M tuples/s", limit, "at least"))
    for name in POLICIES:
        if name == "NoCheckpoint":
            continue
        ratio = seconds[name] / seconds["NoCheckpoint"]
        report.add(Figure(f"time, {name} / NoCheckpoint", ratio, "x", 1.05))
        measured = found[name]
        written = measured.footprints[start:]
        report.add(Figure("  footprints per batch", float(written.mean()), ""))
        work = measured.works[-1]
        report.add(Figure("  extent q at the end", work.records, "records"))
        report.add(Figure("  replay u at the end", work.tuples, "tuples"))


def ceilings(report: Report, root: Path) -> None:
    """What the parts reach alone: the operator on data in memory, and writing the input log."""
    report.note("ceilings")
    rng = np.random.default_rng(2)
    operator = aggregate()
    table = StateTable(operator.layout, Memory())
    log = StreamLog(LocalStorage(str(root / "log")), Stream.INPUT, _LOG_ID, 0)
    process, write, previous = [], [], START_OF_LOG
    for number in range(60):
        rows = orders(rng, ITEMS, TUPLES)
        started = time.perf_counter()
        operator.process(table, BatchInput(number, rows, footprint=number))
        process.append(time.perf_counter() - started)
        started = time.perf_counter()
        digest = Fingerprint(rows.num_rows, 0)
        published = log.append(
            number, [(FrameKind.INPUT, rows)], previous=previous, fingerprint=digest
        )
        write.append(time.perf_counter() - started)
        previous = published.link
    report.add(
        Figure("ceiling: operator in memory", TUPLES / median(process[20:]) / 1e6, "M tuples/s")
    )
    report.add(
        Figure("ceiling: input log, synced", TUPLES / median(write[20:]) / 1e6, "M tuples/s")
    )


def spares(report: Report, root: Path) -> None:
    """A segment over one that was trimmed, against a new one and deleting the old, in turn."""
    storage = LocalStorage(str(root / "spares"))
    content = np.random.default_rng(5).bytes(8 * TUPLES)
    removals: dict[str, Callable[[str], None]] = {
        "recycled": storage.recycle,
        "deleted": partial(storage.delete, synced=False),
    }
    times: dict[str, list[float]] = {name: [] for name in removals}
    for number in range(16, 80):
        for name, remove in removals.items():
            old, new = (f"{name}/{batch:020d}.seg" for batch in (number - 16, number))
            storage.publish(old, [content])
            started = time.perf_counter()
            remove(old)
            storage.publish(new, [content])
            times[name].append(time.perf_counter() - started)
            storage.delete(new)
    recycled, deleted = (median(times[name]) for name in removals)
    report.add(
        Figure("a segment over a spare / anew, the old one deleted", recycled / deleted, "x")
    )


def growth(report: Report, root: Path, many: int) -> None:
    """Cost per tuple with few and with many open windows, in turn."""
    sizes = {"10,000": 11_111, "100,000": 111_111, f"{many:,}": many * 10 // 9}
    rng = np.random.default_rng(3)
    runs = {}
    for name, items in sizes.items():
        report.note(f"opening {name} windows")
        run = Run(root / f"windows-{items}", CONTINUOUS_OPEN)
        for rows in opening_orders(rng, items, 1_000_000):
            run.feed(rows)
        runs[name] = run
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(60):
        for name, items in sizes.items():
            times[name].append(runs[name].feed(orders(rng, items, TUPLES)))
    cost = {name: median(taken[20:]) for name, taken in times.items()}
    few, base, large = cost
    windows = runs[large].report.account.open_windows
    report.add(Figure(f"open windows in the case of {large}", windows, ""))
    report.add(
        Figure(f"time per tuple, {large} / {base} windows", cost[large] / cost[base], "x", 3)
    )
    report.add(Figure(f"time per tuple, {large} / {few} windows", cost[large] / cost[few], "x"))
    table = runs[large].bucket.state()
    assert table is not None
    layout = aggregate().layout
    own = layout.keys.record_bytes + layout.state.itemsize
    extra = table.memory.size / table.open_windows - own
    report.add(Figure("bytes per window beyond key and state", extra, "bytes", 100))


#: Footprints of new windows only: what grows with the windows is not the checking.
CONTINUOUS_OPEN = Continuous()


def recovery(report: Report, root: Path) -> None:
    """Loading an extent in a new process, and replaying input against processing it live."""
    cases: list[tuple[str, Policy, float]] = [
        ("120,000", Continuous(q=120_000), 0.1),
        ("500,000", Continuous(q=500_000), 0.4),
    ]
    for name, policy, limit in cases:
        report.note(f"recovery of an extent of {name} records")
        rng = np.random.default_rng(4)
        place = root / f"extent-{name}"
        run = Run(place, policy)
        live = [run.feed(orders(rng, ITEMS, TUPLES)) for _ in range(60)]
        run.bucket.close()
        command = [sys.executable, "-m", "bench.recovery_load", str(place), str(run.batch - 1)]
        found = [_load_in_new_process(command, root) for _ in range(6)][1:]
        cold = median(f["cold"] for f in found)
        warm = median(f["warm"] for f in found)
        report.add(Figure(f"records in the extent ({name})", found[0]["records"], ""))
        report.add(Figure(f"load, new process ({name})", cold, "s", limit))
        report.add(Figure(f"load, warm ({name})", warm, "s", limit))
        report.add(
            Figure("  of the new process: its import", median(f["import"] for f in found), "s")
        )
        replayed = median(f["replay_tuples"] / f["replay_seconds"] for f in found)
        live_rate = TUPLES / median(live[20:])
        report.add(
            Figure(f"replay rate / live rate ({name})", replayed / live_rate, "x", 1, "at least")
        )


def _load_in_new_process(command: list[str], root: Path) -> dict[str, float]:
    """Bytecode is kept, as it is for an installed package, whatever this environment says."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(root / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.engine", description=__doc__)
    parser.add_argument("--batches", type=int, default=480, help="batches of the main comparison")
    parser.add_argument("--windows", type=int, default=10_000_000, help="most open windows")
    arguments = parser.parse_args()
    report = Report()
    with one_core(), tempfile.TemporaryDirectory(prefix="trailmark-bench-") as folder:
        root = Path(folder)
        ceilings(report, root)
        spares(report, root)
        throughput(report, root, arguments.batches)
        recovery(report, root)
        growth(report, root, arguments.windows)
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
