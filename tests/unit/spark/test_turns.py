"""Turns as the source of a union takes them: their arguments, and two unions that share a lease."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import trailmark as tm
from tests.support.spark_runs import wait_until
from trailmark.errors import SettingError
from trailmark.leases import Pass, is_lease, open_lease
from trailmark.leases.fence import VARIABLE
from trailmark.log import LocalStorage
from trailmark.spark.turns import check_turns
from trailmark.spark.union_source import RowsInOrder, UnionOptions, UnionReader
from trailmark.streams.own_writer import OwnWriter
from trailmark.streams.union.ahead import Phase
from trailmark.streams.union.answering import Answering
from trailmark.streams.union.decision import Decision
from trailmark.streams.union.turns import TurnsAt

_SUSPENDS = Answering(1_000_000, on_correction="suspend")


def test_a_lease_is_begun_for_them_and_found_again(tmp_path: Path) -> None:
    union, turns = str(tmp_path / "union"), tmp_path / "turns"
    assert check_turns(None, None, _SUSPENDS, union, None) is None
    assert check_turns(turns, None, _SUSPENDS, union, None) == TurnsAt(str(turns), 1_000_000)
    assert is_lease(LocalStorage(turns))
    found = check_turns(str(turns), "5 seconds", _SUSPENDS, union, None)
    assert found == TurnsAt(str(turns), 5_000_000)


@pytest.mark.parametrize(
    ("given", "answering", "where", "problem"),
    [
        (("turns", None), None, "turns", "gives out none before they stand"),
        (("turns", None), Answering(1_000_000), "turns", "answers meanwhile"),
        (("turns", None), Answering(1, on_correction="delay"), "turns", "answers meanwhile"),
        ((None, "1 second"), _SUSPENDS, "term", "there are no turns"),
        (("turns", "1 ms"), _SUSPENDS, "term", "too short"),
        (("turns", "soon"), _SUSPENDS, "term", "term"),
        (("", None), _SUSPENDS, "turns", "must be a directory or URL"),
        ((3, None), _SUSPENDS, "turns", "must be a directory or URL"),
        (("union", None), _SUSPENDS, "turns", "among the files of the union"),
        (("union/turns", None), _SUSPENDS, "turns", "among the files of the union"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(
    tmp_path: Path, given: tuple[Any, Any], answering: Answering | None, where: str, problem: str
) -> None:
    turns, term = given
    at = tmp_path / turns if isinstance(turns, str) and turns else turns
    with pytest.raises(SettingError, match=problem) as refused:
        check_turns(at, term, answering, str(tmp_path / "union"), None)
    assert refused.value.where == where
    assert not (tmp_path / "turns").exists()


def test_the_lease_of_a_standby_would_never_be_anothers_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = open_lease(tmp_path / "lease")
    monkeypatch.setenv(VARIABLE, Pass(path, "a" * 32, 1_000_000).to_text())
    with pytest.raises(SettingError, match=r"the lease of tm\.standby"):
        check_turns(path, None, _SUSPENDS, str(tmp_path / "union"), None)


def test_a_place_that_is_something_elses_is_refused_under_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets/0").write_text("v1")
    with pytest.raises(SettingError, match="checkpoint of Spark") as refused:
        check_turns(tmp_path, None, _SUSPENDS, "/elsewhere/union", None)
    assert refused.value.where == "turns"


# Two unions as Spark calls them, with threads and files as they are

_SCHEMA = (
    StructType()
    .add("at", "timestamp")
    .add("item", "long")
    .add("source", "string")
    .add("tentative", "boolean")
)
_STREAM = pa.schema([("at", pa.timestamp("us", "UTC")), ("item", pa.int64())])


@dataclass
class _Replica:
    """A union of two streams whose rows wait by a clock of the test."""

    root: Path
    name: str
    now_us: float = 0.0
    at: dict[str, Any] = field(init=False)
    rows: list[tuple[int, bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reader = self._new()
        self.at = self.reader.initialOffset()

    def _new(self) -> UnionReader:
        options = UnionOptions(
            str(self.root / self.name),
            {name: str(self.root / name) for name in ("eu", "us")},
            "at",
            10,
            0,
            most_rows=3,
            answering=_SUSPENDS,
            turns=TurnsAt(str(self.root / "turns"), 400_000),
        )
        assert UnionOptions.of(options.to_options()) == options
        return UnionReader(options, _SCHEMA, lambda: self.now_us)

    @property
    def decision(self) -> Decision:
        return Decision.from_json(self.at)

    def go_on(self) -> Decision:
        """Looks once more, and runs the batch if there is one."""
        self.now_us += 100_000
        end = self.reader.latestOffset(self.at)
        for partition in self.reader.partitions(self.at, end):
            assert isinstance(partition, RowsInOrder)
            for batch in self.reader.read(partition):
                pairs = zip(batch["item"].to_pylist(), batch["tentative"].to_pylist(), strict=True)
                self.rows += pairs
        self.at = end
        return self.decision

    def has_answered(self) -> bool:
        return self.go_on().until_us == 190

    def end(self) -> None:
        self.reader.stop()

    def start_again(self) -> None:
        self.reader = self._new()


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[list[_Replica]]:
    """Both answer without us, which is back then."""
    open_lease(tmp_path / "turns")
    eu, us = (_writer(tmp_path / name) for name in ("eu", "us"))
    found = [_Replica(tmp_path, name) for name in ("a", "b")]
    _add(eu, range(0, 200, 10))
    _add(us, range(0, 20, 10))
    for each in found:
        wait_until("it has answered", each.has_answered)
    _add(us, range(20, 210, 10))
    _add(eu, range(200, 210, 10))
    yield found
    for each in found:
        each.end()


def _writer(path: Path) -> OwnWriter:
    return tm.stream_writer(path, _STREAM, name=path.name, time_column="at", delay="0 seconds")


def _add(writer: OwnWriter, times: range) -> None:
    at = pa.array(times, pa.int64()).cast(_STREAM.field("at").type)
    writer.append(pa.table({"at": at, "item": list(times)}, schema=_STREAM))


def _corrects(replica: _Replica) -> bool:
    return replica.go_on().phase is Phase.STABILIZATION


def test_one_corrects_and_hands_its_turn_on(replicas: list[_Replica]) -> None:
    one, other = replicas
    wait_until("it is its turn", lambda: _corrects(one))
    assert other.go_on().waits_for_turn
    while one.go_on().turn is not None:
        other.go_on()
        assert other.decision.phase is Phase.UP_FAILURE
    one.go_on()
    wait_until("it is the other's turn", lambda: _corrects(other))
    wait_until("it is through", lambda: other.go_on().phase is Phase.STABLE)
    expected = sorted([*range(0, 200, 10)] * 2)
    assert [sorted(n for n, mark in each.rows if not mark) for each in replicas] == [expected] * 2


def test_a_query_that_is_stopped_gives_its_turn_back_and_begins_again_as_one_that_waits(
    replicas: list[_Replica],
) -> None:
    one, other = replicas
    wait_until("it is its turn", lambda: _corrects(one))
    assert other.go_on().waits_for_turn
    one.end()
    wait_until("it is the other's turn", lambda: _corrects(other))
    one.start_again()
    assert one.go_on().waits_for_turn
    wait_until("the other is through", lambda: other.go_on().turn is None)
    other.go_on()
    wait_until("it is its turn again", lambda: _corrects(one))
    wait_until("it is through", lambda: one.go_on().phase is Phase.STABLE)
