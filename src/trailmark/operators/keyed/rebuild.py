"""A keyed operator made again from the description of its logs, and from its code."""

from __future__ import annotations

from trailmark.log import OperatorMeta
from trailmark.operators.keyed.logged import KeyedForm, keyed_title
from trailmark.operators.keyed.operator import Keyed
from trailmark.operators.logged import understanding
from trailmark.operators.user_code import code_needed


def rebuild_keyed(meta: OperatorMeta, code: object) -> Keyed:
    """The operator that wrote these logs; ``code`` is the user's class, or an instance of it."""
    with understanding():
        form = KeyedForm(meta)
        late, order_by = meta.operator["late"], meta.operator.get("order_by")
    if code is None:
        raise code_needed(keyed_title(meta.operator))
    port = form.ports[0]
    return Keyed(
        meta.input_schema,
        code,
        by=form.keys,
        output=meta.result_schema,
        time=port.event_time,
        delay=f"{port.delay_us} us",
        late=late,
        order_by=order_by,
        has_initial=len(form.ports) > 1,
    )
