"""A guard against losses: cost ratios, measured now, against those in bench/baseline.json.

Only ratios within one run are compared, never seconds; a greater ratio is a loss. `python -m bench
check` fails if any has grown by more than 15 %; with ``--accept`` it makes what it finds the
baseline.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bench import spark as on_spark
from bench.contest import Contest
from bench.experiment import Note, Spread, spread
from bench.one_core import one_core
from bench.orders import Run, aggregate, opening_orders, orders
from bench.recover_aside import recover_aside
from bench.session import start_session
from bench.workloads import UNIFORM
from trailmark.checkpoint.policy import Continuous, NoCheckpoint, Policy
from trailmark.operators.protocol import BatchInput
from trailmark.state.memory import Memory
from trailmark.state.table import StateTable

BASELINE = Path("bench/baseline.json")
ALLOWED_LOSS = 0.15
_TUPLES = 100_000

Ratios = Iterator[tuple[str, list[float]]]


@dataclass(frozen=True, slots=True)
class Compared:
    """A ratio now, and what the baseline says."""

    name: str
    now: Spread
    baseline: float | None

    @property
    def is_lost(self) -> bool:
        return self.baseline is not None and self.now.middle > self.baseline * (1 + ALLOWED_LOSS)

    def __str__(self) -> str:
        before = "not in the baseline" if self.baseline is None else f"baseline {self.baseline:.3f}"
        verdict = "LOST" if self.is_lost else "ok" if self.baseline else "new"
        return f"{self.name:<48} {self.now.show('.3f'):<28} {before:<20} {verdict}"


def policies(root: Path) -> Ratios:
    """What footprints cost."""
    contest = Contest(UNIFORM, batches=120, repetitions=4)
    chosen: dict[str, Policy] = {"none": NoCheckpoint(), "within": Continuous.within("2 seconds")}
    found = contest.run(chosen, root / "policies", lambda _: None)
    start = contest.counted_from
    per_repetition = [
        float(with_.sum() / without.sum())
        for with_, without in zip(
            found["within"].seconds[:, start:], found["none"].seconds[:, start:], strict=True
        )
    ]
    yield "engine, within 2 seconds / no checkpoint", per_repetition


def parts(root: Path) -> Ratios:
    """Logs against the bare operator; loading and replaying against processing live."""
    rng = np.random.default_rng(11)
    run = Run(root / "parts", Continuous(q=120_000))
    operator = aggregate()
    table = StateTable(operator.layout, Memory())
    logged, loads, replays = [], [], []
    for batch in range(60):
        rows = orders(rng, 100_000, _TUPLES)
        live = run.feed(rows)
        began = time.perf_counter()
        operator.process(table, BatchInput(batch, rows, footprint=batch))
        bare = time.perf_counter() - began
        if batch >= 20:
            logged.append(live / bare)
        if batch >= 30 and batch % 6 == 0:
            found = recover_aside(root / "parts", batch)
            loads.append(found.load_us / found.work.records / (live * 1e6 / _TUPLES))
            replays.append(found.replay_us / found.work.tuples / (live * 1e6 / _TUPLES))
    run.bucket.close()
    yield "engine, with synced logs / operator in memory", logged
    yield "loading a record / processing a tuple", loads
    yield "replaying a tuple / processing a tuple", replays


def windows(root: Path) -> Ratios:
    """Cost per tuple with many windows against few."""
    rng = np.random.default_rng(12)
    runs = {}
    for items in (100_000, 1_000_000):
        runs[items] = Run(root / f"windows-{items}", Continuous())
        for rows in opening_orders(rng, items, 1_000_000):
            runs[items].feed(rows)
    found = []
    for _ in range(40):
        few, many = (runs[items].feed(orders(rng, items, _TUPLES)) for items in runs)
        found.append(many / few)
    for run in runs.values():
        run.bucket.close()
    yield "a tuple with 1,000,000 windows / with 100,000", found


def spark(root: Path) -> Ratios:
    """A batch on Spark against one that only moves its rows."""
    session = start_session()
    for number, (tuples, batches) in {0: (500_000, 6), 4: (1_000, 12)}.items():
        work = replace(on_spark.WORKLOADS[number], tuples=tuples, batches=batches)
        place = root / f"spark-{number}"
        times = on_spark.take_turns(session, work, place, rounds=3)
        found = [a / b for a, b in zip(times["ours"], times["pass"], strict=True)]
        yield f"Spark, {tuples:,} tuples, ours / pass-through", found
    session.stop()


_GUARDS: dict[Callable[[Path], Ratios], Callable[[], AbstractContextManager[None]]] = {
    policies: one_core,
    parts: one_core,
    windows: one_core,
    spark: nullcontext,
}


def check(note: Note, *, accepts: bool = False) -> int:
    """The exit code: 1 if a ratio is lost."""
    baseline = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    compared = []
    with tempfile.TemporaryDirectory(prefix="trailmark-bench-") as folder:
        for guard, on_cores in _GUARDS.items():
            note(str(guard.__doc__))
            with on_cores():
                for name, values in guard(Path(folder)):
                    compared.append(Compared(name, spread(values), baseline.get(name)))
                    print(compared[-1], flush=True)
    if accepts:
        medians = {one.name: round(one.now.middle, 4) for one in compared}
        BASELINE.write_text(json.dumps(medians, indent=1) + "\n")
        return 0
    missing = [name for name in baseline if name not in {one.name for one in compared}]
    for name in missing:
        print(f"{name:<48} is in the baseline and was not measured")
    return int(bool(missing) or any(one.is_lost or one.baseline is None for one in compared))
