"""The stream reader as Spark calls it, where a test on Spark could not choose the moment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from trailmark.errors import DataLoss, MissingSegment
from trailmark.log import LocalStorage, OperatorMeta, Storage, StreamLog, open_storage
from trailmark.log.readers import needed_from
from trailmark.records import Stream
from trailmark.spark import source
from trailmark.spark.options import ReadOptions
from trailmark.spark.source import ChunksOfStream, TrailmarkStreamReader
from trailmark.streams.description import open_stream
from trailmark.streams.manifest import manifest_log
from trailmark.streams.writer import StreamWriter

_SCHEMA = StructType().add("id", "long")


class _TrimmedMeanwhile(LocalStorage):
    """A storage whose stream is trimmed right after its oldest batch was looked up."""

    def __init__(self, path: Path, log: StreamLog, before: int) -> None:
        super().__init__(path)
        self._trim: Callable[[], object] = lambda: log.trim(before)
        self._is_trimmed = False

    def read_tail(self, path: str, size: int) -> tuple[memoryview, int]:
        if path.startswith("batches/") and not self._is_trimmed:
            self._is_trimmed = True
            self._trim()
        return super().read_tail(path, size)


def _stream(path: Path) -> OperatorMeta:
    """Ten batches of one row."""
    storage = LocalStorage(path)
    meta = open_stream(storage, pa.schema([("id", pa.int64())]))
    writer = StreamWriter(storage, meta)
    for n in range(10):
        writer.commit(writer.write([pa.record_batch({"id": pa.array([n], pa.int64())})]))
    return meta


def _reader(path: Path, **options: str) -> TrailmarkStreamReader:
    given = ReadOptions.parse({"path": str(path), **options}).for_stream()
    return TrailmarkStreamReader(given, _SCHEMA)


def _batches(reader: TrailmarkStreamReader, end: int) -> list[int]:
    offset = reader.initialOffset()
    found = reader.partitions(offset, {**offset, "batch": end})
    return [c.batch for each in found if isinstance(each, ChunksOfStream) for c in each.chunks]


def test_versions_of_spark_without_admission_control_get_all_that_is_there(tmp_path: Path) -> None:
    _stream(tmp_path)
    reader = _reader(tmp_path, maxrowspertrigger="1")
    assert reader.initialOffset()["batch"] == 0
    assert reader.latestOffset()["batch"] == 10
    assert reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())["batch"] == 1


def test_batches_that_are_trimmed_while_a_read_is_planned_are_lost_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = manifest_log(LocalStorage(tmp_path), _stream(tmp_path))
    for before in (4, 6):
        storage = _TrimmedMeanwhile(tmp_path, log, before)
        monkeypatch.setattr(source, "open_storage", lambda *_, found=storage: found)
        if before == 4:
            with pytest.raises(DataLoss, match="Batches 0 to 3 are gone"):
                _batches(_reader(tmp_path), 8)
        else:
            assert _batches(_reader(tmp_path, failondataloss="false"), 8) == [6, 7]


def test_the_same_while_rows_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = manifest_log(LocalStorage(tmp_path), _stream(tmp_path))
    storage = _TrimmedMeanwhile(tmp_path, log, 4)
    monkeypatch.setattr(source, "open_storage", lambda *_: storage)
    reader = _reader(tmp_path, maxrowspertrigger="2")
    assert reader.latestOffset(reader.initialOffset())["batch"] == 6


def test_a_batch_that_is_missing_between_others_is_not_passed_over(tmp_path: Path) -> None:
    _stream(tmp_path)
    (missing,) = tmp_path.glob("batches/*/*5.seg")
    missing.unlink()
    with pytest.raises(MissingSegment) as refused:
        _batches(_reader(tmp_path, failondataloss="false"), 8)
    assert not isinstance(refused.value, DataLoss)


def test_a_named_reader_opens_its_storage_once_and_takes_none_to_its_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stream(tmp_path)
    reader = _reader(tmp_path, reader="billing")
    offset = reader.initialOffset()
    opened: list[Storage] = []

    def count(path: str) -> Storage:
        opened.append(open_storage(path))
        return opened[-1]

    monkeypatch.setattr(source, "open_storage", count)
    for batch in (1, 2, 3):
        reader.commit({**offset, "batch": batch})
    assert opened == [], "it was opened for the first offset"
    assert needed_from(LocalStorage(tmp_path), Stream.BATCHES) == 3
    given_to_tasks = reader.__getstate__().values()
    assert not any(isinstance(each, LocalStorage) for each in given_to_tasks)
