"""The tuples of several inputs in one segment, and the order in which they count.

::

    input      tuples of port 0
    input1     tuples of port 1, and so on: a frame for every port, also for one without tuples
    order      $port: for each tuple, in the order in which they count, which port it is of

The k-th time that a port is named stands for its k-th tuple. A segment of one port has no order:
its tuples count as they lie.
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


@dataclass(frozen=True, slots=True)
class PortRows:
    """The tuples of a batch, by port; ``order`` names the port of each, in the order in which they
    count, where there are several ports."""

    tables: tuple[pa.RecordBatch, ...]
    order: Order | None = None

    @property
    def num_rows(self) -> int:
        return sum(table.num_rows for table in self.tables)


def port_frames(rows: PortRows) -> list[tuple[FrameKind, Rows]]:
    """The frames of an input segment."""
    assert 1 <= len(rows.tables) <= MOST_PORTS
    frames: list[tuple[FrameKind, Rows]] = list(zip(_PORT_KINDS, rows.tables, strict=False))
    if len(rows.tables) == 1:
        return frames
    assert rows.order is not None, "tuples of several ports have an order"
    counts = np.bincount(rows.order, minlength=len(rows.tables))
    held = [each.num_rows for each in rows.tables]
    assert counts.tolist() == held, "the order names every tuple once"
    column = arrow_fixed(rows.order.astype(np.uint8, copy=False), pa.uint8())
    return [*frames, (FrameKind.ORDER, pa.record_batch([column], schema=ORDER_SCHEMA))]


class HasSchema(Protocol):
    """A port, as far as its tuples go."""

    @property
    def schema(self) -> pa.Schema: ...


def read_ports(segment: Segment, ports: Sequence[HasSchema]) -> PortRows:
    """The tuples of an input segment; raises `DamagedSegment` if they are not of these ports, or if
    their order is not one of them."""
    assert 1 <= len(ports) <= MOST_PORTS
    expected = {*_PORT_KINDS[: len(ports)], *([FrameKind.ORDER] if len(ports) > 1 else [])}
    for kind in segment.frames.keys() - expected:
        raise segment.mismatch(kind, f"is none of an operator with {_inputs(len(ports))}")
    kinds = zip(_PORT_KINDS, ports, strict=False)
    tables = tuple(contiguous(segment.rows(kind, port.schema)) for kind, port in kinds)
    if len(ports) == 1:
        return PortRows(tables)
    return PortRows(tables, _read_order(segment, [each.num_rows for each in tables]))


def _read_order(segment: Segment, expected: Sequence[int]) -> Order:
    """The order of a segment whose ports have so many tuples."""
    column = contiguous(segment.rows(FrameKind.ORDER, ORDER_SCHEMA)).column(0)
    if column.null_count:
        raise segment.mismatch(FrameKind.ORDER, "has nulls")
    order: Order = numbers(column)
    counts = np.bincount(order, minlength=len(expected))
    if len(counts) > len(expected):
        detail = f"names port {len(counts) - 1}, and the last is {len(expected) - 1}"
        raise segment.mismatch(FrameKind.ORDER, detail)
    for port, (named, held) in enumerate(zip(counts.tolist(), expected, strict=True)):
        if named != held:
            detail = f"names port {port} {named:,} times, and it has {held:,} rows"
            raise segment.mismatch(FrameKind.ORDER, detail)
    return order


def _inputs(count: int) -> str:
    return "1 input" if count == 1 else f"{count} inputs"
