"""An aggregate whose footprints carry ballast: many bytes or few, as a test says.

Writing and loading them takes simulated time by their weight. Their pieces are windows as ever.
"""

from __future__ import annotations

import pyarrow as pa

from tests.support.cases import Case
from tests.support.work import Costs, WorkClock, Worked, WorkedAggregate
from trailmark.state.table import Slots, StateTable

_BALLAST = "$ballast"
#: Bytes of a plain record.
PLAIN = 64


class BallastedAggregate(WorkedAggregate):
    """``ballast`` is how many bytes each footprint has more from now on."""

    def __init__(self, case: Case, clock: WorkClock, costs: Costs) -> None:
        super().__init__(case, clock, costs)
        self.ballast = 0

    def footprints(self, table: StateTable, slots: Slots, opened: int) -> pa.RecordBatch:
        rows = super().footprints(table, slots, opened)
        ballast = pa.array([bytes(self.ballast)] * rows.num_rows, pa.binary())
        ballasted = rows.append_column(_BALLAST, ballast)
        self._work.spend(self._costs.footprint * (self.weigh(ballasted) - rows.num_rows))
        return ballasted

    def weigh(self, footprints: pa.RecordBatch) -> int:
        return int(max(footprints.num_rows, footprints.nbytes // PLAIN))

    def trouble(self, footprints: pa.RecordBatch, batch: int) -> str:
        return super().trouble(footprints.drop_columns([_BALLAST]), batch)

    def load(self, table: StateTable, footprints: pa.RecordBatch, where: str) -> None:
        self._work.spend(self._costs.load * (self.weigh(footprints) - footprints.num_rows))
        super().load(table, footprints.drop_columns([_BALLAST]), where)


class Ballasted(Worked):
    """One bucket of such an aggregate."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.heavy = BallastedAggregate(self.case, self.clock, self.costs)
        self.operator = self.heavy

    def _twin(self) -> Worked:
        return Ballasted(self.case, self.policy, self.costs, self.disk.copy(), self.next_batch)
