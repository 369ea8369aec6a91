"""Spark's options, looked up by names that are declared, and refused by name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trailmark.errors import SettingError
from trailmark.settings import parse_bytes
from trailmark.spark import paths
from trailmark.streams.times import parse_timestamp


@dataclass(frozen=True, slots=True)
class OptionNames:
    """The options that there are, of one use of the format.

    Parameters
    ----------
    use
        Which use, such as ``"reading"``.
    names
        Options as users write them.
    """

    use: str
    names: Sequence[str]

    def match(self, name: str) -> str | None:
        """The option of this name, however it is written."""
        return next((each for each in self.names if each.lower() == name.lower()), None)


class Given:
    """What was given, by the names that users write; Spark has them in lower case.

    Refused if there is no such option. ``others`` are the options of the other uses, to tell who
    has mixed them up.
    """

    def __init__(
        self, options: Mapping[str, str], known: OptionNames, others: Sequence[OptionNames]
    ) -> None:
        self._options = {name.lower(): value for name, value in options.items()}
        self._known = known
        for name in self._options:
            if known.match(name) is None:
                raise _unknown(name, known, others)

    def text(self, name: str) -> str | None:
        assert name in self._known.names, f"{name} is not declared"
        return self._options.get(name.lower())

    def names(self, *names: str) -> list[str]:
        """Which of these were given."""
        return [name for name in names if self.text(name) is not None]

    def path(self) -> str:
        """The path of the stream, in full."""
        path = self.text("path")
        if not path:
            raise SettingError(
                "No path was given.",
                where="path",
                fix="For example .option('path', '/data/orders') or .load('/data/orders'). Tables "
                "of a catalog cannot be used: Spark does not tell their path to Python sources. "
                "Use CREATE TEMPORARY VIEW name USING trailmark OPTIONS (path '/data/orders').",
            )
        return paths.absolute(path)

    def whole(self, name: str, least: int = 0) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not text.isdecimal() or int(text) < least:
            raise SettingError(
                f"{text!r} is not a whole number from {least} up.",
                where=name,
                fix=f"Write it in digits, such as {max(least, 100)}.",
            )
        return int(text)

    def bytes(self, name: str) -> int | None:
        text = self.text(name)
        return None if text is None else parse_bytes(text, name)

    def time(self, name: str) -> int | None:
        text = self.text(name)
        return None if text is None else parse_timestamp(text, name)

    def one_of(self, name: str, known: Sequence[str]) -> str | None:
        text = self.text(name)
        if text is not None and text.lower() not in known:
            fix = f"Use {' or '.join(known)}."
            raise SettingError(f"{text!r} is unknown.", where=name, fix=fix)
        return None if text is None else text.lower()

    def is_true(self, name: str, *, default: bool) -> bool:
        text = self.one_of(name, ("true", "false"))
        return default if text is None else text == "true"


def _unknown(name: str, known: OptionNames, others: Sequence[OptionNames]) -> SettingError:
    if name == "paths":
        return SettingError(
            "A stream is read from one path.",
            where="path",
            fix="Load each of them, and put them together with union.",
        )
    elsewhere = [(other.use, each) for other in others if (each := other.match(name))]
    if elsewhere:
        use, right = elsewhere[0]
        return SettingError(
            f"{right} is an option for {use}, not for {known.use}.",
            where=right,
            fix=f"Leave it out. The options for {known.use} are {', '.join(known.names)}.",
        )
    near = difflib.get_close_matches(name, [each.lower() for each in known.names], n=1)
    nearest = f"Did you mean {known.match(near[0])}? " if near else ""
    return SettingError(
        f"There is no option {name!r} for {known.use}.",
        where=name,
        fix=f"{nearest}The options are {', '.join(known.names)}.",
    )
