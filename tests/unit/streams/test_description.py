from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.support.engine import Query
from tests.support.meddling import Meddled
from tests.support.orders import count_case
from tests.support.streams import ORDERS
from trailmark.checkpoint.policy import NoCheckpoint
from trailmark.errors import SchemaChanged, SettingError, UnsupportedType
from trailmark.log import OperatorMeta, read_meta
from trailmark.streams.description import StreamDescription, is_stream, open_stream
from trailmark.testing.disk import SimulatedDisk

_SOURCE = {"type": "struct", "fields": []}


def test_a_stream_says_what_it_is() -> None:
    storage = SimulatedDisk().storage()
    created = open_stream(
        storage, ORDERS, time_column="time", keys=["item"], buckets=3, source_schema=_SOURCE
    )
    stored = read_meta(storage)
    assert stored is not None
    assert stored.log_id == created.log_id
    assert is_stream(stored)
    assert StreamDescription.of(stored) == StreamDescription(ORDERS, "time", ("item",), 3, _SOURCE)


@pytest.mark.parametrize(
    ("keys", "buckets"), [(None, 1), (["item"], 8), (["item", "price", "time"], 8)]
)
def test_a_stream_with_keys_has_eight_buckets_and_one_without_has_one(
    keys: list[str] | None, buckets: int
) -> None:
    assert open_stream(SimulatedDisk().storage(), ORDERS, keys=keys).buckets == buckets


def test_what_is_left_out_is_as_it_was() -> None:
    storage = SimulatedDisk().storage()
    created = open_stream(
        storage, ORDERS, time_column="time", keys=["item"], buckets=3, source_schema=_SOURCE
    )
    assert open_stream(storage, ORDERS).log_id == created.log_id
    again = open_stream(storage, ORDERS, keys=["item"], source_schema=_SOURCE)
    assert StreamDescription.of(again) == StreamDescription.of(created)


_WIDE = ORDERS.append(pa.field("other", pa.timestamp("us")))
_CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "buckets": ({"buckets": 4}, "buckets: 3 -> 4"),
    "keys": ({"keys": ["price"]}, "operator.keys"),
    "no keys": ({"keys": [], "buckets": 1}, "operator.keys"),
    "time": ({"time_column": "other"}, "operator.time: time -> other"),
    "source": ({"source_schema": {"type": "array"}}, "operator.source_schema"),
    "column": (
        {"schema": _WIDE.append(pa.field("new", pa.int32()))},
        "column new: absent -> int32",
    ),
    "type": ({"schema": _WIDE.set(1, pa.field("price", pa.int32()))}, "int64 -> int32"),
    "not null": (
        {"schema": _WIDE.set(1, pa.field("price", pa.int64(), False))},
        "int64 -> int64 not null",
    ),
    "order": ({"schema": pa.schema([_WIDE.field(n) for n in (1, 0, 2, 3)])}, "order of the"),
}


@pytest.mark.parametrize("change", _CHANGES)
def test_what_differs_from_before_is_refused(change: str) -> None:
    changed, what = _CHANGES[change]
    disk = SimulatedDisk()
    given: dict[str, Any] = {
        "schema": _WIDE,
        "time_column": "time",
        "keys": ["item"],
        "buckets": 3,
        "source_schema": _SOURCE,
    }
    open_stream(disk.storage(), **given)
    before = disk.content("meta.json")
    with pytest.raises(SchemaChanged, match=f"(?s)not what the stream holds:\n.*{what}") as refused:
        open_stream(disk.storage(), **{**given, **changed})
    assert "operator" not in refused.value.fix
    assert disk.content("meta.json") == before


_REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no such time": ({"time_column": "when"}, SettingError, "no column 'when'"),
    "no such key": ({"keys": ["item", "id"]}, SettingError, "no column 'id'"),
    "no time": ({"time_column": "price"}, UnsupportedType, "is no time"),
    "no key": ({"keys": ["weight"]}, UnsupportedType, "cannot be a key"),
    "nested key": ({"keys": ["tags"]}, UnsupportedType, "cannot be a key"),
    "no buckets": ({"keys": ["item"], "buckets": 0}, SettingError, "0 buckets"),
    "negative": ({"keys": ["item"], "buckets": -1}, SettingError, "-1 buckets"),
    "many": ({"keys": ["item"], "buckets": 1001}, SettingError, "1001 buckets"),
    "without keys": ({"buckets": 2}, SettingError, "2 buckets"),
}


@pytest.mark.parametrize("refused", _REFUSED)
def test_what_cannot_be_is_refused_before_anything_is_written(refused: str) -> None:
    given, error, what = _REFUSED[refused]
    schema = ORDERS.append(pa.field("weight", pa.float64())).append(
        pa.field("tags", pa.list_(pa.string()))
    )
    disk = SimulatedDisk()
    with pytest.raises(error, match=what):
        open_stream(disk.storage(), schema, **given)
    assert disk.files() == []


def test_the_path_of_an_operator_is_not_written_to() -> None:
    disk = SimulatedDisk()
    case = count_case([[(1, 2)]])
    query = Query(case, disk, NoCheckpoint())
    query.run(0, [case.batches[0]])
    query.stop()
    before = disk.files()
    with pytest.raises(SettingError, match="logs of an operator") as caught:
        open_stream(disk.storage(), ORDERS)
    assert caught.value.where == "path"
    assert disk.files() == before
    meta = read_meta(disk.storage())
    assert meta is not None
    assert not is_stream(meta)


def test_of_two_who_create_a_stream_at_once_both_use_the_same() -> None:
    for at in range(3):
        disk = SimulatedDisk()
        made: list[OperatorMeta] = []

        def meddle(disk: SimulatedDisk = disk, made: list[OperatorMeta] = made) -> None:
            made.append(open_stream(disk.storage(), ORDERS, keys=["item"]))

        found = open_stream(Meddled(disk, at, meddle), ORDERS, keys=["item"])
        other = made[0] if made else open_stream(disk.storage(), ORDERS)
        assert found.log_id == other.log_id


def test_who_creates_another_stream_at_the_same_moment_is_refused() -> None:
    disk = SimulatedDisk()

    def meddle() -> None:
        open_stream(disk.storage(), ORDERS)

    late = Meddled(disk, 1, meddle)
    with pytest.raises(SchemaChanged):
        open_stream(late, ORDERS, keys=["item"])
