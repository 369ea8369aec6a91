"""How the state of an operator is asked for, and with which code it is rebuilt."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import trailmark as tm
from tests.support.shown_states import POLICY, stated_query
from tests.support.stated import VALUES
from tests.support.streams import orders, written
from tests.support.wide import wide_case
from tests.support.written import count_orders, write_logs
from trailmark.errors import (
    SchemaChanged,
    SettingError,
    UnknownFormat,
)
from trailmark.log import LocalStorage, read_meta
from trailmark.windows import functions as f
from trailmark.windows.spec import CountWindow


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own") / "logs"
    write_logs(path, wide_case(CountWindow(6, 4), VALUES), POLICY)
    return path


def test_code_is_handed_in_or_named(own: Path) -> None:
    table = tm.read_table(own, records="state", operator=VALUES)
    assert table.num_rows > 5
    code = {name: call for name, call in VALUES.items() if name != "number"}
    assert tm.read_table(own, records="state", operator=code) == table
    for name in ("tests.support.stated:VALUES", "tests.support.stated:Kept.values"):
        assert tm.read_table(own, records="state", operator=name) == table
    types = {field.name: str(field.type) for field in table.schema}
    assert types["trail.tail"] == "fixed_size_binary[3]"
    assert types["trail.length"] == "uint16"


def test_functions_of_ones_own_have_the_state_of_the_oracle() -> None:
    stated = stated_query(wide_case(CountWindow(6, 4), VALUES))
    assert stated.case.code()
    assert stated.check_all() == 0


@pytest.mark.parametrize(
    ("operator", "what"),
    [
        (None, "'trail', 'spread', 'weighted', 'notes', which are functions of the user's own"),
        ("tests.support.stated", "names no code"),
        ("tests.support.stated:", "names no code"),
        (":VALUES", "names no code"),
        (".stated:VALUES", "names no code"),
        ("os; x:y", "names no code"),
        ("no_such_package.stated:VALUES", "'no_such_package.stated' cannot be imported"),
        ("tests.support.stated:OTHERS", "no 'tests.support.stated:OTHERS'"),
        ("tests.support.stated:Kept", "is a mapping, not type"),
        ({"trail": 3}, "has to be a function of an aggregate, not int"),
    ],
)
def test_code_that_cannot_be_used_is_refused(own: Path, operator: object, what: str) -> None:
    with pytest.raises(SettingError, match=what) as refused:
        tm.read_table(own, records="state", operator=operator)
    assert refused.value.where == "operator"
    assert refused.value.fix


def test_other_code_than_wrote_the_logs_is_refused(own: Path) -> None:
    others = {**VALUES, "number": f.count("n")}
    with pytest.raises(SchemaChanged, match=r"values\.number.column: None -> n"):
        tm.read_table(own, records="state", operator=others)


def test_code_where_none_is_used_is_refused(own: Path) -> None:
    with pytest.raises(SettingError, match="Only a state") as refused:
        tm.read_table(own, operator=VALUES)
    assert refused.value.where == "operator"


def test_a_description_that_says_more_than_is_known_is_refused() -> None:
    stated = stated_query()
    stored = read_meta(stated.disk.storage())
    assert stored is not None
    later = replace(stored, operator={**stored.operator, "emits": "updates"})
    stated.disk.overwrite("meta.json", later.to_json())
    with pytest.raises(UnknownFormat, match=r"operator\.emits: updates -> absent"):
        stated.open()


# How it is asked for


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("state") / "logs"
    write_logs(path, count_orders(8))
    return path


def test_it_is_read_as_any_other_table(logs: Path) -> None:
    table = tm.read_table(logs, records="state", ending_batch=3, columns=["item", "total.sum"])
    assert table.schema.names == ["item", "total.sum"]
    whole = tm.read_table(logs, records="state", ending_batch=3)
    assert whole.select(["item", "total.sum"]) == table
    with pytest.raises(SettingError, match="no column 'price'"):
        tm.read_table(logs, records="state", columns=["price"])


@pytest.mark.parametrize(
    ("asked", "where"),
    [
        ({"starting_batch": 2}, "startingBatch"),
        ({"starting_batch": 2, "ending_batch": 2}, "startingBatch"),
        ({"starting_timestamp": "2026-01-01"}, "startingTimestamp"),
        ({"ending_timestamp": "2026-01-01"}, "endingTimestamp"),
    ],
)
def test_more_than_one_batch_cannot_be_asked_for(
    logs: Path, asked: dict[str, Any], where: str
) -> None:
    with pytest.raises(SettingError, match=f"{where} does not go with a state") as refused:
        tm.read_table(logs, records="state", **asked)
    assert refused.value.where == where


def test_a_written_stream_has_no_state(tmp_path: Path) -> None:
    stream = written(LocalStorage(tmp_path))
    stream.add(orders(0))
    with pytest.raises(SettingError, match="not records 'state'"):
        tm.read_table(tmp_path, records="state")
