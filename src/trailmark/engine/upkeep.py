"""Keeping the logs of a bucket short, beside its batches.

To remove a file can take as long as to write it, and a merge reads all that it merges. No batch has
to wait for that: what nobody needs any more hurts nobody while it is still there. Only when the
next removal is due has the one before to be done, or files would pile up.

Nor does a batch fail for it: it is committed by then, and the next upkeep tries again. What goes
wrong is a warning, now and then for as long as it goes wrong.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from functools import partial

from trailmark.checkpoint.account import Account
from trailmark.engine.logs import OperatorLogs
from trailmark.errors import TrailmarkError
from trailmark.log import MonotonicClock, RepeatedTrim, StreamLog, TrimReport, monotonic_us
from trailmark.records import Stream
from trailmark.settings import Durability

_log = logging.getLogger("trailmark")

#: Logs are trimmed and merged after every so many batches: listing them must not cost anything in
#: the others.
_TRIM_EVERY = 16
_MERGE_EVERY = 256
#: Files of a log that are removed at once. After a round of footprints the input of hundreds of
#: batches is not needed any more, and no batch is to wait for all of that.
_MOST_REMOVED = 2 * _TRIM_EVERY

#: The same warning does not come more often than this.
_WARN_EVERY_US = 10 * 60 * 1_000_000
#: When a process has last warned of something, by log and text: each batch may have a new bucket.
_warned_us: dict[tuple[str, str], float] = {}


class BucketUpkeep:
    """Removes and merges the files of one bucket's logs.

    Parameters
    ----------
    logs
        The operator's logs, for who reads them.
    inputs, output, snapshots
        Those of the bucket.
    retain_batches
        Output that no recovery needs is removed when it is so many batches old; None keeps all of
        it, merged into large files.
    beside
        Who does the work; None starts a thread for it.
    now_us
        A clock that never goes back, for how often to warn.
    """

    def __init__(
        self,
        logs: OperatorLogs,
        inputs: StreamLog,
        output: StreamLog,
        snapshots: StreamLog,
        retain_batches: int | None,
        beside: Executor | None = None,
        now_us: MonotonicClock = monotonic_us,
    ) -> None:
        self._now_us = now_us
        self._logs = logs
        self._inputs = inputs
        self._output = output
        self._snapshots = snapshots
        self._retain_batches = retain_batches
        self._beside = beside
        self._own: ThreadPoolExecutor | None = None
        self._under_way: dict[str, Future[object]] = {}
        # Snapshots are few and large: to keep spares of them would cost more than it saves.
        self._repeated = {log.directory: RepeatedTrim(log.reader) for log in (inputs, output)}
        self._settled = logs.first_batch

    def begin(self, account: Account, batch: int) -> None:
        """Begins what is due after a batch; warns of what went wrong with what was due before."""
        retained = self._retain_batches
        due: dict[str, Callable[[], object]] = {}
        if batch % _TRIM_EVERY == _TRIM_EVERY - 1:
            acknowledged = None if retained is None else batch + 1 - retained
            due["trim"] = partial(self._trim_on, account, batch, acknowledged)
        if retained is None and batch % _MERGE_EVERY == _MERGE_EVERY - 1:
            up_to, smallest_run = account.keep_output_from - 1, _MERGE_EVERY // 4
            due["merge"] = partial(self._output.merge, up_to, smallest_run=smallest_run)
        over = [what for what, work in self._under_way.items() if what in due or work.done()]
        self._wait_for(over)
        for what, work in due.items():
            self._under_way[what] = self._executor().submit(work)

    def trim(
        self, account: Account, batch: int, acknowledged: int | None = None
    ) -> list[TrimReport]:
        """Removes what no recovery after a batch will ask for; output only if it lies before
        ``acknowledged``."""
        return [log.trim(before) for log, before in self._due(account, batch, acknowledged)]

    def _trim_on(self, account: Account, batch: int, acknowledged: int | None) -> None:
        for log, before in self._due(account, batch, acknowledged):
            repeated = self._repeated.get(log.directory)
            if repeated is None:
                log.trim(before, most=_MOST_REMOVED)
            else:
                repeated.trim(before, _MOST_REMOVED)

    def _due(
        self, account: Account, batch: int, acknowledged: int | None
    ) -> Iterator[tuple[StreamLog, int]]:
        """Up to where each log may be trimmed."""
        from trailmark.log.readers import up_to_readers  # a recovery does not wait for its import

        storage = self._logs.storage
        self._settle(account, batch)
        # From the batch before, other buckets may have to find the watermark of this one.
        before = min(account.keep_from, batch - 1)
        yield self._inputs, up_to_readers(storage, Stream.INPUT, before)
        yield self._snapshots, account.keep_output_from
        if acknowledged is not None:
            before = min(acknowledged, account.keep_output_from, batch)
            yield self._output, up_to_readers(storage, Stream.OUTPUT, before)

    def wait(self) -> None:
        """Waits for what is under way; warns of what went wrong."""
        self._wait_for(list(self._under_way))

    def _wait_for(self, which: Iterable[str]) -> None:
        works = [(what, self._under_way.pop(what)) for what in which]
        wait([work for _, work in works])
        for what, work in works:
            try:
                work.result()
            except TrailmarkError as error:
                self._warn(what, error)

    def _warn(self, what: str, error: TrailmarkError) -> None:
        # Where it went wrong differs from batch to batch.
        key = (self._logs.log_id, re.sub("[0-9]+", "", f"{what} {error.line}"))
        now, last = self._now_us(), _warned_us.get(key)
        if last is None or now - last >= _WARN_EVERY_US:
            _warned_us[key] = now
            _log.warning(
                "bucket %d could not %s its logs, which grow until it can: %s",
                self._output.identity.bucket,
                what,
                error.line,
            )

    def close(self) -> None:
        """`wait`, and let the threads go."""
        try:
            self.wait()
        finally:
            if self._own is not None:
                self._own.shutdown()
                self._own = None

    def _executor(self) -> Executor:
        if self._beside is not None:
            return self._beside
        if self._own is None:
            # One to trim, one to merge: these work on different logs.
            self._own = ThreadPoolExecutor(2, f"upkeep-{self._output.directory}")
        return self._own

    def _settle(self, account: Account, newest: int) -> None:
        """What is trimmed stays away after a power failure; so must all that is needed instead."""
        is_synced = self._output.settings.durability is Durability.SYNCED
        oldest = {self._inputs: account.keep_from, self._output: account.keep_output_from}
        if is_synced or max(oldest.values()) <= self._logs.first_batch:
            return  # or nothing can be trimmed
        for log, first in oldest.items():
            for batch in range(max(first, self._settled), newest + 1):
                log.settle(batch)
        self._settled = newest + 1
