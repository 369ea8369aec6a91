"""Windows that last as long as tuples follow one another closely enough."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import pyarrow as pa

from trailmark.errors import SettingError, UnsupportedType
from trailmark.settings import parse_duration
from trailmark.values import dataclass

#: About 36,000 years: ends of sessions stay far from the ends of 64 bits.
_LONGEST_US = 1 << 60


@dataclass(frozen=True, slots=True)
class SessionWindow:
    """Tuples of a key of which each is at most ``gap`` later than another one.

    A session begins with its earliest tuple and ends ``gap`` after its latest. It closes when the
    watermark, the greatest event time seen less ``delay``, reaches its end. All in microseconds.
    """

    column: str
    gap: int
    delay: int

    def describe(self) -> dict[str, Any]:
        return {"kind": "session", **asdict(self)}

    def check_schema(self, schema: pa.Schema) -> None:
        kind = schema.field(self.column).type
        if not pa.types.is_timestamp(kind):
            raise UnsupportedType(
                f"Sessions need a timestamp column; {self.column!r} is {kind}.",
                where=f"session_window(column={self.column!r})",
                fix="Cast the column to a timestamp.",
            )


def session_from_description(described: Mapping[str, Any]) -> SessionWindow:
    """The window that described itself so.

    Anything that cannot have raises ``KeyError``, ``TypeError`` or ``ValueError``.
    """
    lengths = (described["gap"], described["delay"])
    if described["kind"] != "session" or not isinstance(described["column"], str):
        raise ValueError("no sessions")
    if any(type(each) is not int or not 0 <= each <= _LONGEST_US for each in lengths):
        raise ValueError(f"a length that no session has: {lengths}")
    if not described["gap"]:
        raise ValueError("sessions without a gap")
    return SessionWindow(described["column"], *lengths)


def session_window(
    column: str, gap: str | timedelta, *, delay: str | timedelta = "0 seconds"
) -> SessionWindow:
    """Sessions: windows that last as long as the tuples of a key follow one another closely enough.

    A tuple belongs to the session that has one at most ``gap`` earlier or later; a tuple between
    two sessions makes one of them. The session comes out when the watermark reaches its end, which
    is ``gap`` after its latest tuple.

    Parameters
    ----------
    column
        Name of the timestamp column.
    gap
        How long nothing may come before a session is over, such as ``"30 minutes"``.
    delay
        How far behind the greatest event time seen so far a tuple may be and still be counted.

    Examples
    --------
    >>> session_window("clicked_at", "30 minutes", delay="1 minute")
    SessionWindow(column='clicked_at', gap=1800000000, delay=60000000)
    """
    if not isinstance(column, str):
        raise SettingError(
            f"A column is given by its name, as text, got {column!r}.",
            where="session_window(column=...)",
        )
    given = {"gap": parse_duration(gap, "gap"), "delay": parse_duration(delay, "delay")}
    for name, length in given.items():
        if length > _LONGEST_US:
            raise SettingError(
                f"{name} must not be longer than 36,000 years.",
                where=f"session_window({name}=...)",
                fix='For example session_window("clicked_at", "30 minutes").',
            )
    if not given["gap"] > 0:
        raise SettingError(
            "gap must be longer than zero.",
            where="session_window(gap=...)",
            fix='For example session_window("clicked_at", "30 minutes").',
        )
    return SessionWindow(column, **given)
