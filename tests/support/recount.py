"""What a recovery would have to do, counted the slow way from the contents of the logs.

The engine knows these numbers in constant time and writes them into every footer; here they are
found by looking at every row of every segment, with the oracle saying which windows are open.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tests.support.engine import CrashCase
from tests.support.oracle import Identity
from trailmark.checkpoint.account import Account
from trailmark.log import Segment
from trailmark.records import KIND, NO_BATCH, FootprintKind, FrameKind

#: What a recovery of the state reads; late rows are for users only.
_RECORDS = (FrameKind.RESULTS, FrameKind.FOOTPRINTS, FrameKind.CLOSED)


@dataclass(frozen=True)
class LoggedFootprint:
    """A row of a segment's footprints."""

    batch: int
    identity: Identity
    opened: int
    kind: FootprintKind


@dataclass(frozen=True)
class Standing:
    """The fields of an ``Account`` that can be counted."""

    open_windows: int
    oldest: int | None
    base: int
    needs: int
    extent: int
    replay: int
    records_total: int
    inputs_total: int
    extent_excess: int
    footprints_excess: int

    @classmethod
    def of(cls, account: Account) -> Standing:
        return cls(*(getattr(account, name) for name in cls.__dataclass_fields__))


class Recount:
    """Follows one bucket from its first batch on."""

    def __init__(self, case: CrashCase, first_batch: int = 0) -> None:
        self._case = case
        self._operator = case.operator()
        self._first_batch = first_batch
        self._records: dict[int, int] = {}
        self._excess: dict[int, int] = {}
        self._tuples: dict[int, int] = {}
        #: Of every batch, the windows open at its end and the batch each opened in.
        self.open_after: dict[int, dict[Identity, int]] = {first_batch - 1: {}}
        self.footprints: list[LoggedFootprint] = []
        self._ages: dict[int, dict[Identity, int]] = {}

    def add(self, inputs: Segment, output: Segment, oracle: Any) -> None:
        """Takes the next batch in; the oracle has processed it."""
        batch = output.batch
        assert batch == max(self.open_after) + 1
        ports = range(len(self._operator.ports))
        self._tuples[batch] = sum(_rows(inputs, FrameKind.of_port(port)) for port in ports)
        self._records[batch] = sum(_rows(output, kind) for kind in _RECORDS)
        self._excess[batch] = self._count_excess(output)
        self.open_after[batch] = {
            identity: int(state["$opened"]) for identity, state in oracle.open_windows().items()
        }
        self.footprints += self._read_footprints(output)

    def _count_excess(self, output: Segment) -> int:
        """What the footprints of a batch weigh beyond one each, as they are logged."""
        rows = _footprints(output)
        return 0 if rows is None else self._operator.weigh(rows) - rows.num_rows

    def _read_footprints(self, output: Segment) -> list[LoggedFootprint]:
        rows = _footprints(output)
        if rows is None:
            return []
        kinds = rows.column(KIND).to_pylist()
        states = self._case.footprint_states(self._operator, rows)
        return [
            LoggedFootprint(output.batch, identity, state["$opened"], FootprintKind(kind))
            for (identity, state), kind in zip(states.items(), kinds, strict=True)
        ]

    # Windows and the age of their footprints

    def ages(self, batch: int) -> dict[Identity, int]:
        """Of every window open at the end of a batch, the batch of its newest footprint."""
        if batch not in self._ages:
            self._ages[batch] = self._count_ages(batch)
        return self._ages[batch]

    def _count_ages(self, batch: int) -> dict[Identity, int]:
        opened = self.open_after[batch]
        ages = dict.fromkeys(opened, NO_BATCH)
        for logged in self.footprints:
            # A footprint older than the window is that of an earlier window of the same key.
            is_of_it = logged.identity in opened and opened[logged.identity] <= logged.batch
            if is_of_it and logged.batch <= batch:
                ages[logged.identity] = max(ages[logged.identity], logged.batch)
        return ages

    def oldest(self, batch: int) -> int | None:
        """T at the end of a batch."""
        return min(self.ages(batch).values(), default=None)

    def base(self, batch: int) -> int:
        """The newest batch up to this one at whose end every open window had a footprint; where
        none is brought up to date by itself, one of that batch."""
        while not self._is_base(batch, self.oldest(batch)):
            batch -= 1
        return batch

    def _is_base(self, batch: int, oldest: int | None) -> bool:
        is_grouped = self._operator.group_size is not None
        return oldest is None or (oldest == batch if is_grouped else oldest != NO_BATCH)

    def needs(self, batch: int) -> int:
        """The first batch of input that a recovery to the end of a batch reads."""
        base = self.base(batch)
        oldest = self.oldest(base)
        return (base if oldest is None else oldest) + 1

    def needs_around_damage(self, batch: int) -> int:
        """The same if the worst one of the output segments that it reads cannot be read."""
        base = self.base(batch)
        oldest = self.oldest(base)
        # Where nothing was open nothing is read, except the newest segment, which says so.
        extent = range(batch if oldest is None else oldest, batch + 1)
        around = [self.needs(damaged - 1) for damaged in extent if damaged >= self._first_batch]
        return min([self.needs(batch), *around])

    # Sums

    def records(self, first: int, last: int) -> int:
        """Records of the output log in these batches."""
        return sum(self._records[batch] for batch in range(first, last + 1))

    def excess(self, first: int, last: int) -> int:
        """What these records weigh beyond one each."""
        return sum(self._excess[batch] for batch in range(first, last + 1))

    def tuples(self, first: int, last: int) -> int:
        """Tuples of the input log in these batches."""
        return sum(self._tuples[batch] for batch in range(first, last + 1))

    def standing(self, batch: int) -> Standing:
        """What the footer of a batch must say."""
        base = self.base(batch)
        oldest = self.oldest(base)
        return Standing(
            open_windows=len(self.open_after[batch]),
            oldest=self.oldest(batch),
            base=base,
            needs=self.needs(batch),
            extent=0 if oldest is None else self.records(oldest, base),
            replay=self.tuples(self.needs(batch), batch),
            records_total=self.records(self._first_batch, batch),
            inputs_total=self.tuples(self._first_batch, batch),
            extent_excess=0 if oldest is None else self.excess(oldest, base),
            footprints_excess=self.excess(batch, batch),
        )


def _footprints(output: Segment) -> pa.RecordBatch | None:
    table = output.table(FrameKind.FOOTPRINTS)
    return None if table is None else table.combine_chunks().to_batches()[0]


def _rows(segment: Segment, kind: FrameKind) -> int:
    table = segment.table(kind)
    return 0 if table is None else int(table.num_rows)
