"""Logs that the engine has written into a directory, with what it reported meanwhile."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from tests.support.cases import Case
from tests.support.orders import count_case, random_orders, random_timed_orders, time_case
from tests.support.processes import Place
from trailmark.checkpoint.policy import Continuous, Policy
from trailmark.engine import BatchReport
from trailmark.engine.commits import mark_committed
from trailmark.settings import LogSettings


@dataclass(frozen=True)
class Written:
    """A query that ran to its end and was stopped; ``reports[batch][bucket]``."""

    place: Place
    reports: list[list[BatchReport]]

    @property
    def path(self) -> Path:
        return self.place.path

    @property
    def newest(self) -> int:
        return len(self.reports) - 1

    def files(self) -> dict[str, bytes]:
        """Every file and what is in it."""
        found = sorted(each for each in self.path.rglob("*") if each.is_file())
        return {str(each.relative_to(self.path)): each.read_bytes() for each in found}

    def copy_to(self, path: Path) -> Written:
        """The same logs in another directory."""
        shutil.copytree(self.path, path)
        return Written(replace(self.place, path=path), self.reports)

    def flip(self, name: str, at: int = 70) -> None:
        """Changes one bit of a file."""
        path = self.path / name
        data = bytearray(path.read_bytes())
        data[at] ^= 4
        path.write_bytes(data)


def count_orders(batches: int = 12) -> Case:
    """Ten orders of an item."""
    return count_case(random_orders(random.Random(6), batches=batches, rows=60, items=20))


def time_orders(batches: int = 12) -> Case:
    """Ten seconds of orders of an item; late ones are kept."""
    rows = random_timed_orders(random.Random(6), batches=batches, rows=40, items=8)
    return time_case(rows, late="keep")


def write_logs(
    path: Path,
    case: Case,
    policy: Policy | None = None,
    *,
    buckets: int = 2,
    stop_before: int | None = None,
    settings: LogSettings | None = None,
) -> Written:
    """Runs a query into a directory; stopped once before a batch, it recovers there."""
    policy = Continuous(q=25, u=40) if policy is None else policy
    place = Place(path, case, policy, buckets, settings=settings or LogSettings())
    open_buckets = [place.bucket(number) for number in range(buckets)]
    reports = []
    for batch, rows in enumerate(case.batches):
        if batch == stop_before:
            for bucket in open_buckets:
                bucket.close()
            open_buckets = [place.bucket(number) for number in range(buckets)]
        parts = case.split(rows, buckets)
        reports.append(
            [bucket.run(batch, part) for bucket, part in zip(open_buckets, parts, strict=True)]
        )
        mark_committed(place.logs().storage, batch, "a run")
    for bucket in open_buckets:
        bucket.close()
    return Written(place, reports)
