"""Descriptions of operators that cannot be understood, though their checksums are right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.reseal import guarded
from tests.support.written import Written, time_orders, write_logs
from trailmark.errors import UnknownFormat
from trailmark.inspection.logs import OperatorFiles
from trailmark.inspection.plan import plan_bucket
from trailmark.inspection.verify import verify_operator
from trailmark.log import LocalStorage
from trailmark.streams.table import read_table

_STRANGE: list[Any] = [None, 0, 10**400, "x", [], {}, [[1, 2]], [["nobody", "int32"]], [[]]]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return write_logs(tmp_path_factory.mktemp("logs") / "timed", time_orders(3))


@pytest.mark.parametrize("value", _STRANGE, ids=lambda value: f"{value!r:.20}")
@pytest.mark.parametrize("place", [["by"], ["window"], ["window", "size"], ["window", "column"]])
def test_a_description_that_is_strange_is_refused_by_name(
    written: Written, tmp_path: Path, place: list[str], value: Any
) -> None:
    copy = written.copy_to(tmp_path / "logs")
    body = json.loads((copy.path / "meta.json").read_text())["body"]
    inner = body["operator"]
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    (copy.path / "meta.json").write_bytes(guarded(body))
    with pytest.raises(UnknownFormat):
        read_table(copy.path, records="all")
    storage = LocalStorage(copy.path)
    with pytest.raises(UnknownFormat):
        plan_bucket(OperatorFiles(storage), 0)
    (finding,) = verify_operator(storage).findings
    assert finding.path == "meta.json"
