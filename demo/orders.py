"""The orders workload, and what has to come out of it, computed by hand.

Every file is one batch of the stream. A query that is started again may see the rows of a batch in
another order, and then windows of ten orders may hold other orders. So that the right results are
one exact set all the same, an item keeps its price within a file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from demo.results import Rows

WINDOW = 10
SCHEMA = pa.schema([("item_id", pa.int32()), ("item_price", pa.int32())])

Ints: TypeAlias = npt.NDArray[np.int32]

_MOST_PRICE = 1000
_SEED = 7


@dataclass(frozen=True, slots=True)
class Workload:
    """So many files of so many orders each, of items chosen uniformly."""

    files: int
    orders_per_file: int
    items: int

    @property
    def orders(self) -> int:
        return self.files * self.orders_per_file


def write_orders(workload: Workload, directory: Path) -> None:
    """Files that Spark reads in the order of their numbers: it goes by the time of change."""
    directory.mkdir()
    rng = np.random.default_rng(_SEED)
    for number in range(workload.files):
        items = rng.integers(0, workload.items, workload.orders_per_file, dtype=np.int32)
        orders = pa.table([items, _prices(items, number)], schema=SCHEMA)
        path = directory / f"orders-{number:05d}.parquet"
        pq.write_table(orders, path)
        second = 1_700_000_000 + number
        os.utime(path, (second, second))


def _prices(items: Ints, file: int) -> Ints:
    """A price that depends on item and file, and looks like nothing in particular."""
    mixed = items.astype(np.uint64) * np.uint64(2_654_435_761) + np.uint64(file * 40_503)
    prices = (mixed >> np.uint64(7)) % np.uint64(_MOST_PRICE) + np.uint64(1)
    return prices.astype(np.int32)


def expected_results(directory: Path, items: int) -> Rows:
    """The averages by the definition, from the files, with nothing of Trailmark or Spark.

    Per item: orders fill the open window; a window of ten gives its average and is begun anew.
    """
    filled = np.zeros(items, dtype=np.int64)
    total = np.zeros(items, dtype=np.int64)
    emitted: list[Rows] = []
    for path in sorted(directory.glob("*.parquet")):
        waiting, price = _orders_per_item(path, items)
        while waiting.any():
            taken = np.minimum(waiting, WINDOW - filled)
            waiting -= taken
            filled += taken
            total += taken * price
            (full,) = np.nonzero(filled == WINDOW)
            emitted.append(Rows.of(full, total[full] / WINDOW, filled[full]))
            filled[full] = 0
            total[full] = 0
    return Rows.concatenate(emitted)


def _orders_per_item(path: Path, items: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """How many orders of each item a file has, and their price."""
    table = pq.read_table(path)
    ids = table["item_id"].to_numpy()
    prices = table["item_price"].to_numpy()
    price = np.zeros(items, dtype=np.int64)
    price[ids] = prices
    assert (price[ids] == prices).all(), "an item has one price within a file"
    return np.bincount(ids, minlength=items), price
