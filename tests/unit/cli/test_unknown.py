"""Commands name what is of a later format, end as if something were wrong, and change nothing."""

from __future__ import annotations

import json

import pytest

from tests.support.reseal import guarded
from tests.support.stored import StoredAt
from tests.support.unknown import NEWS, renew_segment
from tests.support.written import Written
from tests.unit.cli.conftest import Run
from trailmark.cli.codes import OK
from trailmark.log import LocalStorage

_COMMANDS: list[list[object]] = [
    ["log"],
    ["log", "--records"],
    ["status"],
    ["status", "--json"],
    ["verify"],
    ["verify", "--json"],
    ["trim", "--before-batch", 10],
]
_OPERATOR_COMMANDS: list[list[object]] = [
    ["recover", "--dry-run"],
    ["merge"],
    ["truncate", "--to-batch", 9, "--yes"],
]


@pytest.fixture(params=NEWS)
def news(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(
    "command", [*_COMMANDS, *_OPERATOR_COMMANDS], ids=lambda c: " ".join(map(str, c))
)
def test_the_newest_output_of_an_operator(
    counted: Written, run: Run, news: str, command: list[object]
) -> None:
    path = f"out/00000/{counted.newest:020d}.seg"
    renew_segment(LocalStorage(counted.path), path, news)
    before = counted.files()
    said = run(command[0], counted.path, *command[1:])
    assert said.code != OK
    assert NEWS[news][1] in (said.out + said.err)
    if command[0] in ("trim", "merge"):  # the other bucket may be tended
        before = {name: text for name, text in before.items() if "/00000/" in name}
    assert {name: counted.files()[name] for name in before} == before


@pytest.mark.parametrize("command", _COMMANDS, ids=lambda c: " ".join(map(str, c)))
def test_the_newest_manifest_of_a_stream(
    stream: StoredAt, run: Run, news: str, command: list[object]
) -> None:
    renew_segment(stream.storage, stream.manifest(5), news)
    before = stream.contents()
    said = run(command[0], stream.path, *command[1:])
    assert said.code != OK
    assert NEWS[news][1] in (said.out + said.err)
    assert stream.contents() == before


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"version": 3}, "version 3 of the log format"),
        ({"operator": {"operator": "sketch"}}, "Operators of kind 'sketch'"),
    ],
)
@pytest.mark.parametrize(
    "command", [*_COMMANDS, *_OPERATOR_COMMANDS], ids=lambda c: " ".join(map(str, c))
)
def test_a_description_of_something_unknown(
    counted: Written, run: Run, changed: dict[str, object], named: str, command: list[object]
) -> None:
    meta = counted.path / "meta.json"
    meta.write_bytes(guarded({**json.loads(meta.read_bytes())["body"], **changed}))
    before = counted.files()
    said = run(command[0], counted.path, *command[1:])
    assert said.code != OK
    assert named in said.out + said.err
    assert counted.files() == before
