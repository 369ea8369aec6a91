"""Orders in three mixtures of fast and slow windows, the same whenever they are asked for.

- ``uniform``: all items are ordered equally often.
- ``skewed``: the item of rank r is ordered in proportion to r to the power of -1.1 (Zipf), so that
  windows stay open for a fraction of a batch or for hundreds of batches.
- ``mixed``: many items whose windows last some ten batches, and a tenth as many whose windows stay
  open for about ten thousand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.orders import SCHEMA, WINDOW

ITEMS = 100_000
SLOW_ITEMS = 10_000
#: One order in so many is for a slow item: ten per batch, so each waits for a thousand batches.
ONE_IN_SLOW = 10_000
ZIPF_EXPONENT = 1.1
TUPLES = 100_000

Ids = npt.NDArray[np.int32]
_Draw = Callable[[np.random.Generator, int], Ids]


def _uniform(rng: np.random.Generator, tuples: int) -> Ids:
    return rng.integers(0, ITEMS, tuples, dtype=np.int32)


def _skewed(rng: np.random.Generator, tuples: int) -> Ids:
    """By the inverse of the distribution, with its steps smoothed: no table to search."""
    power = 1.0 - ZIPF_EXPONENT
    chance = rng.random(tuples) * ((ITEMS + 1.0) ** power - 1.0)
    ranks: npt.NDArray[np.float64] = (chance + 1.0) ** (1.0 / power)
    return np.minimum(ranks, ITEMS).astype(np.int32) - 1


def _mixed(rng: np.random.Generator, tuples: int) -> Ids:
    ids = rng.integers(0, ITEMS, tuples, dtype=np.int32)
    slow = rng.integers(0, tuples, tuples // ONE_IN_SLOW)
    ids[slow] = ITEMS + rng.integers(0, SLOW_ITEMS, len(slow), dtype=np.int32)
    return ids


@dataclass(frozen=True, slots=True)
class Workload:
    """A stream of batches; each is made from its number alone, so any part can be made again.

    The first batch is larger: it leaves every item's window as a long run would have, so that a
    stream need not run for long before it is like itself.
    """

    name: str
    items: int
    draw: _Draw
    seed: int = 1

    def ids(self, batch: int) -> Ids:
        return self._ids(np.random.default_rng((self.seed, batch)), batch)

    def rows(self, batch: int) -> pa.RecordBatch:
        """The orders of a batch."""
        rng = np.random.default_rng((self.seed, batch))
        ids = self._ids(rng, batch)
        prices = rng.integers(1, 1000, len(ids), dtype=np.int32)
        return pa.record_batch([ids, prices], schema=SCHEMA)

    def results(self, batches: int) -> int:
        """How many results so many batches have: every tenth order of an item gives one."""
        counts = np.zeros(self.items, dtype=np.int64)
        for batch in range(batches):
            counts += np.bincount(self.ids(batch), minlength=self.items)
        return int((counts // WINDOW).sum())

    def _ids(self, rng: np.random.Generator, batch: int) -> Ids:
        return self.draw(rng, TUPLES) if batch else self._opening(rng)

    def _opening(self, rng: np.random.Generator) -> Ids:
        fill = rng.integers(0, WINDOW, self.items)
        ids = np.repeat(np.arange(self.items, dtype=np.int32), fill)
        rng.shuffle(ids)
        return ids


UNIFORM = Workload("uniform", ITEMS, _uniform)
SKEWED = Workload("skewed", ITEMS, _skewed)
MIXED = Workload("mixed", ITEMS + SLOW_ITEMS, _mixed)
WORKLOADS = {workload.name: workload for workload in (UNIFORM, SKEWED, MIXED)}
