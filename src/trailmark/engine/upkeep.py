"""Keeping the logs of a bucket short, beside its batches.

To remove a file can take as long as to write it, and a merge reads all that it merges. No batch has
to wait for that: what nobody needs any more hurts nobody while it is still there. Only when the
next removal is due has the one before to be done, or files would pile up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from typing import Any

from trailmark.checkpoint.account import Account
from trailmark.engine.logs import OperatorLogs
from trailmark.log import RepeatedTrim, StreamLog, TrimReport
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
    """

    def __init__(
        self,
        logs: OperatorLogs,
        inputs: StreamLog,
        output: StreamLog,
        snapshots: StreamLog,
        retain_batches: int | None,
        beside: Executor | None = None,
    ) -> None:
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
        """Begins what is due after a batch; raises what went wrong with what was due before."""
        retained = self._retain_batches
        try:
            if batch % _TRIM_EVERY == _TRIM_EVERY - 1:
                acknowledged = None if retained is None else batch + 1 - retained
                self._follow("trim", self._trim_on, account, batch, acknowledged)
        finally:
            if retained is None and batch % _MERGE_EVERY == _MERGE_EVERY - 1:
                up_to, smallest_run = account.keep_output_from - 1, _MERGE_EVERY // 4
                self._follow("merge", self._output.merge, up_to, smallest_run=smallest_run)

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
        self._settle_extent(account.keep_output_from, batch)
        # From the batch before, other buckets may have to find the watermark of this one.
        before = min(account.keep_from, batch - 1)
        yield self._inputs, up_to_readers(storage, Stream.INPUT, before)
        yield self._snapshots, account.keep_output_from
        if acknowledged is not None:
            before = min(acknowledged, account.keep_output_from, batch)
            yield self._output, up_to_readers(storage, Stream.OUTPUT, before)

    def wait(self) -> None:
        """Waits for what is under way; raises what went wrong."""
        under_way, self._under_way = self._under_way, {}
        wait(under_way.values())
        failures = [error for work in under_way.values() if (error := work.exception()) is not None]
        for error in failures[1:]:
            _log.warning("this went wrong, too: %s", error)
        if failures:
            raise failures[0]

    def close(self) -> None:
        """`wait`, and let the threads go."""
        try:
            self.wait()
        finally:
            if self._own is not None:
                self._own.shutdown()
                self._own = None

    def _follow(self, what: str, work: Callable[..., object], *given: Any, **named: Any) -> None:
        """Begins a work of its kind, once the one before is done."""
        before = self._under_way.pop(what, None)
        if before is not None:
            before.result()
        self._under_way[what] = self._executor().submit(work, *given, **named)

    def _executor(self) -> Executor:
        if self._beside is not None:
            return self._beside
        if self._own is None:
            # One to trim, one to merge: these work on different logs.
            self._own = ThreadPoolExecutor(2, f"upkeep-{self._output.directory}")
        return self._own

    def _settle_extent(self, oldest: int, newest: int) -> None:
        """What is trimmed stays away after a power failure; so must the output that replaces it."""
        if self._output.settings.durability is Durability.SYNCED:
            return
        for batch in range(max(oldest, self._settled), newest + 1):
            self._output.settle(batch)
        self._settled = newest + 1
