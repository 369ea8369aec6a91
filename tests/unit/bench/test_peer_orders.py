"""The orders of peers, and the count that judges what they give."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from bench.peers.orders import Workload, count, prepare

_SMALL = Workload(items=50, window=3, rows=400, batches=4)


def test_the_oracle_counts_full_windows_of_every_id() -> None:
    batches = [np.array([0, 0, 2], np.int32), np.array([0, 2, 2, 2, 2], np.int32)]

    oracle = count(batches, window=2)

    assert oracle.rows == [3, 8]
    assert oracle.results == [1, 1 + 2]  # three orders of id 0, five of id 2
    assert oracle.updates == [2, 4]


@pytest.mark.parametrize(
    "workload",
    [
        _SMALL,
        Workload(items=2, window=7, rows=400, batches=4),
        Workload(items=50, window=1, rows=400, batches=4),
        Workload(items=50, window=3, rows=400, batches=4, keys="text"),
        Workload(items=50, window=3, rows=400, batches=4, is_skewed=True),
        Workload(items=50, window=3, rows=400, batches=4, opens=True),
        Workload(items=50, window=3, rows=20, batches=4, blocks=5),
    ],
)
def test_the_oracle_agrees_with_counting_the_rows_of_the_files(
    tmp_path: Path, workload: Workload
) -> None:
    orders = prepare(workload, tmp_path)

    seen: Counter[object] = Counter()
    for number in range(orders.batches):
        table = pq.read_table(orders.directory / f"{number:04d}.parquet")
        seen.update(table["item_id"].to_pylist())

    assert orders.rows == seen.total()
    assert orders.oracle.results[-1] == sum(n // workload.window for n in seen.values())


def test_csv_files_hold_the_same_orders(tmp_path: Path) -> None:
    orders = prepare(Workload(items=50, window=3, rows=100, batches=2, keys="text"), tmp_path)

    names = csv.ReadOptions(column_names=["item_id", "item_price"])
    for number in range(orders.batches):
        parquet = pq.read_table(orders.directory / f"{number:04d}.parquet")
        text = csv.read_csv(orders.directory / "csv" / f"{number:04d}.csv", names)
        assert text.to_pydict() == parquet.to_pydict()
        assert '"' not in (orders.directory / "csv" / f"{number:04d}.csv").read_text()


def test_opening_batches_have_one_order_of_every_id(tmp_path: Path) -> None:
    orders = prepare(Workload(items=50, window=2, rows=30, batches=3, opens=True), tmp_path)

    first = pq.read_table(orders.directory / "0000.parquet")["item_id"].to_pylist()

    assert sorted(first) == list(range(50))
    assert orders.oracle.results[0] == 0


def test_blocks_share_the_ids_and_no_id_is_in_two_of_them() -> None:
    blocks = Workload(items=50, window=3, rows=1000, batches=5, blocks=5).batch_ids()

    assert [set(ids) for ids in blocks] == [set(range(block, 50, 5)) for block in range(5)]


def test_orders_are_written_once_and_again_if_that_was_interrupted(tmp_path: Path) -> None:
    directory = prepare(_SMALL, tmp_path).directory
    written_at = (directory / "0000.parquet").stat().st_ino
    assert prepare(_SMALL, tmp_path).directory == directory
    assert (directory / "0000.parquet").stat().st_ino == written_at

    unfinished = directory.rename(directory.with_name(f"{directory.name}.unfinished"))
    (unfinished / "0000.parquet").write_text("torn")
    assert pq.read_table(prepare(_SMALL, tmp_path).directory / "0000.parquet").num_rows == 400
