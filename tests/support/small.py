"""Small fixed cases, for tests that try every operation or every byte."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from tests.support.barriers import small_barrier
from tests.support.cases import Case
from tests.support.engine import CrashCase
from tests.support.grouping import small_groups
from tests.support.joining import small_join, small_windows
from tests.support.keyed import small_keyed
from tests.support.pairing import PairingCase, port_rows
from tests.support.sessions import SessionCase, sessions_of
from tests.support.whole import small_whole
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

#: Those windows, and operators that are no aggregates.
SMALL_KINDS = (
    *SMALL_WINDOWS,
    "pairing",
    "barrier",
    "join",
    "last tuples",
    "groups",
    "keyed",
    "sessions",
    "whole",
)


def small_case_of(kind: str, batches: int = 4) -> CrashCase:
    """The small case of one of the `SMALL_KINDS`."""
    others: dict[str, Callable[[int], CrashCase]] = {
        "pairing": small_pairing,
        "barrier": small_barrier,
        "join": small_join,
        "last tuples": small_windows,
        "groups": small_groups,
        "keyed": small_keyed,
        "sessions": small_sessions,
        "whole": small_whole,
    }
    if kind in others:
        return others[kind](batches)
    return small_case(SMALL_WINDOWS[kind], batches)


def small_buckets(kind: str) -> int:
    """Two where there is a watermark, which buckets have to find out together."""
    return 2 if kind in ("time", "pairing", "join", "keyed", "sessions") else 1


def small_sessions(batches: int = 4) -> SessionCase:
    """Sessions of the same tuples: some grow, some merge, and late tuples are left out."""
    return sessions_of(small_case(SMALL_WINDOWS["time"], batches), 4 * _SECOND)


def small_pairing(batches: int = 4) -> PairingCase:
    """Three keys; some are forgotten and come again, some stay, and some have nothing to pair."""
    made = []
    for batch in range(batches):
        placed = []
        for place in range(7):
            port = (place + batch) % 3 % 2
            at = (10 * batch + place * (-1) ** place) * _SECOND
            value = {("left", "right")[port]: 10 * batch + place}
            placed.append((port, {"key": (batch + place) * place % 3, "at": max(0, at), **value}))
        made.append(port_rows(placed))
    return PairingCase((3 * _SECOND, 0), tuple(made))
