"""What a recovery will do, as a value one can print."""

from __future__ import annotations

from dataclasses import field
from typing import Any

import pyarrow as pa

from trailmark.checkpoint.account import Account
from trailmark.checkpoint.rates import Work
from trailmark.records import Foundation
from trailmark.recovery.lost import Lost
from trailmark.values import dataclass


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
    lost
        What is lost of the state, where that is accepted; None where it is rebuilt as it was.
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
    lost: Lost | None = None
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
        described = {
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
        return described if self.lost is None else {**described, "lost": self.lost.describe()}

    def __str__(self) -> str:
        lines = [
            f"recover to the end of batch {self.target}",
            f"  read     {self.segments_read} output segments, {self.records_read:,} records",
            f"  load     {self._what_is_loaded()}",
        ]
        if self.lost is not None:
            lines.append(f"  lose     {self.lost}")
        elif self.replay_from > self.target:
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
        if self.lost is not None:
            oldest = f" (oldest from batch {self.oldest})" if self.open_windows else ""
            return f"{self.open_windows:,} footprints{oldest}"
        if self.foundation is Foundation.SNAPSHOT:
            return f"{self.open_windows:,} windows from the snapshot of batch {self.base}"
        if self.foundation is Foundation.NOTHING:
            return f"nothing: no open window is older than batch {self.base + 1}"
        return f"{self.open_windows:,} footprints (oldest from batch {self.oldest})"
