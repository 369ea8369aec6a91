"""A user's code as a new process has it: with nothing of what an earlier one has left in memory.

Spark sends functions to every worker as they were when the query was made. What they remember by
themselves (in the objects that methods belong to, in variables that they close over, in defaults of
arguments and in global variables of their modules) is there only as long as a process lives. Here
all processes are one, so each is given copies of these. What cannot be copied, such as locks and
connections, and what a function keeps in classes and in modules of others, all of them share.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from functools import partial
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class OwnCode(Generic[T]):
    """Keeps a value that holds functions as it is now, for any number of new processes."""

    def __init__(self, value: T) -> None:
        self._kept = _Copy().of(value)

    def new(self) -> T:
        """The value as it was, and as nobody has it yet."""
        return _Copy().of(self._kept)


class _Copy:
    """One copy: what was one object is one object in it, too."""

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}
        self._modules: dict[int, dict[str, Any]] = {}
        self._copied: set[tuple[int, str]] = set()
        self._searched: set[int] = set()

    def of(self, value: T) -> T:
        for found in self._search(value):
            self._callable(found)
        try:
            return copy.deepcopy(value, self._made)
        except TypeError:
            return value

    def _search(self, value: Any) -> list[FunctionType | MethodType]:
        """The functions and methods that a value is or holds, as far as not known yet."""
        found, left = [], [value]
        while left:
            each = left.pop()
            if id(each) in self._searched or isinstance(each, type | ModuleType):
                continue
            self._searched.add(id(each))
            if isinstance(each, FunctionType | MethodType):
                found.append(each)
            else:
                left += _parts(each)
        return found

    def _callable(self, value: FunctionType | MethodType) -> Any:
        """Copies by itself what ``copy`` takes for immutable, and lets it find the copy."""
        if id(value) in self._made:
            return self._made[id(value)]
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value.__func__, FunctionType):
            made = MethodType(self._callable(value.__func__), self.of(value.__self__))
            self._made[id(value)] = made
        return value

    def _function(self, function: FunctionType) -> FunctionType:
        cells = tuple(CellType() for _ in function.__closure__ or ())
        made = FunctionType(
            function.__code__, self._module(function), function.__name__, None, cells or None
        )
        self._made[id(function)] = made  # first of all: it may know itself
        made.__qualname__ = function.__qualname__
        made.__module__ = function.__module__
        made.__defaults__ = self.of(function.__defaults__)
        made.__kwdefaults__ = self.of(function.__kwdefaults__)
        made.__dict__.update(self.of(function.__dict__))
        for new, old in zip(cells, function.__closure__ or (), strict=True):
            if old != CellType():  # an empty one is that of a name that is not bound yet
                new.cell_contents = self.of(old.cell_contents)
        self._copy_globals(function, made.__globals__)
        return made

    def _module(self, function: FunctionType) -> dict[str, Any]:
        """The global variables of a module in this copy: one dictionary for all its functions."""
        before = function.__globals__
        return self._modules.setdefault(id(before), dict(before))

    def _copy_globals(self, function: FunctionType, made: dict[str, Any]) -> None:
        """Copies the variables that a function names, unless they are another module's."""
        before = function.__globals__
        for name in _names(function.__code__):
            if name not in before or (id(before), name) in self._copied:
                continue
            self._copied.add((id(before), name))
            if not _is_foreign(before[name], before):
                made[name] = self.of(before[name])


def _parts(value: Any) -> list[Any]:
    """What may hold functions in a value."""
    if isinstance(value, partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    slots = [getattr(value, name, None) for name in getattr(type(value), "__slots__", ())]
    return [*slots, *getattr(value, "__dict__", {}).values()]


def _is_foreign(value: Any, module: Mapping[str, Any]) -> bool:
    if isinstance(value, FunctionType):
        return value.__globals__ is not module
    return isinstance(value, ModuleType | type)


def _names(code: CodeType) -> Iterator[str]:
    """The global names that code uses, in functions within it, too."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
