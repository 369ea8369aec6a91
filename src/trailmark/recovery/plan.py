"""The plan: what a recovery will read, load and replay, found by reading the output log backward.

The newest footer says how many windows are open. Going back from it, the first footprint met of a
window is its newest; a result met first means that the window has closed. When there are as many
footprints as open windows, the walk ends, and the oldest footprint says where replay begins.

A segment that cannot be read may have closed and opened windows, so nothing newer can be trusted
without it: the state is then rebuilt for the batch before it, and the batches since are processed
anew from the input log, without emitting anything. So are those since the newest batch at whose end
every open window had a footprint, or since the snapshot that the newest footer names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from trailmark.checkpoint.account import Account, empty_account
from trailmark.checkpoint.rates import Work
from trailmark.errors import DamagedSegment, MissingInput, MissingSegment
from trailmark.kernel.columns import arrow_fixed, chosen_rows, contiguous
from trailmark.log import Footer, Segment, StreamLog, Unreadable
from trailmark.operators.identities import Identities
from trailmark.records import FOOTPRINT, Foundation, FrameKind
from trailmark.values import dataclass

#: Room that is made before any window was seen: a footer may say any number of them.
_MOST_RESERVED = 1 << 20
#: Attribute of a snapshot: the output segment that it is the state after.
OUTPUT_CHECKSUM = "output_checksum"


class Form(Protocol):
    """What the footprints in a log look like: an operator knows it, and so does its description."""

    @property
    def identities(self) -> Identities:
        """What tells windows from one another."""

    def trouble(self, footprints: pa.RecordBatch, batch: int) -> str:
        """What is wrong with the footprints of a batch; empty if nothing is."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A segment the plan goes around, and why."""

    batch: int
    why: str


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """How the state at the end of batch ``target`` is rebuilt.

    Attributes
    ----------
    base
        The batch whose end is rebuilt; later ones are processed anew.
    foundation
        What it is rebuilt from.
    oldest
        T: batch of the oldest footprint; ``base`` if no window is open.
    replay_from
        First batch of input that is replayed.
    loads_from
        First batch of input to whose tuples what is loaded refers; None if it refers to none.
    open_windows
        Windows open at the end of ``base``: as many footprints are loaded.
    segments_read, records_read
        Size of the extent that was read.
    records_used
        Those of them that had to be looked at: with all footprints found, the results of the last
        segment say nothing more.
    excess_used
        What these weigh beyond one each.
    extent_excess
        The same of what the state is built on, by the account.
    replay_tuples
        Input tuples to read again.
    skipped
        Damaged or missing output segments, newest first.
    footprints
        What is loaded: for each segment that has any, oldest first.
    """

    target: int
    base: int
    foundation: Foundation
    oldest: int
    replay_from: int
    open_windows: int
    segments_read: int
    records_read: int
    records_used: int
    replay_tuples: int
    loads_from: int | None = None
    excess_used: int = 0
    extent_excess: int = 0
    skipped: tuple[Skipped, ...] = ()
    accounts: dict[int, Account] = field(default_factory=dict, repr=False, compare=False)
    footprints: tuple[pa.RecordBatch, ...] = field(default=(), repr=False, compare=False)

    @property
    def reads_from(self) -> int:
        """First batch of input that is read, to load or to replay."""
        return (
            self.replay_from if self.loads_from is None else min(self.replay_from, self.loads_from)
        )

    @property
    def work(self) -> Work:
        """What it costs depends on."""
        batches = self.target + 1 - self.replay_from
        return Work(
            self.segments_read, self.records_used, batches, self.replay_tuples, self.excess_used
        )

    def describe(self) -> dict[str, Any]:
        """As it is logged, and shown to scripts."""
        return {
            "target": self.target,
            "base": self.base,
            "foundation": self.foundation,
            "oldest": self.oldest,
            "segments_read": self.segments_read,
            "records_read": self.records_read,
            "footprints": self.open_windows,
            "replay_tuples": self.replay_tuples,
            "skipped": [[skipped.batch, skipped.why] for skipped in self.skipped],
        }

    def __str__(self) -> str:
        lines = [
            f"recover to the end of batch {self.target}",
            f"  read     {self.segments_read} output segments, {self.records_read:,} records",
            f"  load     {self._what_is_loaded()}",
        ]
        if self.replay_from > self.target:
            lines.append("  replay   nothing")
        else:
            lines.append(
                f"  replay   {self.replay_tuples:,} tuples of batches {self.replay_from} to "
                f"{self.target}"
            )
        if self.base < self.target:
            lines.append(
                f"  process  batches {self.base + 1} to {self.target} anew, emitting nothing"
            )
        lines += [f"  skipped  batch {s.batch}: {s.why}" for s in self.skipped]
        return "\n".join(lines)

    def _what_is_loaded(self) -> str:
        if self.foundation is Foundation.SNAPSHOT:
            return f"{self.open_windows:,} windows from the snapshot of batch {self.base}"
        if self.foundation is Foundation.NOTHING:
            return f"nothing: no open window is older than batch {self.base + 1}"
        return f"{self.open_windows:,} footprints (oldest from batch {self.oldest})"


def plan_recovery(
    form: Form,
    output: StreamLog,
    inputs: StreamLog,
    snapshots: StreamLog,
    target: int,
    first_batch: int,
) -> RecoveryPlan:
    """Finds how to rebuild the state at the end of batch ``target``. Changes nothing."""
    skipped: list[Skipped] = []
    walks: list[_Walk] = []
    base = target
    while base >= first_batch:
        walk = _Walk(form, base)
        walks.append(walk)
        retry_at = walk.run(output, snapshots, skipped)
        if retry_at is None:
            break
        # Before the oldest output there is nothing to begin from but the beginning.
        held = [batch for batch in output.batches() if batch <= retry_at]
        base = held[-1] if held else first_batch - 1
    if base < first_batch:
        walk = _Walk(form, base)
        walk.account = empty_account(first_batch)
    accounts = {batch: account for w in walks for batch, account in w.accounts.items()}
    account = walk.account
    assert account is not None
    _check_inputs(inputs, account.reads_from, target, skipped)
    return RecoveryPlan(
        target=target,
        base=walk.base,
        foundation=account.foundation,
        oldest=walk.base if account.oldest is None else account.oldest,
        replay_from=account.needs,
        open_windows=walk.found,
        segments_read=sum(w.segments for w in walks),
        records_read=sum(w.records for w in walks),
        records_used=sum(w.used for w in walks),
        replay_tuples=_tuples_to_replay(inputs, account.needs, target, accounts.get(target)),
        loads_from=account.loads_from,
        excess_used=sum(w.excess for w in walks),
        extent_excess=account.extent_excess,
        skipped=tuple(skipped),
        accounts=accounts,
        footprints=tuple(reversed(walk.taken)),
    )


def is_after(snapshot: Footer, output_checksum: int) -> bool:
    """Whether a snapshot is the state after the output segment with this checksum."""
    return snapshot.attributes.get(OUTPUT_CHECKSUM) == output_checksum


def records_of(footer: Footer) -> int:
    """Records of an output segment: what a recovery reads. Late rows are not for it."""
    return sum(count for kind, count in footer.rows.items() if kind is not FrameKind.LATE)


class _Walk:
    """One reading of the output log, backward from ``base``."""

    def __init__(self, form: Form, base: int) -> None:
        self._form = form
        self.base = base
        self._seen = form.identities.new_set()
        self.taken: list[pa.RecordBatch] = []
        self.account: Account | None = None
        self.accounts: dict[int, Account] = {}
        self.segments = 0
        self.records = 0
        self.used = 0
        self.excess = 0
        self.found = 0

    def run(self, output: StreamLog, snapshots: StreamLog, skipped: list[Skipped]) -> int | None:
        """Collects footprints; returns the batch to start from instead, if this one cannot be."""
        for segment in output.read_backward(self.base):
            if isinstance(segment, Unreadable):
                skipped.append(Skipped(segment.batch, segment.error.what))
                return segment.batch - 1
            try:
                account = Account.of(segment.footer, segment.origin)
            except DamagedSegment as error:
                skipped.append(Skipped(segment.batch, error.what))
                return segment.batch - 1
            self.accounts[segment.batch] = account
            if self.account is None:
                if account.foundation is Foundation.SNAPSHOT:
                    return self._take_snapshot(snapshots, output, account, skipped)
                if account.foundation is Foundation.NOTHING:
                    self._begin_at(account)
                    return None
                if account.base < self.base:
                    return account.base
                self.account = account
                self._seen.reserve_windows(min(account.open_windows, _MOST_RESERVED))
            if self.found == self.account.open_windows:
                return None
            try:
                self._read(segment)
            except DamagedSegment as error:
                skipped.append(Skipped(segment.batch, error.what))
                return segment.batch - 1
            if self.found == self.account.open_windows:
                return None
        assert self.account is not None
        missing = min(self.accounts) - 1
        why = (
            f"The output log begins after it, and has footprints of {self.found:,} of "
            f"{self.account.open_windows:,} open windows."
        )
        skipped.append(Skipped(missing, why))
        return missing - 1

    def _begin_at(self, account: Account) -> None:
        """The state is built on what the account says, before anything of the output is read."""
        self.base = account.base
        self.account = replace(account, oldest=None)

    def _take_snapshot(
        self, snapshots: StreamLog, output: StreamLog, account: Account, skipped: list[Skipped]
    ) -> int | None:
        try:
            # Not by its name alone: the file may be left over of a trim, and soon be deleted.
            (segment,) = snapshots.read_from(account.base, account.base)
            _, checksum = output.read_footer(account.base)
            footprints = self._footprints(segment)
            if footprints is None:
                raise segment.mismatch(FrameKind.FOOTPRINTS, "is missing")
        except (DamagedSegment, MissingSegment) as error:
            skipped.append(Skipped(account.base, f"Its snapshot cannot be used: {error.what}"))
            return account.base - 1
        if not is_after(segment.footer, checksum):
            skipped.append(Skipped(account.base, "Its snapshot is the state after another segment"))
            return account.base - 1
        self._begin_at(account)
        self.segments += 1
        self.records += footprints.num_rows
        self._take(footprints, account.base, account.extent_excess)
        return None

    def _read(self, segment: Segment) -> None:
        """Within a batch footprints are newer than results: they describe its end."""
        self.segments += 1
        self.records += records_of(segment.footer)
        footprints = self._footprints(segment)
        if footprints is not None and footprints.num_rows:
            excess = self.accounts[segment.batch].footprints_excess
            self._take(footprints, segment.batch, excess)
        assert self.account is not None
        if self.found == self.account.open_windows:
            return
        kind = FrameKind.CLOSED if FrameKind.CLOSED in segment.frames else FrameKind.RESULTS
        closed = segment.table(kind)
        if closed is not None and closed.num_rows:
            rows = contiguous(closed)
            trouble = self._form.identities.trouble(rows)
            if trouble:
                raise segment.mismatch(kind, trouble)
            self.used += rows.num_rows
            self._form.identities.add(rows, self._seen)

    def _footprints(self, segment: Segment) -> pa.RecordBatch | None:
        """The footprints of a segment, if they can be loaded; raises `DamagedSegment`."""
        table = segment.table(FrameKind.FOOTPRINTS)
        if table is None:
            return None
        rows = contiguous(table)
        trouble = self._form.trouble(rows, segment.batch)
        if trouble:
            raise segment.mismatch(FrameKind.FOOTPRINTS, trouble)
        return rows

    def _take(self, footprints: pa.RecordBatch, batch: int, excess: int) -> None:
        self.used += footprints.num_rows
        self.excess += excess
        is_new = self._form.identities.add(footprints, self._seen)
        count = int(is_new.sum())
        if not count:
            return
        if count < footprints.num_rows:
            footprints = chosen_rows(footprints, is_new)
        ages = arrow_fixed(np.full(count, batch, dtype=np.int64), pa.int64())
        self.taken.append(footprints.append_column(FOOTPRINT, ages))
        self.found += count


def _check_inputs(inputs: StreamLog, first: int, last: int, skipped: Sequence[Skipped]) -> None:
    """Refuses to begin what cannot be finished."""
    if first > last:
        return
    present = set(inputs.batches())
    for batch in range(first, last + 1):
        if batch in present:
            continue
        around = "".join(f" Output batch {s.batch} could not be used: {s.why}" for s in skipped)
        raise MissingInput(
            f"Recovery has to read input batches {first} to {last}, but batch {batch} is "
            f"gone.{around}",
            where=inputs.reader.segment_path(batch),
            fix="Bring the segment back from a backup, or start the query on a new path.",
        )


def _tuples_to_replay(inputs: StreamLog, first: int, last: int, account: Account | None) -> int:
    """How many there are; known already, unless the recovery goes around damage."""
    if account is not None and account.needs == first:
        return account.replay
    return sum(inputs.read_footer(batch)[0].fingerprint.rows for batch in range(first, last + 1))
