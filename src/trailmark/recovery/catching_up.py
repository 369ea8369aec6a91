"""Brings a table that is some batches old up to the newest one, by processing the input since.

Such a table is what a bucket left on a host that it comes back to. It is the state after a batch of
the same log, so the batches since lead from it to the newest, exactly as they did when they were
live. What is not known of it is how old its footprints are: others may have written newer ones. So
all pieces count as having none, and the next recovery goes back to where the newest footer says.

Where that is no way to go, or a longer one than a recovery, there is a recovery.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, replace

from trailmark import units
from trailmark.checkpoint.account import Account
from trailmark.checkpoint.ledger import Ledger
from trailmark.checkpoint.rates import Rates, replay_rows
from trailmark.errors import DamagedSegment, MissingSegment
from trailmark.log import Footer, Origin, StreamLog
from trailmark.log.json_text import whole
from trailmark.operators.protocol import AnyOperator, State
from trailmark.records import NO_BATCH, Loss, SegmentLink
from trailmark.recovery.restore import process_anew
from trailmark.values import dataclass

#: Attribute of output footers: what was done before the batch, if it was.
CAUGHT_UP = "caught_up"
_MOST = 2**62


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """What a bucket did to bring an older table up to a batch.

    Attributes
    ----------
    after
        The batch that the table was the state after.
    batches, tuples
        What has been processed since.
    took_us
        Microseconds it took.
    recovery_us
        Microseconds that a recovery had been predicted to take.
    """

    after: int
    batches: int
    tuples: int
    took_us: int
    recovery_us: int

    def describe(self) -> dict[str, int]:
        """As it is written into the footer of the batch that follows."""
        return asdict(self)

    @classmethod
    def from_attributes(cls, found: object) -> CaughtUp | None:
        """From a footer; None where it says nothing of the kind."""
        if not isinstance(found, Mapping):
            return None
        try:
            return cls(*(whole(found.get(field.name), 0, _MOST) for field in fields(cls)))
        except ValueError:
            return None

    def __str__(self) -> str:
        return (
            f"a table {units.some(self.batches, 'batch')} old caught up in "
            f"{units.duration(self.took_us)} (a recovery: {units.duration(self.recovery_us)} "
            f"predicted): {units.some(self.tuples, 'tuple')} processed"
        )


@dataclass(frozen=True, slots=True)
class Way:
    """What leads from the end of one batch to that of another: their accounts, the oldest first,
    and the tuples of all but the first."""

    after: int
    accounts: tuple[Account, ...]
    tuples: int

    @property
    def start(self) -> Account:
        return self.accounts[0]

    @property
    def end(self) -> Account:
        return self.accounts[-1]

    @property
    def target(self) -> int:
        return self.after + len(self.accounts) - 1


def find_way(
    output: StreamLog, inputs: StreamLog, after: SegmentLink, target: int, *, writes: bool = True
) -> Way | None:
    """The way from the state after a segment to the end of batch ``target``; None if there is none,
    or a recovery is predicted to be quicker. With ``writes``, what footprints of all pieces take
    is counted, too: the next batch may have to write them."""
    try:
        footer, checksum = output.read_footer(after.batch)
        if checksum != after.checksum:
            return None
        start, (newest, _) = _account(output, footer), output.read_footer(target)
        end = _account(output, newest)
        way = Way(after.batch, (start, end), max(0, end.inputs_total - start.inputs_total))
        rates = Rates.from_attributes(newest.attributes.get("rates"))
        if _cost_us(way, target - after.batch, rates, writes=writes) > end.predicted_us:
            return None
        if not {after.batch + 1, target} <= set(inputs.batches()):
            return None
        accounts = [start]
        for batch in range(after.batch + 1, target + 1):
            footer, _ = output.read_footer(batch)
            if _went_around(footer):
                return None
            accounts.append(_account(output, footer))
    except (DamagedSegment, MissingSegment):
        return None
    if any(account.loss is Loss.BOUNDED for account in accounts):
        return None
    return replace(way, accounts=tuple(accounts))


def _account(output: StreamLog, footer: Footer) -> Account:
    return Account.of(footer, Origin(output.reader.segment_path(footer.batch)))


def _cost_us(way: Way, batches: int, rates: Rates, *, writes: bool) -> float:
    processed = rates.process_us * replay_rows(batches, way.tuples)
    written = rates.footprint_us * way.end.open_windows if writes else 0.0
    return rates.open_us + processed + written


def _went_around(footer: Footer) -> bool:
    """Whether there was a recovery before the batch that has met damage or loss: what is kept to
    go around more of it is not in these accounts."""
    found = footer.attributes.get("recovery")
    return isinstance(found, Mapping) and bool(found.get("skipped") or "lost" in found)


def is_at(ledger: Ledger, after: int, account: Account) -> bool:
    """Whether a ledger is that of a state after a batch with this account."""
    if ledger.first + len(ledger) - 1 != after:
        return False
    newest = ledger.newest
    return (newest.records, newest.inputs) == (account.records_total, account.inputs_total)


def catch_up(
    way: Way,
    operator: AnyOperator,
    state: State,
    ledger: Ledger,
    inputs: StreamLog,
    *,
    marks_openings: bool = False,
) -> Account | None:
    """Takes a state and its ledger along the way; the account of where they are then. None if they
    did not get there, and are of no use any more.

    With ``marks_openings`` pieces have the batch that they opened in, in the place of footprints,
    and these stay right.
    """
    after = way.after
    try:
        for batch, _ in process_anew(
            operator, state, inputs, after + 1, way.target, marks_openings=marks_openings
        ):
            account = way.accounts[batch - after]
            ledger.append(batch, account.totals(ledger.newest.excess))
            ledger.forget_before(account.first_segment - 1)
    except (DamagedSegment, MissingSegment):
        return None  # trimmed meanwhile, or damaged: a recovery may need less of it
    end = way.end
    if state.open_windows != end.open_windows or _looks_too_far(operator, state, end):
        return None
    if not marks_openings:
        state.forget_footprints()
    return replace(end, oldest=NO_BATCH) if end.open_windows else end


def _looks_too_far(operator: AnyOperator, state: State, end: Account) -> bool:
    """Whether it refers to tuples that need not be kept any more: a state that was recovered
    meanwhile may have let go of more."""
    looks_back = operator.looks_back(state)
    if looks_back is None:
        return False
    return end.looks_back is None or looks_back < end.looks_back
