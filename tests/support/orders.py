"""Small queries over orders: an item, a price, a time. For tests that choose their own rows."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa

from tests.support.cases import Case
from tests.support.plain import batch_of
from trailmark.operators.late import Late
from trailmark.windows import functions as f
from trailmark.windows.spec import CountWindow, TimeWindow, Window

SCHEMA = pa.schema([("item", pa.int32()), ("price", pa.int64())])
TIMED = pa.schema([("item", pa.string()), ("price", pa.int64()), ("time", pa.timestamp("us"))])
SECOND = 1_000_000

Order = tuple[int, int]
TimedOrder = tuple[str | None, int | None, int | None]


def orders(rows: Sequence[Order]) -> pa.RecordBatch:
    """A batch of (item, price)."""
    return batch_of(SCHEMA, rows)


def timed_orders(rows: Sequence[TimedOrder]) -> pa.RecordBatch:
    """A batch of (item, price, time in microseconds)."""
    return batch_of(TIMED, rows)


def count_case(
    batches: Sequence[Sequence[Order]], *, size: int = 10, slide: int | None = None
) -> Case:
    """Count windows over the given batches."""
    return _case(SCHEMA, CountWindow(size, size if slide is None else slide), batches)


def time_case(
    batches: Sequence[Sequence[TimedOrder]],
    *,
    size: int = 10 * SECOND,
    slide: int | None = None,
    delay: int = 0,
    late: Late = "drop",
) -> Case:
    """Time windows over the given batches."""
    window = TimeWindow("time", size, size if slide is None else slide, delay)
    return _case(TIMED, window, batches, late)


def _case(
    schema: pa.Schema,
    window: Window,
    batches: Sequence[Sequence[Sequence[object]]],
    late: Late = "drop",
) -> Case:
    return Case.of(
        schema,
        by=["item"],
        window=window,
        values={"total": f.sum("price"), "number": f.count(), "last": f.last("price")},
        late=late,
        batches=[(0, rows) for rows in batches],
    )


def random_orders(rng: random.Random, *, batches: int, rows: int, items: int) -> list[list[Order]]:
    """So many batches of up to so many rows, of so many items."""
    return [
        [(rng.randrange(items), rng.randrange(100)) for _ in range(rng.randint(0, rows))]
        for _ in range(batches)
    ]


def random_timed_orders(
    rng: random.Random, *, batches: int, rows: int, items: int, step_us: int = 4 * SECOND
) -> list[list[TimedOrder]]:
    """Event times move on by about ``step_us`` a batch, with stragglers and a few nulls."""
    made = []
    for batch in range(batches):
        now = batch * step_us
        made.append([_timed_order(rng, now, items, step_us) for _ in range(rng.randint(0, rows))])
    return made


def _timed_order(rng: random.Random, now: int, items: int, step_us: int) -> TimedOrder:
    item = None if rng.random() < 0.05 else f"item {rng.randrange(items)}"
    time = None if rng.random() < 0.02 else now + rng.randint(-3 * step_us, step_us)
    return item, rng.randrange(100), time
