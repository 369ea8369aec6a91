"""What the log, checkpointing and recovery need of an operator, and of its state.

An operator is a value: it knows columns, keys and functions, can be sent to a task, and keeps
nothing between batches. Its state lives in memory that it is given, and is all that differs from
one batch to the next. Any state fits that can be cut into *pieces* with an identity: windows of an
aggregate, keys of a join or of a user-defined operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.log import Order, PortRows
from trailmark.log.meta import LoggedPort
from trailmark.operators.identities import Identities
from trailmark.records import NO_BATCH
from trailmark.state.memory import Memory
from trailmark.state.table import Slots
from trailmark.values import dataclass


@dataclass(frozen=True, slots=True)
class Port:
    """An input of an operator.

    Parameters
    ----------
    name
        What it is called in descriptions and messages.
    schema
        The columns that are read from it, and so those of its part of the input log.
    event_time
        The column whose greatest value drives the watermark, if there is one.
    delay_us
        How far the watermark stays behind it.
    is_stream
        Whether tuples come with every batch; otherwise all that ever comes comes with the first.
    late_at_watermark
        Whether a tuple at the very time of the watermark is late, as in Spark. Of windows it is the
        end that counts.
    """

    name: str
    schema: pa.Schema
    event_time: str | None = None
    delay_us: int = 0
    is_stream: bool = True
    late_at_watermark: bool = True

    @property
    def logged(self) -> LoggedPort:
        """What its log says of it."""
        return LoggedPort(self.name, self.schema)


@dataclass(frozen=True, slots=True)
class BatchInput:
    """A batch as it reaches an operator.

    Windows that ended by ``late_before`` closed in an earlier batch; those that end by
    ``watermark`` close at the end of this one. Both are microseconds, None while no event time is
    known.
    ``footprint`` is the batch whose footprints the pieces opened now will have: this one, or
    NO_BATCH if none are written.
    ``lists_changed`` asks for all pieces that the batch has changed.
    ``rows`` are those of the first port, ``others`` those of further ones, in ``order``.
    ``now_us`` is the time of the batch, for operators that use the clock: it is logged, and the
    same in a replay.
    """

    batch: int
    rows: pa.RecordBatch
    late_before: int | None = None
    watermark: int | None = None
    footprint: int = NO_BATCH
    lists_changed: bool = False
    others: tuple[pa.RecordBatch, ...] = ()
    order: Order | None = None
    now_us: int | None = None

    @classmethod
    def of(
        cls,
        batch: int,
        rows: PortRows,
        late_before: int | None,
        watermark: int | None,
        now_us: int | None = None,
    ) -> BatchInput:
        """The batch with the rows of all ports."""
        first, *others = rows.tables
        return cls(
            batch,
            first,
            late_before,
            watermark,
            others=tuple(others),
            order=rows.order,
            now_us=now_us,
        )


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


class History(Protocol):
    """The input log of a bucket, as a state looks back into it."""

    def rows(self, batch: int) -> PortRows:
        """The rows of an earlier batch; raises a `LogError` if they cannot be read."""


class Pieces(Protocol):
    """What policies and the account see of a state: its pieces, ordered by the age of their
    footprints.

    A piece is named by its slot, which is its own for as long as it is open. A footprint is named
    by its batch, which is NO_BATCH for a piece that has none.
    """

    @property
    def open_windows(self) -> int:
        """How many pieces are open."""

    def oldest_footprint(self) -> int | None:
        """The oldest footprint of any piece; None if none is open."""

    def take_oldest(self, before: int, batch: int, most: int) -> Slots:
        """Gives up to ``most`` pieces with footprints older than ``before`` the footprint ``batch``
        and returns them, oldest first."""

    def list_oldest(
        self, most: int | None = None, *, before: int = ..., opened_before: int = ...
    ) -> Slots:
        """Pieces, oldest footprint first: those with footprints older than ``before`` that opened
        before ``opened_before``."""

    def renew(self, slots: Slots, batch: int) -> None:
        """Gives pieces the footprint ``batch``."""

    def footprints(self, slots: Slots) -> npt.NDArray[np.int64]:
        """The footprints of pieces."""

    def are_open(self, slots: Slots) -> npt.NDArray[np.bool_]:
        """Which slots hold a piece that is open."""

    def forget_footprints(self) -> None:
        """Marks every piece as having none."""


class State(Pieces, Protocol):
    """The state of one bucket, in the memory in which its operator has opened it."""

    @property
    def memory(self) -> Memory: ...

    def reserve_windows(self, count: int) -> None:
        """Makes room for so many more pieces at once."""


StateT = TypeVar("StateT", bound=State)


class Operator(Protocol[StateT]):
    """A stateful operator."""

    @property
    def ports(self) -> tuple[Port, ...]:
        """Its inputs."""

    @property
    def logged_schema(self) -> pa.Schema:
        """The columns of its results as they are logged."""

    @property
    def result_schema(self) -> pa.Schema:
        """The columns of its results as the engine gives them out."""

    @property
    def shown_schema(self) -> pa.Schema:
        """The columns of its results as Spark and readers of the log see them."""

    @property
    def late_schema(self) -> pa.Schema:
        """The columns of late tuples, where they are kept."""

    @property
    def identities(self) -> Identities:
        """What tells its pieces from one another."""

    @property
    def copied_together(self) -> Identities:
        """What tells apart the pieces that a fork takes over one by one: all pieces that are equal
        in it go together."""

    @property
    def rebuilds_from_openings(self) -> bool:
        """Whether the input since the oldest open piece opened is all that the open pieces are
        made of, whatever was open before."""

    @property
    def group_size(self) -> int | None:
        """How many tuples its pieces hold at most, if these are groups of tuples that only a state
        as a whole can be rebuilt from: `replay` is not for them. None if they are not."""

    @property
    def uses_clock(self) -> bool:
        """Whether it asks what time it is."""

    def next_alarm(self, state: StateT) -> int | None:
        """The time by the clock at which it wants a batch, whether rows come or not; None if it
        does not."""

    def describe(self) -> Mapping[str, Any]:
        """What must not change while a log is in use; ``operator`` names its kind."""

    def layout_key(self) -> Any:
        """Plain values that differ where the bytes of a state mean something else."""

    def arrange(self, rows: PortRows) -> PortRows:
        """The rows of a batch in the order in which they are to be taken, and logged."""

    def open(self, memory: Memory, history: History, *, is_new: bool = True) -> StateT:
        """A state in this memory: an empty one, or the one that was left there.

        It may refer to tuples of earlier batches instead of holding copies of them, and look them
        up in ``history``.
        """

    def looks_back(self, state: StateT) -> int | None:
        """The oldest batch to whose tuples a state refers; None if it refers to none. It never
        goes back: what refers to older tuples is no state that has followed from this one."""

    def process(self, state: StateT, given: BatchInput) -> Outcome:
        """Takes a batch in; opens, updates and closes pieces.

        A result closes the piece named by its identity columns, unless ``Outcome.closed`` lists
        the closed pieces itself.
        """

    def replay(self, state: StateT, given: BatchInput, where: str) -> None:
        """Brings pieces that are in the state up to this batch; nothing opens or closes."""

    def touched(self, state: StateT, given: BatchInput) -> Slots:
        """The pieces that a batch would change or close."""

    def publish(self, results: pa.RecordBatch) -> pa.RecordBatch:
        """Logged results as the engine gives them out: ``result_schema``."""

    def show(self, published: pa.RecordBatch) -> pa.RecordBatch:
        """Published results as Spark sees them: ``shown_schema``."""

    def footprints(self, state: StateT, slots: Slots, opened: int) -> pa.RecordBatch:
        """Footprints of pieces: of kind OPEN for the first ``opened``, CHECK for the others."""

    def content(self, state: StateT) -> pa.RecordBatch:
        """All that is in a state: equal for states that go on alike, however they came to be."""

    def widen(self, footprints: pa.RecordBatch, where: str) -> pa.RecordBatch:
        """Footprints with the full types of the state, however narrow they are logged."""

    def weigh(self, footprints: pa.RecordBatch) -> int:
        """How heavy footprints are: how many plain records of some 64 bytes, which is what windows
        with counters take, could be written or loaded in their time. No footprint is lighter than
        one. It is asked about all that are written, so it must not look at them one by one."""

    def trouble(self, footprints: pa.RecordBatch, batch: int) -> str:
        """What is wrong with the footprints that a batch has logged; empty if they can be
        loaded."""

    def load(self, state: StateT, footprints: pa.RecordBatch, where: str) -> None:
        """Puts pieces back from footprints without `trouble`, which come with the batch of each
        (FOOTPRINT), oldest first."""

    def settle(self, state: StateT, missed: int = 0) -> None:
        """All footprints that there are have been loaded. About so many tuples that came since are
        lost."""


#: Whoever runs an operator does not look into its state.
AnyOperator: TypeAlias = Operator[Any]
