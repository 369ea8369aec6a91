"""The tuples of several inputs in one segment, and the order in which they count.

::

    input      tuples of port 0
    input1     tuples of port 1, and so on: a frame for every port, also for one without tuples
    order      $port: for each tuple, in the order in which they count, which port it is of

The k-th time that a port is named stands for its k-th tuple. A segment of one port has no order:
its tuples count as they lie.

Tuples that are only tentative have frames of their own beside these, where there are some:
``tentative_input0`` and so on, and ``tentative_order``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.kernel.columns import arrow_fixed, contiguous, numbers
from trailmark.log.segment import Rows, Segment
from trailmark.records import MOST_PORTS, PORT, FrameKind
from trailmark.values import dataclass

#: For each tuple of a batch, in the order in which they count, the port that it is of.
Order: TypeAlias = npt.NDArray[np.uint8]

ORDER_SCHEMA = pa.schema([pa.field(PORT, pa.uint8(), nullable=False)])
_PORT_KINDS = tuple(FrameKind.of_port(port) for port in range(MOST_PORTS))
_TENTATIVE_KINDS = tuple(FrameKind.tentative_of_port(port) for port in range(MOST_PORTS))


@dataclass(frozen=True, slots=True)
class PortRows:
    """The tuples of a batch, by port; ``order`` names the port of each, in the order in which they
    count, where there are several ports."""

    tables: tuple[pa.RecordBatch, ...]
    order: Order | None = None

    @property
    def num_rows(self) -> int:
        return sum(table.num_rows for table in self.tables)


def port_frames(rows: PortRows, tentative: PortRows | None = None) -> list[tuple[FrameKind, Rows]]:
    """The frames of an input segment, with tentative tuples if there are any."""
    frames = _frames(rows, _PORT_KINDS, FrameKind.ORDER)
    if tentative is None or not tentative.num_rows:
        return frames
    return [*frames, *_frames(tentative, _TENTATIVE_KINDS, FrameKind.TENTATIVE_ORDER)]


def _frames(
    rows: PortRows, kinds: Sequence[FrameKind], of_order: FrameKind
) -> list[tuple[FrameKind, Rows]]:
    assert 1 <= len(rows.tables) <= MOST_PORTS
    frames: list[tuple[FrameKind, Rows]] = list(zip(kinds, rows.tables, strict=False))
    if len(rows.tables) == 1:
        return frames
    assert rows.order is not None, "tuples of several ports have an order"
    counts = np.bincount(rows.order, minlength=len(rows.tables))
    held = [each.num_rows for each in rows.tables]
    assert counts.tolist() == held, "the order names every tuple once"
    column = arrow_fixed(rows.order.astype(np.uint8, copy=False), pa.uint8())
    return [*frames, (of_order, pa.record_batch([column], schema=ORDER_SCHEMA))]


class HasSchema(Protocol):
    """A port, as far as its tuples go."""

    @property
    def schema(self) -> pa.Schema: ...


def read_ports(segment: Segment, ports: Sequence[HasSchema]) -> PortRows:
    """The tuples of an input segment; raises `DamagedSegment` if they are not of these ports, or if
    their order is not one of them."""
    assert 1 <= len(ports) <= MOST_PORTS
    kinds, tentative = _kinds(len(ports))
    for kind in segment.frames.keys() - kinds - tentative:
        raise segment.mismatch(kind, f"is none of an operator with {_inputs(len(ports))}")
    return _read(segment, ports, _PORT_KINDS, FrameKind.ORDER)


def read_tentative(segment: Segment, ports: Sequence[HasSchema]) -> PortRows | None:
    """The tentative tuples of an input segment; None if it has none. Raises as `read_ports`."""
    if not segment.frames.keys() & _kinds(len(ports))[1]:
        return None
    return _read(segment, ports, _TENTATIVE_KINDS, FrameKind.TENTATIVE_ORDER)


def _kinds(ports: int) -> tuple[frozenset[FrameKind], frozenset[FrameKind]]:
    """The frames of so many ports: those of tuples, and those of tentative ones."""
    has_order = ports > 1
    return (
        frozenset([*_PORT_KINDS[:ports], *([FrameKind.ORDER] if has_order else [])]),
        frozenset([*_TENTATIVE_KINDS[:ports], *([FrameKind.TENTATIVE_ORDER] if has_order else [])]),
    )


def _read(
    segment: Segment,
    ports: Sequence[HasSchema],
    kinds: Sequence[FrameKind],
    of_order: FrameKind,
) -> PortRows:
    found = zip(kinds, ports, strict=False)
    tables = tuple(contiguous(segment.rows(kind, port.schema)) for kind, port in found)
    if len(ports) == 1:
        return PortRows(tables)
    return PortRows(tables, _read_order(segment, [each.num_rows for each in tables], of_order))


def _read_order(segment: Segment, expected: Sequence[int], kind: FrameKind) -> Order:
    """The order of a segment whose ports have so many tuples."""
    column = contiguous(segment.rows(kind, ORDER_SCHEMA)).column(0)
    if column.null_count:
        raise segment.mismatch(kind, "has nulls")
    order: Order = numbers(column)
    counts = np.bincount(order, minlength=len(expected))
    if len(counts) > len(expected):
        detail = f"names port {len(counts) - 1}, and the last is {len(expected) - 1}"
        raise segment.mismatch(kind, detail)
    for port, (named, held) in enumerate(zip(counts.tolist(), expected, strict=True)):
        if named != held:
            detail = f"names port {port} {named:,} times, and it has {held:,} rows"
            raise segment.mismatch(kind, detail)
    return order


def _inputs(count: int) -> str:
    return "1 input" if count == 1 else f"{count} inputs"
