"""Frozen settings, and the readers of durations and sizes.

A duration is written the way Spark writes an interval (``"5 seconds"``, ``"1 hour 30 minutes"``)
and is kept as whole microseconds, the unit of every time in a log.
"""

from __future__ import annotations

import enum
import re
from datetime import timedelta
from typing import Literal, TypeAlias, get_args

from trailmark.errors import SettingError
from trailmark.values import dataclass

MICROSECOND = 1
MILLISECOND = 1_000
SECOND = 1_000 * MILLISECOND
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
WEEK = 7 * DAY

MIB = 1024 * 1024

#: Units from the largest to the smallest: the name that is printed first, then what is also read.
_UNITS: tuple[tuple[int, tuple[str, ...]], ...] = (
    (WEEK, ("week", "w")),
    (DAY, ("day", "d")),
    (HOUR, ("hour", "hr", "h")),
    (MINUTE, ("minute", "min", "m")),
    (SECOND, ("second", "sec", "s")),
    (MILLISECOND, ("millisecond", "msec", "ms")),
    (MICROSECOND, ("microsecond", "usec", "us", "µs")),
)
_UNIT_US = {name: size for size, names in _UNITS for name in names}
_UNIT_US |= {f"{name}s": us for name, us in _UNIT_US.items() if name[-1] != "s" and name[1:]}
_TERM = re.compile(r"\s*([0-9]+)(?:\.([0-9]+))?\s*([a-zµ]+)\s*", re.ASCII)

_SIZE = re.compile(r"\s*([0-9]+)\s*([kmgt]?)(i?b)?\s*", re.IGNORECASE | re.ASCII)
_SIZE_FACTOR = {"": 1, "k": 1024, "m": MIB, "g": 1024 * MIB, "t": 1024 * 1024 * MIB}

Compression: TypeAlias = Literal["auto", "lz4", "zstd", "none"]


def parse_duration(value: str | timedelta, argument: str = "duration") -> int:
    """Read a duration as whole microseconds.

    Parameters
    ----------
    value
        An interval such as ``"100 ms"`` or ``"1 hour 30 minutes"``, or a ``timedelta``.
    argument
        The name a complaint is made about.

    Examples
    --------
    >>> parse_duration("1 minute 500 ms")
    60500000
    """
    if isinstance(value, timedelta):
        microseconds = value // timedelta(microseconds=1)
        if microseconds < 0:
            raise _bad_duration(value, argument)
        return microseconds
    if not isinstance(value, str):
        raise _bad_duration(value, argument)
    return _parse_interval(value, argument)


def _parse_interval(text: str, argument: str) -> int:
    rest = text.strip().lower().removeprefix("interval ")
    total = 0
    if not rest:
        raise _bad_duration(text, argument)
    while rest:
        term = _TERM.match(rest)
        if term is None or term[3] not in _UNIT_US:
            raise _bad_duration(text, argument)
        unit_us = _UNIT_US[term[3]]
        fraction = term[2] or ""
        scaled = int(term[1] + fraction) * unit_us
        whole, remainder = divmod(scaled, 10 ** len(fraction))
        if remainder:
            raise SettingError(
                f"{text!r} is finer than a microsecond.", where=argument, fix="Round it."
            )
        total += whole
        rest = rest[term.end() :]
    return total


def _bad_duration(value: object, argument: str) -> SettingError:
    return SettingError(
        f"{value!r} is not a duration.",
        where=argument,
        fix='Write a number and a unit, such as "5 seconds", "100 ms" or "1 hour 30 minutes".',
    )


def format_duration(microseconds: int) -> str:
    """Write microseconds the way :func:`parse_duration` reads them.

    Examples
    --------
    >>> format_duration(5_400_000_000)
    '1 hour 30 minutes'
    """
    if microseconds == 0:
        return "0 seconds"
    rest = abs(microseconds)
    words = []
    for size, names in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            words.append(f"{count} {names[0]}" + ("s" if count > 1 else ""))
    return ("-" if microseconds < 0 else "") + " ".join(words)


def parse_bytes(value: str | int, argument: str = "bytes") -> int:
    """Read a size in bytes: an integer, or text such as ``"64 MiB"``, ``"64m"`` or ``"512 kB"``.

    Every unit is a power of 1024, as in Spark's own size options.

    Examples
    --------
    >>> parse_bytes("64 MiB")
    67108864
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise SettingError(
            f"{value!r} is not a size.",
            where=argument,
            fix='Write a number of bytes, or a size such as "64 MiB" or "64m".',
        )
    return int(found[1]) * _SIZE_FACTOR[found[2].lower()]


class Durability(str, enum.Enum):
    """When a published segment counts as written, and so what a failure can take away.

    ============ ============================ ==================================================
    value        kill -9 of the process loses power failure or kernel crash loses
    ============ ============================ ==================================================
    ``SYNCED``   nothing that was published   nothing that was published
    ``UNSYNCED`` nothing that was published   the newest segments, typically those of the last
                                              30 seconds: they may be missing or torn
    ============ ============================ ==================================================

    ``SYNCED`` (the default) puts the segment and its directory entry on disk before ``publish``
    returns. ``UNSYNCED`` leaves both to the operating system, which writes when it sees fit; the
    30 seconds are what Linux is usually set to (``vm.dirty_expire_centisecs``). Merged segments
    are synced under either, so that old data never becomes young again. An object store is always
    synced.
    """

    SYNCED = "synced"
    UNSYNCED = "unsynced"


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How segments are written.

    Parameters
    ----------
    durability
        See :class:`Durability`; its lower-case value is taken as well.
    compression
        Codec of the columns: ``"lz4"``, ``"zstd"``, ``"none"``, or ``"auto"`` for LZ4 where a
        sample of the rows shrinks by a third or more. Any reader reads them all.
    merge_bytes
        Small segments are merged into packs of about this size; ``"64 MiB"`` is taken as well.
    """

    durability: Durability = Durability.SYNCED
    compression: Compression = "auto"
    merge_bytes: int = 64 * MIB

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "durability", Durability(self.durability))
        except ValueError:
            raise SettingError(
                f"{self.durability!r} is not a durability.",
                where="durability",
                fix='Use "synced" or "unsynced".',
            ) from None
        if self.compression not in get_args(Compression):
            raise SettingError(
                f"{self.compression!r} is not a known compression.",
                where="compression",
                fix='Use "auto", "lz4", "zstd" or "none".',
            )
        object.__setattr__(self, "merge_bytes", parse_bytes(self.merge_bytes, "merge_bytes"))
        if self.merge_bytes == 0:
            raise SettingError(
                "Packs of 0 bytes hold nothing.",
                where="merge_bytes",
                fix='Give a size above 0, such as "64 MiB".',
            )
