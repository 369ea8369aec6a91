"""What a bucket finds in the cache: the table of the batch before, or an older one, which is then
brought up to it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from trailmark.checkpoint.account import Account
from trailmark.checkpoint.noted import Bounds
from trailmark.checkpoint.policy import Policy, marked_openings
from trailmark.checkpoint.rates import Rates
from trailmark.engine.logs import OperatorLogs
from trailmark.engine.notes import BucketNotes
from trailmark.engine.numbers import results_given
from trailmark.engine.state import BucketState, layout_of
from trailmark.errors import CacheFull, CacheLost, DamagedSegment, MissingSegment
from trailmark.log import MonotonicClock, Origin, StreamLog
from trailmark.operators.protocol import AnyOperator, History
from trailmark.records import Fingerprint, Foundation, Loss, SegmentLink
from trailmark.recovery.catching_up import CaughtUp, Way, catch_up, find_way, is_at
from trailmark.state.cache import CachedBucket, StateCache, Token
from trailmark.values import dataclass

_log = logging.getLogger("trailmark")


@dataclass(frozen=True, slots=True)
class _Logged:
    """What the output log says of a batch: its segment, where the bucket stood after it, which
    policy it had, which results had been given, and what was known of costs."""

    link: SegmentLink
    account: Account
    policy: object
    results: Fingerprint | None
    rates: Rates


@dataclass(frozen=True, slots=True)
class Found:
    """A state, and how it was brought up to date if it had to be; or why there is none, and where
    to build it anew, if anywhere."""

    state: BucketState | None
    cached: CachedBucket | None = None
    why: str = ""
    caught_up: CaughtUp | None = None


class Tables:
    """The tables of one bucket in the caches of this host."""

    def __init__(
        self,
        operator: AnyOperator,
        logs: OperatorLogs,
        policy: Policy,
        inputs: StreamLog,
        history: History,
        output: StreamLog,
        cache: StateCache | None,
        now_us: MonotonicClock,
        loss: Loss,
    ) -> None:
        self._operator = operator
        self._logs = logs
        self._policy = policy
        self._inputs = inputs
        self._history = history
        self._output = output
        self._cache = cache
        self._now_us = now_us
        self._loss = loss
        self._bucket = output.identity.bucket
        self._full: list[Path] = []
        self._moves_for: CacheFull | CacheLost | None = None

    def find(self, target: int, started: float, *, writes: bool = True) -> Found:
        """The state at the end of batch ``target``, if the cache has it or something that leads to
        it. ``writes``: whether a batch follows at once, which may have to write footprints."""
        if self._cache is None:
            self._say_where(None)
            return Found(None, why="no cache")
        read_logged = cache(self._logged)
        is_current = partial(self._is_current, target=target, read_logged=read_logged)
        cached, token, why = self._cache.acquire(
            self._logs.log_id, self._bucket, is_current, without=self._full
        )
        self._say_where(cached)
        if cached is None:
            return Found(None, why=why)
        try:
            if token is None:
                older = self._find_older(cached, target, started, writes=writes)
                return older or Found(None, cached, why)
            logged = read_logged(target)
            assert logged is not None
            return Found(self._state(cached, token, logged, started))
        except (KeyError, TypeError, ValueError):  # of another version, or nobody's
            return Found(None, cached, "no whole table in the cache")
        except BaseException as error:
            if isinstance(error, CacheFull):
                self.give_up(cached)
            cached.close()
            raise

    def sweep(self) -> None:
        """Removes tables that nobody uses."""
        if self._cache is not None:
            self._cache.sweep(self._logs.clock(), self._now_us())

    def give_up(self, cached: CachedBucket) -> None:
        """There was no room for the table there, and nobody shall try again in vain."""
        self._full.append(cached.root)
        cached.give_up()

    def move(self, error: CacheFull | CacheLost) -> None:
        """From now on the bucket keeps its state where there is room, or in private memory: the
        cache only saves time."""
        if isinstance(error, CacheLost):
            self._cache = None
        self._moves_for = error

    def _say_where(self, cached: CachedBucket | None) -> None:
        error, self._moves_for = self._moves_for, None
        if error is None:
            return
        if cached is None:
            what = "works without its cache"
        else:
            what = f"keeps its state in {cached.root} from now on"
        why = f"{error.what.removesuffix('.')} in {error.where}. {error.fix}"
        _log.warning("bucket %d %s: %s", self._bucket, what, why)

    def _is_ours(self, token: Token) -> bool:
        """Whether the table is one of this bucket, in a form that is understood."""
        whose = (token.log_id, token.bucket, token.layout)
        return whose == (self._logs.log_id, self._bucket, layout_of(self._operator))

    def _is_current(
        self, token: Token, target: int, read_logged: Callable[[int], _Logged | None]
    ) -> bool:
        """Whether the table is the state after the segment that is in the log."""
        if token.output.batch != target or not self._is_ours(token):
            return False
        logged = read_logged(target)
        return logged is not None and logged.link == token.output

    def _logged(self, batch: int) -> _Logged | None:
        try:
            footer, checksum = self._output.read_footer(batch)
            origin = Origin(self._output.reader.segment_path(batch))
            account, results = Account.of(footer, origin), results_given(footer, origin)
        except (DamagedSegment, MissingSegment):
            return None
        attributes = footer.attributes
        rates = Rates.from_attributes(attributes.get("rates"))
        link = SegmentLink(batch, checksum)
        return _Logged(link, account, attributes.get("policy"), results, rates)

    def _state(
        self, cached: CachedBucket, token: Token, logged: _Logged, now_us: float
    ) -> BucketState:
        """The state that a token names. What is right or wrong comes from the log; the token is
        believed in what only costs are about."""
        notes = BucketNotes(self._policy.begin())
        # No input was kept that footprints could be replayed from.
        begins_anew = logged.account.loss is Loss.BOUNDED and self._loss is Loss.NONE
        noted = token.notes["bucket"]
        if logged.policy == self._policy.describe() and not begins_anew and noted is not None:
            # What another policy has noted is of no use, and so is what it noted of another state.
            notes.read_json(noted, Bounds(token.output.batch, now_us))
        operator, history = self._operator, self._history
        state = BucketState.from_token(operator, history, cached, token, logged.account, notes)
        state.results = logged.results
        # Batches that windows opened in are not to be taken for footprints, or these for them.
        changes_marks = self._policy.marks_openings != marked_openings(logged.policy)
        if changes_marks and self._operator.rebuilds_from_openings:
            state.pieces.forget_footprints()
        if begins_anew:
            state.begin_anew()
        return state

    # An older table

    def _find_older(
        self, cached: CachedBucket, target: int, started: float, *, writes: bool
    ) -> Found | None:
        """The state of the batch, from an older table; None if there is none, or the log does not
        lead from it to there."""
        token = cached.token()
        if token is None or not self._is_ours(token):
            return None
        if not self._logs.first_batch <= token.output.batch < target:
            return None
        if self._loss is Loss.BOUNDED:
            return None  # no input is kept
        way = find_way(self._output, self._inputs, token.output, target, writes=writes)
        old, new = self._logged(token.output.batch), self._logged(target)
        if way is None or old is None or new is None:
            return None
        state = self._state(cached, token, old, started)
        if not self._advance(state, way, old, new):
            state.pieces.memory.close()
            return Found(None, cached, f"the cached table did not lead to batch {target}")
        caught_up = CaughtUp(
            token.output.batch,
            target - token.output.batch,
            way.tuples,
            int(self._now_us() - started),
            new.account.predicted_us,
        )
        return Found(state, caught_up=caught_up)

    def _advance(self, state: BucketState, way: Way, old: _Logged, new: _Logged) -> bool:
        """Takes a state along the way; tells whether it got there."""
        if not is_at(state.ledger, way.after, way.start):
            return False
        state.begin_change()
        try:
            account = catch_up(
                way,
                self._operator,
                state.pieces,
                state.ledger,
                self._inputs,
                marks_openings=self._marks(old, new),
            )
        except BaseException:
            state.pieces.memory.close()
            raise
        if account is None:
            return False
        state.batch = way.target
        state.account = account
        state.output = new.link
        state.results = new.results
        state.rates = new.rates
        # What was noted is about the batch that the table was of, and the time that it was done.
        state.notes = BucketNotes(self._policy.begin())
        state.ended_us = None
        return True

    def _marks(self, old: _Logged, new: _Logged) -> bool:
        """Whether the table has the batches that pieces opened in, and all input since is kept."""
        policy, is_marked = self._policy, marked_openings(old.policy)
        if not (policy.marks_openings and self._operator.rebuilds_from_openings and is_marked):
            return False
        return new.account.foundation is Foundation.NOTHING
