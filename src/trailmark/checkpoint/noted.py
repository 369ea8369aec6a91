"""Typed values that are remembered from batch to batch, and stored as plain JSON meanwhile.

What is read back may be anything. It has the right types and lies within bounds, or it is refused:
whoever chooses footprints by it need not doubt it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

from trailmark.log.json_text import object_of, shown, whole
from trailmark.state.table import MOST_WINDOWS
from trailmark.values import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """When it was noted, at the latest: at the end of a batch, and before now."""

    batch: int
    now_us: float


#: Takes a stored value for what it has to be; raises ``ValueError`` if it is not.
Reader: TypeAlias = Callable[[object, Bounds], Any]
Fields: TypeAlias = Mapping[str, Reader]


class Noted:
    """What can be stored: fields, each with its reader, and parts that can be stored themselves."""

    __slots__ = ()
    FIELDS: ClassVar[Fields] = {}
    PARTS: ClassVar[Sequence[str]] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        fields = {name: getattr(self, name) for name in self.FIELDS}
        return {**fields, **{name: getattr(self, name).to_json() for name in self.PARTS}}

    def read_json(self, stored: object, bounds: Bounds) -> None:
        """Takes over what was stored; raises ``ValueError`` if that cannot be, and is of no use
        then."""
        found = object_of(stored)
        if found.keys() != {*self.FIELDS, *self.PARTS}:
            raise ValueError(f"{shown(sorted(found))} are not its fields")
        for name, read in self.FIELDS.items():
            setattr(self, name, read(found[name], bounds))
        for name in self.PARTS:
            getattr(self, name).read_json(found[name], bounds)
        self.check()

    def check(self) -> None:
        """Raises ``ValueError`` where values that are possible by themselves are not together."""


def number(value: object, least: float, most: float) -> float:
    """A stored number within its bounds; raises ``ValueError`` for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most:
        return float(value)
    raise ValueError(f"{shown(value)} is no number from {least} to {most}")


def read_time(value: object, bounds: Bounds) -> float:
    """A time in the past, in microseconds."""
    return number(value, 0.0, bounds.now_us)


def read_batch(value: object, bounds: Bounds) -> int:
    """A batch that was done."""
    return whole(value, 0, bounds.batch)


def read_count(value: object, bounds: Bounds) -> int:
    """A number of windows."""
    return whole(value, 0, MOST_WINDOWS)


def read_flag(value: object, bounds: Bounds) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{shown(value)} is neither true nor false")
    return value


def or_none(read: Reader) -> Reader:
    """The same, or null."""
    return lambda value, bounds: None if value is None else read(value, bounds)
