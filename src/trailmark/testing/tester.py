"""`tm.testing.run`: an operator, without Spark, through crashes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa

from trailmark.checkpoint.policy import Continuous, Policy
from trailmark.cli.terminal import Bar
from trailmark.engine.arguments import asked_policy, check_buckets
from trailmark.errors import RecoveryDiffers, SettingError
from trailmark.log import PortRows
from trailmark.settings import parse_duration
from trailmark.testing.batches import read_batches, split, without_rows
from trailmark.testing.crashes import Crash, CrashAt, planned_crashes
from trailmark.testing.differences import Done, compare_batches, compare_states, raised_after
from trailmark.testing.query import Bound, as_query
from trailmark.testing.report import Report
from trailmark.testing.runs import Parts, Run


def run(
    operator: Any,
    batches: Iterable[Any],
    crash_at: CrashAt = None,
    *,
    schema: pa.Schema | Mapping[str, pa.Schema] | None = None,
    checkpoint: Policy | None = None,
    recover_within: str | timedelta | None = None,
    buckets: int = 1,
    reorder: bool = True,
    power_failures: bool = False,
    clock_step: str | timedelta = "1 second",
    seed: int = 0,
) -> Report:
    """Run an operator without Spark, crash it, let it recover, and compare.

    The batches are run without a crash first, twice: the same batches have to give the same. Then
    they are run with crashes. After each, a new process has nothing but the logs: your functions
    are as they were when ``run`` was called, whatever they had kept. The batch is delivered again,
    and results, late rows and the state of every open window have to be those of the run without a
    crash, bit for bit, after that batch and all others; so has the state that is recovered in the
    end.

    Parameters
    ----------
    operator
        What is computed: :func:`trailmark.testing.aggregate`, :func:`trailmark.testing.apply`,
        :func:`trailmark.testing.join` or :func:`trailmark.testing.barrier`.
    batches
        A list of batches: Arrow tables or record batches, lists of dictionaries, pandas DataFrames.
        Of an operator with several inputs, dictionaries with one of these for each input; their
        rows come one input after another.
    crash_at
        None runs the batches without a crash. A batch number, or a :class:`Crash`, ends the process
        there; a list of these ends several processes in one run. ``"everywhere"`` runs the batches
        once for each single operation on the storage, and ends the process at that one.
    schema
        The types of the columns, where batches are lists of dictionaries; of several inputs, a
        dictionary with a schema for each.
    checkpoint, recover_within
        As :func:`trailmark.aggregate` takes them. Default: targets so small that recoveries both
        load footprints and replay input. What passes under one policy has to pass under any.
    buckets
        Parts of the state.
    reorder
        Whether a batch is delivered again with its rows in another order, as Spark may do it. What
        was logged first counts.
    power_failures
        Whether ``"everywhere"`` is tried with power failures, too.
    clock_step
        How much time passes from batch to batch by the clock, for operators that use it. The first
        batch is at the beginning of 2026.
    seed
        What is random (orders, and what a power failure leaves) follows from it.

    Returns
    -------
    Report
        Results, and how much was tried; print it.

    Raises
    ------
    RecoveryDiffers
        An ``AssertionError``: a crash made a difference. It says which crash, and which rows.

    Examples
    --------
    >>> import trailmark as tm
    >>> query = tm.testing.aggregate(
    ...     by="item", window=tm.count_window(2), values={"total": tm.sum("price")}
    ... )
    >>> report = run(query, [[{"item": 1, "price": 5}], [{"item": 1, "price": 6}]], crash_at=1)
    >>> report.results.to_pylist()
    [{'item': 1, 'total': 11}]
    """
    query = as_query(operator)
    rows = read_batches(batches, schema, query.inputs)
    check_buckets(buckets)
    if buckets > 1 and not query.by:
        raise SettingError("Without keys there is only one bucket.", where="buckets")
    if not isinstance(seed, int):
        raise SettingError(f"seed must be a whole number, got {seed!r}.", where="seed")
    policy = asked_policy(checkpoint, recover_within, default=_small_targets(rows))
    # Refuses what does not fit the columns.
    bound = Bound(query, tuple(table.schema for table in rows[0].tables), policy)
    parts: list[Parts] = [split(each, query.by, buckets) for each in rows]
    step_us = parse_duration(clock_step, "clock_step")
    test = _Test(bound, policy, buckets, reorder, seed, parts, step_us)
    test.run_uninterrupted(is_repeated=crash_at is not None)
    test.run_through(planned_crashes(crash_at, test.operations, power_failures=power_failures))
    return test.report()


def _small_targets(rows: Sequence[PortRows]) -> Policy:
    """A recovery replays a batch or two, and builds on footprints of different ages."""
    return Continuous(u=2 * sum(each.num_rows for each in rows) // len(rows))


class _Test:
    """The runs of one test, and the uninterrupted one that all others are compared with."""

    def __init__(
        self,
        bound: Bound,
        policy: Policy,
        buckets: int,
        reorder: bool,
        seed: int,
        parts: list[Parts],
        clock_step_us: int,
    ) -> None:
        self._bound = bound
        self._clock_step_us = clock_step_us
        self._policy = policy
        self._buckets = buckets
        self._reorder = reorder
        self._seed = seed
        self._parts = parts
        self._expected: list[Done] = []
        self._reference = self._new_run(seed)
        self._runs: list[Run] = []

    @property
    def operations(self) -> list[int]:
        return self._reference.operations

    def _new_run(self, seed: int) -> Run:
        return Run(
            self._bound, self._policy, self._buckets, seed, self._reorder, self._clock_step_us
        )

    def run_uninterrupted(self, *, is_repeated: bool) -> None:
        """What has to come out; a second time, to know that it is not chance."""
        run = self._reference
        for batch, parts in enumerate(self._parts):
            self._expected.append(run.batch(batch, parts))
        last = len(self._parts) - 1
        if run.is_another_due(last):
            empty = [without_rows(part) for part in self._parts[last]]
            self._parts.append(empty)
            self._expected.append(run.batch(last + 1, empty))
        run.stop()
        if is_repeated:
            again = self._new_run(self._seed)
            for batch, parts in enumerate(self._parts):
                compare_batches(batch, again.batch(batch, parts), self._expected[batch], ())
            again.stop()

    def run_through(self, plans: Sequence[tuple[Crash, ...]]) -> None:
        """Runs all batches once for each plan of crashes."""
        with Bar("running:") as bar:
            for number, crashes in enumerate(plans):
                bar.begin(str(crashes[0]), number + 1, len(plans))
                run = self._new_run(self._seed + number)
                self._runs.append(run)
                self._run_one(run, crashes)

    def _run_one(self, run: Run, crashes: tuple[Crash, ...]) -> None:
        batch = 0
        try:
            for batch, parts in enumerate(self._parts):
                here = [crash for crash in crashes if crash.batch == batch]
                done = run.batch(batch, parts, here)
                compare_batches(batch, done, self._expected[batch], run.happened)
            states = run.recover(batch)
            expected = self._expected[batch].states
            compare_states("recovered in the end", states, expected, run.happened)
        except (RecoveryDiffers, SettingError):
            raise
        except Exception as error:  # whatever it is, the run without a crash did not raise it
            raise raised_after(error, batch, run.happened) from error
        finally:
            run.stop()

    def report(self) -> Report:
        recoveries = [recovery for run in self._runs for recovery in run.recoveries]
        return Report(
            tuple(pa.Table.from_batches(done.results) for done in self._expected),
            tuples=sum(part.num_rows for parts in self._parts for part in parts),
            operations=sum(self._reference.operations),
            runs=len(self._runs),
            crashes=sum(len(run.happened) for run in self._runs),
            recoveries=len(recoveries),
            tuples_replayed=sum(recovery.plan.replay_tuples for recovery in recoveries),
            footprints=self._reference.footprints,
            seed=self._seed,
        )
