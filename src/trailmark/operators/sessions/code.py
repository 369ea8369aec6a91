"""What is called with the rows of every batch, and when sessions end: the code of a keyed operator.

All keys of a batch at once: its tuples are cut into sessions together with what was open, the
states of the functions are carried over, and the tuples folded in, in the order of the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.kernel.columns import arrow_fixed, contiguous
from trailmark.operators.keyed.given import KeyedState, Keys
from trailmark.operators.sessions.carried import Heap, carry, in_heap
from trailmark.operators.sessions.columns import OpenSessions, SessionColumns
from trailmark.operators.sessions.cut import Cut, Spans, cut
from trailmark.windows.bound import Array, Assignment, BatchColumns, BoundFunction
from trailmark.windows.session import SessionWindow
from trailmark.windows.spec import event_times


class SessionCode:
    """Sessions as a user of a keyed operator would write them, had he the functions.

    Parameters
    ----------
    window
        Where sessions end.
    functions
        What is computed over them.
    fresh
        The state of a session without tuples.
    inputs, results
        The columns of the input, and of the results: the keys, both bounds, the values.
    moment
        The type of the bounds.
    """

    def __init__(
        self,
        window: SessionWindow,
        functions: Sequence[BoundFunction],
        fresh: Array,
        inputs: pa.Schema,
        results: pa.Schema,
        moment: pa.DataType,
    ) -> None:
        self._window = window
        self._functions = functions
        self._fresh = fresh
        self._results = results
        self._moment = moment
        self._no_rows = contiguous(inputs.empty_table())
        self.columns = SessionColumns(functions, fresh.dtype, moment)
        self.state = self.columns.kinds

    def process(self, keys: Keys, rows: pa.RecordBatch, state: KeyedState) -> None:
        before = self.columns.read(state)
        times = event_times(rows.column(self._window.column))
        known = before.spans
        found = cut(
            Spans(
                np.concatenate([known.owner, keys.of_rows]),
                np.concatenate([known.start, times]),
                np.concatenate([known.end, times + self._window.gap]),
            )
        )
        self._leave(state, self._folded(before, found, rows))

    def on_event_timer(
        self, keys: Keys, due: npt.NDArray[np.datetime64], state: KeyedState
    ) -> pa.RecordBatch:
        before = self.columns.read(state)
        ended = np.ones(len(before.spans), dtype=np.bool_)
        if not np.isnat(state.watermark):  # it is at the end of all rows, which ends all sessions
            ended = before.spans.end <= state.watermark.astype(np.int64)
        self._leave(state, self.columns.taken(before, np.flatnonzero(~ended)))
        return self._result_rows(keys, self.columns.taken(before, np.flatnonzero(ended)))

    def _folded(self, before: OpenSessions, found: Cut, rows: pa.RecordBatch) -> OpenSessions:
        """The sessions after the batch."""
        old = len(before.spans)
        into, of_rows = found.of_spans[:old], found.of_spans[old:]
        states = np.repeat(self._fresh, len(found.sessions))
        is_prior = np.zeros(len(states), dtype=np.bool_)
        is_prior[into] = True
        columns = BatchColumns(rows)
        assigned = Assignment(None, of_rows.astype(np.int32))
        held: dict[str, Mapping[str, pa.Array]] = {}
        for function in self._functions:
            heap = carry(function, states, before, into)
            fold = function.begin()
            fold.add(states, columns, assigned, heap.address)
            fold.finish(states, is_prior, columns, heap.address)
            source = function.source(columns, heap.address)
            if source is not None:
                held[function.name] = function.read_held(states, source)
        return OpenSessions(found.sessions, states, held)

    def _leave(self, state: KeyedState, sessions: OpenSessions) -> None:
        """Leaves keys with these sessions, and wants to be called when the first of them ends."""
        self.columns.write(state, sessions)
        never = np.iinfo(np.int64).max
        first = np.full(len(state), never, dtype=np.int64)
        np.minimum.at(first, sessions.spans.owner, sessions.spans.end)
        is_empty = first == never
        state.event_timer[~is_empty] = first[~is_empty].view("<M8[us]")
        state.event_timer[is_empty] = np.datetime64("NaT", "us")
        state.remove(is_empty)

    def _result_rows(self, keys: Keys, ended: OpenSessions) -> pa.RecordBatch:
        spans, columns = ended.spans, BatchColumns(self._no_rows)
        owners = pa.array(spans.owner)
        arrays = [column.take(owners) for column in keys.columns.columns]
        arrays += [arrow_fixed(each, self._moment) for each in (spans.start, spans.end)]
        for function in self._functions:
            heap = Heap()
            if function.name in ended.held:
                blocks = function.hold(ended.states, ended.held[function.name])
                heap = in_heap(function, ended.states, blocks)
            arrays.append(function.result(ended.states, columns, heap.address))
        return pa.RecordBatch.from_arrays(arrays, schema=self._results)
