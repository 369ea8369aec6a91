"""Reading a whole log and reporting everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from trailmark.errors import DamagedSegment, LogError, MissingSegment, UnknownFormat
from trailmark.log.names import LogFile
from trailmark.log.reader import LogReader
from trailmark.log.segment import Segment
from trailmark.records import SegmentLink, Stream

#: Raises `DamagedSegment` about the contents of a segment.
Check: TypeAlias = Callable[[Segment], None]

#: damaged: its bytes are wrong. unknown: whole, and nothing that this Trailmark can read. foreign:
#: whole, but not of this log. missing: the next segment names it, the log does not have it.
#: unlinked: it follows another segment than the one before it. ambiguous: two files hold different
#: segments of the batch.
Trouble: TypeAlias = Literal["damaged", "unknown", "foreign", "missing", "unlinked", "ambiguous"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: with which batch, in which file, and what."""

    trouble: Trouble
    batch: int
    path: str
    what: str


@dataclass(frozen=True, slots=True)
class Copy:
    """A batch as one file holds it; links are None if there is trouble with the file."""

    batch: int
    file: LogFile
    trouble: Trouble | None
    link: SegmentLink | None = None
    previous: SegmentLink | None = None


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What a log holds and what is wrong with it; in order of batches."""

    batches: int
    bytes: int
    problems: Sequence[Problem]
    copies: Sequence[Copy]

    @property
    def is_whole(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def verify_log(reader: LogReader, check: Check | None = None) -> VerifyReport:
    """Read every byte and every row of the log; check every checksum, link and gap.

    ``check`` looks at more than that of a segment, as those do who read it.
    """
    reader = reader.fresh()
    catalog = reader.look_at_all()
    problems: list[Problem] = []
    copies: list[Copy] = []
    read: set[str] = set()
    while unread := [file for file in catalog.files if file.name not in read]:
        is_outdated = False
        for file in unread:
            try:
                copies += _read_copies(reader, file, problems, check)
            except FileNotFoundError:
                is_outdated = True  # merged or trimmed since the directory was listed
        read.update(file.name for file in unread)
        if is_outdated:
            catalog = reader.look_at_all()
    held = {reader.path(file) for file in catalog.files}
    copies = [copy for copy in copies if reader.path(copy.file) in held]
    copies.sort(key=lambda copy: copy.batch)
    problems = [problem for problem in problems if problem.path in held]
    for file in catalog.incredible:
        problems.append(problem_of(reader.incredible(file), file.first, reader.path(file)))
    problems += _check_order(reader, copies, catalog.start)
    problems.sort(key=lambda problem: problem.batch)
    size = sum(file.size for file in catalog.files)
    return VerifyReport(len(catalog.batches()), size, problems, copies)


def _read_copies(
    reader: LogReader,
    file: LogFile,
    problems: list[Problem],
    check: Check | None,
) -> Iterator[Copy]:
    batches = range(file.first, file.last + 1)
    try:
        if file.is_pack:
            reader.check_pack_start(file)
            reader.pack_index(file)
    except LogError as error:
        problem = problem_of(error, file.first, reader.path(file))
        problems.append(problem)
        yield from (Copy(batch, file, problem.trouble) for batch in batches)
        return
    for batch in batches:
        try:
            segment = reader.read_from_file(file, batch)
            for kind in segment.frames:
                segment.table(kind)
            if check is not None:
                check(segment)
            yield Copy(batch, file, None, segment.link, segment.footer.previous)
        except LogError as error:
            problem = problem_of(error, batch, reader.path(file))
            problems.append(problem)
            yield Copy(batch, file, problem.trouble)


def trouble_of(error: LogError) -> Trouble:
    """What is the matter with a file that was refused."""
    if isinstance(error, MissingSegment):
        return "missing"
    if isinstance(error, DamagedSegment):
        return "damaged"
    return "unknown" if isinstance(error, UnknownFormat) else "foreign"


def problem_of(error: LogError, batch: int, path: str) -> Problem:
    """The problem with a file that was refused."""
    return Problem(trouble_of(error), batch, path, f"{error.what} ({error.where})")


def _check_order(reader: LogReader, copies: Sequence[Copy], start: int) -> Iterator[Problem]:
    chosen: dict[int, Copy] = {}
    for copy in copies:
        other = chosen.get(copy.batch)
        if other is None or other.link is None:
            chosen[copy.batch] = copy
        elif copy.link not in (None, other.link):
            what = f"{copy.file.name} and {other.file.name} hold different segments of it."
            yield Problem("ambiguous", copy.batch, reader.path(copy.file), what)
            chosen[copy.batch] = copy if copy.file.is_pack else other
    if reader.identity.stream is Stream.SNAPSHOT:
        return  # each stands for itself
    before: Copy | None = None
    for copy in chosen.values():
        previous = copy.previous
        if before is not None and previous is not None:
            yield from _check_pair(reader, before, copy, previous)
        elif previous is not None and previous.batch >= start:
            yield _missing(reader, copy, previous)
        before = copy


def _check_pair(
    reader: LogReader, before: Copy, copy: Copy, previous: SegmentLink
) -> Iterator[Problem]:
    path = reader.path(copy.file)
    if previous.batch > before.batch:
        yield _missing(reader, copy, previous)
    elif previous.batch < before.batch or (
        before.link is not None and not previous.names(before.link)
    ):
        what = (
            f"It follows batch {previous.batch} with checksum {previous.checksum:08x}, not the "
            f"batch {before.batch} that the log holds before it."
        )
        yield Problem("unlinked", copy.batch, path, what)


def _missing(reader: LogReader, copy: Copy, previous: SegmentLink) -> Problem:
    what = f"Batch {copy.batch} follows it, and it is not in the log."
    return Problem("missing", previous.batch, reader.path(copy.file), what)
