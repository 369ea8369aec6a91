"""The logs of one operator: all buckets of its input and output, and what they have in common."""

from __future__ import annotations

from trailmark.engine.tentative import Told
from trailmark.engine.watermark import Watermark, Watermarks
from trailmark.log import (
    Clock,
    OperatorMeta,
    Storage,
    StreamLog,
    create_or_open,
    wall_clock_us,
)
from trailmark.operators.protocol import AnyOperator
from trailmark.records import Stream
from trailmark.settings import LogSettings

_TICKS = "ticks"


def describe_logs(
    operator: AnyOperator,
    buckets: int,
    query_id: str | None = None,
    first_batch: int = 0,
    *,
    ticks: bool = False,
) -> OperatorMeta:
    """What the logs of an operator say about themselves when they are created now."""
    return OperatorMeta(
        operator={**operator.describe(), **({_TICKS: True} if ticks else {})},
        ports=tuple(port.logged for port in operator.ports),
        result_schema=operator.result_schema,
        buckets=buckets,
        query_id=query_id,
        first_batch=first_batch,
    )


def has_ticks(meta: OperatorMeta) -> bool:
    """Whether the query that writes these logs also runs batches because a window may close."""
    return meta.operator.get(_TICKS) is True


class OperatorLogs:
    """Opens the logs below a storage, or creates them for an operator.

    Parameters
    ----------
    storage
        Where the logs live.
    operator
        What they are written by; other keys, windows or functions than before are refused.
    buckets
        How many parts the operator's state has; fixed when the logs are created.
    query_id
        Which query writes them; None opens the logs of any.
    first_batch
        Where the logs begin if they are created now.
    ticks
        Whether the query has a source of ticks; like its other sources, that stays as it began.
    told
        Says up to which time inputs are complete, and what of them is tentative, where that is
        known from elsewhere.
    """

    def __init__(
        self,
        storage: Storage,
        operator: AnyOperator,
        *,
        buckets: int,
        query_id: str | None = None,
        first_batch: int = 0,
        ticks: bool = False,
        settings: LogSettings | None = None,
        clock: Clock = wall_clock_us,
        told: Told | None = None,
    ) -> None:
        expected = describe_logs(operator, buckets, query_id, first_batch, ticks=ticks)
        self.storage = storage
        self.meta = create_or_open(storage, expected)
        self._settings = settings
        self.clock = clock
        self._watermarks: Watermarks | None = None
        if told is not None or any(port.event_time is not None for port in operator.ports):
            inputs = [self.input(bucket) for bucket in range(buckets)]
            self._watermarks = Watermarks(storage, inputs, operator.ports, self.first_batch, told)

    @property
    def log_id(self) -> str:
        return str(self.meta.log_id)

    @property
    def first_batch(self) -> int:
        return self.meta.first_batch

    def input(self, bucket: int) -> StreamLog:
        return self._log(Stream.INPUT, bucket)

    def output(self, bucket: int) -> StreamLog:
        return self._log(Stream.OUTPUT, bucket)

    def snapshots(self, bucket: int) -> StreamLog:
        return self._log(Stream.SNAPSHOT, bucket)

    def _log(self, stream: Stream, bucket: int) -> StreamLog:
        return StreamLog(self.storage, stream, self.meta.log_id, bucket, self._settings, self.clock)

    def watermark(self, batch: int) -> Watermark:
        """The watermark all buckets use in a batch; none without event time."""
        return Watermark() if self._watermarks is None else self._watermarks.of(batch)
