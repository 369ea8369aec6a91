"""What replicas have, as one Arrow table."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from trailmark.errors import UnknownFormat
from trailmark.streams.answers import Answers
from trailmark.streams.replicas.reading import Reading
from trailmark.streams.replicas.shown import Shown
from trailmark.streams.table import check_columns


def table_of_replicas(
    replicas: Reading, columns: Sequence[str] | None, answers: Answers, paths: Sequence[str]
) -> pa.Table:
    """All that the furthest of them has: results that stand, and the tentative ones that nothing
    has replaced where ``answers`` asks for them."""
    whole, first = replicas.whole(), replicas.first()
    if whole is None or first is None:
        raise UnknownFormat(
            f"There is no replica at {', '.join(paths) or 'no path'}.",
            where="path",
            fix="Give the paths that operators with numbered=True were given.",
        )
    shown = Shown(first.schema, answers)
    wanted = check_columns(shown, columns)
    parts = [
        rows
        for path, pieces in replicas.plan(whole.start, whole.end, whole.suffix.path).items()
        for piece in pieces
        for rows in shown.stable(replicas, path, piece, wanted)
    ]
    if answers is Answers.CURRENT:
        for piece in replicas.plan_suffix(whole.suffix):
            parts += shown.tentative(replicas, whole.suffix, piece, wanted)
    schema = pa.schema([shown.schema.field(name) for name in wanted])
    return pa.Table.from_batches(parts, schema)
