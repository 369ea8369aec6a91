"""The state of a bucket between batches: the table, its ledger, and where the logs stand."""

from __future__ import annotations

import hashlib
import json
from dataclasses import field

from trailmark.checkpoint.account import Account, empty_account
from trailmark.checkpoint.changes import Changes
from trailmark.checkpoint.ledger import Ledger
from trailmark.checkpoint.rates import Rates
from trailmark.engine.notes import BucketNotes
from trailmark.engine.numbers import NOTHING_GIVEN
from trailmark.operators.protocol import AnyOperator, History, State
from trailmark.operators.slices import is_in_slices
from trailmark.records import START_OF_LOG, Fingerprint, SegmentLink
from trailmark.state.cache import CachedBucket, Token, boot_id
from trailmark.state.memory import Memory
from trailmark.values import dataclass

#: Raised when headers, slots, ledger or notes change: tables of other versions are not used.
_TABLE_FORMAT = 6


@dataclass(slots=True)
class BucketState:
    """State at the end of batch ``batch``; lives in the cache, or in private memory.

    ``inputs`` is known to whoever has done the batch. ``ended_us`` is when it ended, by a clock
    that never goes back. ``begins_anew``: no recovery would lead to this state as it is, so that
    the next batch has to write all of it. ``results``: what the bucket has given, None where
    results have no numbers.
    """

    batch: int
    pieces: State
    ledger: Ledger
    account: Account
    output: SegmentLink
    inputs: SegmentLink | None
    cached: CachedBucket | None = None
    notes: BucketNotes = field(default_factory=BucketNotes)
    rates: Rates = field(default_factory=Rates)
    ended_us: float | None = None
    begins_anew: bool = False
    results: Fingerprint | None = None
    _changes: Changes | None = None

    @classmethod
    def empty(
        cls,
        operator: AnyOperator,
        history: History,
        cached: CachedBucket | None,
        first_batch: int,
    ) -> BucketState:
        """State before the first batch."""
        memory = Memory() if cached is None else cached.memory(is_new=True)
        try:
            pieces = operator.open(memory, history)
            ledger = Ledger(memory)
            ledger.start(first_batch - 1, empty_account(first_batch).totals())
        except BaseException:
            memory.close()
            raise
        account = empty_account(first_batch)
        found = cls(first_batch - 1, pieces, ledger, account, START_OF_LOG, START_OF_LOG, cached)
        if is_in_slices(operator.describe()):
            found.results = NOTHING_GIVEN
        return found

    @classmethod
    def from_token(
        cls,
        operator: AnyOperator,
        history: History,
        cached: CachedBucket,
        token: Token,
        account: Account,
        notes: BucketNotes,
    ) -> BucketState:
        """State left by an earlier batch on this host; raises ``ValueError``, ``TypeError`` or
        ``KeyError`` if that cannot be."""
        rates = Rates.from_token(token.notes["rates"])
        memory = cached.memory(is_new=False)
        try:
            pieces = operator.open(memory, history, is_new=False)
            ledger = Ledger(memory)
            if not memory.files().items() <= token.files.items():
                raise ValueError("the table has files that the token does not know")
        except BaseException:
            memory.close()
            raise
        batch, output = token.output.batch, token.output
        return cls(
            batch, pieces, ledger, account, output, None, cached, notes, rates, token.ended_us
        )

    def changes(self) -> Changes:
        """Which windows have changed, for the policies that keep count of it."""
        if self._changes is None:
            self._changes = Changes(self.pieces.memory)
        return self._changes

    def begin_anew(self) -> None:
        """What was written of it so far does not lead to it: the next batch writes all of it."""
        self.pieces.forget_footprints()
        self.begins_anew = self.pieces.open_windows > 0

    def begin_change(self) -> None:
        if self.cached is not None:
            self.cached.begin_change()

    def end_change(
        self, operator: AnyOperator, log_id: str, bucket: int, *, is_noted: bool = True
    ) -> None:
        """Says that the table is whole again. Unless ``is_noted``, nothing is left of what a policy
        has noted: none was at work."""
        if self.cached is None:
            return
        noted = self.notes.to_json() if is_noted else None
        notes = {"bucket": noted, "rates": self.rates.to_attributes()}
        token = Token(
            boot_id(),
            log_id,
            bucket,
            self.output,
            layout_of(operator),
            self.pieces.memory.files(),
            notes,
            self.ended_us,
        )
        self.cached.end_change(token)

    def close(self) -> None:
        """Lets other processes have the table."""
        self.pieces.memory.close()
        if self.cached is not None:
            self.cached.close()


def layout_of(operator: AnyOperator) -> str:
    """Changes when the bytes of a state mean something else."""
    parts = [_TABLE_FORMAT, operator.describe(), operator.layout_key()]
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
