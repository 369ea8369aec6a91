"""The columns of a union whose streams cannot be reached: one that has run before knows them."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from threading import Event

import pyarrow as pa
import pytest
from pyspark.sql import types as spark

from tests.support.streams import written
from tests.support.unreachable import Line
from trailmark.errors import SettingError, Unreachable
from trailmark.log import OperatorMeta, Storage
from trailmark.spark import union_columns
from trailmark.spark.union_columns import columns_of_streams
from trailmark.streams.union.description import UnionDescription
from trailmark.testing.disk import SimulatedDisk

_OWN = pa.schema([("time", pa.timestamp("us", "UTC")), ("value", pa.int64())])
_MORE = pa.schema([("value", pa.int64()), ("extra", pa.string()), *_OWN.remove(1)])
_PATHS = {"eu": "/eu", "asia": "/asia"}


def _ran() -> OperatorMeta:
    """What is kept of a union of these streams."""
    schema = _OWN.append(pa.field("source", pa.string()))
    schemas = dict.fromkeys(_PATHS, _OWN)
    return UnionDescription(_PATHS, schemas, schema, "time", 500_000, 0).to_meta()


class _Streams:
    """Two streams, each behind a line that can be cut."""

    def __init__(self) -> None:
        self.lines = {path: Line(SimulatedDisk()) for path in _PATHS.values()}
        for path, schema in (("/eu", _MORE), ("/asia", _OWN)):
            written(self.lines[path].disk.storage(), schema, time_column="time")
        #: What hangs is not answered before this.
        self.is_mended = Event()
        self.hangs: set[str] = set()

    def open(self, path: str) -> Storage:
        if path in self.hangs:
            self.is_mended.wait()
        return self.lines[path].storage()


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Streams]:
    found = _Streams()
    monkeypatch.setattr(union_columns, "open_storage", found.open)
    monkeypatch.setattr(union_columns, "_PATIENCE_S", 0.2)
    yield found
    found.is_mended.set()


def _columns(stored: OperatorMeta | None) -> dict[str, list[str]]:
    found = columns_of_streams(_PATHS, _PATHS, "time", stored)
    return {name: each.names for name, each in found.items()}


def _cut(streams: _Streams, path: str) -> None:
    streams.lines[path].cut(errno.EHOSTUNREACH)


def _hang(streams: _Streams, path: str) -> None:
    streams.hangs.add(path)


@pytest.mark.parametrize("fail", [_cut, _hang])
def test_a_union_that_has_run_is_defined_without_a_stream_that_cannot_be_reached(
    streams: _Streams, fail: Callable[[_Streams, str], None], caplog: pytest.LogCaptureFixture
) -> None:
    stored = _ran()
    everything = {"eu": ["value", "extra", "time"], "asia": ["time", "value"]}
    assert _columns(stored) == everything
    fail(streams, "/asia")
    assert _columns(stored) == everything
    assert "input asia cannot be reached" in caplog.text
    fail(streams, "/eu")
    with pytest.raises(Unreachable):
        _columns(stored)


def test_what_is_known_has_the_types_of_the_other_streams(streams: _Streams) -> None:
    _cut(streams, "/eu")
    found = columns_of_streams(_PATHS, _PATHS, "time", _ran())
    assert found["eu"] == found["asia"]
    assert found["eu"]["value"].dataType == spark.LongType()


def test_a_union_that_has_not_run_cannot_know(streams: _Streams) -> None:
    _cut(streams, "/asia")
    with pytest.raises(Unreachable):
        _columns(None)


def test_what_is_wrong_is_told_also_while_another_stream_cannot_be_reached(
    streams: _Streams,
) -> None:
    _cut(streams, "/eu")
    with pytest.raises(SettingError, match="not 'value', but 'time'"):
        columns_of_streams(_PATHS, _PATHS, "value", _ran())
