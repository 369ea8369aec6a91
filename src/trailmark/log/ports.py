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

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.kernel.columns import arrow_fixed, contiguous, numbers
from trailmark.log.meta import Port
from trailmark.log.segment import Rows, Segment
from trailmark.records import MOST_PORTS, PORT, FrameKind
from trailmark.values import dataclass

_ORDER_SCHEMA = pa.schema([pa.field(PORT, pa.uint8(), nullable=False)])
_PORT_KINDS = tuple(FrameKind.of_port(port) for port in range(MOST_PORTS))


@dataclass(frozen=True, slots=True)
class PortRows:
    """The tuples of a batch, by port; ``order`` names the port of each, in the order in which they
    count."""

    rows: tuple[pa.Table, ...]
    order: npt.NDArray[np.uint8]


def port_frames(rows: Sequence[Rows], order: npt.NDArray[np.uint8]) -> list[tuple[FrameKind, Rows]]:
    """The frames of an input segment, from the tuples of each port and their order."""
    assert 1 <= len(rows) <= MOST_PORTS
    counts = np.bincount(order, minlength=len(rows))
    assert counts.tolist() == [each.num_rows for each in rows], "the order names every tuple once"
    frames = list(zip(_PORT_KINDS, rows, strict=False))
    if len(rows) > 1:
        column = arrow_fixed(order.astype(np.uint8, copy=False), pa.uint8())
        frames.append((FrameKind.ORDER, pa.record_batch([column], schema=_ORDER_SCHEMA)))
    return frames


def read_ports(segment: Segment, ports: Sequence[Port]) -> PortRows:
    """The tuples of an input segment; raises `DamagedSegment` if they are not of these ports, or if
    their order is not one of them."""
    assert 1 <= len(ports) <= MOST_PORTS
    expected = {*_PORT_KINDS[: len(ports)], *([FrameKind.ORDER] if len(ports) > 1 else [])}
    for kind in segment.frames.keys() - expected:
        raise segment.mismatch(kind, f"is none of an operator with {_inputs(len(ports))}")
    kinds = zip(_PORT_KINDS, ports, strict=False)
    rows = tuple(segment.rows(kind, port.schema) for kind, port in kinds)
    if len(ports) == 1:
        return PortRows(rows, np.zeros(rows[0].num_rows, np.uint8))
    return PortRows(rows, _read_order(segment, [each.num_rows for each in rows]))


def _read_order(segment: Segment, expected: Sequence[int]) -> npt.NDArray[np.uint8]:
    """The order of a segment whose ports have so many tuples."""
    column = contiguous(segment.rows(FrameKind.ORDER, _ORDER_SCHEMA)).column(0)
    if column.null_count:
        raise segment.mismatch(FrameKind.ORDER, "has nulls")
    order: npt.NDArray[np.uint8] = numbers(column)
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
