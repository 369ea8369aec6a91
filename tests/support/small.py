"""Small fixed cases, for tests that try every operation or every byte."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tests.support.cases import Case
from trailmark.windows import functions as f
from trailmark.windows.spec import CountWindow, TimeWindow, Window

_SCHEMA = pa.schema([("item", pa.string()), ("price", pa.int32()), ("time", pa.timestamp("us"))])
_SECOND = 1_000_000


def small_case(
    window: Window, batches: int = 4, names: Sequence[str] = ("total", "last", "spread")
) -> Case:
    """Six items; windows that close at once, windows that stay open, and late tuples."""
    made = []
    for batch in range(batches):
        rows = []
        for place in range(9):
            item = None if place == 4 else "abcdef"[(batch * place) % 6]
            time = (10 * batch + place * (-1) ** place) * _SECOND
            rows.append((item, 10 * batch + place, None if place == 8 else time))
        made.append((0, rows))
    values = {"total": f.sum("price"), "last": f.last("item"), "spread": f.stddev("price")}
    chosen = {name: values[name] for name in names}
    return Case.of(_SCHEMA, by=["item"], window=window, values=chosen, batches=made)


SMALL_WINDOWS: dict[str, Window] = {
    "tumbling": CountWindow(3, 3),
    "overlapping": CountWindow(4, 2),
    "gapped": CountWindow(2, 5),
    "time": TimeWindow("time", 8 * _SECOND, 4 * _SECOND, 3 * _SECOND),
}
