"""Names of a log's files. They are computable, so the normal path lists nothing."""

from __future__ import annotations

import re

from trailmark.records import Stream
from trailmark.values import dataclass

_DIRECTORIES = {
    Stream.INPUT: "in",
    Stream.OUTPUT: "out",
    Stream.SNAPSHOT: "snap",
    Stream.DATA: "data",
    Stream.BATCHES: "batches",
}
_FILE = re.compile(r"([0-9]{20})(?:\.seg|-([0-9]{20})\.pack)", re.ASCII)
_MARK = re.compile(r"([0-9]{20})\.trim", re.ASCII)

#: Fits the names and the 64 bits of a segment's header, and so does the batch after it.
LARGEST_BATCH = 2**63 - 2
LARGEST_BUCKET = 99_999
#: How many buckets an operator or a written stream can have: whoever reads it opens all of them.
MOST_BUCKETS = 1_000
#: More segments are not put into one pack, however small they are: its index has to stay small.
LARGEST_PACK = 4096


def log_directory(stream: Stream, bucket: int) -> str:
    """The directory of one bucket's log.

    >>> log_directory(Stream.INPUT, 7)
    'in/00007'
    """
    assert 0 <= bucket <= LARGEST_BUCKET
    return f"{_DIRECTORIES[stream]}/{bucket:05d}"


def segment_name(batch: int) -> str:
    """File name of a segment: names sort as batches do."""
    assert 0 <= batch <= LARGEST_BATCH + 1
    return f"{batch:020d}.seg"


def pack_name(first: int, last: int) -> str:
    """File name of a pack that holds every batch from first to last."""
    assert 0 <= first < last <= LARGEST_BATCH
    return f"{first:020d}-{last:020d}.pack"


def mark_name(batch: int) -> str:
    """File name of a trim mark: files that hold only batches before this one are gone."""
    assert 0 <= batch <= LARGEST_BATCH + 1
    return f"{batch:020d}.trim"


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file that holds the batches from ``first`` to ``last``: a segment, or a pack of several."""

    name: str
    first: int
    last: int
    size: int

    @property
    def is_pack(self) -> bool:
        """Whether it holds several segments."""
        return self.first < self.last

    @property
    def is_credible(self) -> bool:
        """Whether its name says no more batches than a file can hold."""
        return self.last - self.first < LARGEST_PACK

    def holds(self, batch: int) -> bool:
        """Whether the batch is in this file."""
        return self.first <= batch <= self.last


def parse_name(name: str, size: int) -> LogFile | None:
    """What a file of a log's directory holds; None for a file that is neither segment nor pack."""
    found = _FILE.fullmatch(name)
    if found is None:
        return None
    first = int(found[1])
    last = first if found[2] is None else int(found[2])
    if last > LARGEST_BATCH or (found[2] is not None and last <= first):
        return None
    return LogFile(name, first, last, size)


def parse_mark(name: str) -> int | None:
    """The batch that a trim mark names; None for any other file."""
    found = _MARK.fullmatch(name)
    if found is None or int(found[1]) > LARGEST_BATCH + 1:
        return None
    return int(found[1])
