"""What it costs to persist a stream on its way: throughput of a filter, by the size of a tuple."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.batch_files import batch_ms, read_batches, run_to_end, write_batch
from bench.drawing import bars
from bench.experiment import Effort, Measured, Note, Raw, Section, in_turn, ratios, spread, table
from bench.session import start_session

NAME = "persistence"
TITLE = "Persisting a stream on its way"

_TUPLE_BYTES = (256, 1024, 4096)
_BATCH_BYTES = 64 * 2**20
_WARM_UP = 1
_SEED = 36
_MEMORY = Path("/dev/shm")

#: What becomes of the rows, and the thesis's name for it.
_NONE, _MOVED, _CODE = "not persisted", "moved to Python", "to memory"
_WEAK, _STABLE = "unsynced", "synced"
_PAPER_NAMES = {
    _NONE: "Borealis",
    _MOVED: "",
    _CODE: "Str Code",
    _WEAK: "Pvfs2-async",
    _STABLE: "Pvfs2-sync",
}


def measure(effort: Effort, note: Note) -> Measured:
    turns, batches = effort.pick((2, 4), (4, 7))
    sizes = effort.pick((_TUPLE_BYTES[0], _TUPLE_BYTES[-1]), _TUPLE_BYTES)
    repetitions: list[dict[str, Any]] = []
    spark = start_session()
    has_memory = os.access(_MEMORY, os.W_OK)
    variants = {name: name for name in _PAPER_NAMES if name != _CODE or has_memory}
    with tempfile.TemporaryDirectory(prefix="trailmark-bench-") as folder:
        for size in sizes:
            root = Path(folder) / str(size)
            _write_input(root / "input", size, batches)
            if size == sizes[0]:
                note("a first run of each, which is not counted")
                for variant in variants:
                    _copy(spark, root, variant, batches)
            for turn, variant, _ in in_turn(variants, turns):
                note(f"tuples of {size} bytes, {variant}, turn {turn + 1}")
                taken = _copy(spark, root, variant, batches)
                repetitions.append(
                    {
                        "turn": turn,
                        "tuple_bytes": size,
                        "variant": variant,
                        "seconds_by_batch": taken,
                        "mb_per_s": round(_BATCH_BYTES / median(taken[_WARM_UP:]) / 1e6, 3),
                    }
                )
    spark.stop()
    skipped = {} if has_memory else {f'"{_CODE}"': f"There is no {_MEMORY} here."}
    settings = {"batch_bytes": _BATCH_BYTES, "batches": batches, "master": "local[2]"}
    return Measured(settings, _SEED, repetitions, skipped)


def _write_input(directory: Path, tuple_bytes: int, batches: int) -> None:
    """Tuples of an integer and as many random bytes as they lack: nothing compresses."""
    directory.mkdir(parents=True)
    rng = np.random.default_rng((_SEED, tuple_bytes))
    rows = _BATCH_BYTES // tuple_bytes
    for batch in range(batches):
        number = pa.array(np.arange(rows, dtype=np.int32))
        rest = pa.py_buffer(rng.bytes(rows * (tuple_bytes - 4)))
        fixed = pa.binary(tuple_bytes - 4)
        filling = pa.FixedSizeBinaryArray.from_buffers(fixed, rows, [None, rest])
        columns = pa.table({"number": number, "rest": filling.cast(pa.binary())})
        write_batch(directory, batch, columns, compression="none")


def _copy(spark: SparkSession, root: Path, variant: str, batches: int) -> list[float]:
    """A filter that looks at an integer of every tuple; seconds of each batch."""
    given = read_batches(spark, "number int, rest binary", root / "input")
    rows = given.where(F.col("number") >= 0)
    base = _MEMORY if variant == _CODE else root
    with (
        tempfile.TemporaryDirectory(prefix="trailmark-bench-", dir=base) as place,
        tempfile.TemporaryDirectory(prefix="checkpoint-", dir=root) as checkpoint,
    ):
        progress = run_to_end(_sink(rows, variant, place), Path(checkpoint))
    assert len(progress) == batches, "a batch for every file"
    return [ms / 1000 for ms in batch_ms(progress)]


def _sink(rows: DataFrame, variant: str, place: str) -> Any:
    if variant == _NONE:
        return rows.writeStream.format("noop")
    if variant == _MOVED:
        return rows.mapInArrow(_drop, "number int").writeStream.format("noop")
    durability = "synced" if variant == _STABLE else "unsynced"
    stream = rows.writeStream.format("trailmark").option("durability", durability)
    return stream.option("path", f"{place}/stream")


def _drop(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Takes all rows and gives none."""
    for _ in batches:
        pass
    return iter(())


def show(raw: Raw) -> Section:
    variants = [name for name in _PAPER_NAMES if raw.of(variant=name)]
    rows = []
    for size in _sizes(raw):
        rates = [
            spread(raw.values("mb_per_s", tuple_bytes=size, variant=name)).show(".0f")
            for name in variants
        ]
        kept = [
            ratios(
                raw,
                "mb_per_s",
                {"tuple_bytes": size, "variant": name},
                {"tuple_bytes": size, "variant": base},
            ).show()
            for base in (_NONE, _MOVED)
            for name in (_WEAK, _STABLE)
        ]
        rows.append([f"{size:,} bytes", *rates, *kept])
    compared = [f"{name} / {base}" for base in (_NONE, _MOVED) for name in (_WEAK, _STABLE)]
    header = ["MB/s", *variants, *compared]
    text = f"""\
After figure 3.6 of Zoe Sebepou's thesis: a filter in front of a receiver, with and without the
persistence of its output. On Spark, `local[2]`, {raw.settings["batch_bytes"] // 2**20} MiB in every
batch, random bytes that do not compress. "{_NONE}" is Spark's `noop` sink (the thesis: Borealis),
"{_MOVED}" the same behind a function that takes all rows and gives none, "{_CODE}" a stream in a
file system in memory ("Str Code"), the others streams on disk (Pvfs2-async, Pvfs2-sync).

{table(header, rows)}

The thesis: with tuples of 4 KB asynchronous persistence leaves about half of the throughput
(28 of 63 MB/s on two cores), synchronous writes about 8 MB/s less; a stable write took 20 ms. What
differs: rows have to leave the JVM for a Python worker before a sink in Python sees them, which the
`noop` sink does not ask for. Against "{_MOVED}" is what persistence itself costs.
"""
    return Section(text, {"persistence.svg": _draw(raw, variants)})


def _sizes(raw: Raw) -> list[int]:
    return sorted({each["tuple_bytes"] for each in raw.repetitions})


def _draw(raw: Raw, variants: list[str]) -> Figure:
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    colours: Mapping[str, str] = {
        _NONE: "#909090",
        _MOVED: "#c0c0c0",
        _CODE: "#e08030",
        _WEAK: "#70a8d8",
        _STABLE: "#2858a0",
    }
    sizes = _sizes(raw)
    places = np.arange(len(sizes))
    width = 0.8 / len(variants)
    for number, name in enumerate(variants):
        found = [spread(raw.values("mb_per_s", tuple_bytes=size, variant=name)) for size in sizes]
        bars(
            axes,
            places + (number - (len(variants) - 1) / 2) * width,
            found,
            width=width,
            label=f"{name} ({_PAPER_NAMES[name]})" if _PAPER_NAMES[name] else name,
            color=colours[name],
        )
    axes.set_xticks(places, [f"{size:,} bytes" for size in sizes])
    axes.set_ylabel("MB/s")
    axes.legend()
    return figure
