"""Spark's own commit log, as far as a reader of an operator's logs asks it.

Spark writes ``<checkpoint>/commits/<batch>`` when a batch is through, before it tells anybody. So
the newest batch of an operator can be read as soon as that file is there, whether the query lives
on or its script has ended. Where the checkpoint is, the operator's tasks write into ``query.json``.

A checkpoint says whose it is in its file ``metadata``: the directory may have been used again.
"""

from __future__ import annotations

from trailmark.errors import TrailmarkError
from trailmark.log import (
    LocalStorage,
    MonotonicClock,
    OperatorMeta,
    Storage,
    json_text,
    monotonic_us,
    open_storage,
)

#: Which query writes the logs, and where Spark keeps its checkpoint.
QUERY = "query.json"
#: How soon what could not be read is tried again.
_LOOK_AGAIN_US = 1_000_000


def record_checkpoint(storage: Storage, query_id: str, checkpoint: str) -> None:
    """Writes down where the checkpoint of a query is, unless that is known."""
    body = {"checkpoint": checkpoint, "query_id": query_id}
    if recorded(storage) != body:
        storage.replace(QUERY, [json_text.dump_guarded(body, "checkpoint")])


class SparkCommits:
    """Tells whether Spark has committed the newest batch of an operator.

    Asked again and again for the same batch, it reads one small file a time, and none once the
    batch is committed.

    Attributes
    ----------
    problem
        Why it could not be told for the batch that was asked for last; empty if it could.
    """

    def __init__(
        self, storage: Storage, meta: OperatorMeta, now_us: MonotonicClock = monotonic_us
    ) -> None:
        self.problem = ""
        self._now_us = now_us
        self._looked_us = now_us()
        self._storage = storage
        self._query_id = meta.query_id
        self._batch: int | None = None
        self._is_committed = False
        self._checkpoint: Storage | None = None

    def has(self, batch: int) -> bool:
        """Whether a batch is known to be committed; if not, there may be a ``problem``."""
        if batch != self._batch or self._is_time_to_look_again():
            self._is_committed = False
            self._look_for_checkpoint()
            self._batch = batch
        if not self._is_committed and self._checkpoint is not None:
            self._is_committed = self._look_at(self._checkpoint, batch)
        return self._is_committed

    def _is_time_to_look_again(self) -> bool:
        """What could not be read may be readable again; a reader that follows asks all the time."""
        return bool(self.problem) and self._now_us() - self._looked_us >= _LOOK_AGAIN_US

    def _look_for_checkpoint(self) -> None:
        """With every batch anew: a query may go on with its checkpoint in another place."""
        self.problem, self._checkpoint = "", None
        self._looked_us = self._now_us()
        if self._query_id is None:
            return  # no query of Spark's
        found = recorded(self._storage)
        if found is None or found.get("query_id") != self._query_id:
            self.problem = "it is not known where its checkpoint is"
            return
        place = str(found.get("checkpoint"))
        try:
            checkpoint = open_checkpoint(place)
            owner = owner_of(checkpoint)
        except TrailmarkError as error:
            self.problem = f"its checkpoint {place} cannot be read ({error.what})"
            return
        if owner != self._query_id:
            is_gone = "is not there" if owner is None else "is that of another query"
            self.problem = f"its checkpoint {place} {is_gone}"
            return
        self._checkpoint = checkpoint

    def _look_at(self, checkpoint: Storage, batch: int) -> bool:
        try:
            # A file that a power failure has emptied commits nothing.
            is_there = bytes(checkpoint.read(f"commits/{batch}")).startswith(b"v")
            return is_there and owner_of(checkpoint) == self._query_id
        except FileNotFoundError:
            return False
        except TrailmarkError as error:
            self.problem, self._checkpoint = f"its checkpoint cannot be read ({error.what})", None
            return False


def recorded(storage: Storage) -> dict[str, object] | None:
    """Which query writes the logs and where its checkpoint is, as its tasks wrote it down."""
    try:
        return json_text.load_guarded(storage.read(QUERY))
    except FileNotFoundError:
        return None


def owner_of(checkpoint: Storage) -> str | None:
    """The query that a checkpoint is of; None if there is none."""
    try:
        found = json_text.load(checkpoint.read("metadata"))
    except FileNotFoundError:
        return None
    return None if found is None else str(found.get("id"))


def open_checkpoint(place: str) -> Storage:
    """The storage at a path as Hadoop spells it: its ``file:`` URLs are not escaped."""
    scheme, colon, rest = place.partition(":")
    if colon and scheme == "file":
        return LocalStorage("/" + rest.lstrip("/"))
    if scheme in ("s3a", "s3n"):
        return open_storage(f"s3:{rest}")
    return open_storage(place)
