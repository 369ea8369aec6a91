"""A query that is watched: every batch is judged by the oracle and counted again the slow way."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.support.engine import CrashCase, Judge, Query
from tests.support.recount import Recount, Standing
from trailmark.checkpoint.account import Account
from trailmark.checkpoint.policy import Policy
from trailmark.engine import BatchReport
from trailmark.testing.disk import SimulatedDisk


class Followed:
    """A query on a simulated disk, run batch by batch from the first on."""

    def __init__(
        self,
        case: CrashCase,
        policy: Policy,
        *,
        buckets: int = 1,
        cache_root: Path | None = None,
        disk: SimulatedDisk | None = None,
    ) -> None:
        self.case = case
        self.disk = SimulatedDisk() if disk is None else disk
        self.query = Query(case, self.disk, policy, buckets, cache_root=cache_root)
        self.judge = Judge(case, buckets)
        self.recounts = [Recount(case) for _ in range(buckets)]
        self.next_batch = 0

    def step(self) -> list[BatchReport]:
        """Runs the next batch and judges it."""
        batch = self.next_batch
        reports = self.query.run(batch, self.parts(batch))
        self.judge.check(self.query, batch, reports)
        self.judge.check_state(self.query, f"after batch {batch}")
        logs = self.query.logs()
        for number, recount in enumerate(self.recounts):
            inputs, output = logs.input(number).read(batch), logs.output(number).read(batch)
            recount.add(inputs, output, self.judge.oracle(number))
        self.next_batch += 1
        return reports

    def parts(self, batch: int) -> Sequence[Any]:
        return self.case.split(self.case.batches[batch], self.query.buckets)

    def steps(self) -> Iterator[list[BatchReport]]:
        """Runs all batches that are left."""
        while self.next_batch < len(self.case.batches):
            yield self.step()

    def run(self, batches: int | None = None) -> None:
        """Runs so many more batches, or all."""
        left = len(self.case.batches) - self.next_batch
        for _ in range(left if batches is None else batches):
            self.step()

    def check_accounts(self, *, was_damaged: bool = False) -> None:
        """Every number in the newest footers is what counting gives.

        How many records a damaged segment held is not known to anybody afterwards.
        """
        batch = self.next_batch - 1
        logs = self.query.logs()
        for number, recount in enumerate(self.recounts):
            footer, _ = logs.output(number).read_footer(batch)
            found = Standing.of(Account.from_attributes(footer.attributes))
            wanted = recount.standing(batch)
            if was_damaged:
                found = replace(found, records_total=wanted.records_total)
            assert found == wanted, f"batch {batch}, bucket {number}"

    def copy(self) -> Followed:
        """The same query on a copy of the disk, as another process finds it."""
        twin = copy.copy(self)
        twin.disk = self.disk.copy()
        twin.query = Query(self.case, twin.disk, self.query.policy, self.query.buckets)
        twin.judge = copy.deepcopy(self.judge)
        twin.recounts = copy.deepcopy(self.recounts)
        return twin
