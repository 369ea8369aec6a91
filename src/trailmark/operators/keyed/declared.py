"""What a user's class says of the state it wants, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from trailmark.errors import SettingError
from trailmark.operators.keyed.columns import StateColumn, column_of
from trailmark.operators.keyed.due import CLOCK_TIMER, CLOCK_TTL, DUE, EVENT_TIMER, EVENT_TTL
from trailmark.operators.user_code import check_arguments
from trailmark.settings import parse_duration
from trailmark.values import dataclass

_METHODS = {EVENT_TIMER: "on_event_timer", CLOCK_TIMER: "on_clock_timer"}
_LIVES = {EVENT_TTL: "event_time_to_live", CLOCK_TTL: "clock_time_to_live"}


@dataclass(frozen=True, slots=True)
class Declared:
    """The state of a keyed operator.

    Attributes
    ----------
    columns
        What is kept of every key.
    timers
        The method that is called when a timer is due, by the kind of timer.
    lives_us
        How long a key stays after its last tuple, by the kind of time.
    """

    name: str
    columns: tuple[StateColumn, ...]
    timers: Mapping[str, str]
    lives_us: Mapping[str, int]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(column.name, column.kind) for column in self.columns])

    @property
    def dues(self) -> tuple[str, ...]:
        """All kinds of times that a key can have, in the order in which they are looked at."""
        kinds = (EVENT_TIMER, CLOCK_TIMER, EVENT_TTL, CLOCK_TTL)
        return tuple(kind for kind in kinds if kind in self.timers or kind in self.lives_us)

    @property
    def uses_clock(self) -> bool:
        return CLOCK_TIMER in self.timers or CLOCK_TTL in self.lives_us

    @property
    def uses_event_time(self) -> bool:
        return EVENT_TIMER in self.timers or EVENT_TTL in self.lives_us


def read_declaration(operator: Any) -> Declared:
    """What an instance of a user's class declares; refused if it cannot be."""
    name = type(operator).__qualname__
    process = getattr(operator, "process", None)
    if not callable(process):
        raise SettingError(
            f"{name} has no method process.",
            where="operator",
            fix="Write def process(self, keys, rows, state), which returns rows or None.",
        )
    _check_method(process, f"{name}.process", "keys, rows, state")
    timers = {kind: each for kind, each in _METHODS.items() if hasattr(operator, each)}
    for each in timers.values():
        _check_method(getattr(operator, each), f"{name}.{each}", "keys, due, state")
    lives = {
        kind: _life(getattr(operator, each), f"{name}.{each}")
        for kind, each in _LIVES.items()
        if getattr(operator, each, None) is not None
    }
    return Declared(name, _columns(operator, name), timers, lives)


def _columns(operator: Any, name: str) -> tuple[StateColumn, ...]:
    declared = getattr(operator, "state", None)
    if isinstance(declared, pa.Schema):
        declared = {field.name: field.type for field in declared}
    if not isinstance(declared, Mapping) or not declared:
        raise SettingError(
            f"{name}.state must name the columns of the state and their types, got {declared!r}.",
            where="operator",
            fix='For example state = {"n": pa.int64(), "seen": pa.list_(pa.string())}.',
        )
    initial = getattr(operator, "initial", {})
    if not isinstance(initial, Mapping) or not initial.keys() <= declared.keys():
        raise SettingError(
            f"{name}.initial must give values for columns of the state, got {initial!r}.",
            where="operator",
            fix=f"The state has {list(declared)}.",
        )
    for column, kind in declared.items():
        if not isinstance(column, str) or not column or column.startswith("$"):
            raise SettingError(
                f"A column of the state cannot be called {column!r}.",
                where="operator",
                fix="Use a name that does not begin with $.",
            )
        if not isinstance(kind, pa.DataType):
            raise SettingError(
                f"The type of state column {column!r} must be one of Arrow's, got {kind!r}.",
                where="operator",
                fix="For example pa.int64().",
            )
    return tuple(column_of(column, kind, initial) for column, kind in declared.items())


def _life(given: Any, where: str) -> int:
    microseconds = parse_duration(given, where)
    if not microseconds:
        raise SettingError("A key cannot live for no time.", where=where)
    return microseconds


def _check_method(method: Any, name: str, expected: str) -> None:
    """Whether a method can be called as it will be."""
    check_arguments(
        method,
        f"{name} cannot be called with {expected}",
        f"Write def {name.rpartition('.')[2]}(self, {expected}).",
        *expected.split(", "),
    )


def state_type(columns: tuple[StateColumn, ...], dues: tuple[str, ...]) -> np.dtype[Any]:
    """What a slot holds: times first, then the columns, each where it is aligned."""
    fields: list[tuple[str, Any]] = [(kind, DUE) for kind in dues]
    fields += [(column.name, column.memory) for column in columns]
    packed = np.dtype(fields, align=True)
    assert packed.fields is not None
    for column in columns:
        column.at = packed.fields[column.name][1]
    offsets = [packed.fields[name][1] for name, _ in fields]
    size = (packed.itemsize + 7) // 8 * 8
    return np.dtype(
        {
            "names": [name for name, _ in fields],
            "formats": [kind for _, kind in fields],
            "offsets": offsets,
            "itemsize": size,
        }
    )
