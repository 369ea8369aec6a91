"""A written stream as a list of batches: slow, and obviously right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from trailmark.streams.retention import Retention

Row = dict[str, Any]


@dataclass(frozen=True)
class PlainBatch:
    """Rows that were committed together, when, and how many bytes they took."""

    number: int
    rows: Sequence[Row]
    written_us: int
    bytes: int


@dataclass
class PlainStream:
    """``time`` names the column with the event time in microseconds, if there is one."""

    time: str | None = None
    batches: list[PlainBatch] = field(default_factory=list)
    end: int = 0
    committed: set[tuple[str, int]] = field(default_factory=set)

    def commit(
        self, rows: Sequence[Row], written_us: int, size: int, query: tuple[str, int] | None
    ) -> int:
        """Its number, or -1 if it has no rows or was committed before."""
        if not rows or query in self.committed:
            return -1
        if query is not None:
            self.committed.add(query)
        self.batches.append(PlainBatch(self.end, rows, written_us, size))
        self.end += 1
        return self.end - 1

    def oldest_kept(self, retention: Retention, needed: Sequence[int], now_us: int) -> int:
        """The first batch that has to stay."""
        kept = [self.end - 1, *needed]
        if retention == Retention():
            kept.append(0)
        for batch in self.batches:
            later = sum(each.bytes for each in self.batches if each.number > batch.number)
            if (
                (retention.batches is not None and self.end - batch.number <= retention.batches)
                or (retention.bytes is not None and later < retention.bytes)
                or (
                    retention.duration_us is not None
                    and now_us - batch.written_us <= retention.duration_us
                )
            ):
                kept.append(batch.number)
        return max(0, min(kept))

    def trim(self, before: int) -> None:
        self.batches = [each for each in self.batches if each.number >= before]

    def read(
        self,
        first: int | None = None,
        last: int | None = None,
        first_us: int | None = None,
        last_us: int | None = None,
    ) -> dict[int, list[Row]]:
        """Rows by batch; batches without any are left out."""
        found = {}
        for batch in self.batches:
            if (first is not None and batch.number < first) or (
                last is not None and batch.number > last
            ):
                continue
            rows = [row for row in batch.rows if self._is_within(batch, row, first_us, last_us)]
            if rows:
                found[batch.number] = rows
        return found

    def find(self, time_us: int) -> int:
        """The first batch with a row of this time or later."""
        for batch in self.batches:
            if any(self._is_within(batch, row, time_us, None) for row in batch.rows):
                return batch.number
        return self.end

    def _is_within(
        self, batch: PlainBatch, row: Row, first_us: int | None, last_us: int | None
    ) -> bool:
        if first_us is None and last_us is None:
            return True
        time = batch.written_us if self.time is None else row[self.time]
        if time is None:
            return False
        return (first_us is None or time >= first_us) and (last_us is None or time <= last_us)
