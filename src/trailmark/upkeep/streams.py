"""Upkeep of a written stream by hand: its old batches, what killed tasks left, and its manifests.

All of it may run beside writers and readers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from trailmark.errors import LogError
from trailmark.inspection.read_only import ignore
from trailmark.log import Clock, wall_clock_us
from trailmark.records import NO_BATCH, Stream
from trailmark.streams.retention import (
    StreamTrim,
    left_over_before,
    left_over_files,
    trim_before,
)
from trailmark.streams.stored import StreamFiles
from trailmark.streams.writer import UNMERGED
from trailmark.upkeep.merge import LogMerge, merge_up_to
from trailmark.upkeep.needed import Held
from trailmark.values import dataclass


@dataclass(frozen=True, slots=True)
class LeftOver:
    """Data files of killed tasks and cut-short trims, which no batch names."""

    files: tuple[str, ...] = ()
    bytes: int = 0


_NOTHING = LeftOver()


@dataclass(frozen=True, slots=True)
class TrimByHand:
    """What was removed from a written stream, or would be.

    ``before`` is the batch up to which batches may be removed: the one asked for, the newest, or
    one that a reader needs; ``held_by`` names the readers without which more could go. ``oldest``
    is the first that stays: an earlier one where a pack holds batches on both sides.
    ``left_alone`` says why left-over files were not looked for; empty if they were.
    """

    before: int
    oldest: int
    held_by: tuple[str, ...]
    batches: StreamTrim
    left_over: LeftOver = _NOTHING
    left_alone: str = ""


def trim_by_hand(
    files: StreamFiles,
    before: int,
    *,
    dry_run: bool = False,
    on_step: Callable[[str, int, int], None] = ignore,
    clock: Clock = wall_clock_us,
) -> TrimByHand:
    """Remove all batches before the given one that no reader needs, and left-over files.

    The newest batch stays whatever is asked for. With ``dry_run`` nothing is removed. ``on_step``
    is told before either: what is removed, its number, and that there are two. It may raise: then
    nothing is half-done.
    """
    on_step("batches", 1, 2)
    newest = files.log.newest()
    held = Held.by_readers(files.storage, Stream.BATCHES, min(before, max(newest, 0)))
    trimmed = trim_before(files.storage, files.log, held.before, dry_run=dry_run)
    oldest = trimmed.before if trimmed.batches else files.log.oldest()
    done = TrimByHand(held.before, oldest, held.readers, trimmed)
    if newest == NO_BATCH:
        return done  # every file would seem to be left over, also where all manifests were lost
    on_step("files that are left over", 2, 2)
    try:
        left_over = _remove_left_over(files, left_over_before(files.log, clock()), dry_run)
    except LogError as error:
        return replace(done, left_alone=f"{error.what} ({error.where})")
    return replace(done, left_over=left_over)


def _remove_left_over(files: StreamFiles, before_us: int, dry_run: bool) -> LeftOver:
    found = []
    size = 0
    for path in left_over_files(files.storage, files.meta, files.log, before_us):
        try:
            size += files.storage.size(path)
        except FileNotFoundError:
            continue  # somebody else has removed it
        found.append(path)
        if not dry_run:
            files.storage.delete(path)
    return LeftOver(tuple(found), size)


def merge_manifests(
    files: StreamFiles, *, on_log: Callable[[str, int, int], None] = ignore
) -> LogMerge:
    """Merge the manifests of a stream, except the newest: whoever follows it reads these by name.

    ``on_log`` is told as by `merge_operator`.
    """
    before_pack = partial(on_log, files.log.directory, 1, 1)
    before_pack()
    return merge_up_to(files.log, files.log.newest() - UNMERGED, before_pack)
