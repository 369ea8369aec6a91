"""Logs that were cut to the batch a checkpoint was rolled back to: the query goes on from there.

What is tried here is what ``docs/operations.md`` says, step by step.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.spark_orders import (
    Orders,
    assert_sink_is_right,
    make_query,
    newest_after,
    newest_of,
)
from tests.support.spark_query import Query
from tests.support.spark_runs import Application
from trailmark.cli import main

#: The batch everything goes back to, and the files there were.
_BACK_TO, _FILES = 4, 7


def _remove_after(directory: Path, batch: int) -> None:
    """Removes a checkpoint's or a sink's files of later batches, with their checksums."""
    for path in list(directory.iterdir()):
        name = path.name.removeprefix(".").removesuffix(".crc")
        if name.isdigit() and int(name) > batch:
            path.unlink()


def _prepare(application: Application, directory: Path, window: str) -> tuple[Orders, Query]:
    orders = Orders(directory / "in", seed=11)
    orders.feed(_FILES)
    query = make_query(directory, orders, window, name=directory.name)
    assert application.run([query]) == ""
    assert newest_of(query, "commits") == newest_after(query, orders)
    return orders, query


@pytest.mark.parametrize("plans_anew", [False, True], ids=["the same batch", "planned anew"])
@pytest.mark.parametrize("window", ["count", "time"])
def test_a_query_goes_on_after_logs_checkpoint_and_sink_went_back_to_the_same_batch(
    window: str, plans_anew: bool, tmp_path: Path, application: Application
) -> None:
    orders, query = _prepare(application, tmp_path, window)
    assert main(["truncate", query.path, "--to-batch", str(_BACK_TO), "--yes"]) == 0
    checkpoint = Path(query.checkpoint)
    _remove_after(checkpoint / "commits", _BACK_TO)
    _remove_after(checkpoint / "offsets", _BACK_TO if plans_anew else _BACK_TO + 1)
    _remove_after(Path(query.out, "_spark_metadata"), _BACK_TO)
    if not plans_anew:
        orders.feed(3)
    assert application.run([query]) == ""
    assert newest_of(query, "commits") > _BACK_TO
    assert_sink_is_right(query, orders)
    assert not Path(query.path, "rolled-back").exists()
    assert main(["verify", query.path]) == 0


def test_a_file_sink_that_was_not_rolled_back_leaves_batches_out_and_the_query_is_refused(
    tmp_path: Path, application: Application
) -> None:
    """The sink skips what it has without asking for the rows, so the logs miss those batches."""
    orders, query = _prepare(application, tmp_path, "count")
    assert main(["truncate", query.path, "--to-batch", str(_BACK_TO), "--yes"]) == 0
    _remove_after(Path(query.checkpoint, "commits"), _BACK_TO)
    _remove_after(Path(query.checkpoint, "offsets"), _BACK_TO)
    orders.feed(3)
    message = application.run([query])
    assert "trailmark.errors.BatchSkipped: " in message, message or "it was not refused"


def test_a_checkpoint_that_was_not_rolled_back_is_refused(
    tmp_path: Path, application: Application
) -> None:
    """Spark would go on behind the cut; the batches between would be lost."""
    orders, query = _prepare(application, tmp_path, "count")
    assert main(["truncate", query.path, "--to-batch", str(_BACK_TO), "--yes"]) == 0
    orders.feed(1)
    message = application.run([query])
    assert "trailmark.errors.BatchSkipped: " in message, message or "it was not refused"
    assert f"batch {_BACK_TO + 1} is missing" in message
