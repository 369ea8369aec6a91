"""What a join is given, and what is wrong with it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from trailmark.errors import SettingError, UnsupportedType
from trailmark.operators.aggregate.arguments import check_column
from trailmark.operators.user_code import check_arguments
from trailmark.windows.interval import Interval

LEFT, RIGHT = 0, 1
#: What both sides are called, in descriptions and messages.
SIDES = ("left", "right")


class How(str, enum.Enum):
    """Which tuples come out even if they have no partner."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"

    @property
    def keeps(self) -> tuple[bool, bool]:
        """Whether unmatched tuples of each side come out."""
        return self in (How.LEFT, How.FULL), self in (How.RIGHT, How.FULL)


#: As Spark calls them, without underscores.
_NAMES = {
    "inner": How.INNER,
    **dict.fromkeys(("left", "leftouter"), How.LEFT),
    **dict.fromkeys(("right", "rightouter"), How.RIGHT),
    **dict.fromkeys(("full", "outer", "fullouter"), How.FULL),
}


def how_of(text: object) -> How:
    """The kind of join that is asked for, by any of Spark's names of it."""
    found = _NAMES.get(text.lower().replace("_", "")) if isinstance(text, str) else None
    if found is None:
        raise SettingError(
            f"how must be inner, left, right or full, got {text!r}.",
            where="how",
            fix="Semi, anti and cross joins are not there; Spark's own have them.",
        )
    return found


def check_join(
    schemas: tuple[pa.Schema, pa.Schema], on: str | Sequence[str], within: Interval
) -> list[str]:
    """The key columns; refuses what cannot be done over the columns of both sides."""
    names = join_keys(on)
    for side, schema in zip(SIDES, schemas, strict=True):
        for name in names:
            check_column(schema, name, f"on ({side})")
        for name in schema.names:
            if name.startswith("$"):
                raise SettingError(
                    f"Names that begin with $ are used by the log: {name!r}.", where=side
                )
    for name in names:
        kinds = [schema.field(name).type for schema in schemas]
        if kinds[LEFT] != kinds[RIGHT]:
            raise UnsupportedType(
                f"Key {name!r} is {kinds[LEFT]} on the left and {kinds[RIGHT]} on the right.",
                where="on",
                fix="Cast one of them, so that equal keys are equal.",
            )
    if not isinstance(within, Interval):
        raise SettingError(
            f"within must be an interval, got {within!r}.",
            where="within",
            fix='For example tm.interval("seen_at", "clicked_at", after="1 hour").',
        )
    for side, schema, time in zip(SIDES, schemas, (within.left, within.right), strict=True):
        check_column(schema, time, f"within ({side})")
        if not pa.types.is_timestamp(schema.field(time).type):
            raise UnsupportedType(
                f"Event times must be timestamps; {time!r} is {schema.field(time).type}.",
                where=f"within ({side})",
                fix="Cast the column to a timestamp.",
            )
    return names


def check_nearest(how: How, within: Interval) -> None:
    """Refuses joins that ask for each right tuple where only the nearest is wanted."""
    if within.is_nearest and how.keeps[RIGHT]:
        raise SettingError(
            f"A {how.value} join asks for all right tuples, and nearest for one of each left one.",
            where="how",
            fix="Use inner or left.",
        )


def join_keys(on: str | Sequence[str]) -> list[str]:
    """The key columns that are asked for: at least one, each once."""
    names = [on] if isinstance(on, str) else on
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise SettingError(
            f"on must be the name of a column of both sides or a list of names, got {on!r}.",
            where="on",
        )
    if not names or len(set(names)) != len(names):
        raise SettingError(
            f"on must name at least one column, and each once: {list(names)}.", where="on"
        )
    return list(names)


def check_condition(condition: Callable[..., Any] | None, within: Interval) -> None:
    """Refuses what cannot be asked about pairs, and conditions that nothing would ever leave
    under."""
    if condition is None:
        return
    if not within.is_bounded:
        raise SettingError(
            "With a condition, any right tuple of a key may be the nearest that it holds of, "
            "however old: none could ever leave.",
            where="condition",
            fix='Say how old it may be: interval(..., before="1 day", nearest="before").',
        )
    fix = "Give def condition(left, right), which takes the rows of both sides, pair by pair."
    if not callable(condition):
        raise SettingError(
            f"condition must be a function, got {condition!r}.", where="condition", fix=fix
        )
    check_arguments(condition, "condition cannot be called with both sides", fix, "left", "right")
