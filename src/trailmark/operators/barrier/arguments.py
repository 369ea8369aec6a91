"""What a barrier is given, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from trailmark.errors import SettingError, UnsupportedType
from trailmark.operators.aggregate.arguments import check_column
from trailmark.operators.order import check_orderable
from trailmark.records import MOST_PORTS


def check_barrier(schemas: Mapping[str, pa.Schema], by: Sequence[str]) -> None:
    """Refuses inputs that cannot be paired."""
    if not 2 <= len(schemas) <= MOST_PORTS:
        raise SettingError(
            f"A barrier has from 2 to {MOST_PORTS} inputs, got {len(schemas)}.", where="inputs"
        )
    first = next(iter(schemas))
    for name, schema in schemas.items():
        for key in by:
            check_column(schema, key, f"by ({name})")
            kinds = [schemas[each].field(key).type for each in (first, name)]
            if kinds[0] != kinds[1]:
                raise UnsupportedType(
                    f"Key {key!r} is {kinds[0]} in {first!r} and {kinds[1]} in {name!r}.",
                    where="by",
                    fix="Cast one of them, so that equal keys are equal.",
                )


def order_columns(
    schemas: Mapping[str, pa.Schema], order_by: str | Mapping[str, str] | None
) -> dict[str, str]:
    """The column by which the tuples of each input are put in order; none where they are taken as
    they were logged."""
    if order_by is None:
        return {}
    given = dict.fromkeys(schemas, order_by) if isinstance(order_by, str) else order_by
    if not isinstance(given, Mapping) or set(given) != set(schemas):
        raise SettingError(
            "order_by must be the name of a column that all inputs have, or one for each input, "
            f"got {order_by!r}.",
            where="order_by",
            fix='For example order_by="at", or order_by={"orders": "placed", "bills": "sent"}.',
        )
    for name, schema in schemas.items():
        check_column(schema, given[name], f"order_by ({name})")
        check_orderable(schema, [given[name]])
    return {name: given[name] for name in schemas}
