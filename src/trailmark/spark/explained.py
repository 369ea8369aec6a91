"""What `tm.explain` has to say, as values that can be printed. Nothing here knows Spark."""

from __future__ import annotations

from collections.abc import Iterator

from trailmark import units
from trailmark.records import NO_BATCH
from trailmark.values import dataclass

#: The names of facts are as wide as this.
_WIDTH = 10


@dataclass(frozen=True, slots=True)
class LogsNow:
    """What the logs of an operator say of it at the moment.

    Attributes
    ----------
    batch
        The newest batch of any bucket; NO_BATCH if there is none yet.
    pieces
        How much state is open in all buckets: windows, for an aggregate.
    predicted_us
        The longest recovery that is predicted for a bucket; None if that is not known.
    other_policy
        The policy that the newest batch was written under, if it was another one; else empty.
    warnings
        What is wrong with a bucket.
    """

    batch: int
    pieces: int
    predicted_us: int | None
    other_policy: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExplainedOperator:
    """An operator of Trailmark.

    Attributes
    ----------
    policy, promise
        The policy in words, and what a recovery can rely on under it.
    objective_us
        How long a recovery may take, if the policy has such an objective.
    caution
        What to know before it runs; empty if there is nothing.
    path, logs
        Where its logs are, and what they say. None for an operator that does not stream, and an
        empty path for one without a policy: they have none. ``logs`` are None also before the first
        batch.
    trouble
        Why the logs cannot be read; empty if they can.
    """

    buckets: int
    policy: str
    promise: str
    objective_us: int | None = None
    caution: str = ""
    path: str | None = None
    logs: LogsNow | None = None
    trouble: str = ""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with the logs, or with what they can promise; empty if nothing is."""
        return (self.trouble,) if self.trouble else () if self.logs is None else self.logs.warnings

    def lines(self) -> Iterator[str]:
        """All of it but the title, warnings last."""
        if self.path is None:
            yield _fact("runs", f"as one batch, in memory, in {units.some(self.buckets, 'bucket')}")
        else:
            yield _fact("policy", ": ".join(filter(None, (self.policy, self.promise))))
            place = [self.path] if self.path else []
            yield _fact("path", ", ".join([*place, units.some(self.buckets, "bucket")]))
            if self.path and not self.trouble:
                yield from self._logs_lines()
        if self.caution:
            yield _fact("note", self.caution)
        yield from (f"! {warning}" for warning in self.warnings)

    def _logs_lines(self) -> Iterator[str]:
        logs = self.logs
        if logs is None or logs.batch == NO_BATCH:
            yield _fact("logs", "no batch yet")
            return
        yield _fact("logs", f"batch {logs.batch}, {units.some(logs.pieces, 'piece')} of state open")
        if logs.other_policy:
            yield _fact("so far", f"under {logs.other_policy}")
        if logs.predicted_us is not None:
            asked = f" (objective {units.duration(self.objective_us)})" if self.objective_us else ""
            yield _fact("recovery", f"would take about {units.duration(logs.predicted_us)}{asked}")


@dataclass(frozen=True, slots=True)
class Step:
    """A node of the tree: an operator of Trailmark, or something of Spark's that only has a
    title."""

    title: str
    inputs: tuple[Step, ...] = ()
    operator: ExplainedOperator | None = None

    def operators(self) -> Iterator[ExplainedOperator]:
        """The operators from here on, down to the sources."""
        if self.operator is not None:
            yield self.operator
        for each in self.inputs:
            yield from each.operators()

    def lines(self) -> Iterator[str]:
        """The tree, drawn as Spark draws its own."""
        yield self.title
        margin = ":    " if self.inputs else "     "
        if self.operator is not None:
            yield from (f"{margin}{line}" for line in self.operator.lines())
        for place, each in enumerate(self.inputs, 1):
            first, others = ("+- ", "   ") if place == len(self.inputs) else (":- ", ":  ")
            for line in each.lines():
                yield f"{first}{line}"
                first = others


@dataclass(frozen=True, slots=True)
class Explanation:
    """The operators of a DataFrame, and what they read. Its text is what `tm.explain` prints."""

    steps: tuple[Step, ...]

    @property
    def operators(self) -> tuple[ExplainedOperator, ...]:
        """Trailmark's operators, from the result down to the sources."""
        return tuple(operator for step in self.steps for operator in step.operators())

    def __str__(self) -> str:
        lines = ["== Trailmark Operators =="]
        if not self.operators:
            lines.append("There are none in this plan.")
        for step in self.steps:
            lines += step.lines()
        return units.printable("\n".join(lines))


def _fact(name: str, text: str) -> str:
    return f"{name:<{_WIDTH}}{text}"
