"""What a recovery of a bucket, or a named reader, may read: the rules that upkeep keeps to."""

from __future__ import annotations

from trailmark.checkpoint.account import Account
from trailmark.log import Storage
from trailmark.log.readers import registered
from trailmark.records import Stream
from trailmark.values import dataclass


@dataclass(frozen=True, slots=True)
class Needed:
    """The first batch of input and of output that have to stay as they are."""

    input_from: int
    output_from: int

    @classmethod
    def by(cls, account: Account, newest: int) -> Needed:
        """What the account in the footer of the newest batch asks for.

        From the input of the batch before, other buckets may have to find the watermark.
        """
        return cls(min(account.keep_from, newest - 1), account.keep_output_from)

    def of(self, stream: Stream) -> int:
        """The first batch of a stream that has to stay; snapshots are as old as output."""
        return self.input_from if stream is Stream.INPUT else self.output_from


@dataclass(frozen=True, slots=True)
class Held:
    """Up to which batch a log may be trimmed, and the readers without which it could be more."""

    before: int
    readers: tuple[str, ...]

    @classmethod
    def by_readers(cls, storage: Storage, stream: Stream, before: int) -> Held:
        """What the readers of a log leave of a trim that may otherwise go up to a batch."""
        needs = {
            reader.name: reader.needs
            for reader in registered(storage)
            if reader.stream is stream and reader.needs < before
        }
        return cls(min([before, *needs.values()]), tuple(sorted(needs)))
