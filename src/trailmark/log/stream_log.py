"""One bucket's log of one stream: the object the layers above work with."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from trailmark.errors import BatchGoesBackward, MissingSegment, SettingError
from trailmark.log.appending import Appending, Published
from trailmark.log.clock import Clock, wall_clock_us
from trailmark.log.footer import Footer, LogIdentity, TimeRange
from trailmark.log.names import LARGEST_BATCH, LARGEST_BUCKET
from trailmark.log.reader import LogReader
from trailmark.log.segment import Codecs, EncodedSegment, Rows, Segment, encode_segment
from trailmark.log.storage import Storage
from trailmark.log.traverse import Unreadable, read_backward, read_forward
from trailmark.log.trim import TrimReport, trim_log
from trailmark.records import NO_BATCH, Fingerprint, FrameKind, SegmentLink, Stream
from trailmark.settings import LogSettings

# Upkeep is imported where it is asked for: a recovery in a new process waits for every import.
if TYPE_CHECKING:
    from trailmark.log.index import TimeIndex
    from trailmark.log.merge import MergeReport
    from trailmark.log.repair import RepairReport
    from trailmark.log.verify import VerifyReport

#: Appends of one log that are encoded or written at the same time.
_APPENDS_AT_ONCE = 4

_NO_ATTRIBUTES: Mapping[str, Any] = {}


class StreamLog:
    """The segments of one bucket of one stream, each batch published once.

    Parameters
    ----------
    storage
        Where the operator's logs live.
    stream, log_id, bucket
        Which log this is; a segment of any other is refused.
    settings
        How segments are written.
    clock
        Where the footers' written time comes from.

    Notes
    -----
    The object may be used by several threads, but not be carried into a forked process.
    """

    def __init__(
        self,
        storage: Storage,
        stream: Stream,
        log_id: uuid.UUID,
        bucket: int,
        settings: LogSettings | None = None,
        clock: Clock = wall_clock_us,
    ) -> None:
        if not 0 <= bucket <= LARGEST_BUCKET:
            raise SettingError(
                f"Bucket {bucket} is not between 0 and {LARGEST_BUCKET}.", where="bucket"
            )
        self.identity = LogIdentity(stream, log_id, bucket)
        self.settings = settings or LogSettings()
        self.reader = LogReader(storage, self.identity)
        self._codecs = Codecs(self.settings.compression)
        self._storage = storage
        self._clock = clock
        self._background: ThreadPoolExecutor | None = None

    @property
    def directory(self) -> str:
        """Where the log's files lie in the storage."""
        return self.reader.directory

    def append(
        self,
        batch: int,
        frames: Sequence[tuple[FrameKind, Rows]],
        *,
        previous: SegmentLink,
        fingerprint: Fingerprint,
        time_range: TimeRange | None = None,
        attributes: Mapping[str, Any] = _NO_ATTRIBUTES,
    ) -> Published:
        """Publish the segment of a batch, if the log has none yet.

        When this returns, the log holds a segment of the batch that survives as long as the
        storage's ``Durability`` promises.
        """
        footer = self._footer(batch, previous, fingerprint, time_range, attributes)
        encoded = encode_segment(footer, frames, self._codecs)
        return self._publish(batch, encoded, previous)

    def begin_append(
        self,
        batch: int,
        frames: Sequence[tuple[FrameKind, Rows]],
        *,
        previous: SegmentLink | Appending,
        fingerprint: Fingerprint,
        time_range: TimeRange | None = None,
        attributes: Mapping[str, Any] = _NO_ATTRIBUTES,
    ) -> Appending:
        """`append` in the background: nothing holds until ``result()`` has returned.

        Several can be under way. One that follows another names it as ``previous`` and is
        published after it, or not at all if that fails.
        """

        def encode(link: SegmentLink) -> EncodedSegment:
            footer = self._footer(batch, link, fingerprint, time_range, attributes)
            return encode_segment(footer, frames, self._codecs)

        def publish(encoded: EncodedSegment, link: SegmentLink) -> Published:
            return self._publish(batch, encoded, link)

        if self._background is None:
            self._background = ThreadPoolExecutor(_APPENDS_AT_ONCE, f"append-{self.directory}")
        return Appending(batch, self._background, previous, encode, publish)

    def settle(self, batch: int) -> None:
        """Make sure that a segment found in the log survives a power failure.

        Whoever acts on a segment that it did not publish itself calls this first: its writer may
        have died before the last sync.
        """
        try:
            self._storage.settle(self.reader.segment_path(batch))
        except FileNotFoundError:
            self.read_footer(batch)  # merged, which is always synced; or missing, which raises

    def read(self, batch: int) -> Segment:
        """The segment of a batch; every byte is verified."""
        return self.reader.read(batch)

    def read_footer(self, batch: int) -> tuple[Footer, int]:
        """Footer and checksum of a segment, read and verified from its tail alone."""
        return self.reader.read_footer(batch)

    def read_from(self, batch: int | None = None, to: int | None = None) -> Iterator[Segment]:
        """Segments in order, from a batch (or the oldest) to a batch (or the newest).

        Links are checked; a missing or damaged segment raises.
        """
        return read_forward(self.reader, batch, to)

    def read_backward(self, batch: int) -> Iterator[Segment | Unreadable]:
        """Segments from a batch back to the oldest; `Unreadable` stands for one that is damaged."""
        return read_backward(self.reader, batch)

    def contains(self, batch: int) -> bool:
        """Whether the log holds the batch, as a segment or in a pack."""
        return self.reader.contains(batch)

    def batches(self) -> list[int]:
        """Every batch the log holds, in order, by listing."""
        return self.reader.look().batches()

    def newest(self) -> int:
        """The newest batch, or NO_BATCH, by listing."""
        return self.reader.look().newest()

    def oldest(self) -> int:
        """The oldest batch, or NO_BATCH, by listing."""
        return self.reader.look().oldest()

    def start(self) -> int:
        """The batch of the trim mark, 0 without one: what was before it is gone, and whatever is
        missing behind it was lost. By listing."""
        return self.reader.look().start

    def trim(self, before: int, *, most: int | None = None) -> TrimReport:
        """Delete what holds only batches before this one, ``most`` files at once; the newest batch
        always stays."""
        return trim_log(self.reader, before, most)

    def merge(
        self,
        up_to: int,
        *,
        smallest_run: int = 2,
        before_pack: Callable[[], None] | None = None,
    ) -> MergeReport:
        """Merge segments up to a batch into packs; shorter runs than ``smallest_run`` stay.

        ``before_pack`` is called before each of them, and may raise: then nothing is half-done.
        """
        from trailmark.log.merge import go_on, merge_log

        merge_bytes = self.settings.merge_bytes
        told = before_pack or go_on
        return merge_log(self.reader, up_to, merge_bytes, smallest_run, before_pack=told)

    def verify(self, check: Callable[[Segment], None] | None = None) -> VerifyReport:
        """Read everything; report every damage, gap and broken link.

        ``check`` raises about what is wrong with the contents of a segment, beside its rows.
        """
        from trailmark.log.verify import verify_log

        return verify_log(self.reader, check)

    def repair(self) -> RepairReport:
        """Put right what can be put right without losing anything; report the rest."""
        from trailmark.log.repair import repair_log

        return repair_log(self.reader)

    def set_aside_after(self, batch: int) -> RepairReport:
        """Set everything newer than a batch aside, to go on from there. A choice, not a repair."""
        from trailmark.log.repair import set_aside_after

        return set_aside_after(self.reader, batch)

    def time_index(self) -> TimeIndex:
        """Which batch holds a time, as of now."""
        from trailmark.log.index import TimeIndex

        return TimeIndex.load(self.reader)

    def close(self) -> None:
        """Wait for appends under way. Needed by nobody who waits for their results."""
        if self._background is not None:
            self._background.shutdown(wait=True)
            self._background = None

    def _footer(
        self,
        batch: int,
        previous: SegmentLink,
        fingerprint: Fingerprint,
        time_range: TimeRange | None,
        attributes: Mapping[str, Any],
    ) -> Footer:
        if not NO_BATCH <= previous.batch < batch <= LARGEST_BATCH:
            raise SettingError(
                f"Batch {batch} cannot follow batch {previous.batch}.",
                where="previous",
                fix="Batches are numbered from 0 upward; give the link of an earlier one.",
            )
        written_us = self._clock()
        return Footer(
            self.identity,
            batch,
            previous,
            fingerprint,
            written_us,
            time_range,
            attributes=attributes,
        )

    def _publish(self, batch: int, encoded: EncodedSegment, previous: SegmentLink) -> Published:
        created = self._storage.publish(self.reader.segment_path(batch), encoded.parts)
        if not created or not self._is_in_time(batch, previous):
            checksum = self._winner(batch)
            # A segment of ours may have been merged before we looked whether it is in time.
            created = created and checksum == encoded.checksum
            return Published(batch, checksum, created, encoded.bytes if created else 0)
        return Published(batch, encoded.checksum, True, encoded.bytes)

    def _winner(self, batch: int) -> int:
        """Checksum of the segment that the log holds."""
        self.reader.look()  # where it has been merged, the pack counts, not what is late like us
        try:
            _, checksum = self.read_footer(batch)
        except MissingSegment:
            start = self.start()
            if batch >= start:
                raise
            raise self._too_late(batch, start) from None
        return checksum

    def _is_in_time(self, batch: int, previous: SegmentLink) -> bool:
        """Whether the name was free because the batch is new, not because it is long gone.

        A batch that has been merged or trimmed has no file of its own any more, and a writer that
        was stuck for so long gets its file published. It is taken back here. What has been merged
        is in a pack, and what has been trimmed lies before the mark; nothing else tells, least of
        all that the batch before is not there: the first has none. This comes *after* publishing
        because packs and marks are put into place before names become free. The normal case costs
        one look for the previous batch's file: see `LogReader.contains`.

        That file may have been trimmed and come back after a power failure. A writer that was
        stuck over both is not told that it is late, but what it has published is left over, too:
        in a log with a mark, whatever was trimmed lies before it.
        """
        before = previous.batch
        if before != NO_BATCH and self._storage.exists(self.reader.segment_path(before)):
            return True
        catalog = self.reader.look()
        is_trimmed = batch < catalog.start
        if not is_trimmed and not catalog.packs_holding(batch):
            return True
        self._storage.delete(self.reader.segment_path(batch))
        if is_trimmed:
            raise self._too_late(batch, catalog.start)
        return False

    def _too_late(self, batch: int, start: int) -> BatchGoesBackward:
        return BatchGoesBackward(
            f"Batch {batch} has been trimmed from the log, which begins with batch {start}.",
            where=self.directory,
            fix="A writer that was thought dead came back late: stop it. If the query itself was "
            "set back to an older batch, give it an empty log.",
        )
