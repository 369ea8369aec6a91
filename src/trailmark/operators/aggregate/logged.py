"""The logs of aggregates, for readers that do not have their functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from trailmark.log import OperatorMeta
from trailmark.log.json_text import text_of
from trailmark.operators.aggregate.footprints import footprint_trouble
from trailmark.operators.identities import Identities
from trailmark.operators.logged import LoggedForm, described_keys, order_caution
from trailmark.operators.protocol import Port
from trailmark.records import INPUT_PORT, KIND, START
from trailmark.settings import format_duration
from trailmark.state.keys import KeyLayout
from trailmark.windows.bounds import BOUNDS, WindowBounds
from trailmark.windows.spec import TimeWindow, Window, window_from_description


class AggregateForm(LoggedForm):
    """Keys, and windows that have a start where a key can have several.

    Anything that is no description of an aggregate raises ``KeyError``, ``TypeError`` or
    ``ValueError``.
    """

    def __init__(self, meta: OperatorMeta) -> None:
        schema = meta.input_schema
        self.keys = tuple(text_of(name) for name, _ in meta.operator["by"])
        self.window = window_from_description(meta.operator["window"])
        fields = [schema.field(name) for name in self.keys]
        event_time, delay_us = None, 0
        if isinstance(self.window, TimeWindow):
            self.window.check_schema(schema)
            event_time, delay_us = self.window.column, self.window.delay
            for name in BOUNDS:
                if not pa.types.is_timestamp(meta.result_schema.field(name).type):
                    raise ValueError(f"{name} is no time")
            self.moments = frozenset({START})
        self.ports = (Port(INPUT_PORT, schema, event_time, delay_us, late_at_watermark=False),)
        self.results = _logged_results(meta.result_schema, self.keys, self.window)
        if self.results.names[: len(self.keys)] != list(self.keys):
            raise ValueError("the results do not begin with the keys")
        if {*self.results.names[len(self.keys) :]} - {START} != {*meta.operator["values"]}:
            raise ValueError("other results than the values")
        self.identities = Identities(KeyLayout(fields), self.window.has_start)
        self._bounds = WindowBounds.of(self.window, schema, len(self.keys))
        self.shown_schema = meta.result_schema
        if self._bounds is not None:
            self.shown_schema = self._bounds.joined_schema(meta.result_schema)
        self.pieces = pa.schema([self.shown_schema.field(name) for name in self.keys])

    def trouble(self, footprints: pa.RecordBatch, batch: int) -> str:
        for field in footprints.schema:
            if not _may_be_state(field.type) and field.name not in self.keys:
                return f"has {field.name!r} of type {field.type}"
        wrong = self.identities.trouble(footprints)
        return wrong or footprint_trouble(footprints, self.window, batch)

    def shown(self, logged: pa.Table) -> pa.Table:
        columns = {name: logged[name] for name in logged.schema.names} | self._windows(logged)
        schema = self.shown_schema
        return pa.table([columns[name] for name in schema.names], schema=schema)

    def shown_pieces(self, footprints: pa.Table) -> tuple[dict[str, pa.Array], pa.Table]:
        shown = {name: footprints[name] for name in self.keys} | self._windows(footprints)
        left_out = {*self.keys, KIND}
        if self._bounds is not None:
            left_out.add(START)
        state = [name for name in footprints.schema.names if name not in left_out]
        return shown, footprints.select(state)

    def _windows(self, logged: pa.Table) -> dict[str, pa.Array]:
        """The bounds of time windows by the name of their column, from their starts."""
        if self._bounds is None:
            return {}
        starts = logged[START].combine_chunks().cast(pa.int64())
        return {self._bounds.field.name: self._bounds.column(starts)}


def _may_be_state(kind: pa.DataType) -> bool:
    t = pa.types
    if t.is_list(kind):
        held = kind.value_type
        return bool(t.is_boolean(held) or t.is_temporal(held) or _may_be_state(held))
    is_number = t.is_integer(kind) or t.is_floating(kind) or t.is_decimal128(kind)
    return bool(is_number or t.is_string(kind) or t.is_binary(kind) or t.is_fixed_size_binary(kind))


def _logged_results(schema: pa.Schema, keys: tuple[str, ...], window: Window) -> pa.Schema:
    """The results as they are logged, with the start in the place of a window's bounds."""
    fields = list(schema)
    if isinstance(window, TimeWindow):
        fields = [field for field in fields if field.name not in BOUNDS]
    start = [pa.field(START, pa.int64())] if window.has_start else []
    return pa.schema([*fields[: len(keys)], *start, *fields[len(keys) :]])


def aggregate_title(described: Mapping[str, Any]) -> str:
    """The aggregate in a few words, as far as its description can be understood."""
    window, order = (described.get(name) for name in ("window", "order_by"))
    keys = described_keys(described)
    text = f"aggregate by {', '.join(keys)}" if keys else "aggregate"
    if described.get("by") == []:
        text += " of all tuples"
    if isinstance(window, dict):
        text += f", {_window_text(window)}"
    return f"{text}, ordered by {', '.join(map(str, order))}" if isinstance(order, list) else text


def _window_text(window: Mapping[str, Any]) -> str:
    size, slide = window.get("size"), window.get("slide")
    if not isinstance(size, int) or not isinstance(slide, int):
        return "windows"
    if window.get("kind") == "count":
        text = f"windows of {size:,} tuples"
        return text if slide == size else f"{text} every {slide:,}"
    if window.get("kind") == "time":
        text = f"windows of {format_duration(size)} of {window.get('column')}"
        return text if slide == size else f"{text} every {format_duration(slide)}"
    return "windows"


def aggregate_caution(described: Mapping[str, Any]) -> str:
    """What depends on the order of tuples, where nobody has said what that is."""
    calls = [call["function"] for call in described["values"].values()]
    depends = [
        *(["windows"] if described["window"]["kind"] == "count" else []),
        *(name for name in ("first", "last", "collect_list") if name in calls),
    ]
    return order_caution(described, *depends)
