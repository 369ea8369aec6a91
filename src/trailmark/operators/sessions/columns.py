"""The sessions that keys have open, as columns of a keyed state: lists of one element for each.

A field of a function's state is a list of its own, named as in the footprints of other windows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from trailmark.kernel.columns import arrow_fixed, numbers, plain, view
from trailmark.kernel.library import Bytes
from trailmark.operators.aggregate.footprints import field_values, state_column, text_offsets_of
from trailmark.operators.keyed.columns import list_array
from trailmark.operators.sessions.cut import Numbers, Spans
from trailmark.values import dataclass
from trailmark.windows.bound import Array, BoundFunction, StateField
from trailmark.windows.builtin import read_text

#: Where sessions begin and end.
START, END = "session.start", "session.end"


@dataclass(frozen=True, slots=True)
class OpenSessions:
    """Sessions of keys, those of a key by time; ``texts`` are those that the states of functions
    hold, by the name of the function."""

    spans: Spans
    states: Array
    texts: Mapping[str, pa.Array]


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
            (function, item, f"{function.name}.{'value' if item.is_text else item.name}")
            for function in functions
            for item in function.fields
            if not pa.types.is_null(item.kind)
        ]
        self.kinds = {START: pa.list_(moment), END: pa.list_(moment)}
        self.kinds |= {name: pa.list_(_kept_as(item)) for _, item, name in self._logged}

    @property
    def names(self) -> list[str]:
        """The columns, of which two may have the same name by mistake."""
        return [START, END, *(name for _, _, name in self._logged)]

    def read(self, state: Any) -> OpenSessions:
        """The sessions of the keys of a call."""
        counts = state[START].lengths()
        flat = {name: state[name].array().flatten() for name in self.kinds}
        states, texts = np.zeros(int(counts.sum()), dtype=self._states), dict[str, pa.Array]()
        for function, item, name in self._logged:
            if item.is_text:
                texts[function.name] = plain(flat[name])
                _point(states[function.name], texts[function.name])
            else:
                column = flat[name].cast(item.kind)
                states[function.name][item.name] = field_values(column, item)
        owner = np.repeat(np.arange(len(counts)), counts)
        starts, ends = (numbers(flat[name].view(pa.int64())) for name in (START, END))
        return OpenSessions(Spans(owner, starts, ends), states, texts)

    def write(self, state: Any, sessions: OpenSessions) -> None:
        """Puts sessions in the place of those that the keys of a call had."""
        spans, keys = sessions.spans, len(state)
        counts = np.bincount(spans.owner, minlength=keys)
        flat = {
            START: arrow_fixed(spans.start, self._moment),
            END: arrow_fixed(spans.end, self._moment),
        }
        for function, item, name in self._logged:
            if item.is_text:
                flat[name] = sessions.texts[function.name]
            else:
                flat[name] = state_column(sessions.states, function, item).cast(_kept_as(item))
        for name, column in flat.items():
            state[name] = list_array(counts, column, self.kinds[name])

    def texts_of(self, states: Array, sources: Mapping[str, Bytes]) -> dict[str, pa.Array]:
        """The texts that states hold, by the function, from where each function has them."""
        return {
            function.name: read_text(
                states, function.at, sources[function.name], states[function.name]["seen"] == 1
            )
            for function, item, _ in self._logged
            if item.is_text
        }

    def taken(self, sessions: OpenSessions, places: Numbers) -> OpenSessions:
        """Some of the sessions."""
        spans, which = sessions.spans, pa.array(places)
        texts = {name: column.take(which) for name, column in sessions.texts.items()}
        states = sessions.states[places]
        for name, column in texts.items():
            _point(states[name], column)
        chosen = Spans(spans.owner[places], spans.start[places], spans.end[places])
        return OpenSessions(chosen, states, texts)


def _kept_as(item: StateField) -> pa.DataType:
    """Lists hold bytes of any length, and none of a fixed one."""
    return pa.binary() if pa.types.is_fixed_size_binary(item.kind) else item.kind


def _point(states: Array, texts: pa.Array) -> None:
    """Has states find their texts among these."""
    offsets = text_offsets_of(view(texts).offsets, len(texts))
    states["place"], states["length"] = offsets[:-1], np.diff(offsets)
    states["in_batch"] = 0
