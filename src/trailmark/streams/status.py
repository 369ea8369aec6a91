"""A picture of a written stream from its files alone, beside its writers and readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from trailmark.errors import LogError, MissingSegment
from trailmark.inspection.footers import NewestFooters
from trailmark.inspection.picture import LogFiles
from trailmark.inspection.read import LOOK_BACK, files_of
from trailmark.inspection.read_only import ReadOnly
from trailmark.inspection.readers import ReaderStatus, read_readers
from trailmark.log import Clock, Footer, Origin, Storage, StreamLog, TimeRange, wall_clock_us
from trailmark.log.index import read_times, stored_times
from trailmark.log.names import log_directory
from trailmark.records import NO_BATCH, Stream
from trailmark.streams.boundaries import Boundaries
from trailmark.streams.description import StreamDescription
from trailmark.streams.heartbeats import Heartbeat, newest_heartbeats
from trailmark.streams.manifest import Manifest, joined, read_manifest
from trailmark.streams.promises import promised
from trailmark.streams.stored import StreamFiles
from trailmark.values import dataclass

#: The oldest batch that was listed may be trimmed before it is read: look again so often.
_LOOKS = 5


@dataclass(frozen=True, slots=True)
class Amount:
    """How much batches hold; ``files`` is None where nobody has counted them."""

    batches: int
    rows: int
    bytes: int
    files: int | None = None

    @classmethod
    def of(cls, manifests: Sequence[Manifest]) -> Amount:
        """What batches hold together."""
        return cls(
            len(manifests),
            sum(manifest.rows for manifest in manifests),
            sum(manifest.bytes for manifest in manifests),
            sum(len(manifest.files) for manifest in manifests),
        )


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """A written stream.

    Attributes
    ----------
    looked_us
        When the picture was made.
    log_id, description
        As in ``meta.json``.
    manifests
        What the log of batches holds.
    data_files, data_bytes
        Data files, also those that no batch names (yet, or any more), and bytes in them.
    batch, written_us
        The batch that the figures are of, and when it was written. It is the newest whose manifest
        can be read: NO_BATCH if there is none.
    newest, recent
        That batch, and the newest ones together, as many as were looked at.
    held, total
        What is there now, and what was ever written; None if that is not known.
    times
        From the earliest to the latest event time of what is there; None if there is none.
    writers
        The last batch of every query that has written, in the query's own numbers.
    boundaries
        Up to which time the stream is complete, by its writers; None if nobody promises anything.
    heartbeats
        What each writer last said while it had no rows.
    readers
        Named readers.
    problem
        Why the newest manifest cannot be used; empty if it can.
    """

    looked_us: int
    log_id: str
    description: StreamDescription
    manifests: LogFiles
    data_files: int
    data_bytes: int
    batch: int = NO_BATCH
    written_us: int | None = None
    newest: Amount | None = None
    recent: Amount | None = None
    held: Amount | None = None
    total: Amount | None = None
    times: TimeRange | None = None
    writers: Mapping[str, int] | None = None
    boundaries: Boundaries | None = None
    heartbeats: Mapping[str, Heartbeat] | None = None
    readers: tuple[ReaderStatus, ...] = ()
    problem: str = ""

    @property
    def heartbeat_problems(self) -> list[str]:
        """What is wrong with heartbeats: nothing more is known of their writers."""
        found = (self.heartbeats or {}).values()
        return [f"{each.problem}; the next one replaces it" for each in found if each.problem]

    @property
    def is_sound(self) -> bool:
        """Whether the newest manifest and every reader can be read."""
        return not self.problem and not any(reader.problem for reader in self.readers)

    def describe(self) -> dict[str, Any]:
        """All of it as JSON."""
        stream = self.description
        times = self.times
        return {
            "looked_us": self.looked_us,
            "log_id": self.log_id,
            "operator": "stream",
            "keys": list(stream.keys),
            "buckets": stream.buckets,
            "time_column": stream.time_column,
            "columns": {field.name: str(field.type) for field in stream.schema},
            "oldest_batch": self.manifests.oldest,
            "last_batch": self.manifests.newest,
            "figures_of_batch": self.batch,
            "written_us": self.written_us,
            "newest": _amount(self.newest),
            "recent": _amount(self.recent),
            "held": _amount(self.held),
            "total": _amount(self.total),
            "time_range_us": None if times is None else [times.min_us, times.max_us],
            "writers": dict(self.writers or {}),
            "boundaries": None if self.boundaries is None else self.boundaries.to_json(),
            "heartbeats": {name: asdict(each) for name, each in (self.heartbeats or {}).items()},
            "readers": [reader.describe() for reader in self.readers],
            "manifests": asdict(self.manifests),
            "data": {"files": self.data_files, "bytes": self.data_bytes},
            "bytes": self.manifests.bytes + self.data_bytes,
            "problem": self.problem,
        }


def _amount(amount: Amount | None) -> dict[str, Any] | None:
    return None if amount is None else asdict(amount)


class StreamStatusReader:
    """Makes one picture after another; manifests that are known already are not read again."""

    def __init__(
        self, storage: Storage, *, look_back: int = LOOK_BACK, clock: Clock = wall_clock_us
    ) -> None:
        self._files = StreamFiles(ReadOnly(storage))
        self._clock = clock
        self._footers = NewestFooters(self._files.log, look_back)
        self._times = stored_times(self._files.log.reader)

    def read(self) -> StreamStatus:
        """The picture as of now."""
        catalog, footers, problem = self._footers.read()
        recent, broken = _manifests(self._files.log, footers)
        heartbeats = newest_heartbeats(self._files.storage)
        data = [
            entry
            for bucket in self._files.buckets
            for entry in self._files.storage.list(log_directory(Stream.DATA, bucket))
        ]
        status = StreamStatus(
            looked_us=self._clock(),
            log_id=str(self._files.meta.log_id),
            description=self._files.description,
            manifests=files_of(catalog),
            data_files=len(data),
            data_bytes=sum(entry.size for entry in data),
            boundaries=promised(recent[0] if recent else None, heartbeats),
            heartbeats=heartbeats,
            readers=self._readers(catalog.newest() + 1, recent[0] if recent else None),
            problem=problem or broken,
        )
        return self._with_figures(status, recent) if recent else status

    def _with_figures(self, status: StreamStatus, recent: Sequence[Manifest]) -> StreamStatus:
        """The status with what the manifests say, which come newest first."""
        newest = recent[0]
        return replace(
            status,
            batch=newest.batch,
            written_us=newest.written_us,
            newest=Amount.of(recent[:1]),
            recent=Amount.of(recent),
            held=self._held(newest),
            total=Amount(newest.batch + 1, newest.total_rows, newest.total_bytes),
            times=self._time_range(),
            writers=newest.writers,
        )

    def _held(self, newest: Manifest) -> Amount | None:
        log = self._files.log
        for _ in range(_LOOKS):
            oldest = log.oldest()
            try:
                before = read_manifest(log, oldest)
            except MissingSegment:
                continue  # trimmed meanwhile
            except LogError:
                return None  # verify says what is wrong with it
            rows, size = _since(before, newest)
            return Amount(newest.batch - oldest + 1, rows, size)
        return None

    def _time_range(self) -> TimeRange | None:
        if self._files.description.time_column is None:
            return None
        self._times, _ = read_times(self._files.log.reader, self._times)
        return joined(entry.time_range for file in self._times.values() for entry in file.entries)

    def _readers(self, end: int, newest: Manifest | None) -> tuple[ReaderStatus, ...]:
        found = read_readers(self._files.storage, {Stream.BATCHES: end})
        return tuple(replace(reader, lag_rows=self._lag_rows(reader, newest)) for reader in found)

    def _lag_rows(self, reader: ReaderStatus, newest: Manifest | None) -> int | None:
        """Rows from the batch on that a reader needs: every manifest knows how many were before."""
        if reader.needs is None or reader.lag is None:
            return None
        if reader.lag == 0:
            return 0
        try:
            first = read_manifest(self._files.log, reader.needs)
        except LogError:
            return None  # trimmed before it was read, or damaged
        return None if newest is None else _since(first, newest)[0]


def _since(first: Manifest, newest: Manifest) -> tuple[int, int]:
    """Rows and bytes of all batches from one to another, both included."""
    return (
        newest.total_rows - first.total_rows + first.rows,
        newest.total_bytes - first.total_bytes + first.bytes,
    )


def _manifests(log: StreamLog, footers: Sequence[Footer]) -> tuple[list[Manifest], str]:
    """The manifests that footers hold, and what is wrong with those that hold none."""
    found: list[Manifest] = []
    broken = ""
    for footer in footers:
        try:
            found.append(Manifest.of(footer, Origin(log.reader.segment_path(footer.batch))))
        except LogError as error:
            broken = broken or f"{error.what} ({error.where})"
    return found, broken
