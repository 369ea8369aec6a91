"""The dataclasses of Trailmark can do what the standard ones can."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, field, fields, replace
from typing import Any

import pytest

from trailmark.values import dataclass

Decorator = Callable[..., Any]
Both = tuple[tuple[type[Any], ...], tuple[type[Any], ...]]


def _classes(decorator: Decorator, **options: bool) -> tuple[type[Any], ...]:
    """The same classes, made by one decorator or the other."""

    @decorator(**options)
    class Many:
        """Fields of all sorts."""

        name: str
        size: int | None = None
        notes: dict[str, Any] = field(default_factory=dict)
        hidden: tuple[int, ...] = field(default=(), repr=False, compare=False)

        @property
        def doubled(self) -> int:
            return 2 * (self.size or 0)

    @decorator(**options)
    class One:
        """A single field, and a check of it."""

        size: float

        def __post_init__(self) -> None:
            if self.size < 0:
                raise ValueError("negative")

        def __repr__(self) -> str:
            return "its own"

    @decorator(**options)
    class Empty:
        """No field."""

    return Many, One, Empty


_OPTIONS = [
    {"frozen": True, "slots": True},
    {"frozen": True},
    {"slots": True},
    {},
]


@pytest.fixture(params=_OPTIONS, ids=str)
def both(request: pytest.FixtureRequest) -> Both:
    return (
        _classes(dataclass, **request.param),
        _classes(dataclasses.dataclass, **request.param),
    )


def _outcome(call: Callable[..., Any], classes: tuple[type[Any], ...]) -> str:
    """What a call returns or raises, as text: the classes of both sides have the same names."""
    try:
        return repr(call(*classes))
    except (AttributeError, TypeError, ValueError) as error:
        return repr(error)


def test_signatures_and_descriptions_are_those_of_the_standard(both: Both) -> None:
    for mine, standard in zip(*both, strict=True):
        assert str(inspect.signature(mine)) == str(inspect.signature(standard))
        assert mine.__doc__ == standard.__doc__
        assert mine.__match_args__ == standard.__match_args__
        assert mine.__dict__.get("__slots__") == standard.__dict__.get("__slots__")
        assert [f.name for f in fields(mine)] == [f.name for f in fields(standard)]


_NAN = float("nan")


@pytest.mark.parametrize(
    "call",
    [
        lambda many, one, empty: (many("a", 1), many("b", notes={"x": many("y")}), one(1), empty()),
        lambda many, one, empty: (many("a") == many("a"), many("a") == many("b"), many("a") == "a"),
        lambda many, one, empty: (many("a", hidden=(1,)) == many("a"), many("a") != many("a")),
        lambda many, one, empty: (one(1) == one(1.0), one(1) == one(2), one(_NAN) == one(_NAN)),
        lambda many, one, empty: (empty() == empty(), empty() == one(1)),
        lambda many, one, empty: hash(one(1)),
        lambda many, one, empty: hash(empty()),
        lambda many, one, empty: hash(many("a", notes="x")),
        lambda many, one, empty: hash(many("a")),
        lambda many, one, empty: many("a").notes is many("a").notes,
        lambda many, one, empty: many("a", 2).doubled,
        lambda many, one, empty: many(),
        lambda many, one, empty: many("a", 1, {}, (), 2),
        lambda many, one, empty: many("a", colour="red"),
        lambda many, one, empty: empty(1),
        lambda many, one, empty: one(-1),
        lambda many, one, empty: asdict(many("a", notes={"x": many("y")})),
        lambda many, one, empty: replace(many("a", 1), size=5),
        lambda many, one, empty: replace(one(1), size=-1),
        lambda many, one, empty: copy.copy(many("a", hidden=(1,))).hidden,
        lambda many, one, empty: copy.deepcopy(many("a", notes={"x": many("y")})),
        lambda many, one, empty: setattr(many("a"), "size", 7),
        lambda many, one, empty: setattr(one(1), "size", 7),
        lambda many, one, empty: delattr(many("a"), "size"),
        lambda many, one, empty: delattr(one(1), "size"),
    ],
)
def test_values_behave_as_the_standard_ones(both: Both, call: Callable[..., Any]) -> None:
    mine, standard = both
    assert _outcome(call, mine) == _outcome(call, standard)


def test_a_value_that_holds_itself_can_be_shown() -> None:
    many, _, _ = _classes(dataclass, slots=True)
    value = many("a")
    value.notes["self"] = value
    assert repr(value).endswith("Many(name='a', size=None, notes={'self': ...})")


def test_an_unknown_name_is_refused_where_the_standard_refuses_it(both: Both) -> None:
    mine, standard = (
        _outcome(lambda many, one, empty: setattr(many("a"), "other", 1), side) for side in both
    )
    assert (mine == "None") == (standard == "None")


def test_a_frozen_subclass_adds_what_it_likes_and_keeps_the_rest_frozen() -> None:
    many, _, _ = _classes(dataclass, frozen=True)

    @dataclasses.dataclass(frozen=True)
    class More(many):  # type: ignore[misc, valid-type]
        colour: str = "red"

    class Plain(many):  # type: ignore[misc, valid-type]
        pass

    assert More("a", colour="blue") == More("a", colour="blue") != More("a")
    value = Plain("a")
    value.colour = "red"
    assert value.colour == "red"
    with pytest.raises(FrozenInstanceError):
        value.name = "b"


@dataclass(frozen=True, slots=True)
class Pickled:
    """Found again by its name."""

    a: int
    b: tuple[int, ...] = field(default=(), compare=False)


@dataclass(slots=True)
class PickledToo:
    """Likewise."""

    a: int


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_values_survive_pickling(protocol: int) -> None:
    again = pickle.loads(pickle.dumps([Pickled(1, (2,)), PickledToo(3)], protocol))  # noqa: S301
    assert again == [Pickled(1), PickledToo(3)]
    assert again[0].b == (2,)


def test_what_is_not_understood_is_refused() -> None:
    with pytest.raises(TypeError, match="'a'"):

        @dataclass(slots=True)
        class Hidden:
            """Not an argument."""

            a: int = field(default=0, init=False)

    with pytest.raises(TypeError, match="non-default argument 'b'"):

        @dataclass(slots=True)
        class Misordered:
            """A default before an argument that has none."""

            a: int = 0
            b: str  # type: ignore[misc]
