"""An operator that takes its input slice by slice, so that its results depend on the rows alone.

How a stream is cut into batches depends on when its rows came, and so would the order of results,
as well as what users' code sees at once. A union releases whole slices of time. Taken one by one,
each with the end of the slice as its watermark, they lead to the same results in the same order
however many of them a batch has: on every replica of a query, number by number.

Nothing happens in most slices that have no rows. Those in which something is due are found by
asking the operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.kernel.columns import arrow_fixed, contiguous
from trailmark.kernel.fingerprints import row_digests
from trailmark.log import PortRows
from trailmark.operators.order import in_order, is_orderable, sorted_places
from trailmark.operators.protocol import AnyOperator, BatchInput, Operator, Outcome, StateT
from trailmark.records import START
from trailmark.state.table import Slots
from trailmark.windows.spec import event_times

#: Of descriptions: how long a slice is, and the column that says which one a row is of.
SLICE_US, SLICE_TIME = "slice_us", "slice_time"
_NONE = np.empty(0, dtype=np.int64)


class Sliceable(Operator[StateT], Protocol[StateT]):
    """An operator of one stream that can say when it next has something to do."""

    def next_due(self, state: StateT) -> int | None:
        """The first watermark at which something happens though no rows come, or one before it;
        None if nothing ever does."""


class InSlices:
    """Implements ``Operator``; all that is not here is the operator's own.

    Parameters
    ----------
    operator
        What computes.
    time
        The column of its input that a union has put in order.
    slice_us
        How long a slice is.
    """

    def __init__(self, operator: Sliceable[Any], time: str, slice_us: int) -> None:
        self._operator = operator
        self._time = time
        self._slice_us = slice_us
        #: Rows at the very watermark are late to some operators: these are told a moment less.
        self._inside_us = int(operator.ports[0].late_at_watermark)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # before there is an operator: while it is unpickled
            raise AttributeError(name)
        return getattr(self._operator, name)

    def describe(self) -> Mapping[str, Any]:
        return {**self._operator.describe(), SLICE_US: self._slice_us, SLICE_TIME: self._time}

    def arrange(self, rows: PortRows) -> PortRows:
        """By time; within a slice as the operator wants them."""
        first, *others = rows.tables
        arranged = self._operator.arrange(PortRows((in_order(first, [self._time]), *others)))
        first, *others = arranged.tables
        ends = self._ends(first)
        if (ends[1:] < ends[:-1]).any():
            first = first.take(arrow_fixed(np.argsort(ends, kind="stable"), pa.int64()))
        return PortRows((first, *others), rows.order)

    def process(self, state: Any, given: BatchInput) -> Outcome:
        parts = self._parts(state, given)
        return self._together(state, [self._operator.process(state, part) for part in parts])

    def replay(self, state: Any, given: BatchInput, where: str) -> None:
        for part in self._parts(state, given):
            self._operator.replay(state, part, where)

    def _parts(self, state: Any, given: BatchInput) -> Iterator[BatchInput]:
        """The slices in which there is anything to do. The next one is asked for when the state has
        taken the one before."""
        walk = _Walk(given)
        ends = self._ends(given.rows)
        firsts = np.flatnonzero(np.diff(ends, prepend=ends[:1] - 1)).tolist()
        for first, last in pairwise([*firsts, len(ends)]):
            end_us = int(ends[first])
            yield from self._due(state, walk, end_us - self._slice_us)
            yield walk.to(end_us - self._inside_us, given.rows.slice(first, last - first))
        if given.watermark is not None:
            yield from self._due(state, walk, given.watermark + self._inside_us)
        if any(each.num_rows for each in walk.others):  # what keys begin with, and no row yet
            yield walk.to(None, given.rows.slice(0, 0))

    def _due(self, state: Any, walk: _Walk, end_us: int) -> Iterator[BatchInput]:
        """The slices without rows, up to one that ends then, in which something is due."""
        before: int | None = None
        while True:
            due = self._operator.next_due(state)
            if due is None or due == before or due + self._inside_us > end_us:
                return
            reached = walk.reached
            at = due if reached is None else max(due, reached + 1)
            end = min(_end_of_slice(at + self._inside_us - 1, self._slice_us), end_us)
            if reached is not None and end - self._inside_us <= reached:
                return
            before = due
            yield walk.to(end - self._inside_us, walk.no_rows)

    def _ends(self, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """Where the slice of each row ends."""
        times = event_times(rows.column(self._time))
        return (times // self._slice_us + 1) * self._slice_us

    def _together(self, state: Any, outcomes: Sequence[Outcome]) -> Outcome:
        """What the slices have done, all in all."""
        schema = self._operator.logged_schema
        closed = [each.closed for each in outcomes if each.closed is not None]
        late = [each.late for each in outcomes if each.late is not None]
        return Outcome(
            _joined([_settled(each.results) for each in outcomes], schema),
            _still_open(state, [each.opened for each in outcomes]),
            _still_open(state, [each.changed for each in outcomes]),
            closed=_joined(closed, closed[0].schema) if closed else None,
            late=_joined(late, late[0].schema) if late else None,
            late_rows=sum(each.late_rows for each in outcomes),
            late_updates=sum(each.late_updates for each in outcomes),
            null_times=sum(each.null_times for each in outcomes),
        )


def in_slices(operator: Sliceable[Any], time: str, slice_us: int) -> AnyOperator:
    """The operator, taking its input slice by slice."""
    return cast(AnyOperator, InSlices(operator, time, slice_us))


def is_in_slices(described: Mapping[str, Any]) -> bool:
    """Whether an operator that is described so takes its input slice by slice."""
    return SLICE_US in described


class _Walk:
    """How far a batch has come.

    Attributes
    ----------
    reached
        The watermark of the slice before; None before the first.
    others
        Rows of further ports that no slice has got yet: the first one gets them.
    no_rows
        A slice without rows.
    """

    def __init__(self, given: BatchInput) -> None:
        self._given = given
        self.reached = given.late_before
        self.others = given.others
        self.no_rows = given.rows.slice(0, 0)

    def to(self, watermark: int | None, rows: pa.RecordBatch) -> BatchInput:
        """The next slice, at the end of which the watermark is this."""
        others, self.others = self.others, tuple(each.slice(0, 0) for each in self.others)
        before, most = self.reached, self._given.watermark
        if watermark is not None and most is not None:
            self.reached = min(most, watermark if before is None else max(watermark, before))
        return replace(
            self._given, rows=rows, others=others, late_before=before, watermark=self.reached
        )


def _end_of_slice(time_us: int, slice_us: int) -> int:
    return (time_us // slice_us + 1) * slice_us


def _settled(results: pa.RecordBatch) -> pa.RecordBatch:
    """Results of a slice in an order of their own: by the start of windows, then by their columns
    from the left. In which order an operator finds pieces depends on how its state came to be."""
    if results.num_rows < 2:
        return results
    names = [name for name in results.schema.names if is_orderable(results.schema.field(name).type)]
    if START in names:
        names.insert(0, names.pop(names.index(START)))
    keys = [results.column(name) for name in names]
    # What cannot be ordered, and numbers that are equal and not the same (zeros with signs).
    keys.append(arrow_fixed(row_digests(results).view(np.int64), pa.int64()))
    return results.take(sorted_places(keys))


def _joined(parts: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    return contiguous(pa.Table.from_batches(parts, schema))


def _still_open(state: Any, parts: Sequence[Slots]) -> Slots:
    """Those of the pieces that are open at the end, each once: a slot may have had several."""
    slots = np.unique(np.concatenate([_NONE, *parts]))
    return slots[state.are_open(slots)] if len(slots) else _NONE
