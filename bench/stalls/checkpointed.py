"""The batches of a query as Spark's own checkpoint has them: what each was made of, and when Spark
was through with it."""

from __future__ import annotations

import json
from pathlib import Path

from bench.stalls.delays import Batch
from trailmark.streams.union.decision import Decision


def batches_of(checkpoint: Path) -> list[Batch]:
    """Those that were committed, in their order. Spark writes a file for each when the sink has all
    of it; what counts is when that file was written."""
    numbers = sorted(int(each.name) for each in (checkpoint / "commits").glob("[0-9]*"))
    return [_batch(checkpoint, number) for number in numbers]


def _batch(checkpoint: Path, number: int) -> Batch:
    found = decision_in((checkpoint / "offsets" / str(number)).read_text())
    return Batch(
        found.until_us,
        found.released_us,
        {name: each.end for name, each in found.inputs.items()},
        found.phase.value,
        (checkpoint / "commits" / str(number)).stat().st_mtime_ns // 1000,
    )


def decision_in(offsets: str) -> Decision:
    """The decision of the union among the offsets of a batch: one line for each source."""
    for line in offsets.splitlines():
        stored = json.loads(line) if line.startswith("{") else {}
        if "released_us" in stored:
            return Decision.from_json(stored)
    raise ValueError("the batch has no source that is a union")
