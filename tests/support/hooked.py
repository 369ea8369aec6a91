"""An aggregate that lets a test look in, or step in, while a batch is under way."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.cases import Case
from tests.support.engine import CrashCase
from trailmark.operators.aggregate import Aggregate
from trailmark.operators.protocol import BatchInput, Outcome
from trailmark.state.table import StateTable


def _nothing() -> None:
    return None


class HookedAggregate(Aggregate):
    """The aggregate of a case; the hooks run before and after the table has taken a batch in."""

    def __init__(
        self,
        case: CrashCase,
        *,
        before: Callable[[], None] = _nothing,
        after: Callable[[], None] = _nothing,
        on_replay: Callable[[int], None] | None = None,
    ) -> None:
        assert isinstance(case, Case), "the hooks are those of an aggregate"
        super().__init__(**case.arguments())
        self._before = before
        self._after = after
        self._on_replay = on_replay

    def process(self, table: StateTable, given: BatchInput) -> Outcome:
        self._before()
        outcome = super().process(table, given)
        self._after()
        return outcome

    def replay(self, table: StateTable, given: BatchInput, where: str) -> None:
        if self._on_replay is not None:
            self._on_replay(given.batch)
        super().replay(table, given, where)
