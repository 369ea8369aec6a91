"""Keeps the table of a bucket ready on a host where its query may go on.

Its query runs elsewhere. A follower does again and again what a bucket does that comes back: it
brings the table of this host up to the newest batch, or recovers where there is none. It reads the
logs and changes the table, and nothing else. It holds the bucket only while it does that, and a
table that it was stopped at has no token.

Where the query runs on this very host, its tables are current, and there is nothing to do.
"""

from __future__ import annotations

import logging

from trailmark.checkpoint.account import Account
from trailmark.checkpoint.policy import NoCheckpoint, UpstreamBackup, marked_openings
from trailmark.engine.logs import OperatorLogs
from trailmark.engine.opening import StateKeeper
from trailmark.errors import CacheFull, CacheLost, LogError
from trailmark.log import MonotonicClock, Origin, monotonic_us
from trailmark.operators.protocol import AnyOperator
from trailmark.records import NO_BATCH, Loss
from trailmark.recovery import InputHistory
from trailmark.state.cache import StateCache

_log = logging.getLogger("trailmark")

#: After so many batches it tries again what it could not do.
_PATIENCE = 16


class Follower:
    """Follows one bucket.

    Parameters
    ----------
    operator
        What is computed, made again from its description.
    logs
        Where its logs are; they are only looked at.
    number
        Which bucket.
    cache
        Where the tables of this host are.
    now_us
        A clock that never goes back, in microseconds.
    """

    def __init__(
        self,
        operator: AnyOperator,
        logs: OperatorLogs,
        number: int,
        cache: StateCache,
        now_us: MonotonicClock = monotonic_us,
    ) -> None:
        self._operator = operator
        self._logs = logs
        self._number = number
        self._cache = cache
        self._now_us = now_us
        self._output = logs.output(number)
        #: The newest batch that a table of this host was known to be the state after.
        self.at = NO_BATCH
        self._next = NO_BATCH

    def step(self) -> int | None:
        """Does what there is to do; how many batches its table is behind now, None if there is no
        table."""
        newest = self._output.newest()
        if newest == NO_BATCH:
            return 0
        self.at = self._cache.newest_of(self._logs.log_id, self._number)
        if self.at < newest >= self._next:
            if self._is_prepared(newest):
                self.at = newest
            else:
                self._next = newest + _PATIENCE
        return None if self.at == NO_BATCH else newest - self.at

    def _is_prepared(self, batch: int) -> bool:
        try:
            return self._prepare(batch)
        except (LogError, CacheFull, CacheLost) as error:
            # Trimmed or damaged meanwhile, or no room: whoever takes over recovers.
            _log.debug("bucket %d is not followed: %s", self._number, error)
            return False

    def _prepare(self, batch: int) -> bool:
        footer, _ = self._output.read_footer(batch)
        account = Account.of(footer, Origin(self._output.reader.segment_path(batch)))
        if account.loss is Loss.BOUNDED:
            return False  # what a recovery would lose is for the query to say
        is_marked = marked_openings(footer.attributes.get("policy"))
        inputs = self._logs.input(self._number)
        keeper = StateKeeper(
            self._operator,
            self._logs,
            UpstreamBackup() if is_marked else NoCheckpoint(),
            inputs,
            InputHistory(inputs, self._operator.ports),
            self._output,
            self._logs.snapshots(self._number),
            self._cache,
            self._now_us,
        )
        return keeper.prepare(batch)
