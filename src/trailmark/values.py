"""Dataclasses that are made quickly: a new process that recovers waits until all of them are made.

``dataclasses.dataclass`` compiles up to six methods of every class, one by one. That takes half a
millisecond a class, and was most of the time to import Trailmark. Here only ``__init__`` is
compiled, and the other methods are ordinary functions; what a class can do is the same. Understood
are ``frozen`` and ``slots``, and fields with defaults, factories, ``repr`` and ``compare``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from dataclasses import dataclass as _standard
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")
Fields = Sequence[Field[Any]]


def _dataclass(*, frozen: bool = False, slots: bool = False) -> Callable[[type[T]], type[T]]:
    """Does what the standard decorator of this name does."""

    def make(plain: type[T]) -> type[T]:
        cls: Any = _standard(init=False, repr=False, eq=False, slots=slots)(plain)
        own = fields(cls)
        for field in own:
            if not field.init or field.kw_only or field.hash is not None:
                raise TypeError(f"Only dataclasses.dataclass understands field {field.name!r}.")
        methods = {
            "__init__": _init(cls, own, frozen),
            "__repr__": _repr,
            **_comparison(own, frozen),
            **(_refusals(cls, own) if frozen else {}),
            **({"__getstate__": _getstate, "__setstate__": _setstate} if frozen and slots else {}),
        }
        for name, method in methods.items():
            if name not in cls.__dict__:
                setattr(cls, name, method)
        cls.__dataclass_params__.frozen = frozen  # what a subclass has to be, too
        made: type[T] = cls
        return made

    return make


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _dataclass


class _Factory:
    """The default of an argument whose field has a factory."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _init(cls: type[Any], own: Fields, frozen: bool) -> Any:
    """An ``__init__`` with an argument for each field."""
    arguments, lines, defaults, factories = ["self"], [], [], {}
    for field in own:
        name = value = field.name
        if field.default_factory is not MISSING:
            defaults.append(_FACTORY)
            factories[name] = field.default_factory
            value = f"_factories[{name!r}]() if {name} is _FACTORY else {name}"
        elif field.default is not MISSING:
            defaults.append(field.default)
        elif defaults:
            raise TypeError(f"non-default argument {name!r} follows default argument")
        arguments.append(name)
        lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    text = (
        "def _make(_set, _FACTORY, _factories):\n"
        f" def __init__({', '.join(arguments)}):\n  " + "\n  ".join(lines or ["pass"]) + "\n"
        " return __init__"
    )
    made: dict[str, Any] = {}
    exec(text, vars(sys.modules[cls.__module__]), made)
    init = made["_make"](object.__setattr__, _FACTORY, factories)
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__defaults__ = tuple(defaults)
    init.__annotations__ = {**{field.name: field.type for field in own}, "return": None}
    return init


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _comparison(own: Fields, frozen: bool) -> dict[str, Any]:
    names = [field.name for field in own if field.compare]
    # A getter of one name returns no tuple; and of none there is none.
    values = attrgetter(*names) if len(names) > 1 else _getter_of_few(names)

    def equals(self: Any, other: object) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    def hashes(self: Any) -> int:
        return hash(values(self))

    return {"__eq__": equals, "__hash__": hashes if frozen else None}


def _getter_of_few(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    return lambda value: tuple(getattr(value, name) for name in names)


def _refusals(cls: type[Any], own: Fields) -> dict[str, Any]:
    """A frozen class refuses all changes; a subclass those to its fields."""
    names = frozenset(field.name for field in own)

    def set_one(self: Any, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def delete_one(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": set_one, "__delattr__": delete_one}


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in fields(self)]


def _setstate(self: Any, state: Sequence[Any]) -> None:
    for field, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
