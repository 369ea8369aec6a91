"""What a recovery costs, measured where it happens.

A recovery opens the bucket, loads an extent of the output log, and repeats the work of some
batches. How these costs grow is known beforehand: with the segments and the records of the extent,
with the batches and the tuples of the input. How long each takes here and now is not, so it is
learnt while the bucket works: from live batches, which do the same work that a recovery repeats,
from rehearsals, which read a segment back, and from every recovery.

Footprints may differ in size. Each has a weight, in plain records, which is one or more; what some
records weigh beyond one each is their excess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from trailmark.log.json_text import shown
from trailmark.values import dataclass

#: One number, or a column of them.
_Numbers = TypeVar("_Numbers", int, npt.NDArray[np.int64])

#: What a segment costs beside its rows, in rows' worth of time.
_ROWS_PER_OUTPUT_SEGMENT = 600
_ROWS_PER_INPUT_SEGMENT = 2_500

_SMOOTHING = 0.2
#: A recovery is the real thing, and rare.
_RECOVERY_SMOOTHING = 0.5
#: Costs are divided by, and a coarse clock may measure no time.
LEAST_US = 0.001
#: What seems to take longer says nothing: the process was stopped meanwhile, or the clock leapt.
_LONGEST_US = 600 * 1e6
#: And to open a bucket is believed to take at most so many times as long as was known before: it
#: is measured in recoveries only, so that nothing else would put it right.
_MOST_TO_OPEN = 30
#: Three hundred years.
MOST_US = 1e16
#: No recovery is predicted to take longer: an account could not hold it.
_LONGEST_PREDICTION_US = 2**62


@dataclass(frozen=True, slots=True)
class Work:
    """What a recovery has to do: load ``records`` from so many ``segments`` of output, and repeat
    ``tuples`` of so many ``batches`` of input. ``excess`` is what the records weigh beyond one
    each."""

    segments: int = 0
    records: int = 0
    batches: int = 0
    tuples: int = 0
    excess: int = 0

    @property
    def weight(self) -> int:
        """What the records weigh."""
        return self.records + self.excess

    @property
    def load_rows(self) -> int:
        return load_rows(self.segments, self.weight)

    @property
    def replay_rows(self) -> int:
        return replay_rows(self.batches, self.tuples)


def load_rows(segments: _Numbers, weight: _Numbers) -> _Numbers:
    """What is loaded, in plain records."""
    return weight + _ROWS_PER_OUTPUT_SEGMENT * segments


def replay_rows(batches: _Numbers, tuples: _Numbers) -> _Numbers:
    """What is repeated, in rows."""
    return tuples + _ROWS_PER_INPUT_SEGMENT * batches


@dataclass(frozen=True, slots=True)
class Rates:
    """Microseconds; before anything was measured, as one core of a small machine took them.

    Attributes
    ----------
    open_us
        To open a bucket, before anything is read.
    load_us
        Per plain record of the extent; a segment counts as some records more.
    process_us
        Per tuple of a live batch; a batch counts as some tuples more.
    replay_factor
        How long a recovery takes for what took a live batch 1.
    write_us
        Per plain record, to gather and to write it as a footprint.
    batch_us
        For a whole live batch.
    period_us
        From the end of a batch to the end of the next.
    footprint_weight
        What a footprint of an open window weighs on the average: no time, but what times are
        reckoned with where only a number of windows is known.
    """

    open_us: float = 20_000.0
    load_us: float = 0.4
    process_us: float = 0.1
    replay_factor: float = 1.0
    write_us: float = 0.1
    batch_us: float = 1_000.0
    period_us: float = 1_000_000.0
    footprint_weight: float = 1.0

    @property
    def replay_us(self) -> float:
        """Per tuple that a recovery repeats."""
        return self.process_us * self.replay_factor

    @property
    def footprint_us(self) -> float:
        """Per footprint, to gather and to write it."""
        return self.write_us * self.footprint_weight

    def excess_of(self, footprints: Any) -> Any:
        """What so many footprints, or columns of such numbers, weigh beyond one each, if they are
        like those that are known."""
        return footprints * (self.footprint_weight - 1.0)

    def predict_us(self, work: Work) -> int:
        """How long a recovery would take."""
        return max(
            0, min(int(self.cost_us(work.load_rows, work.replay_rows)), _LONGEST_PREDICTION_US)
        )

    def cost_us(self, loaded: Any, repeated: Any) -> Any:
        """The same for rows loaded and repeated, of one recovery or of a column of them."""
        return self.open_us + self.load_us * loaded + self.replay_us * repeated

    def after_processing(self, tuples: int, took_us: float) -> Rates:
        """The rates after the tuples of a live batch went through the operator."""
        if took_us > _LONGEST_US:
            return self
        measured = took_us / Work(batches=1, tuples=tuples).replay_rows
        return replace(self, process_us=smooth(self.process_us, measured))

    def after_batch(self, took_us: float, since_last_us: float | None) -> Rates:
        """The rates after a live batch, which ended so long after the one before."""
        period = self.period_us if since_last_us is None else since_last_us
        took = self.batch_us if took_us > _LONGEST_US else took_us
        return replace(
            self,
            batch_us=smooth(self.batch_us, took),
            period_us=smooth(self.period_us, period),
        )

    def after_weighing(self, footprints: int, excess: int, open_windows: int) -> Rates:
        """The rates after so many of the open windows got footprints: what these weigh is right for
        their share of the windows, what was known before for the others."""
        before = self.footprint_weight
        if not footprints or (not excess and before == 1.0):
            return self
        measured = 1.0 + excess / footprints
        average = before + min(1.0, footprints / open_windows) * (measured - before)
        return replace(self, footprint_weight=max(1.0, average))

    def after_writing(self, weight: int, took_us: float) -> Rates:
        """The rates after footprints of this weight were gathered and written."""
        if not weight or took_us > _LONGEST_US:
            return self
        return replace(self, write_us=smooth(self.write_us, took_us / weight))

    def after_loading(self, work: Work, took_us: float) -> Rates:
        """The rates after a rehearsal has loaded a segment."""
        if not work.load_rows or took_us > _LONGEST_US:
            return self
        return replace(self, load_us=smooth(self.load_us, took_us / work.load_rows))

    def after_recovery(self, work: Work, open_us: float, load_us: float, replay_us: float) -> Rates:
        """The rates after a recovery that did this work in such times."""
        learnt = self
        if open_us <= _LONGEST_US:
            believed = min(open_us, _MOST_TO_OPEN * self.open_us)
            learnt = replace(self, open_us=_learn(self.open_us, believed))
        if work.load_rows and load_us <= _LONGEST_US:
            learnt = replace(learnt, load_us=_learn(self.load_us, load_us / work.load_rows))
        if work.replay_rows and replay_us <= _LONGEST_US:
            measured = replay_us / work.replay_rows / self.process_us
            learnt = replace(learnt, replay_factor=_learn(self.replay_factor, measured))
        return learnt

    def to_attributes(self) -> dict[str, Any]:
        """As they are stored: the weight of footprints only if these are no plain records."""
        rates = {name: round(value, 4) for name, value in asdict(self).items()}
        if rates["footprint_weight"] == 1.0:
            del rates["footprint_weight"]
        return rates

    @classmethod
    def from_attributes(cls, attributes: object) -> Rates:
        """Those that were stored; what is no rate is as it was before anything was measured."""
        stored = attributes if isinstance(attributes, Mapping) else {}
        found: dict[str, Any] = {f.name: stored.get(f.name) for f in fields(cls)}
        return cls(**{name: each for name, each in found.items() if _is_rate(name, each)})

    @classmethod
    def from_token(cls, stored: object) -> Rates:
        """Those that were stored, all of them; raises ``ValueError`` if one is no rate."""
        rates = cls.from_attributes(stored)
        if rates.to_attributes() != stored:
            raise ValueError(f"{shown(stored)} are no rates")
        return rates


def _is_rate(name: str, value: Any) -> bool:
    least = 1.0 if name == "footprint_weight" else LEAST_US
    return type(value) in (int, float) and least <= value <= MOST_US


def smooth(before: float, measured: float) -> float:
    """A little of what was measured now, most of what was known before; never nothing at all."""
    return max(LEAST_US, before + _SMOOTHING * (measured - before))


def _learn(before: float, measured: float) -> float:
    return max(LEAST_US, before + _RECOVERY_SMOOTHING * (measured - before))
