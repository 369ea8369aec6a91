"""One bucket of an operator: takes batches in, in order, and answers with their results.

A batch goes through six steps; `ingest` is the first, `operate` the others::

    1  publish the input segment
    2  open the state: the cached table, which may have to catch up; else recover
    3  process the batch; what is tentative of it, on a fork of the state
    4  choose footprints
    5  publish the output segment: the commit point
    6  hand the results out, and mark the table as the state after this batch

A batch that is in the output log already is answered from there. Whoever finds at step 1 or 5 that
somebody else has published the same batch throws its own work away and goes on from the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Any

import pyarrow as pa

from trailmark.checkpoint.account import Account
from trailmark.checkpoint.choose import Chosen
from trailmark.checkpoint.policy import Policy
from trailmark.engine.checkpoints import Checkpoints
from trailmark.engine.forking import Answered, Forking, check_told
from trailmark.engine.logs import OperatorLogs
from trailmark.engine.losses import LossText, asked_loss, check_may_lose
from trailmark.engine.numbers import RESULTS_GIVEN, given_after
from trailmark.engine.opening import Opened, StateKeeper
from trailmark.engine.output import logged_report, output_attributes, output_frames
from trailmark.engine.policies import check_policy
from trailmark.engine.ports import PortTimes, fingerprint_of, port_attributes
from trailmark.engine.refusals import (
    bucket_before,
    check_evaluated,
    check_number,
    check_order,
    check_same_input,
    goes_backward,
    select_columns,
)
from trailmark.engine.report import BatchReport
from trailmark.engine.snapshots import SnapshotWriter
from trailmark.engine.state import BucketState
from trailmark.engine.tentative import Tentative, times_attribute
from trailmark.engine.upkeep import BucketUpkeep
from trailmark.errors import BatchGoesBackward, CacheFull, CacheLost
from trailmark.log import (
    Appending,
    MonotonicClock,
    Origin,
    PortRows,
    Published,
    TrimReport,
    monotonic_us,
    port_frames,
    read_tentative,
)
from trailmark.operators.protocol import AnyOperator, BatchInput, Outcome, State
from trailmark.records import (
    ALARM,
    CLOCK,
    NO_BATCH,
    START_OF_LOG,
    Fingerprint,
    Loss,
    SegmentLink,
)
from trailmark.recovery import InputHistory, batch_input
from trailmark.state.cache import StateCache
from trailmark.values import dataclass


@dataclass(slots=True)
class Ingested:
    """A batch whose input is in the log, or on its way there."""

    given: BatchInput
    digest: Fingerprint
    times: PortTimes
    of_ports: Mapping[str, Any]
    appending: Appending | None
    link: SegmentLink | None
    tentative: Tentative | None = None
    tentative_rows: PortRows | None = None

    def settle(self) -> tuple[SegmentLink, bool]:
        """Waits for the input segment; tells whether it is ours."""
        if self.appending is None:
            assert self.link is not None
            return self.link, True
        published = self.appending.result()
        return published.link, published.created


class Bucket:
    """A bucket of an operator, for one process at a time.

    Parameters
    ----------
    operator
        What is computed.
    logs
        Where the operator's logs are.
    number
        Which bucket this is.
    policy
        When windows are checked again.
    cache
        Where tables are kept between batches for the processes of this host; None keeps them in
        this object only.
    now_us
        A clock that never goes back, in microseconds; measures work, and so bounds it.
    retain_batches
        Output that no recovery needs is removed when it is so many batches old; None keeps all of
        it, merged into large files.
    answers_older
        Whether a batch is answered from the log when a later one is there too. Without it, that is
        refused: who asks for it has gone back.
    in_step
        Whether no bucket begins a batch before all have taken the one before. Then a bucket that
        was left out is noticed by another.
    beside
        Who removes and merges files beside the batches; None starts a thread for it.
    loss
        Whether a recovery rebuilds the state as it was, from input that is kept for it, or loads
        what the output log has of it and counts what is lost.
    """

    def __init__(
        self,
        operator: AnyOperator,
        logs: OperatorLogs,
        number: int,
        policy: Policy,
        cache: StateCache | None = None,
        now_us: MonotonicClock = monotonic_us,
        *,
        retain_batches: int | None = None,
        answers_older: bool = True,
        in_step: bool = False,
        beside: Executor | None = None,
        loss: LossText | Loss = Loss.NONE,
    ) -> None:
        loss = asked_loss(loss)
        check_may_lose(operator, loss)
        check_policy(operator, policy)
        self.operator = operator
        self.number = number
        self._logs = logs
        self._now_us = now_us
        self._inputs = logs.input(number)
        self._output = logs.output(number)
        self._snapshots = SnapshotWriter(logs.snapshots(number))
        history = InputHistory(self._inputs, operator.ports)
        self._keeper = StateKeeper(
            operator,
            logs,
            policy,
            self._inputs,
            history,
            self._output,
            self._snapshots.log,
            cache,
            now_us,
            loss,
        )
        self._checkpoints = Checkpoints(
            operator,
            policy,
            number,
            self._output,
            history,
            self._snapshots,
            now_us,
            loss,
        )
        self._forking = Forking(operator, self._inputs, history)
        self._upkeep = BucketUpkeep(
            logs, self._inputs, self._output, self._snapshots.log, retain_batches, beside, now_us
        )
        self._answers_older = answers_older
        # The watermark of a batch is computed from the batch before of every bucket.
        is_checked = in_step and all(port.event_time is None for port in operator.ports)
        before = bucket_before(number, logs.meta.buckets)
        self._neighbour = logs.output(before) if is_checked and before != number else None

    def run(
        self,
        batch: int,
        given: pa.Table | pa.RecordBatch | PortRows,
        tentative: PortRows | None = None,
    ) -> BatchReport:
        """Takes a batch in and returns its results, once the log has them.

        ``tentative`` are tuples whose input is not complete: their results are tentative, too.
        """
        check_number(batch, self._logs.first_batch, self._output.directory)
        where = f"input of bucket {self.number}"
        rows = select_columns(self.operator.ports, given, where)
        if tentative is not None:
            tentative = select_columns(self.operator.ports, tentative, where)
        digest = fingerprint_of(rows, tentative)
        if self._output.contains(batch):
            return self._answer_from_log(batch, digest)
        try:
            return self.operate(self.ingest(batch, rows, digest, tentative))
        except BatchGoesBackward:
            if not self._output.contains(batch):
                raise
            return self._answer_from_log(batch, digest)  # somebody else did it since we looked

    def state(self) -> State | None:
        """The state, if this process holds it at the moment."""
        state = self._keeper.state
        return None if state is None else state.pieces

    def close(self, *, lingers: bool = False) -> None:
        """Lets other processes have the state, and waits for what is done beside the batches.

        With ``lingers`` a snapshot that is being written is left to the threads of this process,
        which has to live on for that.
        """
        self._keeper.drop()
        try:
            self._upkeep.close()
        finally:
            self._inputs.close()
            self._output.close()
            if not lingers:
                self._snapshots.close()

    # 1  the input segment

    def ingest(
        self,
        batch: int,
        rows: PortRows,
        digest: Fingerprint,
        tentative: PortRows | None = None,
    ) -> Ingested:
        """Begins to publish the input; what is in the log already comes from there."""
        if self._inputs.contains(batch):
            return self._ingested_before(batch, digest)
        rows = self.operator.arrange(rows)
        watermark = self._logs.watermark(batch)
        times = PortTimes.of(rows, self.operator.ports)
        attributes = {**watermark.to_attributes(), **times.to_attributes()}
        facts = watermark.tentative
        check_told(tentative, facts, Origin(self._inputs.reader.segment_path(batch)))
        if tentative is not None and tentative.num_rows:
            tentative = self.operator.arrange(tentative)
            attributes |= times_attribute(PortTimes.of(tentative, self.operator.ports))
        now_us = self._logs.clock() if self.operator.uses_clock else None
        if now_us is not None:
            attributes[CLOCK] = now_us
        given = BatchInput.of(batch, rows, watermark.before, watermark.at, now_us)
        previous = self._input_link(batch)
        if self._neighbour is not None and batch > self._logs.first_batch:
            check_evaluated(self._neighbour, batch)
        appending = self._inputs.begin_append(
            batch,
            port_frames(rows, tentative),
            previous=previous,
            fingerprint=digest,
            time_range=times.whole,
            attributes=attributes,
        )
        of_ports = port_attributes(attributes)
        return Ingested(given, digest, times, of_ports, appending, None, facts, tentative)

    def _ingested_before(self, batch: int, digest: Fingerprint) -> Ingested:
        segment = self._inputs.read(batch)
        check_same_input(segment, digest)
        self._inputs.settle(batch)
        given = batch_input(segment, self.operator.ports)
        times = PortTimes.logged(segment.footer, len(self.operator.ports), segment.origin)
        of_ports = port_attributes(segment.footer.attributes)
        return Ingested(
            given,
            digest,
            times,
            of_ports,
            None,
            segment.link,
            Tentative.logged(segment.footer, segment.origin),
            read_tentative(segment, self.operator.ports),
        )

    def _input_link(self, batch: int) -> SegmentLink:
        state = self._keeper.after(batch - 1)
        if state is not None and state.inputs is not None:
            return state.inputs
        newest = self._output.newest()
        if newest == NO_BATCH and batch == self._logs.first_batch:
            return START_OF_LOG
        check_order(batch, newest, self._logs.first_batch, self._output.directory)
        _, checksum = self._inputs.read_footer(batch - 1)
        return SegmentLink(batch - 1, checksum)

    # 2 to 6

    def operate(self, ingested: Ingested) -> BatchReport:
        """Processes an ingested batch and publishes its output."""
        try:
            return self._operate(ingested)
        except (CacheFull, CacheLost) as error:
            self._keeper.move(error)
            return self.operate(ingested)

    def _operate(self, ingested: Ingested) -> BatchReport:
        batch = ingested.given.batch
        try:
            state, recovery, caught_up = opened = self._keeper.open(batch)
            state.begin_change()
            given = self._checkpoints.prepare(ingested.given, state)
            started = self._now_us()
            outcome = self.operator.process(state.pieces, given)
            tuples = ingested.digest.rows
            state.rates = state.rates.after_processing(tuples, self._now_us() - started)
            chosen, now = self._checkpoints.choose(state, batch, outcome, tuples)
            link, is_ours = ingested.settle()
            if not is_ours:
                self._keeper.drop()
                return self.operate(self._ingested_before(batch, ingested.digest))
            facts = ingested.tentative
            stands_from = None if facts is None else facts.stands_from
            account = self._checkpoints.account(
                state, batch, chosen, now, given.watermark, stands_from
            )
            answered = self._answer(state, ingested)
            chose = self._now_us()
            given_out = (
                None if state.results is None else given_after(state.results, outcome.results)
            )
            published = self._publish(
                opened, batch, ingested, outcome, chosen, account, answered, given_out
            )
            if not published.created:
                self._keeper.drop()
                return self._answer_from_log(batch, ingested.digest)
            ended = self._now_us()
            self._checkpoints.learn(
                state,
                batch,
                chosen,
                outcome.results.num_rows,
                took_us=ended - started,
                publish_us=ended - chose,
            )
            self._checkpoints.write_copy(state, published.link, chosen)
            self._commit(state, batch, account, published.link, link, given_out)
        except BaseException as error:
            self._keeper.drop(is_full=isinstance(error, CacheFull))
            raise
        self._upkeep.begin(account, batch)
        return BatchReport(
            batch,
            self.number,
            self.operator.publish(outcome.results),
            account,
            late=None if outcome.late is None else pa.Table.from_batches([outcome.late]),
            late_rows=outcome.late_rows,
            late_updates=outcome.late_updates,
            null_times=outcome.null_times,
            footprints_opened=chosen.opened,
            footprints_checked=chosen.checked,
            output_bytes=published.bytes,
            recovery=recovery,
            caught_up=caught_up,
            tentative=None if answered is None else self.operator.publish(answered.results),
        )

    def _answer(self, state: BucketState, ingested: Ingested) -> Answered | None:
        """The tentative results of a batch, where something is tentative."""
        if ingested.tentative is None:
            return None
        return self._forking.answer(
            state.pieces, ingested.given, ingested.tentative_rows, ingested.tentative
        )

    def _publish(
        self,
        opened: Opened,
        batch: int,
        ingested: Ingested,
        outcome: Outcome,
        chosen: Chosen,
        account: Account,
        answered: Answered | None,
        given_out: Fingerprint | None,
    ) -> Published:
        policy, state = self._checkpoints.policy, opened.state
        attributes = output_attributes(
            outcome,
            chosen,
            account,
            policy,
            state.rates,
            opened.recovery,
            opened.caught_up,
            ingested.tentative,
            answered,
        )
        alarm_us = self.operator.next_alarm(state.pieces)
        if alarm_us is not None:
            attributes[ALARM] = alarm_us
        if given_out is not None:
            attributes[RESULTS_GIVEN] = [given_out.rows, given_out.digest]
        return self._output.append(
            batch,
            output_frames(outcome, chosen, answered),
            previous=state.output,
            fingerprint=ingested.digest,
            time_range=ingested.times.whole,
            attributes={**attributes, **ingested.of_ports},
        )

    def _commit(
        self,
        state: BucketState,
        batch: int,
        account: Account,
        output: SegmentLink,
        inputs: SegmentLink,
        results: Fingerprint | None,
    ) -> None:
        state.ledger.append(batch, account.totals(state.ledger.newest.excess))
        state.ledger.forget_before(account.first_segment - 1)
        state.batch = batch
        state.account = account
        state.results = results
        state.output = output
        state.inputs = inputs
        state.end_change(self.operator, self._logs.log_id, self.number)

    # Afterwards

    def trim(self, acknowledged: int | None = None) -> list[TrimReport]:
        """Removes input that no recovery will ask for any more, and waits for that.

        Output is kept as long as ``acknowledged`` does not say that every consumer has the batches
        before that one; what a recovery or a named reader needs is kept all the same.
        """
        self._upkeep.wait()
        state = self._keeper.state
        return [] if state is None else self._upkeep.trim(state.account, state.batch, acknowledged)

    def _answer_from_log(self, batch: int, digest: Fingerprint) -> BatchReport:
        if not self._answers_older and self._output.contains(batch + 1):
            raise goes_backward(batch, "the log holds later ones", self._output.directory)
        segment = self._output.read(batch)
        check_same_input(segment, digest)
        self._output.settle(batch)
        return logged_report(self.operator, self.number, segment)
