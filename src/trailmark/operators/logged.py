"""What an operator's logs hold, by its description alone: for readers that do not have its
functions.

Checksums tell that a segment is what was written. That it can be read as what the logs say of
themselves, columns, kinds and places, is looked at here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from trailmark.errors import UnknownFormat
from trailmark.kernel.columns import contiguous
from trailmark.log import Segment, read_ports, read_tentative
from trailmark.log.damage import USE_A_NEWER_ONE
from trailmark.log.meta import META_PATH
from trailmark.log.ports import ORDER_SCHEMA
from trailmark.log.rows import same_columns
from trailmark.operators.identities import Identities
from trailmark.operators.protocol import Port
from trailmark.records import FrameKind, Stream

#: What tuples are called among the kinds of rows.
INPUT = "input"


def unknown_operator(what: str) -> UnknownFormat:
    """The error to raise about an operator whose description is not understood."""
    return UnknownFormat(what, where=META_PATH, fix=USE_A_NEWER_ONE)


@contextmanager
def understanding() -> Iterator[None]:
    """While a description is read: whatever is missing or strange in it is told as that."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise unknown_operator(
            f"The description of the operator cannot be understood ({error!r})."
        ) from error


def described_keys(described: Mapping[str, Any]) -> list[str]:
    """The names of the keys of an operator, as far as its description can be understood."""
    by = described.get("by")
    return (
        [str(each[0]) for each in by if isinstance(each, list) and each]
        if isinstance(by, list)
        else []
    )


def order_caution(described: Mapping[str, Any], *depends: str) -> str:
    """What to know of an operator where something depends on the order of tuples; empty if it was
    said what that is."""
    if "order_by" in described or not depends:
        return ""
    listed = [*([", ".join(depends[:-1])] if depends[1:] else []), *depends[-1:]]
    return (
        "without order_by, tuples of a batch have no certain order: "
        f"{' and '.join(listed)} may come out "
        "differently when the query starts anew"
    )


class LoggedForm(ABC):
    """The columns of an operator's logs, and how its records are shown. One class per kind.

    Attributes
    ----------
    keys
        The key columns.
    ports
        Its inputs.
    results
        The columns of results as they are logged.
    shown_schema
        The columns of results as readers see them.
    pieces
        The columns that name a piece, as readers see them.
    identities
        What tells its pieces from one another.
    """

    keys: tuple[str, ...]
    ports: tuple[Port, ...]
    results: pa.Schema
    shown_schema: pa.Schema
    pieces: pa.Schema
    identities: Identities
    #: Columns of its logs that are moments, in microseconds, though they are numbers.
    moments: frozenset[str] = frozenset()

    @property
    def late_schema(self) -> pa.Schema:
        """The columns of late tuples, where they are kept."""
        return self.ports[0].schema

    @property
    def late_time(self) -> str | None:
        """The column of late tuples that has their times, if it is one."""
        return self.ports[0].event_time

    @property
    def inputs(self) -> dict[str, FrameKind]:
        """The frames of its tuples, by what they are called: ``input``, and where there are several
        ports ``input:`` and the name of the port."""
        if len(self.ports) == 1:
            return {INPUT: FrameKind.INPUT}
        return {
            f"{INPUT}:{port.name}": FrameKind.of_port(place)
            for place, port in enumerate(self.ports)
        }

    @abstractmethod
    def trouble(self, footprints: pa.RecordBatch, batch: int) -> str:
        """What is wrong with the footprints of a batch, as far as that can be told without the
        functions; empty if nothing is."""

    @abstractmethod
    def shown(self, logged: pa.Table) -> pa.Table:
        """Logged results as readers see them."""

    @abstractmethod
    def shown_pieces(self, footprints: pa.Table) -> tuple[dict[str, pa.Array], pa.Table]:
        """Footprints as readers see them: the columns of results that say which piece each is of,
        and the columns of its state."""

    def check(self, segment: Segment) -> None:
        """Make sure that the frames of a segment are as described; raises `DamagedSegment`."""
        if segment.footer.identity.stream is Stream.INPUT:
            read_ports(segment, self.ports)
            read_tentative(segment, self.ports)
            return
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
        expected = self._columns().get(kind)
        if expected is None:
            return "is none of this operator's"
        return "" if same_columns(rows.schema, expected) else "has other columns than the log"

    def _columns(self) -> dict[FrameKind, pa.Schema]:
        """The columns of the kinds that have always the same ones."""
        orders = (FrameKind.ORDER, FrameKind.TENTATIVE_ORDER) if len(self.ports) > 1 else ()
        found = {
            FrameKind.RESULTS: self.results,
            FrameKind.TENTATIVE: self.results,
            FrameKind.LATE: self.late_schema,
            **dict.fromkeys(orders, ORDER_SCHEMA),
        }
        for place, port in enumerate(self.ports):
            found[FrameKind.of_port(place)] = port.schema
            found[FrameKind.tentative_of_port(place)] = port.schema
        return found
