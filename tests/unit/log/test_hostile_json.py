"""JSON that Python takes and a log does not hold: told as such, at once."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.logs import fill, footer_of, open_log
from tests.support.reseal import guarded
from trailmark.errors import DamagedSegment, SettingError, UnknownFormat
from trailmark.log import Footer, LocalStorage, Origin, read_meta
from trailmark.log.json_text import MOST_BYTES, dump, dump_guarded, load, load_guarded
from trailmark.log.readers import read_reader, register
from trailmark.records import Stream
from trailmark.testing.disk import SimulatedDisk


def _deep(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


@pytest.mark.parametrize("depth", [201, 900, 5_000, 1_000_000])
def test_what_is_nested_too_deep_is_none(depth: int) -> None:
    assert load(_deep(depth)) is None
    assert load(b'{"a":' + b"[" * depth + b"]" * depth + b"}") is None
    assert load_guarded(b'{"body":' + _deep(depth) + b',"crc32":0}') is None


def test_what_could_not_be_read_is_not_written() -> None:
    value: Any = 1
    for _ in range(200):
        value = {"a": value}
    assert load(dump(value, "x")) == value
    with pytest.raises(SettingError, match="nested"):
        dump({"a": value}, "x")
    deeper: Any = 1
    for _ in range(100_000):
        deeper = [deeper]
    with pytest.raises(SettingError, match="JSON"):
        dump({"a": deeper}, "x")


@pytest.mark.parametrize(
    "text",
    [
        *(b'{"a":1e999}', b'{"a":-1e999}', b'{"a":NaN}', b'{"a":Infinity}'),
        *(b'{"a":' + b"9" * 5_000 + b"}", b'{"a":"\\ud800"}', b'{"a":"\xff"}', b"\x00" * 4096),
        *(b"", b"[]", b"1", b'{"a":1', b'{"a":1}x', b"\xff\xfe{\x00}\x00"),
    ],
)
def test_what_is_no_value_of_a_log_is_none(text: bytes) -> None:
    assert load(text) is None


def test_text_beyond_the_largest_is_none_at_once() -> None:
    assert load(b'{"a":"' + b"x" * MOST_BYTES + b'"}') is None


def test_escapes_of_whole_characters_are_read() -> None:
    assert load(b'{"a":"\\u00e4 \\ud83d\\ude00 \\u0007"}') == {"a": "\u00e4 \U0001f600 \u0007"}


_STRANGE: list[Any] = [None, True, 1.5, "7", [], {}, -(2**70), 2**200, 10**4000]


@pytest.mark.parametrize("value", _STRANGE, ids=lambda value: f"{value!r:.12}")
@pytest.mark.parametrize(
    "place",
    [
        *(["batch"], ["bucket"], ["log_id"], ["stream"], ["previous"], ["previous", "batch"]),
        *(["previous", "checksum"], ["fingerprint"], ["fingerprint", "rows"], ["written_us"]),
        *(["fingerprint", "digest"], ["rows"], ["rows", "input"], ["time_range"], ["attributes"]),
    ],
    ids=".".join,
)
def test_a_footer_with_a_strange_field_is_damaged(place: list[str], value: Any) -> None:
    fields = json.loads(footer_of().to_json())
    fields["rows"] = {"input": 3}
    inner = fields
    for name in place[:-1]:
        inner = inner[name]
    may_be: dict[str, Any] = {"attributes": {}, "rows": {}, "time_range": None}
    is_right = len(place) == 1 and place[0] in may_be and may_be[place[0]] == value
    # A text may be the name of a stream that is not known yet.
    is_right = is_right or (place == ["stream"] and isinstance(value, str))
    inner[place[-1]] = 7 if is_right else value
    with pytest.raises(DamagedSegment, match="missing or strange"):
        Footer.from_json(json.dumps(fields).encode(), Origin("x"))


@pytest.mark.parametrize("value", _STRANGE, ids=lambda value: f"{value!r:.12}")
def test_a_reader_whose_file_is_strange_is_named(value: Any) -> None:
    storage = SimulatedDisk().storage()
    register(storage, "billing", Stream.INPUT, 3)
    for place in ("needs", "seen_us", "stream"):
        body = {"name": "billing", "needs": 3, "seen_us": 5, "stream": "input", place: value}
        storage.replace("readers/billing.json", [guarded(body)])
        # A text may be the name of a stream that is not known yet.
        is_unknown = place == "stream" and isinstance(value, str)
        with pytest.raises(UnknownFormat if is_unknown else DamagedSegment, match="billing"):
            read_reader(storage, "billing")


@pytest.mark.parametrize("value", _STRANGE, ids=lambda value: f"{value!r:.12}")
def test_an_index_that_is_strange_is_built_again(value: Any) -> None:
    storage = SimulatedDisk().storage()
    log = open_log(storage)
    fill(log, 3)
    right = log.time_index()
    path = f"{log.directory}/index.json"
    stored = json.loads(bytes(storage.read(path)))["body"]
    name = f"{1:020d}.seg"
    for files in (
        value,
        {name: value},
        {name: [value, []]},
        {name: [800, [[value, 1, None, None]]]},
        {name: [800, [[7, 1, None, None]]]},
        {"notes.txt": [800, []]},
    ):
        storage.replace(path, [dump_guarded({**stored, "files": files}, "index")])
        assert log.time_index() == right


def test_a_description_of_any_size_is_refused_at_once(tmp_path: Path) -> None:
    with open(tmp_path / "meta.json", "wb") as file:
        file.truncate(2**42)
    began = time.monotonic()
    with pytest.raises(DamagedSegment):
        read_meta(LocalStorage(tmp_path))
    assert time.monotonic() - began < 5
