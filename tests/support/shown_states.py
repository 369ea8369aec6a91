"""States as readers see them, brought back to what the oracle says of open windows."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tests.support.cases import Case
from tests.support.compare import assert_same_states
from tests.support.engine import Query
from tests.support.folds import unscaled
from tests.support.oracle import Identity, Row
from tests.support.orders import count_case, random_orders
from tests.support.plain import plain_column
from trailmark.checkpoint.policy import Continuous, Policy
from trailmark.engine.commits import mark_committed
from trailmark.errors import MissingSegment
from trailmark.streams.operator_state import OperatorState, open_state
from trailmark.testing.disk import SimulatedDisk

#: Footprints now and then, so that there is something to load and something to replay.
POLICY = Continuous(q=12, u=30)
#: Columns that say where a piece is of.
_PLACE = ("batch", "bucket")
#: Columns that all aggregates have, by the names that the log gives them.
_LOGGED = {"opened": "$opened", "fill": "$fill"}


def shown_states(case: Case, table: pa.Table) -> dict[Identity, Row]:
    """The open windows of an aggregate, as the oracle describes them."""
    columns = {
        name: _plain(table[name].combine_chunks())
        for name in table.schema.names
        if name not in _PLACE
    }
    starts = columns.pop("window", columns.pop("start", [None] * table.num_rows))
    keys = list(zip(*(columns.pop(name) for name in case.by), strict=True))
    keys = keys if case.by else [()] * table.num_rows
    fields = [_LOGGED.get(name, name) for name in columns]
    states: dict[Identity, Row] = {}
    for place, identity in enumerate(zip(keys, starts, strict=True)):
        assert identity not in states, f"window {identity} is there twice"
        values = (column[place] for column in columns.values())
        states[identity] = dict(zip(fields, values, strict=True))
    for decimal in (f for f in table.schema if pa.types.is_decimal(f.type)):
        if decimal.name in columns:
            for state in states.values():
                state[decimal.name] = unscaled(state[decimal.name], decimal.type.scale)
    return states


def _plain(column: pa.Array) -> list[Any]:
    """Values; of a window its start in microseconds."""
    return plain_column(column.field("start") if pa.types.is_struct(column.type) else column)


@dataclass
class StatedQuery:
    """A query whose batches are all committed, with the states after each as the oracle has them:
    ``states[batch]`` of all buckets together."""

    query: Query
    states: list[dict[Identity, Row]] = field(default_factory=list)

    @classmethod
    def of(cls, case: Case, policy: Policy, buckets: int = 1) -> StatedQuery:
        return cls(Query(case, SimulatedDisk(), policy, buckets))

    def __post_init__(self) -> None:
        assert isinstance(self.query.case, Case)
        self.case: Case = self.query.case
        self._oracles = [self.case.oracle() for _ in range(self.query.buckets)]

    @property
    def disk(self) -> SimulatedDisk:
        return self.query.disk

    def run(self, batches: Sequence[int] | None = None) -> StatedQuery:
        """Runs these batches, or all."""
        for batch in range(len(self.case.batches)) if batches is None else batches:
            self.query.run(batch, self.case.split(self.case.batches[batch], self.query.buckets))
            mark_committed(self.disk.storage(), batch, "a run")
            logs, together = self.query.logs(), dict[Identity, Row]()
            for number, oracle in enumerate(self._oracles):
                self.case.expected(oracle, logs.input(number).read(batch))
                together |= oracle.open_windows()
            self.states.append(together)
        return self

    def open(self) -> OperatorState:
        """The state as a reader in a new process finds it."""
        return open_state(self.disk.storage(), self.case.code())

    def check(self, table: pa.Table, batch: int) -> None:
        """A table is the state at the end of a batch, and says so."""
        table.validate(full=True)
        assert set(table["batch"].to_pylist()) <= {batch}
        found = shown_states(self.case, table)
        assert_same_states(found, self.states[batch], f"state as of batch {batch}")

    def check_all(self) -> int:
        """Every batch gives its state, or is refused with some that do; how many were refused."""
        refused, choices = set(), set()
        for batch in range(len(self.states)):
            try:
                table = self.open().table(batch)
            except MissingSegment as error:
                refused.add(batch)
                choices |= offered(error)
            else:
                self.check(table, batch)
        assert not choices & refused, "what is offered can be read"
        assert not refused or len(self.states) - 1 in choices, "so can the newest"
        return len(refused)


def stated_query(case: Case | None = None, buckets: int = 2) -> StatedQuery:
    """A query that has run to its end; of a few orders if no case is given."""
    if case is None:
        case = count_case(random_orders(random.Random(5), batches=10, rows=30, items=9), size=4)
    stated = StatedQuery.of(case, POLICY, buckets).run()
    stated.query.stop()
    return stated


def offered(error: MissingSegment) -> set[int]:
    """The batches that a refusal offers."""
    found = re.search(r"Choose one of the batches (?:\.{3}, )?([\d, to]+), or none", error.fix)
    assert found is not None, error.fix
    runs = [[int(end) for end in run.split(" to ")] for run in found[1].split(", ")]
    return {batch for run in runs for batch in range(run[0], run[-1] + 1)}


def trim(query: Query, rng: random.Random) -> None:
    """Removes what no recovery needs, in some of the buckets."""
    for bucket in query.open():
        if rng.random() < 0.5:
            bucket.trim()
