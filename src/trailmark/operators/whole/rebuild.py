"""A whole operator made again from the description of its logs, and from its code."""

from __future__ import annotations

from trailmark.log import OperatorMeta
from trailmark.operators.logged import understanding
from trailmark.operators.user_code import code_needed
from trailmark.operators.whole.logged import WholeForm, whole_title
from trailmark.operators.whole.operator import Whole


def rebuild_whole(meta: OperatorMeta, code: object) -> Whole:
    """The operator that wrote these logs; ``code`` is the user's class, or an instance of it."""
    with understanding():
        WholeForm(meta)
        by, order_by = meta.operator["by"], meta.operator.get("order_by")
    if code is None:
        raise code_needed(whole_title(meta.operator))
    return Whole(meta.input_schema, code, output=meta.result_schema, by=by, order_by=order_by)
