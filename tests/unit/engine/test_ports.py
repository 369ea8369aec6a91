"""An operator with two inputs: its watermark, its digest, and what is refused."""

from __future__ import annotations

import random

import pytest

from tests.support.engine import Query
from tests.support.pairing import in_order, random_pairing
from trailmark.checkpoint.policy import Continuous
from trailmark.engine.ports import fingerprint_of
from trailmark.engine.watermark import Watermark
from trailmark.errors import SchemaChanged
from trailmark.log import PortRows
from trailmark.testing.disk import SimulatedDisk


@pytest.mark.parametrize("seed", range(20))
def test_the_watermark_is_that_of_the_slowest_port(seed: int) -> None:
    case = random_pairing(random.Random(seed))
    query = Query(case, SimulatedDisk(), Continuous(), buckets=2)
    latest: list[int | None] = [None, None]
    before: int | None = None
    for batch, rows in enumerate(case.batches):
        marks = [
            None if at is None else at - delay
            for at, delay in zip(latest, case.delays_us, strict=True)
        ]
        known = [mark for mark in marks if mark is not None]
        expected = min(known) if len(known) == 2 else None
        reports = query.run(batch, case.split(rows, 2))
        logs = query.logs()
        for bucket in range(2):
            attributes = logs.input(bucket).read(batch).footer.attributes
            assert attributes["watermark"] == expected
            assert attributes["late_before"] == before
            assert attributes["port_watermarks"] == marks
        assert [report.account.watermark for report in reports] == [expected] * 2
        for port, row in in_order(rows):
            latest[port] = max(row["at"], latest[port] or 0)
        before = expected
        outputs = [logs.output(bucket).read_footer(batch)[0] for bucket in range(2)]
        inputs = [logs.input(bucket).read_footer(batch)[0] for bucket in range(2)]
        ports = case.operator().ports
        assert Watermark.behind(outputs, ports) == Watermark.behind(inputs, ports)
    query.stop()


def test_a_digest_knows_the_port_of_every_row_and_not_their_order() -> None:
    rng = random.Random(1)
    case = next(c for c in iter(lambda: random_pairing(rng), None) if c.batches[0].num_rows > 10)
    rows = case.batches[0]
    assert fingerprint_of(case.shuffled(rows, rng)) == fingerprint_of(rows)
    left, right = rows.tables
    names = left.schema.names
    swapped = PortRows((right.rename_columns(names), left.rename_columns(names)), rows.order)
    assert fingerprint_of(swapped).digest != fingerprint_of(rows).digest


def test_rows_for_another_number_of_inputs_are_refused() -> None:
    case = random_pairing(random.Random(3))
    query = Query(case, SimulatedDisk(), Continuous())
    with pytest.raises(SchemaChanged, match="has 2 inputs; rows for 1 were given"):
        query.run(0, [case.batches[0].tables[0]])
    query.stop()
