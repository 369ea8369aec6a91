"""Opens the state of a bucket before a batch: the one at hand, the cached, or a recovered one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from trailmark.checkpoint.account import Account
from trailmark.checkpoint.noted import Bounds
from trailmark.checkpoint.policy import Policy, marked_openings
from trailmark.checkpoint.rates import Rates
from trailmark.engine.logs import OperatorLogs
from trailmark.engine.notes import BucketNotes
from trailmark.engine.numbers import RESULTS_GIVEN, given_after, results_given
from trailmark.engine.refusals import check_order
from trailmark.engine.state import BucketState, layout_of
from trailmark.errors import CacheFull, CacheLost, DamagedSegment, MissingSegment
from trailmark.log import MonotonicClock, Origin, StreamLog
from trailmark.operators.protocol import AnyOperator, History
from trailmark.records import (
    NO_BATCH,
    UNKNOWN_CHECKSUM,
    Fingerprint,
    Foundation,
    Loss,
    SegmentLink,
)
from trailmark.recovery import Lost, RecoveryReport, plan_recovery, restore
from trailmark.state.cache import CachedBucket, StateCache, Token
from trailmark.values import dataclass

_log = logging.getLogger("trailmark")


@dataclass(frozen=True, slots=True)
class _Logged:
    """What the output log says of a batch: its segment, where the bucket stood after it, which
    policy it had, and which results had been given."""

    link: SegmentLink
    account: Account
    policy: object
    results: Fingerprint | None


class StateKeeper:
    """Holds the state of one bucket for this process, as long as it is known to be whole."""

    def __init__(
        self,
        operator: AnyOperator,
        logs: OperatorLogs,
        policy: Policy,
        inputs: StreamLog,
        history: History,
        output: StreamLog,
        snapshots: StreamLog,
        cache: StateCache | None,
        now_us: MonotonicClock,
        loss: Loss = Loss.NONE,
    ) -> None:
        self.state: BucketState | None = None
        self._policy = policy
        self._loss = loss
        self._snapshots = snapshots
        self._operator = operator
        self._logs = logs
        self._inputs = inputs
        self._history = history
        self._output = output
        self._cache = cache
        self._now_us = now_us
        self._bucket = output.identity.bucket
        self._full: list[Path] = []
        self._moves_for: CacheFull | CacheLost | None = None

    def after(self, batch: int) -> BucketState | None:
        """The state after a batch, if it is at hand."""
        return self.state if self.state is not None and self.state.batch == batch else None

    def open(self, batch: int) -> tuple[BucketState, RecoveryReport | None]:
        """State at the end of the batch before, and what a recovery did if there was one."""
        started = self._now_us()
        at_hand = self.after(batch - 1)
        if at_hand is not None:
            return at_hand, None
        self.drop()
        cached, why = self._open_cached(batch, started)
        if self.state is not None:
            return self.state, None
        self.state = self._empty_state(cached)
        self.state.notes = BucketNotes(self._policy.begin())
        newest = self._output.newest()
        if newest == NO_BATCH and batch == self._logs.first_batch:
            return self.state, None
        check_order(batch, newest, self._logs.first_batch, self._output.directory)
        self._clear_away()
        return self.state, self._recover(self.state, batch - 1, why, started)

    def _clear_away(self) -> None:
        """A recovery follows a crash or a move: files of dead writers, tables nobody uses."""
        for log in (self._inputs, self._output, self._snapshots):
            self._logs.storage.clean(log.directory)
        if self._cache is not None:
            self._cache.sweep(self._logs.clock(), self._now_us())

    def drop(self, *, is_full: bool = False) -> None:
        """Lets the state go; with ``is_full``, for everybody: there was no room for it."""
        if self.state is None:
            return
        if is_full and self.state.cached is not None:
            self._give_up(self.state.cached)
        self.state.close()
        self.state = None

    def _give_up(self, cached: CachedBucket) -> None:
        self._full.append(cached.root)
        cached.give_up()

    def move(self, error: CacheFull | CacheLost) -> None:
        """From now on the bucket keeps its state where there is room, or in private memory: the
        cache only saves time."""
        if isinstance(error, CacheLost):
            self._cache = None
        self._moves_for = error

    def _open_cached(self, batch: int, now_us: float) -> tuple[CachedBucket | None, str]:
        """Opens the state that an earlier batch left in the cache; or else says why there is none,
        and where to build it."""
        if self._cache is None:
            self._say_where(None)
            return None, "no cache"
        read_logged = cache(partial(self._logged, batch - 1))
        is_current = partial(self._is_current, batch=batch, read_logged=read_logged)
        cached, token, why = self._cache.acquire(
            self._logs.log_id, self._bucket, is_current, without=self._full
        )
        self._say_where(cached)
        if cached is None or token is None:
            return cached, why
        logged = read_logged()
        assert logged is not None
        try:
            self.state = self._cached_state(cached, token, logged, now_us)
        except (KeyError, TypeError, ValueError):  # of another version, or nobody's
            return cached, "no whole table in the cache"
        except BaseException:
            cached.close()
            raise
        return cached, ""

    def _cached_state(
        self, cached: CachedBucket, token: Token, logged: _Logged, now_us: float
    ) -> BucketState:
        """The state that a token names. What is right or wrong comes from the log; the token is
        believed in what only costs are about."""
        notes = BucketNotes(self._policy.begin())
        # No input was kept that footprints could be replayed from.
        begins_anew = logged.account.loss is Loss.BOUNDED and self._loss is Loss.NONE
        if logged.policy == self._policy.describe() and not begins_anew:
            # What another policy has noted is of no use, and so is what it noted of another state.
            notes.read_json(token.notes["bucket"], Bounds(token.output.batch, now_us))
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

    def _is_current(
        self, token: Token, batch: int, read_logged: Callable[[], _Logged | None]
    ) -> bool:
        """Whether the table is the state after the segment that is in the log."""
        if (token.log_id, token.bucket) != (self._logs.log_id, self._bucket):
            return False
        if token.output.batch != batch - 1 or token.layout != layout_of(self._operator):
            return False
        logged = read_logged()
        return logged is not None and logged.link == token.output

    def _logged(self, batch: int) -> _Logged | None:
        try:
            footer, checksum = self._output.read_footer(batch)
            origin = Origin(self._output.reader.segment_path(batch))
            account, results = Account.of(footer, origin), results_given(footer, origin)
        except (DamagedSegment, MissingSegment):
            return None
        link = SegmentLink(batch, checksum)
        return _Logged(link, account, footer.attributes.get("policy"), results)

    def _empty_state(self, cached: CachedBucket | None) -> BucketState:
        try:
            first = self._logs.first_batch
            return BucketState.empty(self._operator, self._history, cached, first)
        except BaseException as error:
            if cached is not None:
                self._give_up(cached) if isinstance(error, CacheFull) else cached.clear()
                cached.close()
            raise

    def _recover(self, state: BucketState, target: int, why: str, started: float) -> RecoveryReport:
        opened = self._now_us()
        first = self._logs.first_batch
        plan = plan_recovery(
            self._operator,
            self._output,
            self._inputs,
            self._snapshots,
            target,
            first,
            self._loss,
        )
        planned = self._now_us()
        is_built_on_openings = plan.foundation is Foundation.NOTHING and not plan.skipped
        marks = self._policy.marks_openings and self._operator.rebuilds_from_openings
        restored = restore(
            plan,
            self._operator,
            state.pieces,
            state.ledger,
            self._output,
            self._inputs,
            first,
            self._now_us,
            marks_openings=marks and is_built_on_openings,
        )
        if marks and not is_built_on_openings:
            state.pieces.forget_footprints()
        if plan.lost is not None or plan.skipped:
            # What damage was gone around with was kept for one time.
            state.begin_anew()
        if plan.lost is not None:
            self._tell(plan.lost, target)
        state.batch = target
        state.account = restored.account
        state.output, logged = self._newest_output(target)
        if state.results is not None:
            state.results = self._results(state.results, target, restored.results)
        _, checksum = self._inputs.read_footer(target)
        state.inputs = SegmentLink(target, checksum)
        plan_us = int(planned - opened)
        # What is neither finding, loading nor replaying took as long as opening does.
        load_us, replay_us = restored.load_us, restored.replay_us
        open_us = int(self._now_us() - started) - plan_us - load_us - replay_us
        expected = Rates.from_attributes(logged.get("rates"))
        state.rates = expected.after_recovery(plan.work, open_us, plan_us + load_us, replay_us)
        found = logged.get("predicted_us")
        predicted_us = found if isinstance(found, int) else 0
        return RecoveryReport(why, plan, open_us, plan_us, load_us, replay_us, predicted_us)

    def _tell(self, lost: Lost, target: int) -> None:
        if not lost.is_nothing:
            _log.warning(
                "bucket %d recovered to the end of batch %d with loss: %s",
                self._bucket,
                target,
                lost,
            )

    def _results(
        self, given: Fingerprint, target: int, anew: Mapping[int, pa.RecordBatch]
    ) -> Fingerprint:
        """What the bucket has given: by the newest footer that can be read, and by what the batches
        since gave when they were processed anew; before all of them, ``given``."""
        since: list[int] = []
        for batch in range(target, self._logs.first_batch - 1, -1):
            try:
                footer, _ = self._output.read_footer(batch)
            except DamagedSegment:
                since.append(batch)
                continue
            origin = Origin(self._output.reader.segment_path(batch))
            found = results_given(footer, origin)
            if found is None:
                raise origin.mismatch(0, f"{RESULTS_GIVEN!r} is missing")
            given = found
            break
        for batch in reversed(since):
            given = given_after(given, anew[batch])
        return given

    def _newest_output(self, batch: int) -> tuple[SegmentLink, Mapping[str, Any]]:
        """Link and attributes of the newest output; no attributes if it is damaged."""
        try:
            footer, checksum = self._output.read_footer(batch)
        except DamagedSegment:
            return SegmentLink(batch, UNKNOWN_CHECKSUM), {}
        return SegmentLink(batch, checksum), footer.attributes
