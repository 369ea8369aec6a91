"""When a union answers without streams that are missing, and how it goes on when they are back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from trailmark.errors import SettingError
from trailmark.streams.boundaries import is_later, later
from trailmark.streams.union.ahead import Ahead
from trailmark.values import dataclass

#: What becomes of new rows while streams are missing, and while what was tentative is replaced.
OnFailure: TypeAlias = Literal["process", "delay"]
OnCorrection: TypeAlias = Literal["process", "delay", "suspend"]

#: The part of the bound that is spent on waiting, at most and at least. The rest is for processing:
#: so many times as long as a batch takes.
_WAITED, _LEAST_WAITED, _PROCESSED = 0.9, 0.75, 1.5
#: The same for new rows that wait as long as they may though others are tentative. One may come
#: just when a batch begins, and is seen after it; it may become due just when another begins, and
#: is part of the next: these have to fit into the rest, with a little to spare.
_LEAST_DELAYED, _DELAYED = 0.5, 3.2
#: The last batches, the longest of which tells how long one takes.
_RECENT = 8
#: The part of the bound for which the others are waited for once one stream is complete.
_GRACE = 0.3
#: The part of the bound that a batch may take while streams are missing or corrected.
_BATCH = 0.3
#: The part of the bound for which a stream may keep a decision waiting that does not answer.
_LOOK = 0.1
#: Rows of a batch before anything is known of how long they take, and the fewest later.
_FIRST_ROWS, _LEAST_ROWS = 100_000, 10_000
#: What one batch can change about that.
_LEAST, _MOST = 0.25, 2.0
#: Of new rows a batch has so many times as much time, at least, as the one before it took, and of
#: those that are replaced so many times.
_NEW, _REPLACED = 2, 4


@dataclass(frozen=True, slots=True)
class Answering:
    """The bound that a union keeps to, and how.

    Parameters
    ----------
    within_us
        What can be processed is processed within so long of its arrival.
    on_failure
        While streams are missing: whether new rows are processed at once, or wait as long as the
        bound allows.
    on_correction
        While what was tentative is replaced: the same, or whether new rows wait until that is done.
    give_up_us
        A stream that does not move for so long is ended; None waits for ever.
    """

    within_us: int
    on_failure: OnFailure = "process"
    on_correction: OnCorrection = "process"
    give_up_us: int | None = None

    def wait_us(self, longest_us: float, *, is_beside: bool = False) -> int:
        """How long a stream that is missing is waited for, where batches take so long; or, beside
        tentative rows, how long a new one may wait."""
        least, batches = (_LEAST_DELAYED, _DELAYED) if is_beside else (_LEAST_WAITED, _PROCESSED)
        left_us = self.within_us - batches * longest_us
        return int(min(max(left_us, self.within_us * least), self.within_us * _WAITED))

    @property
    def grace_us(self) -> int:
        """How long others are waited for, at least, once a stream is complete."""
        return int(self.within_us * _GRACE)

    @property
    def look_us(self) -> int:
        """How long a stream may take to answer what is asked of it."""
        return int(self.within_us * _LOOK)

    @property
    def batch_us(self) -> float:
        """How long a batch may take."""
        return self.within_us * _BATCH

    def until_us(
        self,
        ahead: Ahead | None,
        complete_us: int | None,
        boundaries: Iterable[int | None],
        due_us: int | None,
    ) -> int | None:
        """The time up to which rows are given out now, whether all streams are complete or not;
        None if that is for complete ones alone.

        Parameters
        ----------
        complete_us
            Up to which time all streams are complete.
        boundaries
            The same for each of those that have not ended.
        due_us
            What is before this time has waited as long as it may.
        """
        if ahead is None:
            return due_us if is_later(due_us, complete_us) else None
        choice = self.choice(ahead, complete_us)
        if choice == "suspend":
            return ahead.until_us
        if choice == "delay":
            return later(ahead.until_us, due_us)
        # A stream that is there has come as far as what was given out, if only just.
        there = [each for each in boundaries if each is not None and each >= ahead.until_us]
        return later(later(ahead.until_us, min(there, default=None)), due_us)

    def choice(self, ahead: Ahead, complete_us: int | None) -> OnFailure | OnCorrection:
        """What becomes of new rows, with tentative ones ahead of what is complete."""
        if complete_us is not None and complete_us >= ahead.until_us:
            return self.on_correction
        return self.on_failure


class Patience:
    """Since when streams that are missing have not moved. It begins anew with every process: to end
    a stream cannot be undone, and no clock but one that never goes back is sure enough."""

    def __init__(self, give_up_us: int | None) -> None:
        self._give_up_us = give_up_us
        self._not_ended: set[str] = set()
        self._stands: dict[str, tuple[int | None, float]] = {}

    def is_over(
        self, missing: Sequence[str], boundaries: Mapping[str, int | None], now_us: float
    ) -> list[str]:
        """The streams that have been missing for too long."""
        if self._give_up_us is None:
            return []
        self._stands = {
            name: stood
            if (stood := self._stands.get(name)) is not None and stood[0] == boundaries[name]
            else (boundaries[name], now_us)
            for name in missing
        }
        return [
            name
            for name, (_, since_us) in self._stands.items()
            if now_us - since_us >= self._give_up_us
        ]

    def is_over_in_vain(self, away_us: Mapping[str, float]) -> list[str]:
        """The streams that would be ended by now if they had not been out of reach for so long;
        each once. A stream that is back has its time anew."""
        self._not_ended &= away_us.keys()
        found = [
            name
            for name, us in away_us.items()
            if self._give_up_us is not None and us >= self._give_up_us
        ]
        new = [name for name in found if name not in self._not_ended]
        self._not_ended |= set(new)
        return new


class Pace:
    """How many rows a batch may have so that it takes as long as it may: more after one that took
    less, fewer after one that took longer. Batches of few rows tell nothing.

    A batch takes some time whatever it has. Where that is most of what it may take, fewer rows make
    it no shorter, and whoever went on with ever fewer would fall behind. So a batch has at least as
    much as keeps up with what comes, and more than that of what is replaced, so that it ends.

    Attributes
    ----------
    rows
        How many rows.
    least_new_us, least_replaced_us
        How much time a batch has at least of new rows, and of those that are replaced.
    longest_us
        How long the longest of the last batches took.
    """

    def __init__(self, batch_us: float) -> None:
        self._batch_us = batch_us
        self.rows = _FIRST_ROWS
        self.least_new_us = self.least_replaced_us = 0
        self._took_us: deque[float] = deque(maxlen=_RECENT)
        self._begun: tuple[int, float, float] | None = None

    @property
    def longest_us(self) -> float:
        return max(self._took_us, default=0.0)

    def begin(self, number: int, rows: float, now_us: float) -> None:
        """A batch begins."""
        self._begun = (number, rows, now_us)

    def ended(self, number: int, now_us: float) -> None:
        """Whoever asks for what comes after a batch is through with it."""
        if self._begun is None or self._begun[0] != number:
            return
        _, rows, began_us = self._begun
        self._begun = None
        took_us = now_us - began_us
        self._took_us.append(took_us)
        self.least_new_us = round(_NEW * took_us)
        # One that took too long is not followed by one that takes even longer.
        self.least_replaced_us = round(_REPLACED * min(took_us, self._batch_us))
        if 2 * rows >= self.rows:
            factor = self._batch_us / max(1.0, took_us)
            self.rows = max(_LEAST_ROWS, int(self.rows * min(max(factor, _LEAST), _MOST)))


def check_choice(given: object, allowed: tuple[str, ...], argument: str) -> None:
    """Refuses what is no choice."""
    if given not in allowed:
        names = ", ".join(repr(each) for each in allowed)
        raise SettingError(f"{argument} must be one of {names}, got {given!r}.", where=argument)
