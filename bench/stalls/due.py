"""Which rows are due at a moment, at so many a second."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_SECOND = 1_000_000


class Due:
    """Row ``k`` is due ``k / rate`` seconds after the beginning, whoever asks when.

    Attributes
    ----------
    at_us
        Rows before this time have been given out.
    """

    def __init__(self, begin_us: int, rate: int) -> None:
        self._begin_us = begin_us
        self._rate = rate
        self._given = 0
        self.at_us = begin_us

    def until(self, now_us: int) -> tuple[int, npt.NDArray[np.int64]]:
        """From when on, and the times of the rows, before now."""
        first_us = self.at_us
        end = -(-(now_us - self._begin_us) * self._rate // _SECOND)
        numbers = np.arange(self._given, end, dtype=np.int64)
        self._given, self.at_us = end, now_us
        return first_us, self._begin_us + numbers * _SECOND // self._rate
