"""The orders that all peers read, and what an oracle says about them.

One file per batch, as Parquet and as CSV without a header, made once and kept in `.bench/orders`.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as csv

from bench.batch_files import date_batch, write_batch

HOME = Path(".bench/orders")
SEED = 1
ZIPF_EXPONENT = 1.1
#: Spark takes a name with an underscore for no data.
_ORACLE = "_oracle.json"
#: Part of the name of the directory: to be raised when the same workload gives other files.
_FORMAT = 1

Ids = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Workload:
    """``batches`` of ``rows`` orders of ``items`` ids, averaged over windows of ``window`` orders.

    With ``opens``, batches of one order per id come before them, so that every id has a state.
    With ``blocks`` a batch has the orders of one block of the ids only, and the next batch those of
    the next: a small batch with as many orders per id as a large one.
    """

    items: int
    window: int
    rows: int
    batches: int
    keys: str = "int"
    is_skewed: bool = False
    opens: bool = False
    blocks: int = 1

    def batch_ids(self) -> list[Ids]:
        """The ids of every batch."""
        rng = np.random.default_rng(SEED)
        drawn = [self._draw(rng, batch % self.blocks) for batch in range(self.batches)]
        return [*self._opening(rng), *drawn] if self.opens else drawn

    def _draw(self, rng: np.random.Generator, block: int) -> Ids:
        items = self.items // self.blocks
        if self.is_skewed:
            ids = _zipf(rng, items, self.rows)
        else:
            ids = rng.integers(0, items, self.rows, dtype=np.int32)
        if self.items == 2:
            return ids * 2  # Spark puts ids 0 and 1 into the same one of two partitions
        return ids * self.blocks + block

    def _opening(self, rng: np.random.Generator) -> list[Ids]:
        ids = rng.permutation(self.items).astype(np.int32)
        return np.array_split(ids, -(-self.items // OPENING_ROWS))


#: Rows of an opening batch at most.
OPENING_ROWS = 500_000


def _zipf(rng: np.random.Generator, items: int, rows: int) -> Ids:
    """By the inverse of the distribution, with its steps smoothed: no table to search."""
    power = 1.0 - ZIPF_EXPONENT
    chance = rng.random(rows) * ((items + 1.0) ** power - 1.0)
    ranks: npt.NDArray[np.float64] = (chance + 1.0) ** (1.0 / power)
    return np.minimum(ranks, items).astype(np.int32) - 1


@dataclass(frozen=True, slots=True)
class Oracle:
    """What is true of the orders, after each batch, by counting them.

    ``results`` counts full windows: the sum over all ids of floor(orders / window). ``updates``
    counts, batch by batch, the ids that the batch has: what a running average gives.
    """

    rows: list[int]
    results: list[int]
    updates: list[int]


def count(batches: list[Ids], window: int) -> Oracle:
    """Counts orders per id."""
    orders = np.zeros(max(int(ids.max()) for ids in batches) + 1, dtype=np.int64)
    oracle = Oracle([], [], [])
    rows = updates = 0
    for ids in batches:
        here = np.bincount(ids, minlength=len(orders))
        orders += here
        rows += len(ids)
        updates += int(np.count_nonzero(here))
        oracle.rows.append(rows)
        oracle.results.append(int((orders // window).sum()))
        oracle.updates.append(updates)
    return oracle


@dataclass(frozen=True, slots=True)
class Orders:
    """A workload as files."""

    workload: Workload
    directory: Path
    oracle: Oracle

    @property
    def batches(self) -> int:
        return len(self.oracle.rows)

    @property
    def rows(self) -> int:
        return self.oracle.rows[-1]

    def asked(self, *, resume: bool = False) -> dict[str, Any]:
        """What a job is told about them."""
        return {
            "orders": str(self.directory),
            "keys": self.workload.keys,
            "window": self.workload.window,
            "batches": self.batches,
            "pace_s": 0.0,
            "resume": resume,
        }


def prepare(workload: Workload, home: Path = HOME) -> Orders:
    """The files of a workload, written if they are not there yet."""
    described = json.dumps([_FORMAT, SEED, ZIPF_EXPONENT, OPENING_ROWS, asdict(workload)])
    directory = home / hashlib.sha256(described.encode()).hexdigest()[:16]
    if not directory.exists():
        unfinished = home / f"{directory.name}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        _write(workload, unfinished)
        unfinished.rename(directory)
    oracle = Oracle(**json.loads((directory / _ORACLE).read_text()))
    return Orders(workload, directory.absolute(), oracle)


def _write(workload: Workload, directory: Path) -> None:
    (directory / "csv").mkdir(parents=True)
    batches = workload.batch_ids()
    rng = np.random.default_rng((SEED, 1))
    plain = csv.WriteOptions(include_header=False, quoting_style="none")
    for number, ids in enumerate(batches):
        prices = rng.integers(1, 1000, len(ids), dtype=np.int32)
        rows = pa.table({"item_id": _keys(ids, workload.keys), "item_price": prices})
        write_batch(directory, number, rows)
        text = directory / "csv" / f"{number:04d}.csv"
        csv.write_csv(rows, text, plain)
        date_batch(text, number)
    (directory / _ORACLE).write_text(json.dumps(asdict(count(batches, workload.window))))


def _keys(ids: Ids, kind: str) -> pa.Array:
    return pa.array(ids) if kind == "int" else pa.array(np.char.mod("item-%011d", ids), pa.string())
