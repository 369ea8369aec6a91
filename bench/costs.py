"""What footprints cost per batch, when some batches write many of them and most write none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.contest import Counts, Floats, Measured
from trailmark.checkpoint.policy import Delta

#: Less than such a part of a batch's bytes are no footprints, but longer footers.
_LEAST_BURST = 0.05
#: The part at either end that is left out of a mean: others were at work there.
_TRIMMED = 0.1


@dataclass(frozen=True, slots=True)
class Cycles:
    """The batches that count, and which of them write many footprints."""

    batches: slice
    is_burst: npt.NDArray[np.bool_]
    bursts: int


@dataclass(frozen=True, slots=True)
class Cost:
    """Per batch, and beyond that of `NoCheckpoint`. The removal of old files is not in it: that is
    the same for all but `NoCheckpoint`. ``noise_s``: the error of ``seconds``, about."""

    bytes: float
    seconds: float
    noise_s: float


def whole_cycles(measured: Measured, none: Measured, start: int) -> Cycles | None:
    """The batches from the first burst of bytes up to the last; all where many of them write; None
    where there was no whole cycle."""
    extra = (measured.bytes - none.bytes)[start:]
    is_burst = extra > max(extra.max() / 5, _LEAST_BURST * none.bytes[start:].mean())
    bursts = np.flatnonzero(is_burst)
    if len(bursts) > len(extra) / 4:
        return Cycles(slice(start, start + len(extra)), is_burst, len(bursts))
    if len(bursts) < 2:
        return None
    first, last = int(bursts[0]), int(bursts[_last_of_cycle(measured, bursts)])
    return Cycles(slice(start + first, start + last), is_burst[first:last], len(bursts))


def _last_of_cycle(measured: Measured, bursts: Counts) -> int:
    """The last burst that is like the first one: not every delta is full."""
    last = len(bursts) - 1
    if isinstance(measured.policy, Delta) and last > measured.policy.full_every:
        last -= last % measured.policy.full_every
    return last


def cost_of(measured: Measured, none: Measured, cycles: Cycles) -> Cost:
    """Bursts and other batches are averaged apart, so that what is rare is not taken for noise."""
    extra = (measured.fastest - none.fastest)[cycles.batches]
    share = float(cycles.is_burst.mean())
    seconds, squares = 0.0, 0.0
    for part, of_batches in ((share, extra[cycles.is_burst]), (1 - share, extra[~cycles.is_burst])):
        if len(of_batches):
            mean, error = _trimmed_mean(of_batches)
            seconds += part * mean
            squares += (part * error) ** 2
    size = float((measured.bytes - none.bytes)[cycles.batches].mean())
    return Cost(size, seconds, float(np.sqrt(squares)))


def _trimmed_mean(values: Floats) -> tuple[float, float]:
    """The mean without both ends, and its standard error."""
    cut = int(len(values) * _TRIMMED)
    kept = np.sort(values)[cut : len(values) - cut]
    return float(kept.mean()), float(kept.std() / np.sqrt(len(kept)))
