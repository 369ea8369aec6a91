"""What `tm.aggregate` is given, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from trailmark.errors import SettingError
from trailmark.operators.late import check_late
from trailmark.operators.order import check_orderable
from trailmark.windows.bounds import BOUNDS
from trailmark.windows.functions import AnyFunction, Function, UserFunction
from trailmark.windows.session import SessionWindow
from trailmark.windows.spec import CountWindow, TimeWindow, Window

#: What an aggregate can be over.
AnyWindow = Window | SessionWindow


def key_names(by: str | Sequence[str], *, may_be_none: bool = False) -> list[str]:
    """The key columns that are asked for, each once: at least one, unless there may be none."""
    names = [by] if isinstance(by, str) else by
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise SettingError(
            f"by must be the name of a column or a list of names, got {by!r}.", where="by"
        )
    if not names and not may_be_none:
        raise SettingError("At least one key column is needed.", where="by")
    if len(set(names)) != len(names):
        raise SettingError(f"A key column is named twice: {list(names)}.", where="by")
    return list(names)


def check_arguments(
    schema: pa.Schema,
    by: list[str],
    window: AnyWindow,
    values: Mapping[str, AnyFunction],
    late: str,
    order: list[str],
) -> None:
    """Refuses what cannot be computed over these columns."""
    if not isinstance(window, CountWindow | TimeWindow | SessionWindow):
        raise SettingError(
            f"window must be a count_window, a time_window or a session_window, got {window!r}.",
            where="window",
            fix="For example tm.count_window(10) or tm.time_window('ordered_at', '1 minute').",
        )
    _check_values(values)
    check_late(late)
    for where, name in _columns(by, window, values, order):
        check_column(schema, name, where)
    _check_outputs(by, window, values)
    _check_read(by, window, values, order)
    check_orderable(schema, order)
    if not isinstance(window, CountWindow):
        window.check_schema(schema)


def _check_values(values: Mapping[str, AnyFunction]) -> None:
    if not isinstance(values, Mapping) or not values:
        raise SettingError(
            f"values must name at least one function, got {values!r}.",
            where="values",
            fix="For example values={'avg_price': tm.avg('price')}.",
        )
    for output, call in values.items():
        if not isinstance(output, str) or not output:
            raise SettingError(f"A value needs a name, got {output!r}.", where="values")
        if not isinstance(call, Function | UserFunction):
            raise SettingError(
                f"{output!r} must be a function such as avg('price'), got {call!r}.",
                where="values",
                fix=f"For example values={{{output!r}: tm.avg('price')}}.",
            )
        if isinstance(call, Function) and call.column is None and call.name != "count":
            raise SettingError(f"{call.name} needs a column.", where=f"values[{output!r}]")


def _columns(
    by: list[str], window: AnyWindow, values: Mapping[str, AnyFunction], order: list[str]
) -> Iterator[tuple[str, object]]:
    """The columns that are read, and which argument asks for each."""
    yield from (("by", name) for name in by)
    yield from (("order_by", name) for name in order)
    if not isinstance(window, CountWindow):
        yield "window", window.column
    for output, call in values.items():
        yield from ((f"values[{output!r}]", name) for name in call.columns)


def _check_read(
    by: list[str], window: AnyWindow, values: Mapping[str, AnyFunction], order: list[str]
) -> None:
    """Refuses what looks at no column: rows without columns cannot be sent, or logged."""
    if not any(True for _ in _columns(by, window, values, order)):
        raise SettingError(
            "Without keys, windows of a count of tuples whose tuples are only counted read no "
            "column.",
            where="by, values",
            fix="Name keys with by, or compute something else, too.",
        )


def check_column(schema: pa.Schema, name: object, where: str) -> None:
    """Refuses what is no column of the input, or more than one."""
    if not isinstance(name, str):
        raise SettingError(f"A column is given by its name, as text, got {name!r}.", where=where)
    if len(schema.get_all_field_indices(name)) != 1:
        raise SettingError(
            f"There is no column {name!r} (or more than one); the input has {schema.names}.",
            where=where,
            fix="Name a column of the input.",
        )


def _check_outputs(by: list[str], window: AnyWindow, values: Mapping[str, AnyFunction]) -> None:
    for name in [*by, *values]:
        if name.startswith("$"):
            raise SettingError(
                f"Names that begin with $ are used by the log: {name!r}.", where="by, values"
            )
        if not isinstance(window, CountWindow) and name in BOUNDS:
            raise SettingError(
                f"{name!r} is a result column with the bounds of time windows.",
                where="by" if name in by else "values",
                fix="Rename the column.",
            )
    for name in values:
        if name in by:
            raise SettingError(
                f"{name!r} is the name of another column of the result.",
                where="values",
                fix="Give it another name.",
            )


def check_logged_names(names: Sequence[str]) -> None:
    """A footprint has a column for every field of a value's state, named ``value.field``."""
    for name in names:
        if names.count(name) > 1:
            raise SettingError(
                f"Two columns of the log would be called {name!r}.",
                where="by, values",
                fix="Give the key column or the value another name.",
            )
