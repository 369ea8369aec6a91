"""The whole operator: batches go through a user's object, whose state is one piece."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from trailmark.errors import OperatorError, SettingError
from trailmark.log import PortRows
from trailmark.operators.ages import without_kinds
from trailmark.operators.aggregate.arguments import check_column
from trailmark.operators.identities import Identities
from trailmark.operators.independent import IndependentPieces
from trailmark.operators.order import check_orderable, in_order, order_names
from trailmark.operators.protocol import BatchInput, History, Outcome, Port
from trailmark.operators.user_code import (
    call,
    check_arguments,
    check_makeable,
    check_output,
    joined,
    returned_rows,
    weight_of,
)
from trailmark.operators.whole.checkpoint import FORMS, Checkpoint
from trailmark.operators.whole.state import WholeState
from trailmark.records import FOOTPRINT, INPUT_PORT, KIND, OPENED, FootprintKind
from trailmark.state.keys import KeyLayout
from trailmark.state.memory import Memory
from trailmark.state.table import LAST_BATCH, Slots

_GET, _RESTORE = "get_checkpoint", "restore_checkpoint"
FORM, STATE = "form", "state"
_NO_COLUMNS = pa.schema([])
_FOOTPRINTS = pa.schema(
    [
        pa.field(KIND, pa.int8()),
        pa.field(OPENED, pa.int64()),
        pa.field(FORM, pa.int8()),
        pa.field(STATE, pa.binary()),
    ]
)


class Whole(IndependentPieces):
    """A user's operator bound to the schema of its input. Implements ``Operator``.

    Parameters
    ----------
    schema
        The columns of the input.
    user
        The user's class, of which every bucket has an instance, or an instance, of which every
        bucket has a copy; without state also a plain function.
    output
        The columns of the results.
    by
        The columns that decide which bucket takes a row; none of them, if all columns do.
    order_by
        Columns by which the rows of a batch are put in order.
    """

    rebuilds_from_openings = False
    uses_clock = False
    identities = copied_together = Identities(KeyLayout([]), has_start=False)

    def __init__(
        self,
        schema: pa.Schema,
        user: Any,
        *,
        output: pa.Schema,
        by: Sequence[str] = (),
        order_by: str | Sequence[str] | None = None,
    ) -> None:
        self.user = user
        self._name = getattr(user, "__qualname__", type(user).__qualname__)
        self._is_function = not inspect.isclass(user) and not hasattr(user, "process")
        self._check_methods()
        self.has_state = hasattr(user, _GET)
        self._by = list(by)
        self._order = order_names(order_by)
        for argument, columns in (("by", self._by), ("order_by", self._order)):
            for name in columns:
                check_column(schema, name, argument)
        check_orderable(schema, self._order)
        check_output(output)
        self.ports = (Port(INPUT_PORT, schema),)
        self.late_schema = schema
        self.logged_schema = self.result_schema = self.shown_schema = output

    def _check_methods(self) -> None:
        process = self.user if self._is_function else getattr(self.user, "process", None)
        if not callable(process):
            raise SettingError(
                f"{self._name} has no method process.",
                where="operator",
                fix="Write a class with def process(self, batch), which returns rows or None.",
            )
        is_class = inspect.isclass(self.user)
        if is_class:
            check_makeable(self.user, self._name)
        takes_self = is_class and inspect.isfunction(inspect.getattr_static(self.user, "process"))
        check_arguments(
            process,
            f"{self._called} cannot be called with a batch",
            "Write a function of one argument, or def process(self, batch).",
            *(["self", "batch"] if takes_self else ["batch"]),
        )
        for one, other in ((_GET, _RESTORE), (_RESTORE, _GET)):
            if hasattr(self.user, one) and not hasattr(self.user, other):
                raise SettingError(
                    f"{self._name} has {one} and no {other}.",
                    where="operator",
                    fix="Write both, or neither for an operator without state.",
                )

    @property
    def _called(self) -> str:
        """What is called with a batch."""
        return self._name if self._is_function else f"{self._name}.process"

    def _make(self) -> Any:
        """An object of this bucket's own."""
        if inspect.isclass(self.user):
            return call(self.user, self._name, 0)
        return copy.deepcopy(self.user)

    def describe(self) -> dict[str, Any]:
        described: dict[str, Any] = {
            "operator": "whole",
            "about": {"name": self._name},
            "by": self._by,
        }
        if self._order:
            described["order_by"] = self._order
        return described

    def layout_key(self) -> str:
        return "whole, in two parts"

    def arrange(self, rows: PortRows) -> PortRows:
        return PortRows((in_order(rows.tables[0], self._order),)) if self._order else rows

    def open(self, memory: Memory, history: History, *, is_new: bool = True) -> WholeState:
        return WholeState(memory, is_new=is_new)

    def looks_back(self, state: WholeState) -> None:
        """The object holds what it needs of its tuples."""

    def next_alarm(self, state: WholeState) -> None:
        """It is called with rows alone."""

    def next_due(self, state: WholeState) -> None:
        """It is called with rows alone."""

    def touched(self, state: WholeState, given: BatchInput) -> Slots:
        return state.list_oldest() if given.rows.num_rows else np.empty(0, dtype=np.int64)

    def process(self, state: WholeState, given: BatchInput) -> Outcome:
        was_open = bool(state.open_windows)
        rows = self._run(state, given)
        if self.has_state and rows is not None and not was_open:
            state.open_at(given.batch, given.footprint)
        none = np.empty(0, dtype=np.int64)
        is_changed = given.lists_changed and rows is not None
        return Outcome(
            joined([] if rows is None else [rows], self.logged_schema),
            none if was_open else state.list_oldest(),
            state.list_oldest() if is_changed else none,
            closed=joined([], _NO_COLUMNS),
        )

    def replay(self, state: WholeState, given: BatchInput, where: str) -> None:
        if state.open_windows and state.footprint < given.batch:
            self._run(state, given)

    def _run(self, state: WholeState, given: BatchInput) -> pa.RecordBatch | None:
        """Hands a batch to the object; None if it has no rows, and so the object does not see
        it."""
        if not given.rows.num_rows:
            return None
        thing = self._object(state)
        name = self._called
        method: Callable[..., Any] = thing if self._is_function else thing.process
        returned = call(method, name, given.batch, given.rows)
        rows = returned_rows(returned, self.logged_schema, name, given.batch)
        state.give_back(thing)
        if self.has_state and state.memory.directory is not None:
            self._save(state, given.batch)  # the next batch may come to another process
        return joined([], self.logged_schema) if rows is None else rows

    def _object(self, state: WholeState) -> Any:
        thing = state.take_object()
        if thing is not None:
            return thing
        thing, checkpoint = self._make(), state.checkpoint()
        if checkpoint is not None:
            name = f"{self._name}.{_RESTORE}"
            call(thing.restore_checkpoint, name, state.footprint, checkpoint.restored())
        return thing

    def _save(self, state: WholeState, batch: int) -> None:
        name = f"{self._name}.{_GET}"
        state.save(Checkpoint.of(call(state.thing.get_checkpoint, name, batch), name, batch))

    # Results and footprints

    def publish(self, results: pa.RecordBatch) -> pa.RecordBatch:
        return results

    def show(self, published: pa.RecordBatch) -> pa.RecordBatch:
        return published

    def footprints(self, state: WholeState, slots: Slots, opened: int) -> pa.RecordBatch:
        if not len(slots):
            return joined([], _FOOTPRINTS)
        if state.is_behind:
            self._save(state, state.footprint)
        checkpoint = state.checkpoint()
        assert checkpoint is not None
        kind = FootprintKind.OPEN if opened else FootprintKind.CHECK
        values = [[int(kind)], [state.opened], [checkpoint.form], [checkpoint.data]]
        arrays = [pa.array(each, f.type) for each, f in zip(values, _FOOTPRINTS, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=_FOOTPRINTS)

    def content(self, state: WholeState) -> pa.RecordBatch:
        return without_kinds(self.footprints(state, state.list_oldest(), 0))

    def widen(self, footprints: pa.RecordBatch, where: str) -> pa.RecordBatch:
        return footprints

    def weigh(self, footprints: pa.RecordBatch) -> int:
        return weight_of(footprints)

    def trouble(self, footprints: pa.RecordBatch, batch: int) -> str:
        return whole_trouble(footprints, batch)

    def load(self, state: WholeState, footprints: pa.RecordBatch, where: str) -> None:
        for row in footprints.to_pylist():  # there is one
            if state.open_windows:
                raise OperatorError(
                    "The state of a bucket is there twice.",
                    where=where,
                    fix="Run a verification of the logs; restore the damaged files from a backup.",
                )
            state.open_at(row[OPENED], row[FOOTPRINT])
            state.save(Checkpoint(row[FORM], row[STATE]))


def whole_trouble(rows: pa.RecordBatch, batch: int) -> str:
    """What is wrong with the footprints of a batch; empty if they can be loaded."""
    if not rows.schema.equals(_FOOTPRINTS):
        return "has other columns than a checkpoint"
    if rows.num_rows > 1 or any(column.null_count for column in rows.columns):
        return "is not one checkpoint"
    for row in rows.to_pylist():
        if row[KIND] not in tuple(FootprintKind) or not 0 <= row[OPENED] <= min(batch, LAST_BATCH):
            return "has numbers that no checkpoint has"
        if row[FORM] not in FORMS:
            return f"has a checkpoint of form {row[FORM]}"
        try:
            Checkpoint(row[FORM], row[STATE]).restored()
        except (pa.ArrowException, OSError, ValueError) as error:
            return f"has a checkpoint that cannot be read ({error})"
    return ""
