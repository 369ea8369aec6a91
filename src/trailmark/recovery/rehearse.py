"""A rehearsal: reads a segment back and loads some of its footprints on the side, to learn how long
that takes before it matters."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from trailmark.checkpoint.account import Account
from trailmark.checkpoint.rates import Rates, Work
from trailmark.kernel.columns import arrow_fixed, contiguous
from trailmark.log import MonotonicClock, StreamLog
from trailmark.operators.protocol import AnyOperator, History
from trailmark.records import FOOTPRINT, FrameKind
from trailmark.recovery.gathered import records_of
from trailmark.state.memory import Memory

#: Footprints that weigh less say more about fixed costs than about the cost of one.
LIGHTEST = 1_000
#: More would only take longer.
_HEAVIEST = 20_000


def rehearse_load(
    operator: AnyOperator,
    output: StreamLog,
    history: History,
    batch: int,
    rates: Rates,
    now_us: MonotonicClock,
) -> Rates:
    """The rates after the segment of a batch was read back."""
    started = now_us()
    segment = output.read(batch)
    table = segment.table(FrameKind.FOOTPRINTS)
    assert table is not None
    read_us = now_us() - started
    excess = Account.of(segment.footer, segment.origin).footprints_excess
    most = max(1, _HEAVIEST * table.num_rows // (table.num_rows + excess))
    footprints = contiguous(table.slice(0, most))
    ages = arrow_fixed(np.full(footprints.num_rows, batch, dtype=np.int64), pa.int64())
    started = now_us()
    operator.identities.add(footprints, operator.identities.new_set())
    operator.load(
        operator.open(Memory(), history),
        footprints.append_column(FOOTPRINT, ages),
        output.directory,
    )
    load_us = now_us() - started
    whole = Work(segments=1, records=records_of(segment.footer), excess=excess)
    loaded = operator.weigh(footprints)
    return rates.after_loading(whole, read_us + load_us * whole.weight / loaded)
