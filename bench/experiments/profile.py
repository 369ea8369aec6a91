"""Where the time of a batch on Spark goes."""

from __future__ import annotations

import tempfile
from dataclasses import fields
from pathlib import Path
from unittest.mock import patch

from pyspark.sql import SparkSession

import bench
import trailmark.spark.operate
from bench.batch_files import Progress, read_batches, run_to_end
from bench.experiment import Effort, Measured, Note, Raw, Repetition, Section, in_turn
from bench.profiling import event_log
from bench.profiling.divide import divide, read_traces
from bench.profiling.picture import draw
from bench.profiling.tables import describe
from bench.profiling.worker import TracedBatch
from bench.session import start_session
from bench.spark import BUCKETS, CONTINUOUS, WARM_UP, WORKLOADS, Workload, ours
from trailmark.checkpoint.policy import Continuous

NAME = "profile"
TITLE = "Where the time of a batch goes"

_SEED = 1
_ROOT = Path(bench.__file__ or "").parents[1]
#: The same stream in large and in small batches.
_CHOSEN = {f"{work.tuples:,} tuples": work for work in (WORKLOADS[0], WORKLOADS[-1])}


def measure(effort: Effort, note: Note) -> Measured:
    turns = effort.pick(2, 5)
    with tempfile.TemporaryDirectory(prefix="trailmark-bench-") as folder:
        place = Path(folder)
        progress = _run_all(place, turns, note)
        tasks = event_log.read_tasks(place / "events")
        traces = read_traces(place / "traces")
    repetitions: list[Repetition] = [
        {
            "turn": turn,
            "workload": name,
            "batch": batch["batchId"],
            **divide(batch["durationMs"], tasks[batch["id"], batch["batchId"]], traces),
        }
        for turn, name, batch in progress
    ]
    settings = {
        "master": "local[2]",
        "buckets": BUCKETS,
        "policy": _given(CONTINUOUS),
        "workloads": {name: work.name for name, work in _CHOSEN.items()},
        "turns": turns,
        "batches_not_counted": WARM_UP,
    }
    return Measured(settings, _SEED, repetitions)


def _given(policy: Continuous) -> str:
    """The policy as one would write it."""
    given = {f.name: getattr(policy, f.name) for f in fields(policy)}
    said = [f"{name}={value!r}" for name, value in given.items() if value is not None]
    return f"Continuous({', '.join(said)})"


def _run_all(place: Path, turns: int, note: Note) -> list[tuple[int, str, Progress]]:
    """Turn, workload and progress of every batch that counts; those of the first turn do not."""
    for name in ("events", "traces"):
        (place / name).mkdir()
    for name, work in _CHOSEN.items():
        work.write(place / name / "orders", _SEED)
    found = []
    spark = _session(place / "events")
    for turn, name, work in in_turn(_CHOSEN, turns + 1):
        note(f"turn {turn} of {turns}: batches of {name}")
        batches = _run(spark, work, place / name, turn, place / "traces")
        if turn:
            found += [(turn, name, batch) for batch in batches[WARM_UP:]]
    spark.stop()
    return found


def _session(events: Path) -> SparkSession:
    """A session that keeps an event log, and whose workers find this package."""
    settings = {**event_log.settings(events), "spark.executorEnv.PYTHONPATH": str(_ROOT)}
    return start_session(settings=settings)


def _run(
    spark: SparkSession, work: Workload, place: Path, turn: int, traces: Path
) -> list[Progress]:
    """The progress of each batch, as Spark reports it."""
    orders = read_batches(spark, work.schema, place / "orders")
    with patch.object(trailmark.spark.operate, "run_micro_batch", TracedBatch(str(traces))):
        df = ours(orders, work, place / f"log-{turn}")
    progress = run_to_end(df.writeStream.format("noop"), place / f"checkpoint-{turn}")
    assert len(progress) == work.batches
    return progress


def show(raw: Raw) -> Section:
    return Section(describe(raw), {f"{NAME}.svg": draw(raw)})
