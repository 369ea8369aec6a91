"""Operators without a policy: no logs, nothing but their own work.

Their state is kept by the host from batch to batch, and is gone when the query stops, a task fails
in the middle of a batch, or a bucket moves to another host. Then it begins anew, and says so. The
results of the newest batch are kept beside it: a batch that is evaluated again, as by every action
in ``foreachBatch``, is answered with them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa

from trailmark.engine.state import layout_of
from trailmark.errors import CacheFull, SettingError
from trailmark.kernel.columns import contiguous
from trailmark.log import PortRows, monotonic_us, wall_clock_us
from trailmark.operators.protocol import AnyOperator, BatchInput
from trailmark.operators.whole import Whole
from trailmark.records import SegmentLink
from trailmark.recovery import NoHistory
from trailmark.spark.task import Plan, for_spark, position, take_rows
from trailmark.state.cache import UNLOGGED, CachedBucket, StateCache, Token, boot_id
from trailmark.state.memory import PAGE, Memory

_log = logging.getLogger("trailmark")


def check_unlogged(operator: AnyOperator) -> None:
    """Refuses operators that cannot do without logs."""
    has_time = any(port.event_time is not None for port in operator.ports)
    if has_time or operator.uses_clock or len(operator.ports) > 1:
        raise SettingError(
            "Event time, timers, times to live and initial states need logs: the watermark of a "
            "batch and its time are kept there.",
            where="checkpoint=None",
            fix="Give a policy, such as checkpoint=tm.Periodic('10 seconds').",
        )


def run_unlogged(plan: Plan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The results of a bucket's rows of one micro-batch."""
    batch, query_id = position(plan)
    number, rows, _ = take_rows(plan, batches)
    if isinstance(plan.operator, Whole) and not plan.operator.has_state:
        results = _process(plan.operator, Memory(), batch, rows, is_new=True)
    else:
        # One DataFrame may be in several queries.
        run = f"{UNLOGGED}{plan.run_id}-{query_id}"
        results = _with_state(plan, run, number, batch, rows)
    yield from for_spark(plan, results)


def _with_state(plan: Plan, run: str, number: int, batch: int, rows: PortRows) -> pa.RecordBatch:
    """The results of a batch, with the state that the one before has left on this host."""
    cache = StateCache(None if plan.cache_root is None else Path(plan.cache_root))
    layout = layout_of(plan.operator)

    def is_current(token: Token) -> bool:
        return token.layout == layout and token.output.batch in (batch - 1, batch)

    cached, token, why = cache.acquire(run, number, is_current)
    memory = Memory() if cached is None else cached.memory(is_new=token is None)
    try:
        if token is not None and token.output.batch == batch:
            answer = _Answer(memory).read(plan.operator.result_schema)
            if answer is not None:
                return answer
            why, token = "it was evaluated before, and its results had no room in the cache", None
        if token is None:
            _say_lost(plan, number, batch, why, cache)
        if cached is not None:
            cached.begin_change()
        results = _process(plan.operator, memory, batch, rows, is_new=token is None)
        if cached is not None:
            _Answer(memory).write(results)
            link = SegmentLink(batch, 0)
            cached.end_change(Token(boot_id(), run, number, link, layout, memory.files()))
        return results
    finally:
        _close(memory, cached)


def _process(
    operator: AnyOperator, memory: Memory, batch: int, rows: PortRows, *, is_new: bool
) -> pa.RecordBatch:
    state = operator.open(memory, NoHistory(), is_new=is_new)
    outcome = operator.process(state, BatchInput.of(batch, operator.arrange(rows), None, None))
    return operator.publish(outcome.results)


class _Answer:
    """The results of the newest batch, beside the state after it."""

    def __init__(self, memory: Memory) -> None:
        self._region = memory.region("answer", PAGE)

    def write(self, results: pa.RecordBatch) -> None:
        """Keeps results, where there is room for them."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, results.schema) as stream:
            stream.write_batch(results)
        data = np.frombuffer(sink.getvalue(), dtype=np.uint8)
        self._set_length(0)
        with suppress(CacheFull):
            self._region.grow(8 + len(data))
            self._region.bytes[8 : 8 + len(data)] = data
            self._set_length(len(data))

    def read(self, schema: pa.Schema) -> pa.RecordBatch | None:
        """The results that were kept; None if there are none."""
        length = int(self._region.view("<i8", 1)[0])
        if not length:
            return None
        with pa.ipc.open_stream(self._region.bytes[8 : 8 + length].tobytes()) as stream:
            return contiguous(stream.read_all().cast(schema))

    def _set_length(self, length: int) -> None:
        self._region.view("<i8", 1)[0] = length


def _say_lost(plan: Plan, number: int, batch: int, why: str, cache: StateCache) -> None:
    """A bucket begins without the state of the batch before, if there was one."""
    cache.sweep(wall_clock_us(), monotonic_us())
    if batch > 0:
        _log.warning(
            "bucket %d of tm.%s begins batch %d without state (%s): it has no policy",
            number,
            plan.name,
            batch,
            why,
        )


def _close(memory: Memory, cached: CachedBucket | None) -> None:
    memory.close()
    if cached is not None:
        cached.close()
