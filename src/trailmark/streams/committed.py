"""How far the query of an operator has committed, for those who only have its files."""

from __future__ import annotations

import logging

from trailmark.engine.commits import newest_mark
from trailmark.engine.spark_commits import SparkCommits
from trailmark.inspection.logs import OperatorFiles
from trailmark.records import NO_BATCH, Stream
from trailmark.streams.view import Tail

_log = logging.getLogger("trailmark")


class CommittedBatches:
    """May be asked again and again; the normal answer costs a look for one file per bucket."""

    def __init__(self, files: OperatorFiles) -> None:
        self._files = files
        self._outputs = [Tail(files.log(Stream.OUTPUT, bucket)) for bucket in files.buckets]
        self._commits = SparkCommits(files.storage, files.meta)
        self._has_warned = False

    def end(self) -> int:
        """The batch after the last committed one."""
        # A query begins a batch when the one before is committed: only the newest is in doubt.
        ends = {tail.newest() for tail in self._outputs}
        newest = max(ends)
        is_whole = len(ends) == 1 and newest != NO_BATCH
        if is_whole and self._commits.has(newest):
            return newest + 1
        is_marked = newest_mark(self._files.storage) + 1
        if is_whole and is_marked <= newest:
            self._warn_of(newest)
        return max(is_marked, newest, self._files.meta.first_batch)

    def _warn_of(self, batch: int) -> None:
        """Says, once, that a batch is left out because nobody knows whether it is committed."""
        if self._commits.problem and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "batch %d of query %s is left out, though it may be committed: %s",
                batch,
                self._files.meta.query_id,
                self._commits.problem,
            )
