"""Results of replicas as readers see them: with the columns that go with the answers they want."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from trailmark.records import MARK
from trailmark.streams.answers import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    INSERT,
    UNDO,
    Answers,
    marked_schema,
)
from trailmark.streams.replicas.numbered import Piece
from trailmark.streams.replicas.place import Place
from trailmark.streams.replicas.reading import Reading, Suffix
from trailmark.streams.replicas.tentative import TentativePiece
from trailmark.values import dataclass

#: Columns that no replica has: those that answers may be given with.
ADDED = frozenset({MARK, CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP})


@dataclass(frozen=True, slots=True)
class Decision:
    """What the rows of a change feed say of where they come from: which decision has given them
    out, and when."""

    number: int = 0
    decided_us: int = 0

    @classmethod
    def of(cls, place: Place) -> Decision:
        """The one that leads to a place."""
        return cls(place.told.number, place.decided_us)


#: Of rows that no change feed has.
NO_DECISION = Decision()


class Shown:
    """Rows with these columns, some of which their replica does not know.

    Parameters
    ----------
    results
        The columns of an operator's results.
    answers
        Which results are asked for.
    """

    source_schema = None

    def __init__(self, results: pa.Schema, answers: Answers) -> None:
        self._own = results
        self.schema = results if answers is Answers.STABLE else marked_schema(results, answers)
        if answers is Answers.CHANGES:  # who undoes names no row
            self.schema = pa.schema([field.with_nullable(True) for field in self.schema])

    def stable(
        self,
        replicas: Reading,
        path: str,
        piece: Piece,
        columns: Sequence[str],
        decision: Decision = NO_DECISION,
    ) -> Iterator[pa.RecordBatch]:
        """Results that stand."""
        for rows in replicas.read(path, piece, self._read(columns)):
            yield self._with(rows, columns, INSERT, decision, is_tentative=False)

    def tentative(
        self,
        replicas: Reading,
        suffix: Suffix,
        piece: TentativePiece,
        columns: Sequence[str],
        decision: Decision = NO_DECISION,
    ) -> Iterator[pa.RecordBatch]:
        """Results that are tentative."""
        for rows in replicas.read_suffix(suffix, piece, self._read(columns)):
            yield self._with(rows, columns, INSERT, decision, is_tentative=True)

    def undo(self, columns: Sequence[str], number: int, decided_us: int) -> pa.RecordBatch:
        """A row that says: what is tentative and came before a decision is void."""
        own = [self._own.field(name) for name in self._read(columns)]
        nothing = pa.RecordBatch.from_arrays(
            [pa.nulls(1, field.type) for field in own], names=[field.name for field in own]
        )
        decision = Decision(number, decided_us)
        return self._with(nothing, columns, UNDO, decision, is_tentative=True)

    def _read(self, columns: Sequence[str]) -> list[str]:
        """What is read for these columns: one at least, as rows without any cannot be counted."""
        return [name for name in columns if name in self._own.names] or self._own.names[:1]

    def _with(
        self,
        rows: pa.RecordBatch,
        columns: Sequence[str],
        change: str,
        decision: Decision,
        *,
        is_tentative: bool,
    ) -> pa.RecordBatch:
        values: Mapping[str, Any] = {
            MARK: is_tentative,
            CHANGE_TYPE: change,
            COMMIT_VERSION: decision.number,
            COMMIT_TIMESTAMP: decision.decided_us,
        }
        fields = [self.schema.field(name) for name in columns]
        arrays = [
            rows.column(rows.schema.names.index(field.name))
            if field.name in self._own.names
            else pa.repeat(pa.scalar(values[field.name], field.type), rows.num_rows)
            for field in fields
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
