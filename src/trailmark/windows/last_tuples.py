"""Windows of the newest tuples: the others have left them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trailmark.errors import SettingError
from trailmark.values import dataclass

#: Tuples of one side are numbered in 32 bits.
_MOST = 1 << 31


@dataclass(frozen=True, slots=True)
class LastTuples:
    """The newest ``count`` tuples, of all or of each key. With none, tuples look for partners when
    they come, and nobody finds them afterwards."""

    count: int
    per_key: bool = False

    @property
    def spans_keys(self) -> bool:
        """Whether a tuple may push out one of another key."""
        return self.count > 0 and not self.per_key

    def describe(self) -> dict[str, Any]:
        return {"last": self.count, "per_key": self.per_key}

    def __str__(self) -> str:
        return f"last {self.count:,}{' of each key' if self.per_key else ''}"


def last_tuples_from_description(described: Mapping[str, Any]) -> LastTuples:
    """The window that described itself so.

    Anything that cannot have raises ``KeyError``, ``TypeError`` or ``ValueError``.
    """
    count, per_key = described["last"], described["per_key"]
    if type(count) is not int or not 0 <= count <= _MOST or type(per_key) is not bool:
        raise ValueError(f"no window of the last tuples: {described}")
    return LastTuples(count, per_key)


def last_tuples(count: int, *, per_key: bool = False) -> LastTuples:
    """The newest tuples of one side of a join.

    Parameters
    ----------
    count
        How many. With 0 the tuples of this side are only held against the window of the other
        side when they come.
    per_key
        Whether each key has a window of its own. Without it there is one for all keys, so that the
        order of all tuples matters and one bucket has to take them.

    Examples
    --------
    >>> last_tuples(1024, per_key=True)
    LastTuples(count=1024, per_key=True)
    """
    if type(count) is not int or not 0 <= count <= _MOST:
        raise SettingError(
            f"A window has a whole number of tuples from 0 to {_MOST:,}, got {count!r}.",
            where="last_tuples(count)",
        )
    if type(per_key) is not bool:
        raise SettingError(
            f"per_key must be True or False, got {per_key!r}.", where="last_tuples(per_key=...)"
        )
    return LastTuples(count, per_key)
