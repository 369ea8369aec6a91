from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.support.logs import OTHER_ID
from trailmark.errors import DamagedSegment, OtherQuery, SchemaChanged, UnknownFormat
from trailmark.log import OperatorMeta, create_or_open, read_meta
from trailmark.log.json_text import dump_guarded
from trailmark.log.meta import LoggedPort, one_port
from trailmark.records import MOST_PORTS
from trailmark.testing.disk import Crashed, SimulatedDisk

META = OperatorMeta(
    operator={"window": {"count": 10}, "values": ["avg(price)"], "policy": {"q": 4}},
    ports=one_port(pa.schema([("item", pa.int32()), ("price", pa.int32())])),
    result_schema=pa.schema([("item", pa.int32()), ("avg", pa.float64())]),
    buckets=8,
    query_id="q-1",
    first_batch=4,
)


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def test_what_is_created_is_opened_by_the_next(disk: SimulatedDisk) -> None:
    assert read_meta(disk.storage()) is None
    created = create_or_open(disk.storage(), META)
    opened = create_or_open(
        disk.storage(), replace(META, log_id=OTHER_ID, first_batch=99, query_id=None)
    )
    assert created == opened == read_meta(disk.storage()) == META


def test_whoever_comes_second_takes_the_log_id_of_the_first(disk: SimulatedDisk) -> None:
    first = create_or_open(disk.storage(), META)
    second = create_or_open(disk.storage(), replace(META, log_id=OTHER_ID))
    assert second.log_id == first.log_id


def test_of_two_that_create_at_once_one_opens_what_the_other_made(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = disk.link

    def link(source: str, target: str) -> None:
        monkeypatch.undo()
        create_or_open(disk.storage(), replace(META, log_id=OTHER_ID))
        real(source, target)

    monkeypatch.setattr(disk, "link", link)
    assert create_or_open(disk.storage(), META).log_id == OTHER_ID


def test_another_query_is_refused(disk: SimulatedDisk) -> None:
    create_or_open(disk.storage(), META)
    with pytest.raises(OtherQuery, match="q-1 -> q-2") as caught:
        create_or_open(disk.storage(), replace(META, query_id="q-2"))
    assert "path of its own. Set its checkpointLocation" in caught.value.fix


WIDER = pa.schema([("item", pa.int32()), ("price", pa.int64()), ("shop", pa.string())])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (replace(META, buckets=9), ["buckets: 8 -> 9"]),
        (
            replace(META, ports=one_port(WIDER)),
            ["input column price: int32 -> int64", "input column shop: absent -> string"],
        ),
        (
            replace(META, result_schema=META.result_schema.remove(1)),
            ["result column avg: double -> absent"],
        ),
        (
            replace(META, ports=one_port(pa.schema(list(META.input_schema)[::-1]))),
            ["order of the input columns: item, price -> price, item"],
        ),
        (
            replace(META, operator={"window": {"count": 20}, "values": ["avg(price)"]}),
            ["operator.policy: {'q': 4} -> absent", "operator.window.count: 10 -> 20"],
        ),
    ],
)
def test_a_changed_operator_is_refused_naming_what_differs(
    disk: SimulatedDisk, changed: OperatorMeta, said: list[str]
) -> None:
    create_or_open(disk.storage(), META)
    with pytest.raises(SchemaChanged) as caught:
        create_or_open(disk.storage(), changed)
    assert [line.strip() for line in caught.value.what.splitlines()[1:]] == said


def test_schema_metadata_and_spelling_do_not_matter(disk: SimulatedDisk) -> None:
    create_or_open(disk.storage(), META)
    marked = META.input_schema.with_metadata({"from": "spark"})
    respelled = {**META.operator, "values": ("avg(price)",)}
    assert create_or_open(disk.storage(), replace(META, ports=one_port(marked), operator=respelled))


def test_every_flip_is_refused_or_changes_nothing(disk: SimulatedDisk) -> None:
    create_or_open(disk.storage(), META)
    content = disk.content("meta.json")
    refused = 0
    for place in range(len(content) * 8):
        disk.flip("meta.json", place // 8, place % 8)
        try:
            assert read_meta(disk.storage()) == META
        except DamagedSegment:
            refused += 1
        disk.flip("meta.json", place // 8, place % 8)
    # The rest are spaces between the values.
    assert refused > len(content.replace(b" ", b"").replace(b"\n", b"")) * 8 * 0.99


def test_every_truncation_is_refused(disk: SimulatedDisk) -> None:
    create_or_open(disk.storage(), META)
    for size in reversed(range(len(disk.content("meta.json")) - 1)):
        disk.truncate("meta.json", size)
        with pytest.raises(DamagedSegment, match=r"meta\.json|description"):
            read_meta(disk.storage())


def test_a_later_version_is_unknown(disk: SimulatedDisk) -> None:
    body = json.loads(META.to_json())["body"]
    body["version"] = 3
    disk.storage().publish("meta.json", [dump_guarded(body, "body")])
    with pytest.raises(UnknownFormat, match=r"version 3 .* reads versions 1 and 2"):
        create_or_open(disk.storage(), META)


def test_people_can_read_the_columns(disk: SimulatedDisk) -> None:
    create_or_open(disk.storage(), META)
    body = json.loads(disk.content("meta.json"))["body"]
    (port,) = body["ports"]
    assert port["name"] == "input"
    assert port["schema"]["columns"] == ["item: int32", "price: int32"]


def of_version_1(meta: OperatorMeta) -> bytes:
    body = json.loads(meta.to_json())["body"]
    (port,) = body.pop("ports") or [{"schema": LoggedPort("", pa.schema([])).to_json()["schema"]}]
    return dump_guarded({**body, "input_schema": port["schema"], "version": 1}, "body")


def test_a_description_of_version_1_is_opened_and_stays_as_it_is(disk: SimulatedDisk) -> None:
    disk.storage().publish("meta.json", [of_version_1(META)])
    before = disk.content("meta.json")
    assert create_or_open(disk.storage(), META) == META
    assert disk.content("meta.json") == before
    with pytest.raises(SchemaChanged, match="input column price: int32 -> int64"):
        create_or_open(disk.storage(), replace(META, ports=one_port(WIDER)))


def test_a_stream_of_version_1_is_opened_without_ports(disk: SimulatedDisk) -> None:
    stream = replace(META, operator={"operator": "stream"}, ports=())
    disk.storage().publish("meta.json", [of_version_1(stream)])
    assert create_or_open(disk.storage(), stream).ports == ()


LEFT, RIGHT = LoggedPort("left", META.input_schema), LoggedPort("right", META.result_schema)
TWO = replace(META, ports=(LEFT, RIGHT))


@pytest.mark.parametrize(
    ("ports", "said"),
    [
        ((RIGHT, LEFT), ["order of the inputs: left, right -> right, left"]),
        ((LEFT,), ["inputs: left, right -> left"]),
        (
            (LEFT, LoggedPort("other", WIDER)),
            ["inputs: left, right -> left, other"],
        ),
        ((LoggedPort("left", WIDER.remove(2)), RIGHT), ["input left column price: int32 -> int64"]),
        (
            (LEFT, LoggedPort("right", pa.schema(list(RIGHT.schema)[::-1]))),
            ["order of the input right columns: item, avg -> avg, item"],
        ),
    ],
)
def test_changed_ports_are_refused_by_name(
    disk: SimulatedDisk, ports: tuple[LoggedPort, ...], said: list[str]
) -> None:
    assert create_or_open(disk.storage(), TWO) == TWO
    with pytest.raises(SchemaChanged) as caught:
        create_or_open(disk.storage(), replace(TWO, ports=ports))
    assert [line.strip() for line in caught.value.what.splitlines()[1:]] == said


@pytest.mark.parametrize(
    "ports",
    [
        (LEFT, LEFT),
        tuple(LoggedPort(str(number), LEFT.schema) for number in range(MOST_PORTS + 1)),
        (),
    ],
)
def test_ports_that_no_operator_can_have_are_damage(
    disk: SimulatedDisk, ports: tuple[LoggedPort, ...]
) -> None:
    disk.storage().publish("meta.json", [replace(META, ports=ports).to_json()])
    with pytest.raises(DamagedSegment, match="port"):
        read_meta(disk.storage())


def test_a_crash_while_creating_leaves_nothing_or_all(disk: SimulatedDisk) -> None:
    create_or_open(disk.storage(), META)
    for operations in range(disk.operations):
        again = SimulatedDisk()
        again.stop_after(operations)
        with pytest.raises(Crashed):
            create_or_open(again.storage(), META)
        again.kill()
        assert read_meta(again.storage()) in (None, META)
        assert create_or_open(again.storage(), META) == META


@pytest.mark.parametrize("buckets", [0, 1_001, 65_535, 2**40])
def test_more_buckets_than_anybody_can_ask_for_are_refused_before_they_are_opened(
    disk: SimulatedDisk, buckets: int
) -> None:
    disk.storage().publish("meta.json", [replace(META, buckets=buckets).to_json()])
    with pytest.raises(DamagedSegment, match="a field is missing or strange"):
        read_meta(disk.storage())


def test_the_most_buckets_there_can_be_are_read(disk: SimulatedDisk) -> None:
    assert create_or_open(disk.storage(), replace(META, buckets=1_000)).buckets == 1_000
