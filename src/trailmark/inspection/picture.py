"""What a picture of an operator holds. Values only; `read` makes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from trailmark.checkpoint.account import Account
from trailmark.checkpoint.wording import policy_title
from trailmark.engine.refused import Refusal
from trailmark.engine.tentative import STABLE
from trailmark.inspection.readers import ReaderStatus
from trailmark.records import NO_BATCH
from trailmark.recovery import Lost
from trailmark.recovery.catching_up import CaughtUp
from trailmark.values import dataclass


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The segments and packs of one log, by listing; NO_BATCH stands for an empty log.

    ``files`` and ``bytes`` count what is left over of a trim, too, until the next one deletes it;
    ``bytes`` also spares, which wait to be written over.
    """

    files: int
    packs: int
    bytes: int
    oldest: int
    newest: int


@dataclass(frozen=True, slots=True)
class Activity:
    """What batches did, summed over the footers of ``batches`` batches from ``first`` to ``last``.

    A footer that could not be read is not in the sums, so ``batches`` may be less than the range.
    """

    first: int
    last: int
    batches: int
    tuples: int
    results: int
    footprints_opened: int
    footprints_checked: int
    late_rows: int
    late_updates: int
    null_times: int
    tentative: int = 0

    @property
    def footprints(self) -> int:
        """Footprints of either kind."""
        return self.footprints_opened + self.footprints_checked


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a bucket did to get its state back, as the footer of the next batch tells it.

    Attributes
    ----------
    bucket, batch
        Which bucket, and the batch it recovered for.
    why
        What had become of the state.
    segments_read, records_read, footprints, replay_tuples
        Output segments and records read, windows loaded, and input tuples replayed.
    took_us, predicted_us
        Microseconds it took, and those that the batch before had predicted.
    skipped
        Output segments it went around because they could not be read.
    written_us
        When the batch after it was written.
    lost
        What was lost, where that is accepted.
    """

    bucket: int
    batch: int
    why: str
    segments_read: int
    records_read: int
    footprints: int
    replay_tuples: int
    took_us: int
    predicted_us: int
    skipped: int
    written_us: int
    lost: Lost | None = None


@dataclass(frozen=True, slots=True)
class OlderTable:
    """How a bucket brought an older table up to date, as the footer of the next batch tells it.

    Attributes
    ----------
    bucket, batch
        Which bucket, and the batch it did it for.
    caught_up
        What it took.
    written_us
        When the batch after it was written.
    """

    bucket: int
    batch: int
    caught_up: CaughtUp
    written_us: int

    def __str__(self) -> str:
        return f"bucket {self.bucket} before batch {self.batch}: {self.caught_up}"


@dataclass(frozen=True, slots=True)
class BucketStatus:
    """One bucket.

    Attributes
    ----------
    input, output, snapshots
        What the logs hold.
    aside
        Files that a repair or a truncation has set aside, and bytes in them.
    committed
        The newest batch of this bucket that is known to be committed, or NO_BATCH.
    batch, written_us
        The batch that the figures below are of, and when it was written. It is the newest whose
        footer can be read: NO_BATCH if there is none.
    account
        Where the bucket stood after that batch; None if there is none.
    policy
        The policy of that batch, as it describes itself.
    newest
        What that batch did.
    recent
        What the newest batches did together, as many as were looked at.
    recovery
        The last recovery among those.
    older_table
        The last time among those that an older table was brought up to date.
    problem
        Why the newest footer cannot be used; empty if it can.
    phase
        What the unions behind it were doing in that batch.
    """

    bucket: int
    input: LogFiles
    output: LogFiles
    snapshots: LogFiles
    aside: tuple[int, int]
    committed: int
    batch: int = NO_BATCH
    written_us: int | None = None
    account: Account | None = None
    policy: Mapping[str, Any] | None = None
    newest: Activity | None = None
    recent: Activity | None = None
    recovery: Recovered | None = None
    older_table: OlderTable | None = None
    problem: str = ""
    phase: str = STABLE

    @property
    def bytes(self) -> int:
        """Bytes of all segments and packs."""
        return self.input.bytes + self.output.bytes + self.snapshots.bytes

    @property
    def age(self) -> int | None:
        """Batches since the oldest footprint that is needed; None if there is no such."""
        oldest = None if self.account is None else self.account.oldest
        return None if oldest is None or oldest == NO_BATCH else self.batch - oldest

    @property
    def policy_title(self) -> str:
        """The policy and what it was given, in words."""
        return policy_title(self.policy or {})

    @property
    def objective_us(self) -> int | None:
        """How long a recovery may take, if the policy has such an objective."""
        objective = (self.policy or {}).get("objective_us")
        return objective if isinstance(objective, int) else None

    @property
    def is_within_objective(self) -> bool | None:
        """Whether a recovery is predicted to take no longer; None without an objective."""
        if self.account is None or self.objective_us is None:
            return None
        return self.account.predicted_us <= self.objective_us

    @property
    def shortfall(self) -> str:
        """Why the policy does not keep what it was asked for; empty if it does."""
        if self.account is not None and not self.account.is_reachable:
            return (
                f"with {self.account.open_windows:,} windows open the target cannot be met; use "
                "more buckets, or ask for less"
            )
        if self.is_within_objective is False:
            return "a recovery would take longer than the objective"
        return ""

    def describe(self) -> dict[str, Any]:
        """All of it as JSON."""
        files, bytes_aside = self.aside
        return {
            "bucket": self.bucket,
            "last_batch": self.output.newest,
            "committed_batch": self.committed,
            "figures_of_batch": self.batch,
            "written_us": self.written_us,
            "account": None if self.account is None else self.account.to_attributes(),
            "oldest_age_batches": self.age,
            "objective_us": self.objective_us,
            "is_within_objective": self.is_within_objective,
            "policy": self.policy,
            "newest": None if self.newest is None else asdict(self.newest),
            "recent": None if self.recent is None else asdict(self.recent),
            "recovery": None if self.recovery is None else asdict(self.recovery),
            "older_table": None if self.older_table is None else asdict(self.older_table),
            "input": asdict(self.input),
            "output": asdict(self.output),
            "snapshots": asdict(self.snapshots),
            "aside": {"files": files, "bytes": bytes_aside},
            "bytes": self.bytes,
            "problem": self.problem,
            "phase": self.phase,
        }


@dataclass(frozen=True, slots=True)
class OperatorStatus:
    """All buckets of an operator, and what they have in common.

    Attributes
    ----------
    looked_us
        When the picture was made.
    log_id, query_id, operator, first_batch
        As in ``meta.json``.
    rolled_back
        Why the logs take no batch, if the query was seen to go back; else empty.
    in_doubt
        Why it is not known whether Spark has committed the newest batch; empty if it is, or if that
        batch is not whole yet.
    refusal
        What stopped the query last, unless the bucket it happened in has got over it.
    other_bytes
        Bytes of ``meta.json``, commit marks, watermarks, and other files beside them.
    readers
        Named readers of the input and output logs.
    """

    looked_us: int
    log_id: str
    query_id: str | None
    operator: Mapping[str, Any]
    first_batch: int
    buckets: tuple[BucketStatus, ...]
    rolled_back: str
    other_bytes: int
    readers: tuple[ReaderStatus, ...] = ()
    in_doubt: str = ""
    refusal: Refusal | None = None

    @property
    def last_batch(self) -> int:
        """The newest batch of any bucket, or NO_BATCH."""
        return max(bucket.output.newest for bucket in self.buckets)

    @property
    def whole_batch(self) -> int:
        """The newest batch that every bucket has, or NO_BATCH."""
        return min(bucket.output.newest for bucket in self.buckets)

    @property
    def committed(self) -> int:
        """The newest batch that is known to be committed in every bucket, or NO_BATCH."""
        return min(bucket.committed for bucket in self.buckets)

    @property
    def phase(self) -> str:
        """What the unions behind it were doing in the newest batch."""
        return max(self.buckets, key=lambda bucket: bucket.batch).phase

    @property
    def written_us(self) -> int | None:
        """When the newest batch was written."""
        return max((b.written_us for b in self.buckets if b.written_us is not None), default=None)

    @property
    def accounts(self) -> list[Account]:
        """The accounts of the buckets that have one."""
        return [bucket.account for bucket in self.buckets if bucket.account is not None]

    @property
    def predicted_us(self) -> int | None:
        """The longest recovery that is predicted for a bucket: buckets recover side by side."""
        return max((account.predicted_us for account in self.accounts), default=None)

    @property
    def is_reachable(self) -> bool:
        """Whether the targets of the policy can be met in every bucket."""
        return all(account.is_reachable for account in self.accounts)

    @property
    def recovery(self) -> Recovered | None:
        """The last recovery of any bucket, among the batches that were looked at."""
        found = [bucket.recovery for bucket in self.buckets if bucket.recovery is not None]
        return max(found, key=lambda each: each.written_us, default=None)

    @property
    def older_table(self) -> OlderTable | None:
        """The last time that any bucket brought an older table up to date, among those."""
        found = [bucket.older_table for bucket in self.buckets if bucket.older_table is not None]
        return max(found, key=lambda each: each.written_us, default=None)

    @property
    def bytes(self) -> int:
        """Bytes of all files, spares too; what was set aside is not counted."""
        return self.other_bytes + sum(bucket.bytes for bucket in self.buckets)

    @property
    def is_sound(self) -> bool:
        """Whether every newest footer and every reader can be read, and the logs take batches."""
        is_read = not any(bucket.problem for bucket in self.buckets)
        return is_read and not self.rolled_back and not any(each.problem for each in self.readers)

    def describe(self) -> dict[str, Any]:
        """All of it as JSON."""
        totals = ("open_windows", "extent", "replay", "records_total", "inputs_total")
        recovery, older_table = self.recovery, self.older_table
        return {
            "looked_us": self.looked_us,
            "log_id": self.log_id,
            "query_id": self.query_id,
            "operator": self.operator,
            "first_batch": self.first_batch,
            "last_batch": self.last_batch,
            "whole_batch": self.whole_batch,
            "committed_batch": self.committed,
            "written_us": self.written_us,
            "phase": self.phase,
            **{name: sum(getattr(each, name) for each in self.accounts) for name in totals},
            "predicted_us": self.predicted_us,
            "is_reachable": self.is_reachable,
            "recovery": None if recovery is None else asdict(recovery),
            "older_table": None if older_table is None else asdict(older_table),
            "bytes": self.bytes,
            "rolled_back": self.rolled_back,
            "in_doubt": self.in_doubt,
            "refusal": None if self.refusal is None else asdict(self.refusal),
            "readers": [reader.describe() for reader in self.readers],
            "buckets": [bucket.describe() for bucket in self.buckets],
        }
