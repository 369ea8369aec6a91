"""The sessions that keys have open, as columns of a keyed state: lists of one element for each.

A field of a function's state is a list of its own, named as in the footprints of other windows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from trailmark.kernel.columns import arrow_fixed, column_type, numbers, plain
from trailmark.operators.aggregate.footprints import field_values, state_column
from trailmark.operators.keyed.columns import list_array, list_counts, offsets_of
from trailmark.operators.sessions.cut import Numbers, Spans
from trailmark.values import dataclass
from trailmark.windows.bound import Array, BoundFunction, StateField

#: Where sessions begin and end.
START, END = "session.start", "session.end"


@dataclass(frozen=True, slots=True)
class OpenSessions:
    """Sessions of keys, those of a key by time; ``held`` are the texts and lists that the
    states of functions hold, by the names of the function and of the field."""

    spans: Spans
    states: Array
    held: Mapping[str, Mapping[str, pa.Array]]


class SessionColumns:
    """Turns the columns of a keyed state into sessions and back.

    Attributes
    ----------
    kinds
        The columns and their types, as a keyed operator declares them.
    """

    def __init__(
        self, functions: Sequence[BoundFunction], states: np.dtype[Any], moment: pa.DataType
    ) -> None:
        self._functions = functions
        self._states = states
        self._moment = moment
        self._logged = [
            (function, item, f"{function.name}.{item.name}")
            for function in functions
            for item in function.fields
            if not pa.types.is_null(item.kind)
        ]
        self.kinds = {START: pa.list_(moment), END: pa.list_(moment)}
        for _, item, name in self._logged:
            if _is_list(item):
                self.kinds |= {_counts(name): pa.list_(pa.int64()), name: item.kind}
            else:
                self.kinds[name] = pa.list_(_kept_as(item))

    @property
    def names(self) -> list[str]:
        """The columns, of which two may have the same name by mistake."""
        counts = [_counts(name) for _, item, name in self._logged if _is_list(item)]
        return [START, END, *(name for _, _, name in self._logged), *counts]

    def read(self, state: Any) -> OpenSessions:
        """The sessions of the keys of a call."""
        counts = state[START].lengths()
        flat = {name: state[name].array().flatten() for name in self.kinds}
        states = np.zeros(int(counts.sum()), dtype=self._states)
        held: dict[str, dict[str, pa.Array]] = {}
        for function, item, name in self._logged:
            if item.is_held:
                column = plain(flat[name])
                if _is_list(item):
                    ends = offsets_of(numbers(flat[_counts(name)]))
                    column = pa.ListArray.from_arrays(ends, column)
                held.setdefault(function.name, {})[item.name] = column
            else:
                column = flat[name].cast(item.kind)
                states[function.name][item.name] = field_values(column, item)
        owner = np.repeat(np.arange(len(counts)), counts)
        starts, ends = (numbers(flat[name].view(pa.int64())) for name in (START, END))
        return OpenSessions(Spans(owner, starts, ends), states, held)

    def write(self, state: Any, sessions: OpenSessions) -> None:
        """Puts sessions in the place of those that the keys of a call had."""
        spans = sessions.spans
        counts = np.bincount(spans.owner, minlength=len(state))
        flat = {
            START: arrow_fixed(spans.start, self._moment),
            END: arrow_fixed(spans.end, self._moment),
        }
        for function, item, name in self._logged:
            if _is_list(item):
                lists = sessions.held[function.name][item.name]
                of_sessions = list_counts(lists)
                flat[_counts(name)] = arrow_fixed(of_sessions, pa.int64())
                of_keys = _of_keys(counts, of_sessions)
                state[name] = list_array(of_keys, lists.flatten(), self.kinds[name])
            elif item.is_held:
                flat[name] = sessions.held[function.name][item.name]
            else:
                flat[name] = state_column(sessions.states, function, item).cast(_kept_as(item))
        for name, column in flat.items():
            state[name] = list_array(counts, column, self.kinds[name])

    def taken(self, sessions: OpenSessions, places: Numbers) -> OpenSessions:
        """Some of the sessions."""
        spans, which = sessions.spans, pa.array(places)
        held = {
            function: {name: column.take(which) for name, column in columns.items()}
            for function, columns in sessions.held.items()
        }
        chosen = Spans(spans.owner[places], spans.start[places], spans.end[places])
        return OpenSessions(chosen, sessions.states[places], held)

    def trouble(self, footprints: pa.RecordBatch) -> str:
        """What is wrong with the lists of footprints; empty if each key has as many of everything
        as it has sessions."""
        nullable = {name for _, item, name in self._logged if item.may_be_null}
        for name, kind in self.kinds.items():
            if column_type(footprints, name) != kind:
                return f"has no {name!r} of type {kind}"
            if name not in nullable and footprints.column(name).flatten().null_count:
                return f"has nulls among {name!r}"
        counted = {name: _counts(name) for _, item, name in self._logged if _is_list(item)}
        sessions = list_counts(footprints.column(START))
        for name in self.kinds:  # how many values there are comes before the values
            expected = sessions
            if name in counted:
                of_sessions = numbers(footprints.column(counted[name]).flatten())
                if (of_sessions < 0).any():
                    return f"has less than no values in {name!r}"
                expected = _of_keys(sessions, of_sessions)
            if not np.array_equal(list_counts(footprints.column(name)), expected):
                return f"has other lengths of {name!r} than sessions"
        return ""


def _is_list(item: StateField) -> bool:
    return item.is_held and bool(pa.types.is_list(item.kind))


def _counts(name: str) -> str:
    """How many values each session has, of those that all sessions of a key have in one list."""
    return f"{name}.count"


def _of_keys(sessions: Numbers, numbers: Numbers) -> Numbers:
    """The sums over the sessions of each key, of which these have so many."""
    ends = np.concatenate([[0], np.cumsum(numbers)])[np.cumsum(sessions)]
    return np.diff(ends, prepend=0)


def _kept_as(item: StateField) -> pa.DataType:
    """Lists hold bytes of any length, and none of a fixed one."""
    return pa.binary() if pa.types.is_fixed_size_binary(item.kind) else item.kind
