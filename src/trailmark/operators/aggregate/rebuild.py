"""An aggregate made again from the description of its logs: the inverse of `Aggregate.describe`.

Descriptions hold every call of a built-in function. A function of the user's own is described, but
its code is in no log: whoever has it hands it in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from trailmark.errors import SchemaChanged, SettingError, UnsupportedType
from trailmark.log import OperatorMeta
from trailmark.log.json_text import object_of
from trailmark.log.meta import described_differences
from trailmark.operators.aggregate.arguments import AnyWindow
from trailmark.operators.aggregate.logged import AggregateForm
from trailmark.operators.aggregate.operator import Aggregate
from trailmark.operators.logged import understanding, unknown_operator
from trailmark.windows.functions import (
    AnyFunction,
    Function,
    UserFunction,
    function_from_description,
    is_user_function,
)

_Operator = TypeVar("_Operator")

_EXAMPLE = "{'value': function}, the mapping that tm.aggregate was given as values"


def rebuild_aggregate(meta: OperatorMeta, code: object) -> Aggregate:
    """The aggregate that wrote these logs.

    ``code`` is a mapping from the names of values to their functions; those of built-in functions
    may be left out.
    """
    with understanding():
        form = AggregateForm(meta)
    return rebuild_windowed(Aggregate, form.keys, form.window, meta, code)


def rebuild_windowed(
    operator: Callable[..., _Operator],
    keys: Sequence[str],
    window: AnyWindow,
    meta: OperatorMeta,
    code: object,
) -> _Operator:
    """An operator that folds functions over windows, by these keys."""
    with understanding():
        late, order_by = meta.operator["late"], meta.operator.get("order_by")
        described = _described_values(meta)
    values = _functions(described, _given(code, described))
    try:
        return operator(
            meta.input_schema,
            by=keys,
            window=window,
            values=values,
            late=late,
            order_by=order_by,
        )
    except (SettingError, UnsupportedType) as error:
        # The functions are those that were described, so it is the description that is wrong.
        raise unknown_operator(
            f"The description is of no {meta.operator['operator']} that could be: {error.what}"
        ) from error


def _described_values(meta: OperatorMeta) -> dict[str, dict[str, Any]]:
    """What the functions said of themselves, in the order of the results: as JSON is stored, names
    are sorted."""
    stored = object_of(meta.operator["values"])
    names = [name for name in meta.result_schema.names if name in stored]
    if len(names) < len(stored):
        raise ValueError("values that are no columns of the results")
    return {name: object_of(stored[name]) for name in names}


def _given(code: object, described: Mapping[str, Any]) -> Mapping[str, AnyFunction]:
    """The functions that somebody has handed in, by the name of their value."""
    if code is None:
        return {}
    if not isinstance(code, Mapping):
        raise SettingError(
            f"The code of an aggregate is a mapping, not {type(code).__name__}.",
            where="operator",
            fix=f"Give {_EXAMPLE}.",
        )
    for name, call in code.items():
        if name not in described:
            raise SettingError(
                f"The aggregate has no value {name!r}.",
                where="operator",
                fix=f"Its values are {', '.join(described)}.",
            )
        if not isinstance(call, Function | UserFunction):
            raise SettingError(
                f"{name!r} has to be a function of an aggregate, not {type(call).__name__}.",
                where="operator",
                fix=f"Give {_EXAMPLE}.",
            )
    return code


def _functions(
    described: Mapping[str, Mapping[str, Any]], given: Mapping[str, AnyFunction]
) -> dict[str, AnyFunction]:
    """The functions that were described: what is given has to be one of them, what is not has to
    be built in."""
    missing, functions = [], dict[str, AnyFunction]()
    for name, stored in described.items():
        if name in given:
            _check_same(name, stored, given[name])
            functions[name] = given[name]
            continue
        with understanding():
            if is_user_function(stored):
                missing.append(name)
            else:
                functions[name] = function_from_description(stored)
    if missing:
        raise _no_code(missing)
    return functions


def _check_same(name: str, stored: Mapping[str, Any], call: AnyFunction) -> None:
    differences = list(described_differences(f"values.{name}", stored, call.describe()))
    if differences:
        raise SchemaChanged(
            f"{name!r} was computed by another function:\n    " + "\n    ".join(differences),
            where="operator",
            fix="Name the function as it was when the logs were written (left of the arrow).",
        )


def _no_code(missing: list[str]) -> SettingError:
    named = ", ".join(map(repr, missing))
    are_functions = "is a function" if len(missing) == 1 else "are functions"
    return SettingError(
        f"To rebuild the state takes the code of {named}, which {are_functions} of the user's own: "
        "a log holds none.",
        where="operator",
        fix="Name it: the option operator is 'package.module:name' of a mapping from the names of "
        "values to functions, which can be imported where the reader runs; tm.read_table takes the "
        "mapping itself. records='all' shows the footprints as they were logged, without any code.",
    )
