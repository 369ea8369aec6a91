"""What a keyed operator is given, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from trailmark.errors import SettingError, UnsupportedType
from trailmark.operators.aggregate.arguments import check_column, key_names
from trailmark.operators.keyed.declared import Declared
from trailmark.operators.late import check_late
from trailmark.operators.order import check_orderable
from trailmark.operators.protocol import Port

#: The input with the states that keys begin with.
INITIAL_PORT = "initial"


def check_keyed(
    schema: pa.Schema,
    declared: Declared,
    *,
    by: str | Sequence[str],
    time: str | None,
    late: str,
    order: list[str],
    needs_keys: bool = True,
) -> tuple[list[str], list[str]]:
    """The key columns and those of the order; refuses what cannot be done over these columns."""
    names = key_names(by, may_be_none=not needs_keys)
    for argument, columns in (("by", names), ("order_by", order), ("time", [time] if time else [])):
        for name in columns:
            check_column(schema, name, argument)
    for name in (*names, *schema.names):
        if name.startswith("$"):
            raise SettingError(
                f"Names that begin with $ are used by the log: {name!r}.", where="df"
            )
    for name in names:
        if name in declared.schema.names:
            raise SettingError(
                f"{name!r} is a key, and a column of the state.",
                where="by",
                fix="Give the column of the state another name.",
            )
    check_late(late)
    check_orderable(schema, order)
    _check_time(schema, declared, time)
    return names, order


def _check_time(schema: pa.Schema, declared: Declared, time: str | None) -> None:
    if time is not None and not pa.types.is_timestamp(schema.field(time).type):
        raise UnsupportedType(
            f"Event times must be timestamps; {time!r} is {schema.field(time).type}.",
            where="time",
            fix="Cast the column to a timestamp.",
        )
    if time is None and declared.uses_event_time:
        raise SettingError(
            f"{declared.name} uses event time, and no column was named for it.",
            where="time",
            fix="For example time='ordered_at', delay='10 seconds'.",
        )


def initial_port(keys: pa.Schema, state: pa.Schema) -> Port:
    """The input with the states that keys begin with."""
    return Port(INITIAL_PORT, pa.schema([*keys, *state]), is_stream=False)
