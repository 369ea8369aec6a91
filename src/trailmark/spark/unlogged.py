"""Operators without a policy: no logs, nothing but their own work.

Their state is kept by the host from batch to batch, and is gone when the query stops, a task fails
in the middle of a batch, or a bucket moves to another host. Then it begins anew, and says so.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from trailmark.engine.state import layout_of
from trailmark.errors import SettingError
from trailmark.log import PortRows, monotonic_us, wall_clock_us
from trailmark.operators.protocol import AnyOperator, BatchInput
from trailmark.records import SegmentLink
from trailmark.recovery import NoHistory
from trailmark.spark.task import Plan, for_spark, position, take_rows
from trailmark.state.cache import CachedBucket, StateCache, Token, boot_id
from trailmark.state.memory import Memory

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
    batch, _ = position(plan)
    number, rows = take_rows(plan, batches)
    cache = StateCache(None if plan.cache_root is None else Path(plan.cache_root))
    layout, run = layout_of(plan.operator), f"unlogged-{plan.run_id}"

    def is_current(token: Token) -> bool:
        return token.layout == layout and token.output.batch == batch - 1

    if batch == 0:
        cache.sweep(wall_clock_us(), monotonic_us())  # nobody else removes what such queries leave
    cached, token, why = cache.acquire(run, number, is_current)
    if token is None and batch > 0:
        _log.warning(
            "bucket %d of tm.%s begins batch %d without state (%s): it has no policy",
            number,
            plan.name,
            batch,
            why,
        )
    memory = Memory() if cached is None else cached.memory(is_new=token is None)
    try:
        state = plan.operator.open(memory, NoHistory(), is_new=cached is None or token is None)
        if cached is not None:
            cached.begin_change()
        arranged = plan.operator.arrange(PortRows((rows,)))
        outcome = plan.operator.process(state, BatchInput.of(batch, arranged, None, None))
        results = plan.operator.publish(outcome.results)
        if cached is not None:
            link = SegmentLink(batch, 0)
            cached.end_change(Token(boot_id(), run, number, link, layout, memory.files()))
    finally:
        _close(memory, cached)
    yield from for_spark(plan, results)


def _close(memory: Memory, cached: CachedBucket | None) -> None:
    memory.close()
    if cached is not None:
        cached.close()
