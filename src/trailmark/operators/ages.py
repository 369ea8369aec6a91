"""What the footprints of every operator have beside its state: their kind and age, as numbers."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from trailmark.kernel.columns import column_type, numbers, single
from trailmark.records import KIND, OPENED, FootprintKind
from trailmark.state.table import LAST_BATCH

# As plain numbers: NumPy takes several times as long to make one of a member of an enumeration.
OPEN, CHECK = int(FootprintKind.OPEN), int(FootprintKind.CHECK)


def without_kinds(footprints: pa.RecordBatch) -> pa.RecordBatch:
    """Footprints without the reasons why they would be written."""
    return footprints.select([name for name in footprints.schema.names if name != KIND])


def age_trouble(
    rows: pa.RecordBatch, batch: int, others: Mapping[str, tuple[int, int]] | None = None
) -> str:
    """What is wrong with the names of the columns of a batch's footprints, with their kinds and
    ages, and with ``others``, whole numbers from one to another; empty if nothing is."""
    names = rows.schema.names
    if len(set(names)) < len(names):
        return "has two columns of the same name"
    bounds = {KIND: (OPEN, CHECK), OPENED: (0, min(batch, LAST_BATCH)), **(others or {})}
    for name, (least, most) in bounds.items():
        kind = column_type(rows, name)
        if kind is None or not pa.types.is_signed_integer(kind) or rows.column(name).null_count:
            return f"has no whole numbers in {name!r}"
        found = numbers(single(rows.column(name)))
        if len(found) and not least <= int(found.min()) <= int(found.max()) <= most:
            return f"has numbers in {name!r} that are not from {least} to {most}"
    return ""
