"""``trailmark status`` of a union: how far it is, and for whom it waits."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import trailmark as tm
from tests.support.streams import ORDERS, SECOND, batch_of, orders
from tests.unit.cli.conftest import Run
from trailmark.dashboard.unions import show_union
from trailmark.log import LocalStorage, create_or_open
from trailmark.streams.asking import Unreached
from trailmark.streams.union.ahead import Ahead, Edge, Phase
from trailmark.streams.union.deciding import Deciding
from trailmark.streams.union.decision import NOTHING_YET, Turn
from trailmark.streams.union.decisions import Decisions
from trailmark.streams.union.description import UnionDescription
from trailmark.streams.union.inputs import UnionInput
from trailmark.streams.union.status import UnionStatusReader
from trailmark.streams.union.unreachable import keep_unreachable


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A union of two streams, of which us is behind."""
    paths = {name: str(tmp_path / name) for name in ("eu", "us")}
    for name, batch in (("eu", 3), ("us", 1)):
        given = {"name": name, "time_column": "time", "delay": "1 second"}
        writer = tm.stream_writer(paths[name], ORDERS, **given)  # type: ignore[arg-type]
        writer.append(batch_of(orders(batch)))
    schemas = dict.fromkeys(paths, ORDERS)
    union = UnionDescription(paths, schemas, ORDERS, "time", SECOND, 0)
    place = tmp_path / "union"
    create_or_open(LocalStorage(place), union.to_meta())
    return place


def _inputs(path: Path) -> list[UnionInput]:
    return [
        UnionInput(name, str(path), LocalStorage(path.parent / name), 0) for name in ("eu", "us")
    ]


def _decide(path: Path) -> None:
    decided = Deciding(_inputs(path), SECOND).next(NOTHING_YET)
    Decisions(LocalStorage(path), NOTHING_YET).publish(NOTHING_YET, decided)


def test_a_union_says_for_whom_it_waits(path: Path, run: Run) -> None:
    said = run("status", path)
    assert (said.code, said.err) == (0, "")
    assert "nothing is released yet" in said.out
    _decide(path)
    said = run("status", path)
    assert "union of 2 streams by time, in slices of 1 s" in said.out
    assert "released up to 1970-01-01 00:00:11Z, in batch 0, waits for us; late rows: 0" in said.out
    us = next(line for line in said.out.splitlines() if line.startswith("us"))
    assert us.split()[1:] == [
        str(path.parent / "us"),
        *("1970-01-01", "00:00:11Z", "1970-01-01", "00:00:11Z", "0", "0"),
    ]
    told = run("status", path, "--json").json
    assert (told["operator"], told["waits_for"], told["released_us"]) == (
        "union",
        "us",
        11 * SECOND,
    )
    assert told["inputs"]["eu"]["reached"]["boundary_us"] == 31 * SECOND


@pytest.mark.parametrize(
    ("ahead", "turn", "expected"),
    [
        (
            Ahead(12 * SECOND, 0, Phase.UP_FAILURE, (), 0, (Edge(12 * SECOND, 0),)),
            Turn(False, "shop/b/union (host:7)"),
            "01-01 00:00:12Z; waits for its turn, shop/b/union (host:7) has it",
        ),
        (
            Ahead(12 * SECOND, 0, Phase.STABILIZATION, (), 0, (Edge(12 * SECOND, 0),)),
            Turn(True),
            "01-01 00:00:12Z; it is its turn",
        ),
        (None, Turn(True), "STABLE, and catches up; it is its turn"),
    ],
)
def test_a_union_says_whose_turn_it_is_to_correct(
    path: Path, run: Run, ahead: Ahead | None, turn: Turn, expected: str
) -> None:
    decided = replace(Deciding(_inputs(path), SECOND).next(NOTHING_YET), ahead=ahead, turn=turn)
    Decisions(LocalStorage(path), NOTHING_YET).publish(NOTHING_YET, decided)
    assert expected in run("status", path).out
    assert run("status", path, "--json").json["turn"] == turn.to_json()
    shown = show_union(str(path), UnionStatusReader(LocalStorage(path)).read(), [])
    assert ("Turn", turn.line) in shown.facts
    assert shown.word.endswith("waits for its turn") is not turn.is_own


def test_a_stream_that_is_idle_is_not_waited_for(path: Path, run: Run) -> None:
    """Until it has something again."""
    shutil.rmtree(path.parent / "us")
    given = {"name": "asia", "time_column": "time"}
    asia = tm.stream_writer(path.parent / "us", ORDERS, **given)  # type: ignore[arg-type]
    asia.append(batch_of(orders(1)))
    now_us = 0
    deciding = Deciding(_inputs(path), SECOND, idle_after_us=SECOND, now_us=lambda: now_us)
    first = deciding.next(NOTHING_YET)
    now_us = SECOND
    second = deciding.next(first)
    decisions = Decisions(LocalStorage(path), NOTHING_YET)
    decisions.publish(NOTHING_YET, first)
    decisions.publish(first, second)
    released = "released up to 1970-01-01 00:00:31Z, in batch 1, waits for"
    assert f"{released} eu, idle: us; late rows: 0" in run("status", path).out
    assert run("status", path, "--json").json["idle"] == ["us"]
    asia.append(batch_of(orders(2)))
    assert f"{released} us; late rows: 0" in run("status", path).out


def test_what_is_wrong_with_it_is_said(path: Path, run: Run) -> None:
    _decide(path)
    shutil.rmtree(path.parent / "us")
    said = run("status", path)
    assert said.code == 1
    assert f"input us: there is no stream at {path.parent / 'us'}" in said.out
    (path / "decisions" / f"{0:020d}.json").write_text("{}")
    said = run("status", path)
    assert said.code == 1
    assert "The file holds no decision of a union" in said.out


def test_a_stream_that_the_union_cannot_reach_is_told(path: Path, run: Run) -> None:
    _decide(path)
    unreached = {"us": Unreached(20 * SECOND, "Could not read the file: Connection timed out (x)")}
    keep_unreachable(LocalStorage(path), unreached)
    said = run("status", path)
    assert said.code == 1
    assert "input us: cannot be reached since 1970-01-01 00:00:20Z: Could not read" in said.out
    told = run("status", path, "--json").json["inputs"]
    assert told["us"]["unreached"]["since_us"] == 20 * SECOND
    assert told["eu"]["unreached"] is None
    keep_unreachable(LocalStorage(path), {})
    assert run("status", path).code == 0


@pytest.mark.parametrize("command", ["log", "verify", "readers", "writers", "merge"])
def test_other_commands_say_that_there_are_no_rows(path: Path, run: Run, command: str) -> None:
    said = run(command, path)
    assert said.code == 2
    assert f"{path} is a union: it has no rows of its own" in said.err


def test_a_union_cannot_be_read(path: Path) -> None:
    with pytest.raises(tm.TrailmarkError, match="This is the path of a union"):
        tm.read_table(path)


class _Hands:
    """Nothing is done while it hangs."""

    def __init__(self) -> None:
        self.begun: list[tuple[Callable[[], Any], Future[Any]]] = []
        self.hangs = True

    def begin(self, work: Callable[[], Any]) -> Future[Any]:
        self.begun.append((work, Future()))
        return self.begun[-1][1]

    def wait(self, begun: Sequence[Future[Any]], seconds: float | None) -> None:
        for work, future in self.begun:
            if not self.hangs and not future.done():
                future.set_result(work())


def test_a_stream_that_hangs_is_looked_at_once(path: Path) -> None:
    """Whoever looks for days must not have a thread for every look."""
    hands = _Hands()
    reader = UnionStatusReader(LocalStorage(path), hands=hands)
    for _ in range(3):
        assert [each.problem for each in reader.read().inputs] == 2 * ["no answer within 5 s"]
    assert len(hands.begun) == 2
    hands.hangs = False
    hands.wait([], None)
    assert [each.newest for each in reader.read().inputs] == [0, 0]
    assert len(hands.begun) == 4
