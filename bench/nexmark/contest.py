"""The queries on all engines in turn, each in a process of its own, with results compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.experiment import Note, Repetition, in_turn
from bench.nexmark.files import Batches, prepare
from bench.nexmark.results import digest, rows_in
from bench.nexmark.tables import READS
from bench.peers.peer import Peer
from bench.peers.rates import rows_per_s
from bench.peers.run import JobFailed, Running, ground

#: From the directory of other jobs: raw files name it, on whatever machine.
_HERE = "../../nexmark"
CHECKPOINT_EVERY = "2s"
#: Batches that are not counted: the first ones start workers and compile code.
WARM_UP = 2
_WITHIN_S = 600.0


def _spark(name: str, label: str, tolerance: str) -> Peer:
    return Peer(name, label, tolerance, f"{_HERE}/spark_job.py", name)


TRAILMARK = _spark(
    "trailmark",
    "Trailmark",
    "default policies: aggregates and joins recover within 5 seconds, own operators from a "
    "snapshot every 10",
)
SPARK = _spark("spark", "Spark", "RocksDB, a changelog file per partition and batch")


def _flink(variant: str, label: str, kind: str) -> Peer:
    return Peer(
        f"flink-{variant}",
        label,
        f"{label.partition(', ')[2]}, {kind} checkpoint every 2 seconds",
        f"{_HERE}/flink_job.py",
        variant,
        environment="flink",
        has_batches=False,
    )


FLINK = _flink("rocksdb", "Flink, RocksDB", "an incremental")
FLINK_IN_MEMORY = _flink("hashmap", "Flink, hashmap", "a full")
ENGINES = (TRAILMARK, SPARK, FLINK, FLINK_IN_MEMORY)
BY_NAME = {engine.name: engine for engine in ENGINES}


@dataclass(frozen=True, slots=True)
class Contest:
    """``batches`` of each query: those that read no bids get more events, as few as they see."""

    batches: Mapping[str, Batches]
    turns: int

    def run(
        self, found: Mapping[str, Path], skipped: dict[str, str], note: Note
    ) -> Iterator[Repetition]:
        for query, batches in self.batches.items():
            events = prepare(batches)
            failed: set[str] = set()
            for turn, name, interpreter in in_turn(found, self.turns):
                if name in failed:
                    continue
                try:
                    run = _run(BY_NAME[name], interpreter, query, batches, events)
                except JobFailed as why:
                    failed.add(name)
                    skipped[f"{BY_NAME[name].label}, {query}"] = str(why)
                    continue
                note(f"{query}: {name} {run['rows_per_s']:,.0f} rows/s, {run['took_s']:.0f} s")
                yield {"query": query, "engine": name, "turn": turn, **run}


def _run(
    engine: Peer, interpreter: Path, query: str, batches: Batches, events: Path
) -> dict[str, Any]:
    rows = batches.rows(READS[query])
    asked = {
        "query": query,
        "events": str(events),
        "longest_ms": batches.stream.longest_ms,
        "batches": batches.count,
        "rows": rows,
        "checkpoint_every": CHECKPOINT_EVERY,
    }
    with ground() as here, Running(engine, interpreter, asked, here) as job:
        done = job.wait_for(lambda event: event.event == "done", _WITHIN_S)
        ready = next(event.at for event in job.events if event.event == "ready")
        job.kill()
        results = rows_in(here.place / "results")
        # The last batch has only the events that close windows.
        told = [e for e in job.events if e.batch < batches.count]
        return {
            "rows": rows,
            "rows_per_s": round(rows_per_s(told, rows, WARM_UP), 1),
            "seconds": round(done.at - ready, 3),
            "took_s": round(done.at - job.started_at, 3),
            "batch_s": [e.batch_s for e in told if e.batch_s],
            "results": len(results),
            "digest": digest(results),
            "bytes": job.watched.files.bytes,
            "stored_bytes": job.watched.stored_bytes,
            "peak_bytes": job.watched.peak_bytes,
        }


def agree(runs: Sequence[Repetition]) -> bool:
    """Whether all of them left the same rows."""
    return len({run["digest"] for run in runs}) == 1
