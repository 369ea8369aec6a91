"""The tuples of a batch that may find partners, side by side and in the order in which they
count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.kernel.columns import chosen_rows, validity
from trailmark.operators.protocol import BatchInput
from trailmark.operators.row_blocks import Numbers
from trailmark.values import dataclass
from trailmark.windows.spec import event_times

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class SideRules:
    """Which tuples of a side count.

    ``time`` is the column with their times; None where times do not matter. ``keeps`` tells whether
    they come out without a partner. Then those with times wait, too, if their key is null, though
    they never find one; those without have no place in a window, and come out at once.
    """

    time: str | None
    keys: tuple[str, ...]
    keeps: bool

    def has_null_key(self, rows: pa.RecordBatch) -> Mask | None:
        """Which rows have a null in their key; None if none has."""
        found: Mask | None = None
        for column in (rows.column(name) for name in self.keys):
            if column.null_count:
                is_null = ~validity(column)
                found = is_null if found is None else found | is_null
        return found


@dataclass(frozen=True, slots=True)
class Arrived:
    """The tuples of one side.

    Attributes
    ----------
    rows, times
        Those that count.
    places
        Where they lie in the batch.
    has_null
        Which of them have a null in their key; None if none has.
    late, null_times
        Others that are late, and how many have no time.
    keyless
        Those that come out at once, since their key is null; None if there are none.
    """

    rows: pa.RecordBatch
    times: Numbers
    places: Numbers
    has_null: Mask | None
    late: pa.RecordBatch | None = None
    null_times: int = 0
    keyless: pa.RecordBatch | None = None

    @classmethod
    def of(cls, rows: pa.RecordBatch, rules: SideRules, since: int | None = None) -> Arrived:
        """Those of these rows from a time on, the others being late; None takes all."""
        if rules.time is None:
            return cls._timeless(rows, rules)
        column = rows.column(rules.time)
        has_time, null_times = validity(column), column.null_count
        times = np.zeros(rows.num_rows, dtype=np.int64)
        times[has_time] = event_times(column.drop_null() if null_times else column)
        is_late = has_time & (times < since) if since is not None else np.zeros_like(has_time)
        counts = has_time & ~is_late
        has_null = rules.has_null_key(rows)
        if has_null is not None and not rules.keeps:
            counts &= ~has_null
        late = chosen_rows(rows, is_late) if is_late.any() else None
        places = np.flatnonzero(counts)
        if len(places) < rows.num_rows:
            rows, times = chosen_rows(rows, counts), times[places]
            has_null = None if has_null is None else has_null[places]
        return cls(rows, times, places, has_null, late, null_times)

    @classmethod
    def _timeless(cls, rows: pa.RecordBatch, rules: SideRules) -> Arrived:
        """Those of these rows that have a key; their times are not known yet."""
        has_null, keyless = rules.has_null_key(rows), None
        places = np.arange(rows.num_rows, dtype=np.int64)
        if has_null is not None:
            keyless = chosen_rows(rows, has_null) if rules.keeps else None
            rows, places = chosen_rows(rows, ~has_null), places[~has_null]
        return cls(rows, np.zeros(rows.num_rows, dtype=np.int64), places, None, keyless=keyless)

    def last(self, count: int) -> Arrived:
        """The last so many of them."""
        first = max(0, len(self.places) - count)
        return Arrived(self.rows.slice(first), self.times[first:], self.places[first:], None)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The tuples of both sides; ``side`` names the side of each, in the order in which they
    count."""

    sides: tuple[Arrived, Arrived]
    side: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, given: BatchInput, rules: Sequence[SideRules]) -> Arrivals:
        """Those of a batch that are not late."""
        since = None if given.late_before is None else given.late_before + 1
        assert given.order is not None
        tables = (given.rows, *given.others)
        left, right = (
            Arrived.of(rows, rule, since) for rows, rule in zip(tables, rules, strict=True)
        )
        counts = np.zeros(len(given.order), dtype=np.bool_)
        for side, arrived in enumerate((left, right)):
            counts[np.flatnonzero(given.order == side)[arrived.places]] = True
        return cls((left, right), np.ascontiguousarray(given.order[counts]))

    def in_order(self, of_sides: Sequence[Numbers]) -> Numbers:
        """Numbers of the tuples of each side, in the order in which they count."""
        found = np.empty(len(self.side), dtype=np.int64)
        for side, numbers in enumerate(of_sides):
            found[self.side == side] = numbers
        return found

    @property
    def late(self) -> int:
        return sum(each.late.num_rows for each in self.sides if each.late is not None)

    @property
    def null_times(self) -> int:
        return sum(arrived.null_times for arrived in self.sides)

    def numbered(self, counts: Sequence[int]) -> Arrivals:
        """The same with the numbers as times that tuples get when they come after so many others of
        their side."""
        left, right = (
            replace(each, times=count + np.arange(len(each.times)))
            for each, count in zip(self.sides, counts, strict=True)
        )
        return replace(self, sides=(left, right))

    def next_numbers(self, counts: Sequence[int]) -> Numbers:
        """The number that the next tuple of the other side would get when each of these comes, in
        the order in which they count."""
        asks = np.empty(len(self.side), dtype=np.int64)
        for side, count in enumerate(counts):
            others = self.side != side
            asks[others] = count + np.cumsum(~others)[others]
        return asks
