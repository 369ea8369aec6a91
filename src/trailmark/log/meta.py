"""``meta.json``: what an operator's logs are, published once when they are created."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator
from dataclasses import field

import pyarrow as pa

from trailmark.errors import OtherQuery, SchemaChanged
from trailmark.log import json_text
from trailmark.log.damage import Origin
from trailmark.log.footer import FORMAT_VERSION, check_version
from trailmark.log.json_text import JsonObject, object_of, text_of, whole
from trailmark.log.names import LARGEST_BATCH, MOST_BUCKETS
from trailmark.log.storage import Storage
from trailmark.records import INPUT_PORT, MOST_PORTS
from trailmark.values import dataclass

META_PATH = "meta.json"
#: What may differ from the description that is stored, as far as `OperatorMeta` says.
_STATE, _ABOUT = "state", "about"
_NOT_COMPARED = frozenset({_STATE, _ABOUT})
#: What a written stream says instead of the name of an operator.
WRITTEN_STREAM = "stream"


@dataclass(frozen=True, slots=True)
class LoggedPort:
    """An input of an operator: its name, and the columns that are logged of it."""

    name: str
    schema: pa.Schema

    def to_json(self) -> JsonObject:
        """The port as it is stored."""
        return {"name": self.name, "schema": schema_to_json(self.schema)}

    @classmethod
    def from_json(cls, stored: object) -> LoggedPort:
        """From what is stored; raises ``KeyError`` or ``ValueError``."""
        fields = object_of(stored)
        return cls(text_of(fields["name"]), schema_from_json(object_of(fields["schema"])))


def one_port(schema: pa.Schema) -> tuple[LoggedPort, ...]:
    """The ports of an operator with one input."""
    return (LoggedPort(INPUT_PORT, schema),)


@dataclass(frozen=True, slots=True)
class OperatorMeta:
    """What every log of an operator has in common.

    Parameters
    ----------
    operator
        A JSON object that describes the operator: windows, functions, policy, as the layers above
        see fit. Any difference is a change of the query, but for ``about``, which only tells, and
        for columns that are added to ``state``.
    ports
        The inputs, in the order of their frames in the input log; none of a written stream.
    result_schema
        Columns of the results. Metadata of columns is neither kept nor compared, here nor in ports.
    buckets
        How many logs each stream has.
    query_id
        The query that writes the logs; None leaves it open when an existing log is opened.
    first_batch
        The batch the logs begin with. What was stored first stands.
    log_id
        Ties the segments to this operator. What was stored first stands.
    """

    operator: JsonObject
    ports: tuple[LoggedPort, ...]
    result_schema: pa.Schema
    buckets: int
    query_id: str | None = None
    first_batch: int = 0
    log_id: uuid.UUID = field(default_factory=uuid.uuid4)

    @property
    def input_schema(self) -> pa.Schema:
        """The columns of the only input, or of the first of several."""
        return self.ports[0].schema

    @property
    def is_written_stream(self) -> bool:
        """Whether these are the files of a written stream, not of an operator."""
        return _names_stream(self.operator)

    def to_json(self) -> bytes:
        """The file as it is stored."""
        return json_text.dump_guarded(
            {
                "buckets": self.buckets,
                "first_batch": self.first_batch,
                "log_id": str(self.log_id),
                "operator": self.operator,
                "ports": [port.to_json() for port in self.ports],
                "query_id": self.query_id,
                "result_schema": schema_to_json(self.result_schema),
                "version": FORMAT_VERSION,
            },
            "operator",
        )

    @classmethod
    def from_json(cls, text: bytes | memoryview, origin: Origin) -> OperatorMeta:
        """Read the file; refused if it is damaged or of another version."""
        body = json_text.load_guarded(text)
        if body is None:
            raise origin.mismatch(0, "checksum of the operator's description")
        check_version(body.get("version"), origin)
        try:
            return cls(
                operator=object_of(body["operator"]),
                ports=_ports_of_1(body) if body["version"] == 1 else _ports_of(body),
                result_schema=schema_from_json(object_of(body["result_schema"])),
                buckets=whole(body["buckets"], 1, MOST_BUCKETS),
                query_id=None if body["query_id"] is None else text_of(body["query_id"]),
                first_batch=whole(body["first_batch"], 0, LARGEST_BATCH),
                log_id=uuid.UUID(text_of(body["log_id"])),
            )
        except (KeyError, TypeError, ValueError, pa.ArrowException, OSError) as error:
            raise origin.mismatch(0, f"a field is missing or strange ({error!r})") from error


def read_meta(storage: Storage) -> OperatorMeta | None:
    """The description of the logs in a storage; None if there are none."""
    try:
        return OperatorMeta.from_json(json_text.read_text(storage, META_PATH), Origin(META_PATH))
    except FileNotFoundError:
        return None


def create_or_open(storage: Storage, expected: OperatorMeta) -> OperatorMeta:
    """Publish the description if there is none; else compare it with the one that is there.

    Returns the stored one, whose ``log_id`` and ``first_batch`` stand. Of several processes that
    create the same logs at once, one wins and the others open what it made.
    """
    stored = read_meta(storage)
    if stored is None:
        # Synced whatever the durability: all segments depend on it, and it is written once.
        storage.publish(META_PATH, [expected.to_json()], force_sync=True)
        stored = read_meta(storage)
        assert stored is not None, "a published file does not vanish"
    check_same_operator(stored, expected)
    return stored


def check_same_operator(stored: OperatorMeta, expected: OperatorMeta) -> None:
    """Refuses to use logs that another query or a different operator wrote."""
    if expected.query_id is not None and expected.query_id != stored.query_id:
        raise OtherQuery(
            f"The logs belong to another query: {stored.query_id} -> {expected.query_id}.",
            where=META_PATH,
            fix="Give each query a path of its own. Set its checkpointLocation: without one, every "
            "start is another query. If this is the same query and its Spark checkpoint was "
            "deleted, restore the checkpoint or start with an empty path.",
        )
    differences = list(operator_differences(stored, expected))
    if differences and stored.is_written_stream and expected.is_written_stream:
        raise _other_stream(differences)
    if differences:
        raise SchemaChanged(
            "The logs were written by a different operator:\n    " + "\n    ".join(differences),
            where=META_PATH,
            fix="Restore the old definition (left of the arrow), or give the new one an empty "
            "path.",
        )


def _other_stream(differences: list[str]) -> SchemaChanged:
    # The schema in the words of whoever wrote it says the same once more.
    told = [each for each in differences if not each.startswith("operator.source_schema")]
    lines = [each.replace("result column", "column") for each in told or differences]
    return SchemaChanged(
        "What is written is not what the stream holds:\n    " + "\n    ".join(lines),
        where=META_PATH,
        fix="Write the columns that the stream has (left of the arrow), with select, cast or "
        "fewer options, or begin another stream at an empty path.",
    )


def operator_differences(stored: OperatorMeta, expected: OperatorMeta) -> Iterator[str]:
    """In what two operators differ, apart from who writes their logs."""
    if stored.buckets != expected.buckets:
        yield f"buckets: {stored.buckets} -> {expected.buckets}"
    yield from _port_differences(stored.ports, expected.ports)
    yield from _schema_differences("result", stored.result_schema, expected.result_schema)
    yield from _state_differences(stored.operator, expected.operator)
    compared = [
        {name: each for name, each in described.items() if name not in _NOT_COMPARED}
        for described in (stored.operator, expected.operator)
    ]
    yield from described_differences("operator", *compared)


def described_differences(where: str, stored: JsonObject, described: JsonObject) -> Iterator[str]:
    """What is not as it was in a description, or in a part of one, each with its place."""
    # Compared as it is stored: a tuple and a list are the same thing there.
    is_now = json_text.load(json_text.dump(described, where))
    yield from _json_differences(where, stored, is_now)


def _state_differences(stored: JsonObject, expected: JsonObject) -> Iterator[str]:
    """Columns of a state that are gone or of another type; further ones are no difference."""
    if _STATE not in stored or _STATE not in expected:
        return
    try:
        old = {f.name: f.type for f in schema_from_json(object_of(stored[_STATE]))}
        new = {f.name: f.type for f in schema_from_json(object_of(expected[_STATE]))}
    except (KeyError, ValueError, OSError, pa.ArrowException):
        yield f"operator.state: {stored[_STATE]} -> {expected[_STATE]}"
        return
    for name, before in old.items():
        if new.get(name) != before:
            yield f"state column {name}: {before} -> {new.get(name, 'absent')}"


def _port_differences(
    stored: tuple[LoggedPort, ...], expected: tuple[LoggedPort, ...]
) -> Iterator[str]:
    old, new = [port.name for port in stored], [port.name for port in expected]
    if old != new:
        what = "order of the inputs" if sorted(old) == sorted(new) else "inputs"
        yield f"{what}: {', '.join(old) or 'none'} -> {', '.join(new) or 'none'}"
    now = {port.name: port.schema for port in expected}
    for port in stored:
        if port.name in now:
            which = "input" if len(stored) == 1 else f"input {port.name}"
            yield from _schema_differences(which, port.schema, now[port.name])


def _schema_differences(which: str, stored: pa.Schema, expected: pa.Schema) -> Iterator[str]:
    if stored.equals(expected, check_metadata=False):
        return
    old = {each.name: _type_text(each) for each in stored}
    new = {each.name: _type_text(each) for each in expected}
    for name in [*old, *(name for name in new if name not in old)]:
        before, after = old.get(name, "absent"), new.get(name, "absent")
        if before != after:
            yield f"{which} column {name}: {before} -> {after}"
    if old == new:
        yield f"order of the {which} columns: {', '.join(old)} -> {', '.join(new)}"


def _json_differences(where: str, stored: object, expected: object) -> Iterator[str]:
    if isinstance(stored, dict) and isinstance(expected, dict):
        for key in sorted(stored.keys() | expected.keys()):
            absent = "absent"
            old, new = stored.get(key, absent), expected.get(key, absent)
            yield from _json_differences(f"{where}.{key}", old, new)
    elif stored != expected:
        yield f"{where}: {stored} -> {expected}"


def _type_text(column: pa.Field) -> str:
    return f"{column.type}" if column.nullable else f"{column.type} not null"


def _names_stream(operator: JsonObject) -> bool:
    return operator.get("operator") == WRITTEN_STREAM


def _ports_of(body: JsonObject) -> tuple[LoggedPort, ...]:
    stored = body["ports"]
    if not isinstance(stored, list) or len(stored) > MOST_PORTS:
        raise ValueError(f"no list of up to {MOST_PORTS} ports")
    ports = tuple(LoggedPort.from_json(each) for each in stored)
    names = [port.name for port in ports]
    if len(set(names)) < len(names):
        raise ValueError(f"two ports of the same name: {names}")
    if not ports and not _names_stream(object_of(body["operator"])):
        raise ValueError("an operator without a port")
    return ports


def _ports_of_1(body: JsonObject) -> tuple[LoggedPort, ...]:
    """Of the first version of the format, where every operator has one input."""
    schema = schema_from_json(object_of(body["input_schema"]))
    return () if _names_stream(object_of(body["operator"])) else one_port(schema)


def schema_to_json(schema: pa.Schema) -> JsonObject:
    """Columns as they are stored, for programs and for people."""
    bare = pa.schema([each.remove_metadata() for each in schema])
    return {
        "arrow_ipc": base64.b64encode(bare.serialize()).decode(),
        "columns": [f"{each.name}: {_type_text(each)}" for each in bare],
    }


def schema_from_json(stored: JsonObject) -> pa.Schema:
    """From what is stored; raises ``KeyError``, ``ValueError``, ``OSError`` or an
    ``ArrowException``."""
    data = base64.b64decode(text_of(stored["arrow_ipc"]), validate=True)
    schema = pa.ipc.read_schema(pa.py_buffer(data))
    # Names are bytes to Arrow, and text to everybody else: those that are none raise here.
    if len({field.name for field in schema}) < len(schema):
        raise ValueError(f"two columns of the same name: {schema.names}")
    return schema
