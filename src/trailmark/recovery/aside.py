"""The state at the end of a batch, rebuilt in private memory for whoever only looks at it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trailmark.checkpoint.ledger import Ledger
from trailmark.errors import MissingInput
from trailmark.log import StreamLog, monotonic_us
from trailmark.operators.protocol import AnyOperator, State
from trailmark.recovery.history import InputHistory
from trailmark.recovery.plan import plan_recovery
from trailmark.recovery.restore import restore
from trailmark.state.memory import Memory


@contextmanager
def recovered_aside(
    operator: AnyOperator,
    output: StreamLog,
    inputs: StreamLog,
    snapshots: StreamLog,
    target: int,
    first_batch: int,
) -> Iterator[State]:
    """The state that a recovery to the end of batch ``target`` gives, as long as it is looked at.

    Nothing is written, and no cache is touched. What cannot be rebuilt raises.
    """
    plan = plan_recovery(operator, output, inputs, snapshots, target, first_batch)
    if plan.lost is not None and not plan.lost.is_nothing:
        raise MissingInput(
            f"It was written with loss='bounded', and the input that leads to it was not kept: "
            f"missing are {plan.lost}.",
            where=inputs.directory,
            fix="Ask for a batch at whose end every piece has a footprint.",
        )
    memory, beside = Memory(), Memory()
    try:
        state: State = operator.open(memory, InputHistory(inputs, operator.ports))
        restore(plan, operator, state, Ledger(beside), output, inputs, first_batch, monotonic_us)
        yield state
    finally:
        memory.close()
        beside.close()
