"""The account of a bucket at the end of a batch: what a recovery from here would have to do.

Everything is known in constant time and written into every output footer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

from trailmark.checkpoint.ledger import NOWHERE, Ledger, Totals
from trailmark.checkpoint.rates import Rates, Work
from trailmark.checkpoint.standing import Standing
from trailmark.log import Footer, Origin
from trailmark.log.json_text import whole
from trailmark.log.names import LARGEST_BATCH
from trailmark.records import NO_BATCH, Foundation, Loss
from trailmark.state.table import MOST_WINDOWS
from trailmark.values import dataclass

#: What the footprints of a batch can weigh beyond one record each: sums of it stay numbers.
MOST_EXCESS = 2**40
#: What the numbers of an account can be. Totals lose what damage took, and may fall below zero.
_BATCH = (NO_BATCH, LARGEST_BATCH)
_NEXT = (0, LARGEST_BATCH + 1)
_TOTAL = (-(2**62), 2**62)
_BOUNDS = {
    "open_windows": (0, MOST_WINDOWS),
    **dict.fromkeys(("oldest", "base", "keep_output_from"), _BATCH),
    **dict.fromkeys(("needs", "keep_from", "loads_from", "looks_back"), _NEXT),
    **dict.fromkeys(("extent", "replay", "records_total", "inputs_total"), _TOTAL),
    "watermark": (-(2**63), 2**63 - 1),
    **dict.fromkeys(("predicted_us", "segments", "extent_excess"), (0, 2**62)),
    "footprints_excess": (0, MOST_EXCESS),
}
#: Not written where records are plain and recoveries exact, as those of most queries are.
_LEFT_OUT = {"extent_excess": 0, "footprints_excess": 0, "loss": Loss.NONE}
_MAY_BE_NONE = frozenset({"oldest", "watermark", "loads_from", "looks_back"})


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
        The newest batch whose end can be rebuilt without processing anything anew.
    needs
        First batch of input that a recovery replays.
    loads_from
        First batch of input to whose tuples what a recovery loads refers; None if it refers to
        none.
    looks_back
        The same for the state as it is now, which may have let go of older ones.
    keep_from, keep_output_from
        First batches of input and of output that a recovery might read if one segment were damaged.
    extent, segments
        q: records of the output log that a recovery reads, and from how many segments, up to
        ``base``.
    replay
        u: input tuples that a recovery reads.
    records_total, inputs_total
        Records and input tuples since the log began.
    watermark
        What closed windows in this batch, in microseconds.
    is_reachable
        Whether the policy's targets can be met with so many windows open.
    predicted_us
        How long a recovery would take, from the rates measured so far.
    foundation
        What the state at the end of ``base`` is rebuilt from.
    extent_excess
        What the records of the extent weigh beyond one each.
    footprints_excess
        The same of the footprints that the batch has written.
    loss
        Whether a recovery rebuilds the state as it was. If loss is accepted, it does not: it loads
        the footprints, what it would replay is lost, and all other numbers are as they would be.
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
    segments: int = 0
    foundation: Foundation = Foundation.FOOTPRINTS
    keep_output_from: int = NO_BATCH
    loads_from: int | None = None
    looks_back: int | None = None
    extent_excess: int = 0
    footprints_excess: int = 0
    loss: Loss = Loss.NONE

    @property
    def reads_from(self) -> int:
        """First batch of input that a recovery reads, to load or to replay."""
        return self.needs if self.loads_from is None else min(self.needs, self.loads_from)

    @property
    def loads_output_from(self) -> int:
        """The oldest batch with a footprint that is loaded, or that of the snapshot; the one after
        ``base`` if nothing is."""
        return self.base - self.segments + 1

    @property
    def first_segment(self) -> int:
        """The oldest batch of output, or the snapshot, that a recovery reads."""
        return min(self.loads_output_from, self.needs - 1)

    def totals(self, excess_before: int = 0) -> Totals:
        """What the ledger remembers of it; ``excess_before`` is the excess that the ledger has of
        the batch before."""
        return Totals(
            self.records_total,
            self.inputs_total,
            self.reads_from,
            self.first_segment,
            NOWHERE if self.looks_back is None else self.looks_back,
            excess_before + self.footprints_excess,
        )

    def to_attributes(self) -> dict[str, Any]:
        attributes = asdict(self)
        for name, usual in _LEFT_OUT.items():
            if attributes[name] == usual:
                del attributes[name]
        return attributes

    @classmethod
    def from_attributes(cls, attributes: Mapping[str, Any]) -> Account:
        """From a footer, or from wherever else it was stored; raises ``TypeError`` or
        ``ValueError`` if that is no account."""
        found = {f.name: attributes[f.name] for f in fields(cls) if f.name in attributes}
        found["foundation"] = Foundation(found.get("foundation", Foundation.FOOTPRINTS))
        found["loss"] = Loss(found.get("loss", Loss.NONE))
        if not isinstance(found.get("is_reachable", True), bool):
            raise ValueError("is_reachable is neither true nor false")
        for name, (least, most) in _BOUNDS.items():
            if name in found and not (found[name] is None and name in _MAY_BE_NONE):
                whole(found[name], least, most)
        return cls(**found)

    @classmethod
    def of(cls, footer: Footer, origin: Origin) -> Account:
        """The account that the footer of an output segment holds."""
        try:
            account = cls.from_attributes(footer.attributes)
            ends = (account.base, account.needs - 1, account.keep_from - 1, account.oldest or 0)
            looked = (account.loads_from or 0, account.looks_back or 0)
            if max(*ends, *looked, account.keep_output_from) > footer.batch:
                raise ValueError(f"it names batches after {footer.batch}")
            if account.foundation is Foundation.SNAPSHOT and account.base == NO_BATCH:
                raise ValueError("it names no snapshot")
        except (TypeError, ValueError) as error:
            what = f"the footer has no account that can be read ({error})"
            raise origin.mismatch(0, what) from error
        return account


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
        foundation=Foundation.NOTHING,
        keep_output_from=before,
    )


def next_account(
    before: Account,
    ledger: Ledger,
    batch: int,
    now: Totals,
    standing: Standing,
    rates: Rates,
    *,
    watermark: int | None,
    is_reachable: bool,
    loss: Loss = Loss.NONE,
    stands_from: int | None = None,
) -> Account:
    """The account after a batch, from the one before it; ``now`` has the totals up to its end.

    From ``stands_from`` on there are tentative tuples and results that stand, and are kept.
    """
    after = replace(
        _found(before, ledger, batch, now, standing),
        open_windows=standing.open_windows,
        oldest=NO_BATCH if standing.marks_openings and standing.open_windows else standing.oldest,
        records_total=now.records,
        inputs_total=now.inputs,
        watermark=watermark,
        is_reachable=is_reachable,
        looks_back=standing.looks_back,
        footprints_excess=standing.footprints_excess,
        loss=loss,
    )
    replayed = ledger.at(after.needs - 1) if after.needs <= batch else None
    needs, first = _around_damage(before, after, ledger, batch)
    # The batch after this one is linked to its input, and so that stays in any case.
    keep_from = batch if loss is Loss.BOUNDED else max(before.keep_from, needs)
    keep_output_from = max(before.keep_output_from, first)
    if stands_from is not None:
        keep_from, keep_output_from = (
            min(keep_from, stands_from),
            min(keep_output_from, stands_from),
        )
    after = replace(
        after,
        keep_from=keep_from,
        keep_output_from=keep_output_from,
        replay=0 if replayed is None else now.inputs - replayed.inputs,
    )
    is_exact = loss is Loss.NONE
    work = work_of(after, batch) if is_exact else loading_of(after, ledger, batch, now)
    return replace(after, predicted_us=rates.predict_us(work))


def _around_damage(before: Account, after: Account, ledger: Ledger, batch: int) -> tuple[int, int]:
    """The first batches of input and of output that are read if a segment is damaged, which is gone
    around from the batch before it: the newest segment from the last batch, the first one of the
    extent from the one before that. The ledger knows what these read, and has in mind where one of
    them was damaged itself."""
    last = ledger.at(batch - 1)
    assert last is not None
    if not after.segments:
        return last.needs, last.first
    generation = ledger.at(after.first_segment - 1)
    if generation is None:
        return before.keep_from, before.keep_output_from
    return min(last.needs, generation.needs), min(last.first, generation.first)


def work_of(account: Account, batch: int) -> Work:
    """What a recovery to the end of a batch has to do, by its account."""
    batches = batch + 1 - account.needs
    return Work(account.segments, account.extent, batches, account.replay, account.extent_excess)


def loading_of(account: Account, ledger: Ledger, batch: int, now: Totals) -> Work:
    """What a recovery has to do that replays nothing. What has closed since ``base`` it knows from
    the output alone, and so it reads all of that."""
    if account.foundation is Foundation.NOTHING:
        return Work()
    is_snapshot = account.foundation is Foundation.SNAPSHOT
    first = account.loads_output_from
    start = ledger.at(first if is_snapshot else first - 1)
    records = now.records - (0 if start is None else start.records)
    excess = now.excess - (0 if start is None else start.excess)
    if is_snapshot:
        records, excess = records + account.extent, excess + account.extent_excess
    return Work(batch - first + 1, records, excess=excess)


def _found(before: Account, ledger: Ledger, batch: int, now: Totals, standing: Standing) -> Account:
    """What the next recovery builds on: base, needs, extent and its excess, segments,
    foundation."""
    oldest = standing.oldest
    if oldest is None:
        return _on(before, Foundation.NOTHING, batch, batch + 1, None, 0, 0)
    if oldest != NO_BATCH and standing.marks_openings:
        return _on(before, Foundation.NOTHING, oldest - 1, oldest, None, 0, 0)
    is_covered = batch in (oldest, standing.covered)
    if oldest != NO_BATCH and (standing.catches_up or is_covered):
        # Footprints that are older than what the batch before needed were good enough for it.
        needs = max(oldest + 1, before.needs, standing.covered + 1)
        start = ledger.at(oldest - 1)
        extent = now.records - (0 if start is None else start.records)
        excess = now.excess - (0 if start is None else start.excess)
        looks_back = standing.looks_back if oldest == batch else _looked_back(ledger, oldest)
        if looks_back is None and standing.looks_back is not None:
            looks_back = oldest + 1  # what newer footprints refer to came after the oldest
        segments = batch - oldest + 1
        return _on(
            before, Foundation.FOOTPRINTS, batch, needs, looks_back, extent, segments, excess
        )
    stored = standing.snapshot
    if stored is not None and stored.batch > before.base:
        base, looks_back = stored.batch, _looked_back(ledger, stored.batch)
        windows, excess = stored.windows, stored.excess
        return _on(before, Foundation.SNAPSHOT, base, base + 1, looks_back, windows, 1, excess)
    return before


def _looked_back(ledger: Ledger, batch: int) -> int | None:
    """To which batch the state looked back at the end of an earlier one: no footprint or snapshot
    that is as new refers to older tuples."""
    found = ledger.at(batch)
    assert found is not None, "the ledger reaches back to the oldest footprint"
    return None if found.looks_back == NOWHERE else found.looks_back


def _on(
    before: Account,
    foundation: Foundation,
    base: int,
    needs: int,
    loads_from: int | None,
    extent: int,
    segments: int,
    extent_excess: int = 0,
) -> Account:
    return replace(
        before,
        foundation=foundation,
        base=base,
        needs=needs,
        loads_from=loads_from,
        extent=extent,
        segments=segments,
        extent_excess=extent_excess,
    )
