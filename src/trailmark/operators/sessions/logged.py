"""The logs of sessions, for readers that do not have their functions; and sessions made again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from trailmark.log import OperatorMeta
from trailmark.operators.aggregate.rebuild import rebuild_windowed
from trailmark.operators.keyed.logged import KeyedForm
from trailmark.operators.logged import described_keys, order_caution, understanding
from trailmark.operators.sessions.operator import Sessions, session_bounds
from trailmark.settings import format_duration
from trailmark.windows.session import SessionWindow, session_from_description


class SessionsForm(KeyedForm):
    """Keys with the sessions that each has open, and results with both bounds of a session.

    Anything that is no description of sessions raises ``KeyError``, ``TypeError`` or
    ``ValueError``.
    """

    def __init__(self, meta: OperatorMeta) -> None:
        super().__init__(meta)
        self.window = _described_window(meta)
        (port,) = self.ports
        if (port.event_time, port.delay_us) != (self.window.column, self.window.delay):
            raise ValueError("sessions of another time than that of the input")
        self._bounds = session_bounds(self.window, meta.input_schema, len(self.keys))
        names = [*self.keys, *(field.name for field in self._bounds.fields)]
        if self.results.names[: len(names)] != names:
            raise ValueError("the results do not begin with keys and bounds")
        if {*self.results.names[len(names) :]} != {*meta.operator["values"]}:
            raise ValueError("other results than the values")
        if any(self.results.field(f.name).type != f.type for f in self._bounds.fields):
            raise ValueError("the bounds of sessions are no times")
        self.shown_schema = self._bounds.joined_schema(self.results)

    def shown(self, logged: pa.Table) -> pa.Table:
        results = logged.select(self.results.names).combine_chunks()
        batches = [self._bounds.joined(batch) for batch in results.to_batches()]
        return pa.Table.from_batches(batches, self.shown_schema)


def _described_window(meta: OperatorMeta) -> SessionWindow:
    window = session_from_description(meta.operator["window"])
    window.check_schema(meta.input_schema)
    return window


def rebuild_sessions(meta: OperatorMeta, code: object) -> Sessions:
    """The sessions that wrote these logs.

    ``code`` is a mapping from the names of values to their functions; those of built-in functions
    may be left out.
    """
    with understanding():
        form = SessionsForm(meta)
    return rebuild_windowed(Sessions, form.keys, form.window, meta, code)


def sessions_title(described: Mapping[str, Any]) -> str:
    """The operator in a few words, as far as its description can be understood."""
    window, keys = described.get("window"), described_keys(described)
    text = f"aggregate by {', '.join(keys)}" if keys else "aggregate of all tuples"
    if not isinstance(window, dict) or not isinstance(window.get("gap"), int):
        return f"{text}, sessions"
    return (
        f"{text}, sessions of {window.get('column')} with gaps of {format_duration(window['gap'])}"
    )


def sessions_caution(described: Mapping[str, Any]) -> str:
    """What depends on the order of tuples, where nobody has said what that is."""
    calls = [call["function"] for call in described["values"].values()]
    depends = [name for name in ("first", "last", "collect_list") if name in calls]
    return order_caution(described, *depends)
