"""A join made again from the description of its logs, and from the code of its condition."""

from __future__ import annotations

from trailmark.errors import SettingError
from trailmark.log import OperatorMeta
from trailmark.operators.join.logged import described_join, join_title
from trailmark.operators.join.operator import Join
from trailmark.operators.logged import understanding
from trailmark.operators.user_code import code_needed


def rebuild_join(meta: OperatorMeta, code: object) -> Join:
    """The join that wrote these logs; ``code`` is its condition, if it has one."""
    with understanding():
        described_join(meta)
        has_condition = meta.operator["has_condition"]
    if has_condition and code is None:
        raise code_needed(f"the condition of the {join_title(meta.operator)}")
    if code is None:
        return described_join(meta)
    if not has_condition or not callable(code):
        what = "takes a function" if has_condition else "has no condition"
        raise SettingError(
            f"The {join_title(meta.operator)} {what}, and {type(code).__name__} was given.",
            where="operator",
            fix="Give the function that tm.join was given as condition, or nothing if it was none.",
        )
    return described_join(meta, code)
