"""Which policies are for which operators."""

from __future__ import annotations

from trailmark.checkpoint.policy import Policy
from trailmark.errors import SettingError
from trailmark.operators.protocol import AnyOperator


def check_policy(operator: AnyOperator, policy: Policy) -> None:
    """Refuses a policy that writes other pieces than an operator has, or could not rebuild them."""
    name = type(policy).__name__
    if policy.writes_groups_of is not None and operator.group_size is None:
        raise SettingError(
            f"{name} writes the windows of a join, group by group, and the state of this operator "
            "is not cut into groups.",
            where="checkpoint",
            fix="tm.Delta(every) writes what has changed of any state.",
        )
    if policy.writes_groups_of is not None and policy.writes_groups_of != operator.group_size:
        raise SettingError(
            f"The state of the operator is cut into groups of {operator.group_size:,} tuples, and "
            f"{name} was given a group_size of {policy.writes_groups_of:,}.",
            where="checkpoint",
        )
    if operator.group_size is not None and policy.mixes_ages:
        raise SettingError(
            f"Under {name} a recovery begins with footprints of different ages and brings each up "
            "to date by itself. Groups of tuples cannot be: what one gets depends on the others.",
            where="checkpoint",
            fix="Use tm.Incremental(every, group_size), tm.Delta or tm.FullSnapshot.",
        )
