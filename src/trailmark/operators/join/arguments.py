"""What a join is given, and what is wrong with it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from trailmark.errors import SettingError, UnsupportedType
from trailmark.operators.aggregate.arguments import check_column
from trailmark.operators.order import check_orderable
from trailmark.operators.user_code import check_arguments
from trailmark.windows.interval import Interval
from trailmark.windows.last_tuples import LastTuples

LEFT, RIGHT = 0, 1
#: What both sides are called, in descriptions and messages.
SIDES = ("left", "right")
#: How many tuples a group may hold.
MOST_GROUP = 1 << 30


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
    schemas: tuple[pa.Schema, pa.Schema],
    on: str | Sequence[str],
    within: Interval | None,
    windows: Sequence[LastTuples] | None,
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
    if (within is None) == (windows is None):
        given = "Neither within nor windows is" if within is None else "Both within and windows are"
        raise SettingError(
            f"{given} given; one of them says how long tuples wait for partners.",
            where="within, windows",
            fix='For example within=tm.interval("seen_at", "clicked_at", after="1 hour"), or '
            "windows=(tm.last_tuples(100, per_key=True), tm.last_tuples(0)).",
        )
    if windows is None:
        _check_within(schemas, within)
    else:
        _check_windows(windows)
    return names


def _check_within(schemas: tuple[pa.Schema, pa.Schema], within: Interval | None) -> None:
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


def _check_windows(windows: Sequence[LastTuples]) -> None:
    is_pair = isinstance(windows, tuple | list) and len(windows) == len(SIDES)
    if not is_pair or not all(isinstance(each, LastTuples) for each in windows):
        raise SettingError(
            f"windows must be a window for each side, got {windows!r}.",
            where="windows",
            fix="For example windows=(tm.last_tuples(8192), tm.last_tuples(0)).",
        )
    if not any(each.count for each in windows):
        raise SettingError(
            "With two windows of no tuples, nobody ever finds a partner.", where="windows"
        )


def check_suffixes(suffixes: Any) -> None:
    is_pair = isinstance(suffixes, tuple | list) and len(suffixes) == len(SIDES)
    if not is_pair or not all(isinstance(each, str) for each in suffixes):
        raise SettingError(
            f"suffixes must be a text for each side, got {suffixes!r}.",
            where="suffixes",
            fix='For example suffixes=("_left", "_right").',
        )


def check_late_windows(late: str, windows: object) -> None:
    """Refuses to keep what there is none of."""
    if late == "keep" and windows is not None:
        raise SettingError(
            "Without times, no tuple of a window is ever late.",
            where="late",
            fix="Leave late out, or join by time: within=tm.interval(...).",
        )


def check_group_size(group_size: object, windows: object) -> None:
    """Refuses groups that are none, or of what is not kept in windows."""
    if group_size is None:
        return
    if windows is None:
        raise SettingError(
            "Incremental cuts the windows of a join into groups of tuples, and this one has none: "
            "its tuples wait by time.",
            where="checkpoint",
            fix="Use tm.Delta(every), which writes what has changed, or the default; or join by "
            "windows=(tm.last_tuples(...), tm.last_tuples(...)).",
        )
    if type(group_size) is not int or not 1 <= group_size <= MOST_GROUP:
        raise SettingError(
            f"group_size must be a number of tuples from 1 to {MOST_GROUP:,}, got {group_size!r}.",
            where="Incremental(group_size=...)",
        )


def merge_columns(
    schemas: tuple[pa.Schema, pa.Schema], order_by: str | Sequence[str] | None
) -> tuple[str, str] | None:
    """The column of each side by which both are put in one order; None if they are not."""
    if order_by is None:
        return None
    given = [order_by] * 2 if isinstance(order_by, str) else order_by
    is_pair = isinstance(given, tuple | list) and len(given) == len(SIDES)
    if not is_pair or not all(isinstance(name, str) for name in given):
        raise SettingError(
            "order_by must be the name of a column that both sides have, or a pair of names, got "
            f"{order_by!r}.",
            where="order_by",
            fix='For example order_by="at", or order_by=("seen_at", "clicked_at").',
        )
    left, right = given
    for side, schema, name in zip(SIDES, schemas, (left, right), strict=True):
        check_column(schema, name, f"order_by ({side})")
        check_orderable(schema, [name])
    kinds = [schema.field(name).type for schema, name in zip(schemas, given, strict=True)]
    if kinds[LEFT] != kinds[RIGHT]:
        raise UnsupportedType(
            f"{left!r} is {kinds[LEFT]} on the left and {right!r} is {kinds[RIGHT]} on the right.",
            where="order_by",
            fix="Cast one of them, so that one order is for both.",
        )
    return left, right


def check_nearest(how: How, within: Interval | None) -> None:
    """Refuses joins that ask for each right tuple where only the nearest is wanted."""
    if within is not None and within.is_nearest and how.keeps[RIGHT]:
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


def check_condition(condition: Callable[..., Any] | None, within: Interval | None) -> None:
    """Refuses what cannot be asked about pairs, and conditions that nothing would ever leave
    under."""
    if condition is None:
        return
    if within is not None and not within.is_bounded:
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
