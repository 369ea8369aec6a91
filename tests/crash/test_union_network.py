"""A network that is cut: a union whose one stream is in an object store behind a link that goes
down goes on without it, marks what it gives out, and replaces it when the link is up again."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import trailmark as tm
from tests.support.network import Link, s3_behind_a_link
from tests.support.object_store import new_bucket, use_s3
from trailmark.log import LocalStorage, read_meta
from trailmark.spark import union_columns
from trailmark.spark.union_source import RowsInOrder, UnionOptions, UnionReader
from trailmark.streams.own_writer import OwnWriter
from trailmark.streams.union.answering import Answering
from trailmark.streams.union.unreachable import read_unreachable

_FIELDS = [("at", pa.timestamp("us", "UTC")), ("item", pa.int64())]
_STREAM = pa.schema(_FIELDS)
_SCHEMA = (
    StructType()
    .add("at", "timestamp")
    .add("item", "long")
    .add("source", "string")
    .add("tentative", "boolean")
)
_WITHIN_S = 2.0
#: How long the link is down, and the most that anything is waited for.
_DOWN_S, _PATIENCE_S = 5.0, 60.0


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> Iterator[Link]:
    with s3_behind_a_link() as (found, endpoint):
        use_s3(endpoint, monkeypatch)
        yield found


class _Union:
    """The source of a union, called as Spark calls it."""

    def __init__(self, path: Path, inputs: dict[str, str]) -> None:
        self._path = path
        answering = Answering(round(_WITHIN_S * 1_000_000))
        options = UnionOptions(str(path), inputs, "at", 1_000_000, 0, answering=answering)
        self._reader = UnionReader(options, _SCHEMA)
        self._at: dict[str, Any] = self._reader.initialOffset()
        self.stable: list[tuple[int, str]] = []
        self.tentative: list[tuple[int, str]] = []
        #: The longest that Spark waited for an answer.
        self.longest_s = 0.0

    def turn(self) -> None:
        began = time.monotonic()
        end = self._reader.latestOffset(self._at)
        self.longest_s = max(self.longest_s, time.monotonic() - began)
        sent = copy.copy(self._reader)  # as it is sent to tasks
        for part in self._reader.partitions(self._at, end):
            assert isinstance(part, RowsInOrder)
            for rows in sent.read(part):
                found = zip(*(rows[name].to_pylist() for name in ("item", "source")), strict=True)
                (self.tentative if part.is_tentative else self.stable).extend(found)
        self._at = end
        time.sleep(0.01)

    @property
    def phase(self) -> str:
        return str(self._at.get("ahead", {}).get("phase", "STABLE"))

    @property
    def unreachable(self) -> list[str]:
        return list(read_unreachable(LocalStorage(self._path)))


def _append(writer: OwnWriter, seconds: range) -> None:
    """A row a second, and nothing older any more."""
    at = pa.array([each * 1_000_000 for each in seconds], pa.int64()).cast(_STREAM.field("at").type)
    writer.append(pa.table({"at": at, "item": list(seconds)}, schema=_STREAM))


def test_a_union_goes_on_while_the_network_is_cut(
    tmp_path: Path, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = {"eu": str(tmp_path / "eu"), "asia": new_bucket()}
    writers = [
        tm.stream_writer(path, _STREAM, name=name, time_column="at", delay="0 seconds")
        for name, path in inputs.items()
    ]
    for writer in writers:
        _append(writer, range(10))
    union = _Union(tmp_path / "union", inputs)
    until = time.monotonic() + _PATIENCE_S
    while len(union.stable) < 18:
        assert time.monotonic() < until, "it has begun"
        union.turn()
    link.cut()
    cut_at, seconds = time.monotonic(), 10
    while time.monotonic() < cut_at + _DOWN_S:
        _append(writers[0], range(seconds, seconds + 1))
        seconds += 1
        union.turn()
    assert union.phase == "UP_FAILURE"
    assert union.unreachable == ["asia"]
    assert union.tentative
    assert {source for _, source in union.tentative} == {"eu"}
    assert union.longest_s < _WITHIN_S, "nobody waited for what was cut off"
    monkeypatch.setattr(union_columns, "_PATIENCE_S", 1.0)
    stored = read_meta(LocalStorage(tmp_path / "union"))
    columns = union_columns.columns_of_streams(inputs, inputs, "at", stored)
    assert columns["asia"] == columns["eu"], "a driver that is started now can go on"
    link.mend()
    _append(writers[1], range(10, seconds))
    until = time.monotonic() + _PATIENCE_S
    while union.phase != "STABLE" or len(union.stable) < 2 * (seconds - 1):
        assert time.monotonic() < until, f"{union.phase}, {union.unreachable}"
        union.turn()
    assert union.unreachable == []
    expected = [(each, source) for each in range(seconds - 1) for source in ("eu", "asia")]
    assert union.stable == expected
