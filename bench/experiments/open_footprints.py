"""Footprints of opening windows and nothing more: throughput against no fault tolerance at all."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from matplotlib.figure import Figure
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trailmark as tm
from bench.batch_files import batch_ms, read_batches, run_to_end, write_batch
from bench.drawing import bars
from bench.experiment import Effort, Measured, Note, Raw, Section, in_turn, ratios, spread, table
from bench.orders import aggregate
from bench.session import start_session
from trailmark.inspection.logs import OperatorFiles
from trailmark.log import LocalStorage
from trailmark.operators.protocol import BatchInput
from trailmark.records import FrameKind, Stream
from trailmark.settings import Durability
from trailmark.state.memory import Memory
from trailmark.state.table import StateTable

NAME = "open-footprints"
TITLE = "Footprints of opening windows"

BUCKETS = 2
SCHEMA = "item_id int, item_price int, item_time timestamp, item_descr string"
#: Beside two integers and a timestamp: tuples of 100 bytes.
_DESCRIPTION_BYTES = 84
_WARM_UP = 2
_SEED = 5
_NATIVE, _WEAK, _DISK = "no fault tolerance", "unsynced logs", "synced logs"


def _two_items(rng: np.random.Generator, tuples: int) -> npt.NDArray[np.int32]:
    # Spark puts 0 and 1 into the same one of two partitions.
    return rng.integers(0, 2, tuples, dtype=np.int32) * 2


def _mixed(rng: np.random.Generator, tuples: int) -> npt.NDArray[np.int32]:
    """100 items that are ordered often, 10 that are ordered rarely."""
    ids = rng.integers(0, 100, tuples, dtype=np.int32)
    is_slow = rng.random(tuples) < 0.001
    ids[is_slow] = 100 + rng.integers(0, 10, int(is_slow.sum()), dtype=np.int32)
    return ids


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    window: int
    draw: Callable[[np.random.Generator, int], npt.NDArray[np.int32]]

    def write(self, directory: Path, batches: int, tuples: int) -> int:
        """One file per batch; how many results all of them have."""
        directory.mkdir(parents=True)
        rng = np.random.default_rng((_SEED, self.window))
        counts = np.zeros(110, dtype=np.int64)
        letters = "".join(map(chr, range(33, 33 + _DESCRIPTION_BYTES)))
        description = pa.array([letters] * tuples)
        for batch in range(batches):
            ids = self.draw(rng, tuples)
            counts += np.bincount(ids, minlength=110)
            times = 1_700_000_000_000_000 + batch * tuples + np.arange(tuples)
            columns = {
                "item_id": ids,
                "item_price": rng.integers(1, 1000, tuples, dtype=np.int32),
                "item_time": pa.array(times).cast(pa.timestamp("us", "UTC")),
                "item_descr": description,
            }
            write_batch(directory, batch, pa.table(columns))
        return int((counts // self.window).sum())


WORKLOADS = (
    Workload("fast", 1, _two_items),
    Workload("slow", 1000, _two_items),
    Workload("mixed", 10, _mixed),
)

#: The open windows of this worker without logs, by query and bucket.
_tables: dict[tuple[str, int], StateTable] = {}


def _unprotected(df: DataFrame, work: Workload) -> DataFrame:
    """The same operator in a Python worker whose state is in its memory and nowhere else."""
    window = work.window

    def process(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from run_unprotected(window, batches)

    shuffled = df.select("item_id", "item_price").repartition(BUCKETS, "item_id")
    computed: DataFrame = shuffled.mapInArrow(process, "item_id int, avg_price double")
    return computed


def run_unprotected(window: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One bucket and one batch in a worker. A bucket that moves to another worker begins anew."""
    context = TaskContext.get()
    assert context is not None, "runs in a task"
    batch = int(str(context.getLocalProperty("streaming.sql.batchId")))
    place = (str(context.getLocalProperty("sql.streaming.queryId")), context.partitionId())
    operator = aggregate(window)
    if place not in _tables:
        _tables[place] = StateTable(operator.layout, Memory())
    rows = pa.Table.from_batches(batches, operator.input_schema).combine_chunks().to_batches()
    for each in rows:
        outcome = operator.process(_tables[place], BatchInput(batch, each))
        results = operator.publish(outcome.results)
        for first in range(0, results.num_rows, 1 << 16):
            yield results.slice(first, 1 << 16)


def _protected(df: DataFrame, work: Workload, path: Path, durability: Durability) -> DataFrame:
    return tm.aggregate(
        df,
        by="item_id",
        window=tm.count_window(work.window),
        values={"avg_price": tm.avg("item_price")},
        path=path,
        buckets=BUCKETS,
        checkpoint=tm.Continuous(),
        durability=durability,
    )


def measure(effort: Effort, note: Note) -> Measured:
    turns, batches, tuples = effort.pick((2, 5, 500_000), (4, 8, 1_000_000))
    repetitions: list[dict[str, Any]] = []
    spark = start_session()
    variants = {name: name for name in (_NATIVE, _WEAK, _DISK)}
    with tempfile.TemporaryDirectory(prefix="trailmark-bench-") as folder:
        for work in WORKLOADS:
            root = Path(folder) / work.name
            expected = work.write(root / "orders", batches, tuples)
            if work is WORKLOADS[0]:
                note("a first run of each, which is not counted")
                for variant in variants:
                    _run(spark, work, root, variant)
            for turn, variant, _ in in_turn(variants, turns):
                note(f"{work.name}, {variant}, turn {turn + 1}")
                found = _run(spark, work, root, variant)
                # Without logs a bucket that moves to another worker loses its windows.
                assert variant == _NATIVE or found["results"] == expected, "every result is there"
                rate = tuples / median(found["seconds_by_batch"][_WARM_UP:])
                repetitions.append(
                    {
                        "turn": turn,
                        "workload": work.name,
                        "variant": variant,
                        "tuples_per_s": round(rate),
                        **found,
                    }
                )
    spark.stop()
    settings = {
        "tuples_per_batch": tuples,
        "batches": batches,
        "tuple_bytes": 100,
        "buckets": BUCKETS,
        "master": "local[2]",
        "windows": {work.name: work.window for work in WORKLOADS},
    }
    return Measured(settings, _SEED, repetitions)


def _run(spark: SparkSession, work: Workload, root: Path, variant: str) -> dict[str, Any]:
    orders = read_batches(spark, SCHEMA, root / "orders")
    with tempfile.TemporaryDirectory(dir=root) as folder:
        place = Path(folder)
        if variant == _NATIVE:
            df = _unprotected(orders, work)
        else:
            durability = Durability.SYNCED if variant == _DISK else Durability.UNSYNCED
            df = _protected(orders, work, place / "log", durability)
        counted = df.observe("results", F.count(F.lit(1)).alias("rows"))
        progress = run_to_end(counted.writeStream.format("noop"), place / "checkpoint")
        footprints = _footprints(place / "log") if variant != _NATIVE else 0
    return {
        "seconds_by_batch": [ms / 1000 for ms in batch_ms(progress)],
        "results": sum(each["observedMetrics"]["results"]["rows"] for each in progress),
        "footprints": footprints,
    }


def _footprints(path: Path) -> int:
    """All that the output logs hold; nothing is trimmed in so few batches."""
    files = OperatorFiles(LocalStorage(path))
    logs = [files.log(Stream.OUTPUT, bucket) for bucket in files.buckets]
    return sum(
        log.read_footer(batch)[0].rows.get(FrameKind.FOOTPRINTS, 0)
        for log in logs
        for batch in log.batches()
    )


#: Throughput with OPEN tuples on disk, x native: the paper's words and the thesis's.
_PAPERS = {"fast": ("above 0.9", "0.65"), "slow": ("above 0.9", "0.9"), "mixed": ("", "0.65")}


def show(raw: Raw) -> Section:
    rows = []
    for work in WORKLOADS:
        base = {"workload": work.name, "variant": _NATIVE}
        rates = [
            spread(raw.values("tuples_per_s", workload=work.name, variant=name)).middle / 1e6
            for name in (_NATIVE, _WEAK, _DISK)
        ]
        kept = [
            ratios(raw, "tuples_per_s", {"workload": work.name, "variant": name}, base).show()
            for name in (_WEAK, _DISK)
        ]
        disk = raw.of(workload=work.name, variant=_DISK)[0]
        rows.append(
            [
                f"{work.name}, windows of {work.window}",
                *[f"{rate:.2f}" for rate in rates],
                *kept,
                *_PAPERS[work.name],
                f"{disk['footprints'] / disk['results']:.4f}",
            ]
        )
    header = [
        "M tuples/s",
        _NATIVE,
        _WEAK,
        _DISK,
        "unsynced / none",
        "synced / none",
        "paper",
        "thesis",
        "OPENs per result",
    ]
    text = f"""\
After figure 5 of Sebepou and Magoutis, *CEC*, and figure 4.3 of Sebepou's thesis: two items and
windows of 1 (fast) or 1000 (slow), and 110 items, ten of them ordered rarely, with windows of 10
(mixed); tuples of 100 bytes; footprints for windows that open, and no others (`Continuous()`). On
Spark, `local[2]`, batches of {raw.settings["tuples_per_batch"]:,} tuples. "{_NATIVE}" is the same
operator in Python workers that keep windows in memory and write nothing.

{table(header, rows)}

What differs: the papers have a network for what is not on disk (Gopen/Net), we have logs that are
not synced. Their fault tolerance is the footprints alone, ours is also the input log, which takes
the place of the upstream node that would replay. And where they write an OPEN for every window, we
need one only for windows that are still open when their batch ends.
"""
    return Section(text, {"open-footprints.svg": _draw(raw)})


def _draw(raw: Raw) -> Figure:
    figure = Figure(figsize=(8, 3.8), layout="constrained")
    axes = figure.subplots()
    places = np.arange(len(WORKLOADS))
    colours = {_NATIVE: "#909090", _WEAK: "#70a8d8", _DISK: "#2858a0"}
    for number, (name, colour) in enumerate(colours.items()):
        found = [
            spread(raw.values("tuples_per_s", workload=work.name, variant=name))
            for work in WORKLOADS
        ]
        bars(axes, places + (number - 1) * 0.27, found, 1e6, width=0.27, label=name, color=colour)
    axes.set_xticks(places, [f"{work.name} (windows of {work.window})" for work in WORKLOADS])
    axes.set_ylabel("million tuples per second")
    axes.set_ylim(top=1.2 * axes.get_ylim()[1])
    axes.legend(loc="upper center", ncols=3)
    return figure
