"""The reader of a state, as Spark calls it in processes of its own."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from tests.support.orders import count_case, random_orders
from tests.support.shown_states import offered
from tests.support.written import write_logs
from trailmark.checkpoint.policy import Continuous
from trailmark.errors import MissingInput, SchemaChanged, SettingError
from trailmark.inspection.logs import OperatorFiles
from trailmark.log import LocalStorage
from trailmark.records import Stream
from trailmark.spark.source import TrailmarkSource
from trailmark.streams.table import read_table


def _source(path: Path, **options: str) -> TrailmarkSource:
    return TrailmarkSource({"path": str(path), "records": "state", **options})


def _read(reader: Any, partition: Any) -> pa.Table | None:
    """In a task, which gets both of them by pickle."""
    reader, partition = pickle.loads(pickle.dumps((reader, partition)))  # noqa: S301
    batches = list(reader.read(partition))
    return pa.Table.from_batches(batches) if batches else None


def _logs(path: Path) -> Path:
    rows = random_orders(random.Random(9), batches=12, rows=30, items=12)
    write_logs(path, count_case(rows, size=6), Continuous(q=20, u=60))
    return path


def test_tasks_together_read_all_of_it(tmp_path: Path) -> None:
    source = _source(_logs(tmp_path / "logs"))
    reader = source.reader(source.schema())
    tables = [_read(reader, partition) for partition in reader.partitions()]
    assert len(tables) == 2
    assert pa.concat_tables(tables) == read_table(tmp_path / "logs", records="state")


def test_what_is_trimmed_between_plan_and_task_is_told_with_what_to_read_instead(
    tmp_path: Path,
) -> None:
    path = _logs(tmp_path / "logs")
    source = _source(path, endingbatch="2")
    reader = source.reader(source.schema())
    first, _ = reader.partitions()
    OperatorFiles(LocalStorage(path)).log(Stream.INPUT, 0).trim(11)
    with pytest.raises(MissingInput, match="state as of batch 2 cannot be rebuilt") as refused:
        _read(reader, first)
    assert 2 not in offered(refused.value)


def test_other_columns_than_it_has_are_refused(tmp_path: Path) -> None:
    source = _source(_logs(tmp_path / "logs"))
    with pytest.raises(SchemaChanged, match="'fill' is int64 in the stream, not string"):
        source.reader(StructType().add("fill", "string")).partitions()


def test_it_cannot_be_followed(tmp_path: Path) -> None:
    source = _source(_logs(tmp_path / "logs"))
    with pytest.raises(SettingError, match="cannot be followed") as refused:
        source.streamReader(source.schema())
    assert refused.value.where == "records"
