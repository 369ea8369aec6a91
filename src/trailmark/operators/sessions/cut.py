"""Which sessions the tuples of a batch make, together with those that were open before."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trailmark.values import dataclass

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Spans:
    """Intervals of time, each of a key: of sessions, or of single tuples."""

    owner: Numbers
    start: Numbers
    end: Numbers

    def __len__(self) -> int:
        return len(self.owner)

    def ordered(self) -> Numbers:
        """The places of the intervals by key, and of a key by their starts; of equal ones the
        first comes first."""
        order: Numbers = np.lexsort((self.start, self.owner))
        return order


@dataclass(frozen=True, slots=True)
class Cut:
    """Sessions in the order of their keys, those of a key by time; and for every interval that
    they are made of, the number of its session."""

    sessions: Spans
    of_spans: Numbers


def cut(spans: Spans) -> Cut:
    """Puts together the intervals of a key that overlap or touch one another."""
    order = spans.ordered()
    owner, start, end = spans.owner[order], spans.start[order], spans.end[order]
    reached = _greatest_so_far(owner, end)
    begins = np.ones(len(order), dtype=np.bool_)
    begins[1:] = (owner[1:] != owner[:-1]) | (start[1:] > reached[:-1])
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(order)) - 1 if len(first) else first
    of_spans = np.empty(len(order), dtype=np.int64)
    of_spans[order] = np.cumsum(begins) - 1
    return Cut(Spans(owner[first], start[first], reached[last]), of_spans)


def _greatest_so_far(owner: Numbers, end: Numbers) -> Numbers:
    """The greatest of the ends up to each place, of one owner at a time; owners come in order."""
    ends, rank = np.unique(end, return_inverse=True)
    places = np.maximum.accumulate(owner * len(ends) + rank)
    greatest: Numbers = ends[places - owner * len(ends)] if len(ends) else end
    return greatest
