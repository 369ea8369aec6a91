"""Curves of the experiment, from its raw file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log

from bench.experiment import Raw, Repetition, Spread, spread
from bench.fit import Line, Power, fit_line, fit_power


@dataclass(frozen=True, slots=True)
class Curve:
    """A metric at each size of an axis."""

    sizes: Sequence[int]
    values: Sequence[Spread]

    @property
    def middles(self) -> list[float]:
        return [value.middle for value in self.values]

    def power(self) -> Power:
        return fit_power(self.sizes, self.middles)

    def last_exponent(self) -> float:
        """Between the two largest sizes: what is fixed counts least there."""
        (a, b), (c, d) = self.sizes[-2:], self.middles[-2:]
        return log(d / c) / log(b / a)


def cost_ns(raw: Raw, axis: str) -> Curve:
    """Nanoseconds per tuple."""
    return _curve(
        raw, axis, "cost", lambda r: 1e9 * float(r["seconds"]) / r["batches"] / r["tuples"]
    )


def recovery_ms(raw: Raw, axis: str) -> Curve:
    return _curve(raw, axis, "recovery", lambda r: 1e3 * float(r["seconds"]))


def loading_ms(raw: Raw, axis: str) -> Curve:
    """The part of a recovery that opens the logs, finds the footprints and loads them."""
    return _curve(raw, axis, "recovery", lambda r: 1e3 * float(r["open_s"] + r["load_s"]))


def batch_line(raw: Raw) -> Line:
    """Seconds of a batch: those that every batch takes, and those for each tuple."""
    curve = _curve(raw, "batch", "cost", lambda r: float(r["seconds"]) / r["batches"])
    return fit_line(curve.sizes, curve.middles)


def _curve(raw: Raw, axis: str, what: str, metric: Callable[[Repetition], float]) -> Curve:
    sizes = sorted({r["size"] for r in raw.of(axis=axis)})
    found = [spread([metric(r) for r in raw.of(axis=axis, what=what, size=size)]) for size in sizes]
    return Curve(sizes, found)
