"""The logs of an operator as whoever only has its files opens them."""

from __future__ import annotations

from collections.abc import Iterator

from trailmark.checkpoint.account import Account
from trailmark.errors import MissingSegment, UnknownFormat
from trailmark.log import OperatorMeta, Origin, Storage, StreamLog, read_meta
from trailmark.operators.kinds import kind_of
from trailmark.records import NO_BATCH, OPERATOR_STREAMS, Stream
from trailmark.settings import LogSettings


def existing_meta(storage: Storage) -> OperatorMeta:
    """The description of the logs in a storage, which has to hold some."""
    meta = read_meta(storage)
    if meta is None:
        raise UnknownFormat(
            "There is no Trailmark log here: no meta.json.",
            where="meta.json",
            fix="Give the path that the operator was given.",
        )
    return meta


class OperatorFiles:
    """Opens the logs of an operator by what its description says, without the operator itself.

    Logs of a kind of operator that is not known are refused: what they hold is not known either.
    """

    def __init__(self, storage: Storage, settings: LogSettings | None = None) -> None:
        self.storage = storage
        self.meta = existing_meta(storage)
        kind_of(self.meta)
        self._settings = settings

    @property
    def buckets(self) -> range:
        """The numbers of the buckets."""
        return range(self.meta.buckets)

    def log(self, stream: Stream, bucket: int) -> StreamLog:
        """The log of one stream and bucket."""
        return StreamLog(self.storage, stream, self.meta.log_id, bucket, self._settings)

    def logs(self) -> Iterator[StreamLog]:
        """All logs, bucket by bucket."""
        for bucket in self.buckets:
            for stream in OPERATOR_STREAMS:
                yield self.log(stream, bucket)

    def newest_account(self, bucket: int) -> tuple[int, Account]:
        """The newest batch of a bucket's output, and where the bucket stands after it.

        What cannot be read raises.
        """
        output = self.log(Stream.OUTPUT, bucket)
        newest = output.newest()
        if newest == NO_BATCH:
            raise MissingSegment(
                f"Bucket {bucket} has no batch yet.",
                where=output.directory,
                fix="Wait for the first batch.",
            )
        footer, _ = output.read_footer(newest)
        return newest, Account.of(footer, Origin(output.reader.segment_path(newest)))
