"""Curves through measured points: how fast something grows, and what it costs at least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Power:
    """y = factor * x ** exponent."""

    factor: float
    exponent: float

    def at(self, x: float) -> float:
        return float(self.factor * x**self.exponent)


@dataclass(frozen=True, slots=True)
class Line:
    """y = fixed + slope * x."""

    fixed: float
    slope: float


def fit_power(x: Sequence[float], y: Sequence[float]) -> Power:
    """By least squares of the logarithms: a point off by a tenth counts alike wherever it is."""
    exponent, offset = np.polyfit(np.log(x), np.log(y), 1)
    return Power(float(np.exp(offset)), float(exponent))


def fit_line(x: Sequence[float], y: Sequence[float]) -> Line:
    """By least squares of relative errors: else the largest points alone would count."""
    slope, fixed = np.polyfit(x, y, 1, w=1 / np.asarray(y))
    return Line(float(fixed), float(slope))
