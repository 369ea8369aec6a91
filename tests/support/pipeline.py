"""A small pipeline, as queries leave it in files: two streams, a union, an operator, its results.

The engine, the writers and the union's decisions are the real ones; what Spark itself would leave
is written as Spark writes it (`tests/spark/test_listener_metrics.py` looks at real files of its).
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import trailmark as tm
from tests.support.orders import count_case, random_orders
from tests.support.processes import Place
from trailmark.checkpoint.policy import Continuous, Policy
from trailmark.engine import BatchReport, Bucket
from trailmark.engine.commits import mark_committed
from trailmark.engine.spark_commits import record_checkpoint
from trailmark.log import LocalStorage, create_or_open
from trailmark.streams.description import open_stream
from trailmark.streams.own_writer import OwnWriter
from trailmark.streams.union.answering import Answering
from trailmark.streams.union.deciding import Deciding
from trailmark.streams.union.decision import NOTHING_YET, Decision
from trailmark.streams.union.decisions import Decisions
from trailmark.streams.union.description import UnionDescription
from trailmark.streams.union.inputs import UnionInput
from trailmark.streams.writer import StreamWriter

SECOND = 1_000_000
CLICKS = pa.schema([("user", pa.int64()), ("time", pa.timestamp("us", "UTC"))])
#: What `Place` calls its query.
QUERY = "query"
#: When the first clicks are.
BEGIN_US = 1_795_000_000 * SECOND


@dataclass
class Pipeline:
    """``streams/eu`` and ``streams/us`` -> ``union`` -> ``average`` -> ``streams/averages``."""

    root: Path
    policy: Policy = field(default_factory=lambda: Continuous.within("2 seconds"))
    buckets: int = 4
    rows: int = 2_000
    answering: Answering | None = None
    place: Place = field(init=False)
    decision: Decision = NOTHING_YET
    next_batch: int = 0

    def __post_init__(self) -> None:
        seed = random.Random(11)
        orders = random_orders(seed, batches=60, rows=self.rows, items=self.rows // 4)
        self.place = Place(self.root / "average", count_case(orders), self.policy, self.buckets)
        self.place.logs()
        self._writers = {name: self._writer(name) for name in ("eu", "us")}
        self._deciding = self._make_union()
        averages = LocalStorage(self.root / "streams" / "averages")
        self._averages = StreamWriter(averages, open_stream(averages, CLICKS))
        self._open: list[Bucket] = []

    def _writer(self, name: str) -> OwnWriter:
        path = self.root / "streams" / name
        return tm.stream_writer(path, CLICKS, name=name, time_column="time", delay="1 second")

    def _make_union(self) -> Deciding:
        paths = {name: str(self.root / "streams" / name) for name in self._writers}
        schemas = dict.fromkeys(paths, CLICKS)
        union = UnionDescription(paths, schemas, CLICKS, "time", SECOND, 0)
        self._union = LocalStorage(self.root / "union")
        create_or_open(self._union, union.to_meta())
        inputs = [UnionInput(name, path, LocalStorage(path), 0) for name, path in paths.items()]
        return Deciding(inputs, SECOND, answering=self.answering)

    def write(self, names: Sequence[str] = ("eu", "us")) -> None:
        """A batch of clicks into each of these streams, ten seconds after the last one."""
        for name in names:
            self._writers[name].append(self._clicks())

    def _clicks(self) -> pa.RecordBatch:
        times = [BEGIN_US + self.next_batch * 10 * SECOND + n * SECOND for n in range(10)]
        return pa.RecordBatch.from_pydict({"user": list(range(10)), "time": times}, schema=CLICKS)

    def decide(self) -> None:
        """The union looks once more."""
        decided = self._deciding.next(self.decision)
        if decided != self.decision:
            Decisions(self._union, self.decision).publish(self.decision, decided)
            self.decision = decided

    def wait_until_ahead(self) -> None:
        """The union looks until it gives out rows without a stream that is missing."""
        until = time.monotonic() + 60
        while self.decision.ahead is None:
            assert time.monotonic() < until, "the union does not answer"
            self.decide()
            time.sleep(0.02)

    def offsets(self, batch: int) -> None:
        """What Spark notes before a batch, and where it does."""
        checkpoint = self.root / "checkpoint"
        for name in ("offsets", "commits"):
            (checkpoint / name).mkdir(parents=True, exist_ok=True)
        (checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))
        lines = ["v1", '{"batchWatermarkMs":0}', json.dumps(self.decision.to_json())]
        (checkpoint / "offsets" / str(batch)).write_text("\n".join(lines))
        record_checkpoint(LocalStorage(self.place.path), QUERY, f"file:{checkpoint}")

    def step(self, *, crash: bool = False) -> list[BatchReport]:
        """A batch of the operator, all that comes before it and after it."""
        self.write()
        self.decide()
        self.offsets(self.next_batch)
        if crash:
            self.stop()
        if not self._open:
            self._open = [self.place.bucket(number) for number in range(self.buckets)]
        batch = self.next_batch
        reports = [
            bucket.run(batch, part)
            for bucket, part in zip(self._open, self.parts(batch), strict=True)
        ]
        mark_committed(LocalStorage(self.place.path), batch, "a run")
        self._averages.commit(self._averages.write([self._clicks()]), QUERY, batch)
        self.next_batch += 1
        return reports

    def parts(self, batch: int) -> Sequence[Any]:
        """The rows of each bucket."""
        parts: Sequence[Any] = self.place.case.split(self.place.case.batches[batch], self.buckets)
        return parts

    def stop(self) -> None:
        """The processes end, and leave nothing in memory."""
        for bucket in self._open:
            bucket.close()
        self._open = []
