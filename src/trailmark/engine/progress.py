"""What an operator did in a batch, read from the footers of its logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trailmark.checkpoint.account import Account
from trailmark.engine.footers import read_footers
from trailmark.engine.tentative import STABLE, phase_of
from trailmark.log import Footer, OperatorMeta, Origin, Storage, StreamLog
from trailmark.records import FrameKind, Stream
from trailmark.recovery import Lost
from trailmark.values import dataclass


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a bucket did to get its state back before a batch.

    Attributes
    ----------
    bucket, batch
        Which bucket, and the batch it recovered for.
    why
        What had become of the state.
    segments_read, footprints, replay_tuples
        Output segments read, windows loaded, and input tuples replayed.
    load_us, replay_us
        Microseconds to open the bucket and to find and load the windows, and to replay the input.
    predicted_us
        What the batch before had predicted for both together.
    lost
        What was lost, where that is accepted.
    """

    bucket: int
    batch: int
    why: str
    segments_read: int
    footprints: int
    replay_tuples: int
    load_us: int
    replay_us: int
    predicted_us: int
    lost: Lost | None = None

    @classmethod
    def from_attributes(cls, bucket: int, batch: int, found: Mapping[str, Any]) -> Recovery:
        return cls(
            bucket,
            batch,
            found["why"],
            found["segments_read"],
            found["footprints"],
            found["replay_tuples"],
            found["open_us"] + found["plan_us"] + found["load_us"],
            found["replay_us"],
            found["predicted_us"],
            Lost.from_attributes(found.get("lost")),
        )

    @property
    def took_us(self) -> int:
        return self.load_us + self.replay_us

    def __str__(self) -> str:
        then = f"{self.replay_tuples:,} tuples replayed"
        if self.lost is not None:
            then = f"lost: {self.lost}"
        return (
            f"bucket {self.bucket} recovered before batch {self.batch} in "
            f"{self.took_us / 1000:,.0f} ms (predicted {self.predicted_us / 1000:,.0f} ms), as "
            f"{self.why}: {self.footprints:,} windows loaded from {self.segments_read} segments, "
            f"{then}"
        )


@dataclass(frozen=True, slots=True)
class Progress:
    """An operator at the end of a batch: sums over its buckets, and the longest prediction.

    ``phase`` is what the unions behind it are doing, and ``tentative`` how many results of the
    batch are tentative.
    """

    batch: int
    tuples: int
    results: int
    open_windows: int
    extent: int
    replay: int
    predicted_us: int
    late_rows: int
    footprints: int
    is_reachable: bool
    recoveries: tuple[Recovery, ...]
    phase: str = STABLE
    tentative: int = 0


def read_progress(storage: Storage, meta: OperatorMeta, batch: int) -> Progress:
    """The progress of a batch that every bucket has published."""
    outputs = [
        StreamLog(storage, Stream.OUTPUT, meta.log_id, bucket) for bucket in range(meta.buckets)
    ]
    footers = read_footers(outputs, batch)
    accounts = [Account.of(footer, Origin(f"batch {batch}")) for footer in footers]
    return Progress(
        batch,
        tuples=sum(footer.fingerprint.rows for footer in footers),
        results=sum(footer.rows.get(FrameKind.RESULTS, 0) for footer in footers),
        open_windows=sum(account.open_windows for account in accounts),
        extent=sum(account.extent for account in accounts),
        replay=sum(account.replay for account in accounts),
        predicted_us=max(account.predicted_us for account in accounts),
        late_rows=sum(footer.attributes["late_rows"] for footer in footers),
        footprints=sum(footer.rows.get(FrameKind.FOOTPRINTS, 0) for footer in footers),
        is_reachable=all(account.is_reachable for account in accounts),
        recoveries=tuple(_recoveries(footers)),
        phase=phase_of(footers[0]),
        tentative=sum(footer.rows.get(FrameKind.TENTATIVE, 0) for footer in footers),
    )


def _recoveries(footers: list[Footer]) -> list[Recovery]:
    return [
        Recovery.from_attributes(bucket, footer.batch, footer.attributes["recovery"])
        for bucket, footer in enumerate(footers)
        if "recovery" in footer.attributes
    ]
