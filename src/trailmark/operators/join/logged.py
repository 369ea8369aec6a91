"""The logs of joins, for readers that do not have their code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from trailmark.errors import SettingError, UnsupportedType
from trailmark.log import OperatorMeta
from trailmark.log.json_text import object_of, text_of, whole
from trailmark.operators.join.arguments import SIDES
from trailmark.operators.join.condition import Condition
from trailmark.operators.join.footprints import SINCE
from trailmark.operators.join.operator import MOST_PIECE_ROWS, Join
from trailmark.operators.join.state import SIDE
from trailmark.operators.logged import LoggedForm, described_keys, order_caution
from trailmark.records import KIND
from trailmark.units import duration
from trailmark.windows.interval import interval_from_description
from trailmark.windows.last_tuples import last_tuples_from_description


def described_join(meta: OperatorMeta, condition: Condition | None = None) -> Join:
    """The join that described itself so.

    Anything that cannot have raises ``KeyError``, ``TypeError`` or ``ValueError``.
    """
    if [port.name for port in meta.ports] != list(SIDES):
        raise ValueError("other inputs than a join has")
    described = meta.operator
    left, right = (port.schema for port in meta.ports)
    of_left, of_right = map(text_of, described["suffixes"])
    try:
        return Join(
            left,
            right,
            on=[text_of(name) for name, _ in described["by"]],
            **_waiting(described),
            how=text_of(described["how"]),
            condition=condition,
            late=described.get("late", "drop"),
            order_by=_order(described),
            suffixes=(of_left, of_right),
            piece_rows=whole(described["piece_rows"], 1, MOST_PIECE_ROWS),
            group_size=described.get("group_size"),
        )
    except (SettingError, UnsupportedType) as error:
        raise ValueError(f"no join that could be: {error.what}") from error


def _waiting(described: Mapping[str, Any]) -> dict[str, Any]:
    """How long tuples wait, as the join takes it."""
    if "windows" not in described:
        return {"within": interval_from_description(object_of(described["within"]))}
    if "within" in described:
        raise ValueError("two ways of waiting")
    left, right = map(last_tuples_from_description, map(object_of, described["windows"]))
    return {"windows": (left, right)}


def _order(described: Mapping[str, Any]) -> tuple[str, str] | None:
    if "order_by" not in described:
        return None
    left, right = map(text_of, described["order_by"])
    return left, right


class JoinForm(LoggedForm):
    """Pieces of both sides, whose footprints name tuples of the input log or hold them."""

    def __init__(self, meta: OperatorMeta) -> None:
        described = described_join(meta)
        self.keys = described.keys
        self.ports = described.ports
        self.results = self.shown_schema = described.result_schema
        if not meta.result_schema.equals(self.results):
            raise ValueError("other results than those of the join")
        self.pieces = pa.schema([])
        self.identities = described.identities
        self.moments = frozenset({SINCE} if "within" in meta.operator else ())
        self._trouble_of = described.trouble
        self._late_schema = described.late_schema

    @property
    def late_schema(self) -> pa.Schema:
        return self._late_schema

    @property
    def late_time(self) -> None:
        """Each side has its own."""

    def trouble(self, footprints: pa.RecordBatch, batch: int) -> str:
        return self._trouble_of(footprints, batch)

    def shown(self, logged: pa.Table) -> pa.Table:
        return logged

    def shown_pieces(self, footprints: pa.Table) -> tuple[dict[str, pa.Array], pa.Table]:
        state = footprints.drop_columns([KIND])
        place = state.schema.get_field_index(SIDE)
        names = pa.array(SIDES).take(state[SIDE].combine_chunks())
        return {}, state.set_column(place, SIDE, names)


def join_title(described: Mapping[str, Any]) -> str:
    """The operator in a few words, as far as its description can be understood."""
    keys, within = described_keys(described), described.get("within")
    parts = [f"{described.get('how', '')} join".strip()]
    parts += [f"by {', '.join(keys)}"] if keys else []
    if isinstance(within, dict):
        before, after = within.get("before_us"), within.get("after_us")
        if isinstance(before, int) and isinstance(after, int):
            parts.append(f"within {duration(before)} before to {duration(after)} after")
    return " ".join([*parts, *_windows_title(described.get("windows"))])


def _windows_title(windows: object) -> list[str]:
    """The windows of the last tuples, as far as they can be understood."""
    if not isinstance(windows, list) or len(windows) != len(SIDES):
        return []
    try:
        shown = [str(last_tuples_from_description(object_of(each))) for each in windows]
    except (KeyError, TypeError, ValueError):
        return []
    return [f"of the {' with the '.join(shown)}"]


def join_caution(described: Mapping[str, Any]) -> str:
    """What to know of a join before it runs."""
    windows = described.get("windows")
    if not isinstance(windows, list):
        return ""
    said = [order_caution(described, "which tuples are in a window")]
    windows = [each for each in windows if isinstance(each, dict)]
    if any(each.get("last") and not each.get("per_key") for each in windows):
        said.append("one window for all keys needs the order of all tuples: there is one bucket")
    return "; ".join(filter(None, said))
