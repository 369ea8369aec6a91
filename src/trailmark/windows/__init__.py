"""Windows and functions: which windows a tuple belongs to, and what is computed over them.

`spec` and `functions` are what a user writes; `bound`, `builtin` and `userdefined` settle the types
and describe each function's state. Where the windows are kept is left to :mod:`trailmark.state`,
when they open and close to :mod:`trailmark.operators`.
"""

from __future__ import annotations

import pyarrow as pa

from trailmark.errors import UnsupportedType
from trailmark.kernel.columns import is_readable
from trailmark.windows.bound import BoundFunction
from trailmark.windows.builtin import BY_NAME, BuiltIn
from trailmark.windows.collected import Collected
from trailmark.windows.functions import AnyFunction, Function
from trailmark.windows.sketches import Sketch
from trailmark.windows.userdefined import UserDefined

_FUNCTIONS: dict[str, type[BuiltIn]] = {
    **BY_NAME,
    "approx_count_distinct": Sketch,
    **dict.fromkeys(("collect_list", "collect_set", "count_distinct", "percentile"), Collected),
}


def bind(output: str, call: AnyFunction, schema: pa.Schema, at: int) -> BoundFunction:
    """Settles the types of a function whose state begins at byte ``at``."""
    if isinstance(call, Function):
        kind = None if call.column is None else schema.field(call.column).type
        return _FUNCTIONS[call.name](output, call, kind, at)
    for name in call.columns:
        kind = schema.field(name).type
        if not is_readable(kind):
            raise UnsupportedType(
                f"{call.name} cannot take column {name!r} of type {kind}.",
                where=f"value {output!r}",
                fix="Cast it, or take the nested column apart.",
            )
    return UserDefined(output, call, at)
