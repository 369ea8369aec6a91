"""Code that a reader names: imported where the reader runs, never by a name out of a log."""

from __future__ import annotations

from functools import reduce
from importlib import import_module

from trailmark.errors import SettingError

_EXAMPLE = "Write it as 'package.module:name', such as 'shop.functions:values'."


def named_code(name: str) -> object:
    """What a name such as ``package.module:name`` stands for.

    Examples
    --------
    >>> named_code("math:pi")
    3.141592653589793
    """
    module, _, attribute = name.partition(":")
    if not all(part.isidentifier() for path in (module, attribute) for part in path.split(".")):
        raise SettingError(f"{name!r} names no code.", where="operator", fix=_EXAMPLE)
    try:
        found = import_module(module)
    except ImportError as error:
        raise SettingError(
            f"{module!r} cannot be imported: {error}.",
            where="operator",
            fix="It has to be installed, or on PYTHONPATH, where the reader runs: on Spark on the "
            "driver and in its Python workers.",
        ) from error
    try:
        return reduce(getattr, attribute.split("."), found)
    except AttributeError as error:
        raise SettingError(
            f"There is no {name!r}: {error}.", where="operator", fix=_EXAMPLE
        ) from error
