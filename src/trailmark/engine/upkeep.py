"""Keeping the logs of a bucket short, beside its batches.

To remove a file can take as long as to write it, and a merge reads all that it merges. No batch has
to wait for that: what nobody needs any more hurts nobody while it is still there. Only when the
next removal is due has the one before to be done, or files would pile up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from functools import partial

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
        due: dict[str, Callable[[], object]] = {}
        if batch % _TRIM_EVERY == _TRIM_EVERY - 1:
            acknowledged = None if retained is None else batch + 1 - retained
            due["trim"] = partial(self._trim_on, account, batch, acknowledged)
        if retained is None and batch % _MERGE_EVERY == _MERGE_EVERY - 1:
            up_to, smallest_run = account.keep_output_from - 1, _MERGE_EVERY // 4
            due["merge"] = partial(self._output.merge, up_to, smallest_run=smallest_run)
        over = [what for what, work in self._under_way.items() if what in due or work.done()]
        try:
            self._wait_for(over)
        finally:
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
        """Waits for what is under way; raises what went wrong."""
        self._wait_for(list(self._under_way))

    def _wait_for(self, which: Iterable[str]) -> None:
        works = [self._under_way.pop(what) for what in which]
        wait(works)
        failures = [error for work in works if (error := work.exception()) is not None]
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
