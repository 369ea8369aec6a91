"""What an operator's logs hold, by its description alone: for readers that do not have its
functions.

Checksums tell that a segment is what was written. That it can be read as what the logs say of
themselves, columns, kinds and places, is looked at here.
"""

from __future__ import annotations

import pyarrow as pa

from trailmark.errors import UnknownFormat
from trailmark.kernel.columns import contiguous
from trailmark.log import OperatorMeta, Segment
from trailmark.log.damage import USE_A_NEWER_ONE
from trailmark.log.json_text import shown, text_of
from trailmark.log.meta import META_PATH
from trailmark.log.rows import same_columns
from trailmark.operators.footprints import footprint_trouble
from trailmark.operators.identities import Identities
from trailmark.records import START, FrameKind
from trailmark.state.keys import KeyLayout
from trailmark.values import dataclass
from trailmark.windows.bounds import BOUNDS
from trailmark.windows.spec import TimeWindow, Window, window_from_description

#: The kinds of operators whose logs are known.
_KINDS = ("aggregate",)


def check_operator(meta: OperatorMeta) -> None:
    """Refuse the logs of a kind of operator that is not known."""
    kind = meta.operator.get("operator")
    if kind not in _KINDS:
        raise _unknown(f"Operators of kind {shown(kind)} are unknown to this Trailmark.")


def _unknown(what: str) -> UnknownFormat:
    return UnknownFormat(what, where=META_PATH, fix=USE_A_NEWER_ONE)


@dataclass(frozen=True, slots=True)
class LoggedForm:
    """The keys and windows of an operator, and the columns of its logs."""

    keys: tuple[str, ...]
    window: Window
    input_schema: pa.Schema
    #: Of the results as they are logged, with the start in the place of a window's bounds.
    results: pa.Schema
    identities: Identities

    @classmethod
    def of(cls, meta: OperatorMeta) -> LoggedForm:
        """What the logs of an operator say of themselves."""
        check_operator(meta)
        try:
            return cls._of(meta)
        except (KeyError, TypeError, ValueError) as error:
            raise _unknown(
                f"The description of the operator cannot be understood ({error!r})."
            ) from error

    @classmethod
    def _of(cls, meta: OperatorMeta) -> LoggedForm:
        names = tuple(text_of(name) for name, _ in meta.operator["by"])
        window = window_from_description(meta.operator["window"])
        fields = [meta.input_schema.field(name) for name in names]
        if isinstance(window, TimeWindow):
            window.check_schema(meta.input_schema)
            for name in BOUNDS:
                if not pa.types.is_timestamp(meta.result_schema.field(name).type):
                    raise ValueError(f"{name} is no time")
        results = _logged_results(meta.result_schema, names, window)
        if not names or results.names[: len(names)] != list(names):
            raise ValueError("the results do not begin with the keys")
        identities = Identities(KeyLayout(fields), window.has_start)
        return cls(names, window, meta.input_schema, results, identities)

    def trouble(self, footprints: pa.RecordBatch, batch: int) -> str:
        """What is wrong with the footprints of a batch, beside the states of their functions;
        empty if nothing is."""
        for field in footprints.schema:
            if not _may_be_state(field.type) and field.name not in self.keys:
                return f"has {field.name!r} of type {field.type}"
        wrong = self.identities.trouble(footprints)
        return wrong or footprint_trouble(footprints, self.window, batch)

    def check(self, segment: Segment) -> None:
        """Make sure that the frames of a segment are as described; raises `DamagedSegment`."""
        for kind in segment.frames:
            self.table(segment, kind)

    def table(self, segment: Segment, kind: FrameKind) -> pa.Table | None:
        """The rows of a kind, as they are logged; None if the segment has none of it."""
        found = segment.table(kind)
        if found is None:
            return None
        trouble = self._trouble(found, kind, segment.batch)
        if trouble:
            raise segment.mismatch(kind, trouble)
        return found

    def _trouble(self, rows: pa.Table, kind: FrameKind, batch: int) -> str:
        if kind is FrameKind.FOOTPRINTS:
            return self.trouble(contiguous(rows), batch)
        if kind is FrameKind.CLOSED:
            return self.identities.trouble(contiguous(rows))
        expected = self.results if kind is FrameKind.RESULTS else self.input_schema
        return "" if same_columns(rows.schema, expected) else "has other columns than the log"


def _may_be_state(kind: pa.DataType) -> bool:
    t = pa.types
    is_number = t.is_integer(kind) or t.is_floating(kind) or t.is_decimal128(kind)
    return bool(is_number or t.is_string(kind) or t.is_fixed_size_binary(kind))


def _logged_results(schema: pa.Schema, keys: tuple[str, ...], window: Window) -> pa.Schema:
    fields = list(schema)
    if isinstance(window, TimeWindow):
        fields = [field for field in fields if field.name not in BOUNDS]
    start = [pa.field(START, pa.int64())] if window.has_start else []
    return pa.schema([*fields[: len(keys)], *start, *fields[len(keys) :]])
