"""How long every tuple waited for its answer.

What writers have committed, and when, is one list; what each batch of the union took in, and when
it was committed, is the other. A tuple is answered by the first batch that takes it in, as a
tentative or as a stable one: with it every result comes that the tuple completes. From then on the
results are in the log of the operator and with the sink.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass

import numpy as np
import numpy.typing as npt

#: Tuples of a commit are taken together, so many microseconds of them, as the last of them.
CELL_US = 10_000
_SECOND = 1_000_000
_BEFORE_ALL = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Commit:
    """Rows that a writer has committed.

    Parameters
    ----------
    batch
        The batch of its stream.
    first_us, end_us
        The times of its rows, from one to before the other, evenly.
    committed_us
        When that was done.
    returned_us
        If it was the first one after the stream was silent: when that was over.
    """

    stream: str
    batch: int
    first_us: int
    end_us: int
    rows: int
    committed_us: int
    returned_us: int | None = None

    def to_json(self) -> list[object]:
        return list(astuple(self))


@dataclass(frozen=True, slots=True)
class Batch:
    """What a batch of the query was, and when it was committed.

    Parameters
    ----------
    until_us, released_us
        Rows before these times had been given out by then, at all and as stable ones.
    seen
        Of each stream, the first batch that was not looked at.
    """

    until_us: int | None
    released_us: int | None
    seen: Mapping[str, int]
    phase: str
    answered_us: int


@dataclass(frozen=True, slots=True)
class Cells:
    """Tuples that are counted together.

    Attributes
    ----------
    rows
        How many tuples each stands for.
    committed_us, delays_us
        When they were committed, and how long it took from then until they were answered.
    were_missed
        Whether they were due while their own stream was silent.
    """

    rows: npt.NDArray[np.float64]
    committed_us: npt.NDArray[np.int64]
    delays_us: npt.NDArray[np.int64]
    were_missed: npt.NDArray[np.bool_]

    def between(self, first_us: int, end_us: int) -> Cells:
        """New tuples that were committed then: those that were missed are no new ones."""
        is_then = (self.committed_us >= first_us) & (self.committed_us < end_us)
        chosen = is_then & ~self.were_missed
        return Cells(
            self.rows[chosen],
            self.committed_us[chosen],
            self.delays_us[chosen],
            self.were_missed[chosen],
        )

    @property
    def longest_s(self) -> float:
        return float(self.delays_us.max(initial=0)) / _SECOND

    def share_within(self, bound_s: float) -> float:
        """The part of the tuples that were answered in time."""
        is_in_time = self.delays_us <= bound_s * _SECOND
        return float(self.rows[is_in_time].sum() / self.rows.sum())

    def quantile_s(self, part: float) -> float:
        """So much of the tuples waited no longer than this."""
        order = np.argsort(self.delays_us, kind="stable")
        reached = np.cumsum(self.rows[order])
        place = np.searchsorted(reached, part * reached[-1] * (1 - 1e-12))
        return float(self.delays_us[order][place]) / _SECOND

    def by_second(self, origin_us: int) -> list[tuple[int, float]]:
        """The longest delay of each second of commits, counted from a moment."""
        seconds = (self.committed_us - origin_us) // _SECOND
        return [
            (int(each), float(self.delays_us[seconds == each].max()) / _SECOND)
            for each in np.unique(seconds)
        ]


def waited(commits: Iterable[Commit], batches: Sequence[Batch]) -> Cells:
    """How long all tuples have waited. Raises ``ValueError`` if some were never answered."""
    until = _times(each.until_us for each in batches)
    released = _times(each.released_us for each in batches)
    answered = np.array([each.answered_us for each in batches], dtype=np.int64)
    parts = []
    for commit in commits:
        ends = _cells(commit)
        seen = np.array([each.seen.get(commit.stream, 0) for each in batches], dtype=np.int64)
        taken = np.searchsorted(until, ends)
        # What was given out before the tuple was seen was given out without it.
        is_without = taken < np.searchsorted(seen, commit.batch, side="right")
        taken = np.where(is_without, np.searchsorted(released, ends), taken)
        if (taken == len(batches)).any():
            raise ValueError(f"batch {commit.batch} of {commit.stream} was never answered")
        lengths = np.diff(np.r_[commit.first_us, ends])
        before_us = _BEFORE_ALL if commit.returned_us is None else commit.returned_us
        parts.append(
            Cells(
                commit.rows * lengths / (commit.end_us - commit.first_us),
                np.full(len(ends), commit.committed_us),
                np.maximum(answered[taken] - commit.committed_us, 0),
                ends <= before_us,
            )
        )
    return Cells(
        *(np.concatenate(each) for each in zip(*(_columns(part) for part in parts), strict=True))
    )


def corrected_us(commits: Iterable[Commit], batches: Sequence[Batch]) -> int:
    """When everything was replaced after the last stream had returned: nothing is tentative any
    more, and what it had missed is released. Raises ``ValueError`` if that never was."""
    missed = max((each for each in commits if each.returned_us is not None), key=lambda c: c.batch)
    for each in batches:
        is_there = each.released_us is not None and each.released_us >= (missed.returned_us or 0)
        if is_there and each.phase == "STABLE":
            return each.answered_us
    raise ValueError("it was never corrected")


def _columns(part: Cells) -> tuple[npt.NDArray[np.generic], ...]:
    return part.rows, part.committed_us, part.delays_us, part.were_missed


def _cells(commit: Commit) -> npt.NDArray[np.int64]:
    """Where the cells of a commit end; one of them where its stream returned."""
    ends = np.arange(commit.first_us + CELL_US, commit.end_us, CELL_US, dtype=np.int64)
    cuts = [commit.end_us]
    if commit.returned_us is not None and commit.first_us < commit.returned_us < commit.end_us:
        cuts.append(commit.returned_us)
    return np.unique(np.r_[ends, cuts])


def _times(found: Iterable[int | None]) -> npt.NDArray[np.int64]:
    times = np.array([_BEFORE_ALL if each is None else each for each in found], dtype=np.int64)
    assert (times[1:] >= times[:-1]).all(), "a union never goes back"
    return times
