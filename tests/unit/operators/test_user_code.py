"""What users' code raises and returns: told with where it happened, and never half taken in."""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa
import pytest

from trailmark.checkpoint.policy import Continuous
from trailmark.engine import Bucket, OperatorLogs
from trailmark.errors import OperatorError, SchemaError, SettingError, TrailmarkError
from trailmark.operators.keyed import Keyed
from trailmark.operators.whole import Whole
from trailmark.testing.disk import SimulatedDisk

_SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.float64())])
_OUTPUT = pa.schema([("key", pa.int64()), ("n", pa.int64())])
_ROWS = pa.record_batch({"key": [1, 2, 1], "value": [1.0, 2.0, 3.0]}, schema=_SCHEMA)


class Counts:
    """Counts, unless the test says what to do instead."""

    state: ClassVar[Any] = {"n": pa.int64(), "name": pa.string(), "all": pa.list_(pa.int64())}
    instead: Any = None

    def process(self, keys: Any, rows: Any, state: Any) -> Any:
        state["n"] += keys.counts()
        if self.instead is not None:
            return self.instead(keys, rows, state)
        return keys.table(n=state["n"])


def _keyed(instead: Any = None) -> Keyed:
    user = Counts()
    user.instead = instead
    return Keyed(_SCHEMA, user, by="key", output=_OUTPUT)


def _run(operator: Any, disk: SimulatedDisk, batch: int) -> pa.RecordBatch:
    logs = OperatorLogs(disk.storage(), operator, buckets=1)
    bucket = Bucket(operator, logs, 0, Continuous(q=4))
    try:
        return bucket.run(batch, _ROWS).results
    finally:
        bucket.close()


def _table(**columns: Any) -> pa.Table:
    return pa.table(columns)


def _set(name: str, values: Any) -> Any:
    def change(keys: Any, rows: Any, state: Any) -> None:
        state[name] = values

    return change


@pytest.mark.parametrize(
    ("instead", "message"),
    [
        (lambda k, r, s: 1 / 0, "Counts.process raised ZeroDivisionError: division by zero"),
        (lambda k, r, s: r["none"], "Counts.process raised KeyError"),
        (lambda k, r, s: [1], "returned list, not an Arrow record batch or table"),
        (lambda k, r, s: _table(key=[1]), "returned the columns .*'key'.*; declared are"),
        (lambda k, r, s: _table(key=[1], n=[1], m=[1]), "returned the columns"),
        (lambda k, r, s: _table(key=[1], n=[1.5]), "'n' was returned as double"),
        (lambda k, r, s: _table(key=["x"], n=[1]), "'key' was returned as string"),
        (_set("n", [1, 2, 3]), "2 values are needed, one for each key"),
        (_set("n", [1.5, 2.5]), "float64 is not int64"),
        (_set("name", [1, 2, 3]), "The values are not string|values are needed"),
        (_set("name", ["only one"]), "2 values are needed, one for each key; got 1"),
        (_set("all", [["x"], []]), "The values are not list"),
        (_set("none", [1]), "The state has no column 'none'"),
        (lambda k, r, s: s["none"], "The state has no column 'none'"),
    ],
)
def test_a_mistake_is_told_and_the_batch_goes_on_when_it_is_mended(
    instead: Any, message: str
) -> None:
    disk = SimulatedDisk()
    assert _run(_keyed(), disk, 0).to_pylist() == [{"key": 1, "n": 2}, {"key": 2, "n": 1}]
    with pytest.raises(TrailmarkError, match=message):
        _run(_keyed(instead), disk, 1)
    assert _run(_keyed(), disk, 1).to_pylist() == [{"key": 1, "n": 4}, {"key": 2, "n": 2}]


def test_what_is_raised_names_the_batch_the_file_and_the_line_of_the_user() -> None:
    def fail(keys: Any, rows: Any, state: Any) -> None:
        pa.array(["no number"]).cast(pa.int64())

    with pytest.raises(OperatorError) as caught:
        _run(_keyed(fail), SimulatedDisk(), 0)
    assert "batch 0" in caught.value.where
    assert __file__ in caught.value.where
    assert "in fail" in caught.value.where
    assert caught.value.__cause__ is not None


def test_what_loses_nothing_is_converted() -> None:
    found = _run(_keyed(lambda k, r, s: _table(n=[7.0], key=[1])), SimulatedDisk(), 0)
    assert found.schema == _OUTPUT
    assert found.to_pylist() == [{"key": 1, "n": 7}]


def _nothing(self: Any, given: Any = None) -> None:
    return None


class Whole1:
    """A whole operator; the test says what its state is."""

    kept: Any = b"state"

    def process(self, batch: Any) -> None:
        return None

    def get_checkpoint(self) -> Any:
        return self.kept

    def restore_checkpoint(self, state: Any) -> None:
        if state != self.kept and not isinstance(state, pa.Table):
            raise ValueError("not mine")


def test_a_checkpoint_that_cannot_be_kept_is_refused() -> None:
    user = Whole1()
    user.kept = {"a": 1}
    with pytest.raises(OperatorError, match="get_checkpoint returned dict"):
        _run(Whole(_SCHEMA, user, output=_OUTPUT), SimulatedDisk(), 0)


def test_a_checkpoint_that_cannot_be_restored_stops_the_query_and_loses_nothing() -> None:
    disk = SimulatedDisk()
    _run(Whole(_SCHEMA, Whole1, output=_OUTPUT), disk, 0)
    other = Whole1()
    other.kept = b"another"
    with pytest.raises(OperatorError, match="restore_checkpoint raised ValueError: not mine"):
        _run(Whole(_SCHEMA, other, output=_OUTPUT), disk, 1)
    _run(Whole(_SCHEMA, Whole1, output=_OUTPUT), disk, 1)


@pytest.mark.parametrize(
    ("user", "message"),
    [
        (object(), "has no method process"),
        (type("Half", (), {"process": _nothing, "get_checkpoint": _nothing}), "no restore_"),
        (type("Half", (), {"process": _nothing, "restore_checkpoint": _nothing}), "no get_"),
    ],
)
def test_a_class_that_is_no_operator_is_refused(user: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Whole(_SCHEMA, user, output=_OUTPUT)


def test_two_objects_do_not_share_what_was_given_as_one() -> None:
    class Sum:
        def __init__(self) -> None:
            self.total = 0.0

        def process(self, batch: Any) -> Any:
            self.total += sum(batch["value"].to_pylist())
            return pa.table({"key": [0], "n": [int(self.total)]})

        def get_checkpoint(self) -> bytes:
            return str(self.total).encode()

        def restore_checkpoint(self, state: bytes) -> None:
            self.total = float(state)

    operator = Whole(_SCHEMA, Sum(), output=_OUTPUT)
    for _ in range(2):
        assert _run(operator, SimulatedDisk(), 0).to_pylist() == [{"key": 0, "n": 6}]


def test_names_that_the_log_uses_are_refused() -> None:
    with pytest.raises(SchemaError, match="begin with"):
        Whole(_SCHEMA, Whole1, output=pa.schema([("$n", pa.int64())]))
