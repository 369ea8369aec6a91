"""A query whose clock moves with the work it does, and by nothing else.

Every run takes the same simulated time, so that a recovery time can be predicted, measured and
compared with an objective to the microsecond.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tests.support.cases import Case
from tests.support.oracle import Identity
from tests.support.orders import Order, count_case
from tests.support.plain import plain_rows
from tests.support.recount import Recount
from trailmark.checkpoint.policy import Policy
from trailmark.checkpoint.rates import Rates, Work
from trailmark.engine import BatchReport, Bucket, OperatorLogs
from trailmark.log import Footer
from trailmark.log.storage import LocalStorage
from trailmark.operators.aggregate import Aggregate
from trailmark.operators.identities import Identities
from trailmark.operators.protocol import BatchInput, Outcome
from trailmark.records import NO_BATCH, FootprintKind
from trailmark.state.table import Slots, StateTable
from trailmark.testing.disk import ROOT, SimulatedDisk


@dataclass(frozen=True)
class Costs:
    """Microseconds. A hundred times what a small machine takes, for a hundredth of the rows."""

    open: float = 20_000.0
    read_segment: float = 24_000.0
    look: float = 30.0
    load: float = 10.0
    batch: float = 20_000.0
    tuple: float = 10.0
    footprint: float = 10.0
    #: How much longer a tuple takes in a recovery.
    replay_factor: float = 1.0


class WorkClock:
    """Shows how much work was done."""

    def __init__(self) -> None:
        self.now_us = 0.0

    def __call__(self) -> float:
        return self.now_us

    def spend(self, us: float) -> None:
        self.now_us += us


class WorkedStorage(LocalStorage):
    """Looking after a log for the first time costs something, and so does reading a segment."""

    def __init__(self, disk: SimulatedDisk, clock: WorkClock, costs: Costs) -> None:
        super().__init__(ROOT, file_system=disk)
        self._work = clock
        self._costs = costs

    def clean(self, directory: str) -> list[str]:
        if directory.startswith("out/"):
            self._work.spend(self._costs.open)
        return super().clean(directory)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        if path.endswith(".seg") and not offset:
            self._work.spend(self._costs.read_segment)
        return super().read(path, offset, length)


class WorkedIdentities(Identities):
    """Every record that a recovery looks at takes its time."""

    def __init__(self, like: Identities, clock: WorkClock, costs: Costs) -> None:
        self.__dict__.update(like.__dict__)
        self._work = clock
        self._costs = costs

    def add(self, rows: pa.RecordBatch, seen: StateTable) -> npt.NDArray[np.bool_]:
        self._work.spend(self._costs.look * rows.num_rows)
        return super().add(rows, seen)


class WorkedAggregate(Aggregate):
    """The aggregate of a case; every row, record and footprint takes its time."""

    def __init__(self, case: Case, clock: WorkClock, costs: Costs) -> None:
        super().__init__(
            case.schema, by=case.by, window=case.window, values=case.values, late=case.late
        )
        self.identities = WorkedIdentities(self.identities, clock, costs)
        self._work = clock
        self._costs = costs
        #: The batch that is live, and when it began to be processed.
        self.live = 0
        self.began_us = 0.0

    def _take(self, given: BatchInput) -> None:
        work = self._costs.batch + self._costs.tuple * given.rows.num_rows
        self._work.spend(work if given.batch == self.live else work * self._costs.replay_factor)

    def process(self, table: StateTable, given: BatchInput) -> Outcome:
        self.began_us = self._work.now_us
        self._take(given)
        return super().process(table, given)

    def replay(self, table: StateTable, given: BatchInput, where: str) -> None:
        self._take(given)
        super().replay(table, given, where)

    def load(self, table: StateTable, footprints: pa.RecordBatch, where: str) -> None:
        self._work.spend(self._costs.load * footprints.num_rows)
        super().load(table, footprints, where)

    def footprints(self, table: StateTable, slots: Slots, opened: int) -> pa.RecordBatch:
        self._work.spend(self._costs.footprint * len(slots))
        return super().footprints(table, slots, opened)


@dataclass(repr=False)
class Worked:
    """One bucket of a case on a simulated disk, by its own clock; ``idle_us`` pass between two
    batches."""

    case: Case
    policy: Policy
    costs: Costs = field(default_factory=Costs)
    disk: SimulatedDisk = field(default_factory=SimulatedDisk)
    next_batch: int = 0
    idle_us: float = 0.0
    clock: WorkClock = field(default_factory=WorkClock)

    def __post_init__(self) -> None:
        self.operator = WorkedAggregate(self.case, self.clock, self.costs)
        self._bucket: Bucket | None = None

    def logs(self) -> OperatorLogs:
        storage = WorkedStorage(self.disk, self.clock, self.costs)
        return OperatorLogs(storage, self.operator, buckets=1, query_id="query")

    def step(self) -> BatchReport:
        """Runs the next batch."""
        if self._bucket is None:
            self._bucket = Bucket(self.operator, self.logs(), 0, self.policy, now_us=self.clock)
        self.operator.live = self.next_batch
        report = self._bucket.run(self.next_batch, self.case.batches[self.next_batch])
        self.next_batch += 1
        self.clock.spend(self.idle_us)
        return report

    def restart(self) -> None:
        if self._bucket is not None:
            self._bucket.close()
        self._bucket = None

    def recovery_us(self) -> float:
        """How long a new process would take until it begins with the next batch."""
        twin = self._twin()
        report = twin.step()
        assert report.recovery is not None
        twin.restart()
        return twin.operator.began_us

    def _twin(self) -> Worked:
        return Worked(self.case, self.policy, self.costs, self.disk.copy(), self.next_batch)

    def footer(self, batch: int) -> Footer:
        return self.logs().output(0).read_footer(batch)[0]


class Counted(Worked):
    """The same, with every row of both logs counted."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.recount = Recount(self.case)
        self._oracle = self.case.oracle()

    def step(self) -> BatchReport:
        report = super().step()
        batch = report.batch
        self._oracle.process(batch, plain_rows(self.case.batches[batch]))
        now_us, logs = self.clock.now_us, self.logs()
        self.recount.add(logs.input(0).read(batch), logs.output(0).read(batch), self._oracle)
        self.clock.now_us = now_us  # looking is free
        return report

    def rates(self, batch: int) -> Rates:
        """What the policy knew when it chose."""
        return Rates.from_attributes(self.footer(batch).attributes["rates"])

    def ages_before(self, batch: int) -> dict[Identity, int]:
        """Of every window open at the end of a batch, the footprint it had before that batch wrote
        any: NO_BATCH if none."""
        recount = self.recount
        known = recount.ages(batch - 1) if batch else {}
        opened = recount.open_after[batch - 1]
        return {
            window: known[window] if opened.get(window) == at else NO_BATCH
            for window, at in recount.open_after[batch].items()
        }

    def written(self, batch: int, kind: FootprintKind) -> set[Identity]:
        return {f.identity for f in self.recount.footprints if f.batch == batch and f.kind == kind}

    def work_from(self, oldest: int, batch: int, footprints: int) -> Work:
        """What a recovery would have to do after a batch if the oldest footprint were of another
        one, and the batch had written only so many."""
        recount = self.recount
        made = sum(f.batch == batch for f in recount.footprints)
        return Work(
            batch - oldest + 1,
            recount.records(oldest, batch) - made + footprints,
            batch - oldest,
            recount.tuples(oldest + 1, batch),
        )


def uniform_orders(rng: random.Random, *, batches: int, rows: int, items: int) -> list[list[Order]]:
    """Every item as often as any other."""
    return [
        [(rng.randrange(items), rng.randrange(100)) for _ in range(rows)] for _ in range(batches)
    ]


def skewed_orders(rng: random.Random, *, batches: int, rows: int, items: int) -> list[list[Order]]:
    """The n-th item is as often as its number says: Zipf's law."""
    weights = [1 / (item + 1) for item in range(items)]
    chosen = [rng.choices(range(items), weights, k=rows) for _ in range(batches)]
    return [[(item, rng.randrange(100)) for item in batch] for batch in chosen]


def mixed_orders(rng: random.Random, *, batches: int, rows: int) -> list[list[Order]]:
    """A hundred fast items, and ten slow ones that come once in a while."""
    made = []
    for batch in range(batches):
        fast = [(rng.randrange(100), rng.randrange(100)) for _ in range(rows)]
        slow = [(100 + item, 1) for item in range(10) if (batch + item) % 7 == 0]
        made.append(fast + slow)
    return made


def workloads(batches: int) -> dict[str, Case]:
    """Windows of ten, that all stay open about as long, or not."""
    rng = random.Random(5)
    made = {
        "uniform": uniform_orders(rng, batches=batches, rows=150, items=110),
        "skewed": skewed_orders(rng, batches=batches, rows=150, items=110),
        "mixed": mixed_orders(rng, batches=batches, rows=150),
    }
    return {name: count_case(rows, size=10) for name, rows in made.items()}
