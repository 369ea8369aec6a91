"""What a plan of Spark's says of an operator in it.

Spark's plan of an operator is a function and columns. So a note goes with it, in the metadata of
the operator's control rows, which nobody but the operator ever sees. Wherever Spark takes the plan,
through views, joins and unions, the note is there, and when the plan is gone so is the note.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from trailmark.records import Loss
from trailmark.spark.task import Plan
from trailmark.values import dataclass

#: The name of the note among other metadata.
_KEY = "trailmark.operator"
#: What an operator without a policy promises.
_UNLOGGED = "keeps no logs and costs nothing; its state is lost when the query stops"


@dataclass(frozen=True, slots=True)
class PlanNote:
    """An operator as it was asked for; ``operator`` and ``policy`` as they describe themselves. One
    without a policy has no logs. ``inputs`` are the names of those that stream."""

    operator: Mapping[str, Any]
    path: str
    buckets: int
    policy: Mapping[str, Any] | None
    promise: str
    is_streaming: bool
    inputs: tuple[str, ...] = ()

    @classmethod
    def of(cls, plan: Plan, *, is_streaming: bool) -> PlanNote:
        """What there is to be noted of a plan."""
        policy = plan.policy
        promise = _UNLOGGED if policy is None else policy.promise()
        if plan.loss is Loss.BOUNDED:
            promise = f"{promise}; but replays nothing, and loses what it would replay (loss)"
        return cls(
            plan.operator.describe(),
            plan.path,
            plan.buckets,
            None if policy is None else policy.describe(),
            promise,
            is_streaming,
            tuple(port.name for port in plan.inputs.ports),
        )

    def to_metadata(self) -> dict[str, str]:
        """The note as metadata of a column. Spark's own JSON has no lists in lists."""
        return {_KEY: json.dumps(asdict(self))}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any] | None) -> PlanNote | None:
        """The note in the metadata of a column, if there is one."""
        text = (metadata or {}).get(_KEY)
        return None if text is None else cls(**json.loads(text))
