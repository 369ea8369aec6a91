"""Policies side by side over the same batches, each with logs and a time of its own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from bench.contest import RepeatedClock
from bench.orders import Run
from trailmark.checkpoint.policy import Policy
from trailmark.log import PortRows
from trailmark.operators.protocol import AnyOperator


class Lane:
    """One policy on its way through the stream. Its clock stands still while others are fed."""

    def __init__(
        self, name: str, policy: Policy, root: Path, operator: AnyOperator | None = None
    ) -> None:
        self.name = name
        self._clock = RepeatedClock()
        self._clock.go()
        self.run = Run(root, policy, self._clock, operator)
        self._clock.stop()
        #: When each batch began and ended, in seconds of this lane.
        self.begins: list[float] = []
        self.ends: list[float] = []
        self.opened = self.checked = self.results = 0

    def feed(self, rows: pa.RecordBatch | PortRows) -> None:
        began = self.ends[-1] if self.ends else 0.0
        self._clock.go()
        taken = self.run.feed(rows)
        self._clock.stop()
        self.begins.append(began)
        self.ends.append(began + taken)
        report = self.run.report
        self.opened += report.footprints_opened
        self.checked += report.footprints_checked
        self.results += report.results.num_rows


@contextmanager
def lanes(
    policies: Mapping[str, Policy], operator: Callable[[Policy], AnyOperator] | None = None
) -> Iterator[list[Lane]]:
    """Lanes in a place of their own, which is gone afterwards. ``operator`` makes the one of a
    policy."""
    root = Path(tempfile.mkdtemp(prefix="trailmark-bench-"))
    opened: list[Lane] = []
    try:
        for name, policy in policies.items():
            made = None if operator is None else operator(policy)
            opened.append(Lane(name, policy, root / str(len(opened)), made))
        yield opened
    finally:
        for lane in opened:
            lane.run.bucket.close()
        shutil.rmtree(root)


def feed_all(opened: list[Lane], batch: int, rows: pa.RecordBatch | PortRows) -> None:
    """The same rows to all, in an order that turns around with every batch."""
    for lane in opened if batch % 2 else reversed(opened):
        lane.feed(rows)
