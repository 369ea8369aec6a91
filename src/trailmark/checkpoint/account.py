"""The account of a bucket at the end of a batch: what a recovery from here would have to do.

Everything is known in constant time and written into every output footer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from trailmark.checkpoint.ledger import Ledger, Totals
from trailmark.checkpoint.rates import Rates
from trailmark.records import NO_BATCH


@dataclass(frozen=True, slots=True)
class Account:
    """Where a bucket stands after a batch.

    Attributes
    ----------
    open_windows
        N: how many windows are open.
    oldest
        T: batch of the oldest footprint still needed; None if no window is open, NO_BATCH if one
        has no footprint.
    base
        The newest batch whose end footprints can rebuild: this one, unless a window has none.
    needs
        First batch of input that a recovery replays.
    keep_from
        First batch of input that a recovery might replay if one segment were damaged.
    extent
        q: records of the output log that a recovery reads.
    replay
        u: input tuples that a recovery replays.
    records_total, inputs_total
        Records and input tuples since the log began.
    watermark
        What closed windows in this batch, in microseconds.
    is_reachable
        Whether the policy's targets can be met with so many windows open.
    predicted_us
        How long a recovery would take, from the rates measured so far.
    """

    open_windows: int
    oldest: int | None
    base: int
    needs: int
    keep_from: int
    extent: int
    replay: int
    records_total: int
    inputs_total: int
    watermark: int | None = None
    is_reachable: bool = True
    predicted_us: int = 0

    def to_attributes(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_attributes(cls, attributes: Mapping[str, Any]) -> Account:
        return cls(**{f.name: attributes[f.name] for f in fields(cls) if f.name in attributes})


def empty_account(first_batch: int) -> Account:
    """Before the first batch: nothing open, nothing needed."""
    before = first_batch - 1
    assert before >= NO_BATCH
    return Account(
        open_windows=0,
        oldest=None,
        base=before,
        needs=first_batch,
        keep_from=first_batch,
        extent=0,
        replay=0,
        records_total=0,
        inputs_total=0,
    )


def next_account(
    before: Account,
    ledger: Ledger,
    batch: int,
    now: Totals,
    *,
    oldest: int | None,
    open_windows: int,
    watermark: int | None,
    is_reachable: bool,
    rates: Rates,
) -> Account:
    """The account after a batch, from the one before it.

    ``now`` has the totals up to the end of the batch, ``oldest`` is the oldest footprint.
    """
    if oldest is None:
        base, needs, extent = batch, batch + 1, 0
    elif oldest == NO_BATCH:
        base, needs, extent = before.base, before.needs, before.extent
    else:
        base, needs = batch, oldest + 1
        start = ledger.at(oldest - 1)
        extent = now.records - (0 if start is None else start.records)
    after = ledger.at(needs - 1) if needs <= batch else None
    # If the segment of the oldest footprint were damaged, the batch before it would be the base.
    generation = ledger.at(needs - 2) if needs - 1 <= batch else None
    keep_from = before.keep_from if generation is None else generation.needs
    replay = 0 if after is None else now.inputs - after.inputs
    return Account(
        open_windows=open_windows,
        oldest=oldest,
        base=base,
        needs=needs,
        keep_from=max(keep_from, before.keep_from),
        extent=extent,
        replay=replay,
        records_total=now.records,
        inputs_total=now.inputs,
        watermark=watermark,
        is_reachable=is_reachable,
        predicted_us=rates.predict_us(extent, replay),
    )
