"""What the log, checkpointing and recovery need of an operator.

Any state fits that can be cut into pieces with an identity: windows of an aggregate, groups of a
join's window, keys of a user-defined operator. Pieces live in a :class:`StateTable`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import pyarrow as pa

from trailmark.operators.identities import Identities
from trailmark.records import NO_BATCH
from trailmark.state.table import Slots, StateTable, TableLayout
from trailmark.values import dataclass


@dataclass(frozen=True, slots=True)
class BatchInput:
    """A batch as it reaches an operator.

    Windows that ended by ``late_before`` closed in an earlier batch; those that end by
    ``watermark`` close at the end of this one. Both are microseconds, None while no event time is
    known.
    ``footprint`` is the batch whose footprints the pieces opened now will have: this one, or
    NO_BATCH if none are written.
    ``lists_changed`` asks for all pieces that the batch has changed.
    """

    batch: int
    rows: pa.RecordBatch
    late_before: int | None = None
    watermark: int | None = None
    footprint: int = NO_BATCH
    lists_changed: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a batch did: its results, the pieces it opened and left open, those it changed and left
    open if that was asked for, those it closed, and what it left out."""

    results: pa.RecordBatch
    opened: Slots
    changed: Slots
    closed: pa.RecordBatch | None = None
    late: pa.RecordBatch | None = None
    late_rows: int = 0
    late_updates: int = 0
    null_times: int = 0


class Operator(Protocol):
    """A stateful operator over one input."""

    @property
    def input_schema(self) -> pa.Schema:
        """The columns it reads, and so the columns of the input log."""

    @property
    def logged_schema(self) -> pa.Schema:
        """The columns of its results as they are logged."""

    @property
    def result_schema(self) -> pa.Schema:
        """The columns of its results as users see them."""

    @property
    def layout(self) -> TableLayout: ...

    @property
    def event_time(self) -> str | None:
        """The column whose greatest value drives the watermark."""

    @property
    def delay(self) -> int: ...

    @property
    def identities(self) -> Identities:
        """What tells its pieces from one another."""

    @property
    def rebuilds_from_openings(self) -> bool:
        """Whether the input since the oldest open piece opened is all that the open pieces are
        made of, whatever was open before."""

    def describe(self) -> Mapping[str, Any]:
        """What must not change while a log is in use."""

    def arrange(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch in the order in which they are to be taken, and logged."""

    def process(self, table: StateTable, given: BatchInput) -> Outcome:
        """Takes a batch in; opens, updates and closes pieces.

        A result closes the piece named by its identity columns, unless ``Outcome.closed`` lists
        the closed pieces itself.
        """

    def replay(self, table: StateTable, given: BatchInput, where: str) -> None:
        """Brings pieces that are in the table up to this batch; nothing opens or closes."""

    def publish(self, results: pa.RecordBatch) -> pa.RecordBatch:
        """Logged results as users see them: ``result_schema``."""

    def snapshot(self, table: StateTable, slots: Slots, opened: int) -> pa.RecordBatch:
        """Footprints of pieces: of kind OPEN for the first ``opened``, CHECK for the others."""

    def widen(self, footprints: pa.RecordBatch, where: str) -> pa.RecordBatch:
        """Logged footprints with the full types of the state."""

    def trouble(self, footprints: pa.RecordBatch, batch: int) -> str:
        """What is wrong with the footprints that a batch has logged; empty if they can be
        loaded."""

    def load(self, table: StateTable, footprints: pa.RecordBatch, where: str) -> None:
        """Puts pieces back from footprints without `trouble`, which come with the batch of each
        (FOOTPRINT), oldest first."""
