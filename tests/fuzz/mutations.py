"""What is changed in the files: bytes, values, columns and names, under right checksums."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np
import pyarrow as pa

from tests.fuzz.choices import Choices
from tests.support.reseal import (
    Opened,
    OpenedPack,
    arrow_stream,
    dump,
    guarded,
    open_pack,
    open_segment,
    relink,
)
from trailmark.errors import SettingError
from trailmark.records import FrameKind

Files: TypeAlias = dict[str, bytes]

_NUMBERS = (0, 1, -1, 2, 7, 127, -128, 255, 4096, 65535, 2**31 - 1, -(2**31), 2**31, 2**32 - 1)
_LARGE = (2**62, 2**63 - 1, -(2**63), 2**63, 2**64 - 1, 2**127, -(2**128), 10**400)
#: What may stand in JSON where something else is expected.
_VALUES: tuple[Any, ...] = (
    *_NUMBERS,
    *_LARGE,
    *(None, True, False, 0.5, -1e300, float("inf"), float("nan"), "", "x", "../../../x", "\ud800"),
    *("input", "00000000-0000-4000-8000-000000000000", [], {}, [[]], [None], {"a": 1}, "0" * 300),
)
_DEPTHS = (60, 300, 900, 3_000, 100_000)
_TYPES = (
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint64(), pa.float64(), pa.bool_()),
    *(pa.string(), pa.large_string(), pa.binary(), pa.null(), pa.timestamp("us"), pa.date32()),
    *(pa.decimal128(38, 2), pa.binary(3), pa.list_(pa.int8()), pa.list_(pa.null(), 1 << 30)),
    *(pa.dictionary(pa.int8(), pa.string()), pa.struct([("a", pa.int8())])),
)
_NAMES = (
    "{:020d}.seg",
    "{:020d}.trim",
    "{:020d}-99999999999999999998.pack",
    "00000000000000000003-{:020d}.pack",
    "00000000000000000001-{:020d}.pack",
)
_DEEP = b'"TOO DEEP"'
#: Versions and kinds of frames that are not known yet.
_LATER = (3, 4, 255, 256, 65535)
_LATER_KINDS = (7, 9, 32, 64, 254)
#: What comes of taking a file apart that an earlier change has made no file of a log.
_BEYOND_REPAIR = (
    *(ValueError, TypeError, LookupError, OverflowError, RecursionError, OSError, struct.error),
    *(pa.ArrowException, SettingError),
)


def mutate(files: Files, choices: Choices) -> None:
    """Changes some of the files in place, and links the logs again most of the time."""
    for _ in range(1 + choices.below(3)):
        name = choices.one_of(sorted(files))
        with suppress(*_BEYOND_REPAIR):
            _of_name(files, name, choices)
        if not choices.are_left:
            break
    if choices.below(8):
        for directory in sorted({name.rpartition("/")[0] for name in files}):
            if directory.startswith(("in/", "out/", "batches/")):
                with suppress(*_BEYOND_REPAIR):
                    relink(files, directory)


def renew(files: Files, choices: Choices) -> str:
    """Makes one segment of a log, or one in a pack, what a later Trailmark might write, and links
    the log to it most of the time; the name of the file."""
    logs = ("in/", "out/", "batches/")
    names = [name for name in sorted(files) if name.startswith(logs)]
    name = choices.one_of([name for name in names if name.endswith((".seg", ".pack"))])
    if name.endswith(".seg"):
        files[name] = _news(open_segment(files[name]), choices).sealed()
    else:
        pack = open_pack(files[name])
        at = choices.below(len(pack.segments) + 1)
        if at == len(pack.segments):
            pack.version = pack.index["version"] = choices.one_of(_LATER)
        else:
            pack.segments[at] = _news(open_segment(pack.segments[at]), choices).sealed()
        files[name] = pack.sealed()
    if choices.below(4):
        relink(files, name.rpartition("/")[0])
    return name


def _of_name(files: Files, name: str, choices: Choices) -> None:
    if choices.below(16) == 15:
        _rename(files, name, choices)
    elif name.endswith(".seg"):
        files[name] = _segment(open_segment(files[name]), choices).sealed()
    elif name.endswith(".pack"):
        files[name] = _pack(open_pack(files[name]), choices)
    elif name.startswith("watermark/"):
        text = change_json(json.loads(files[name].partition(b"\n")[0]), choices)
        files[name] = text + b"\n%08x\n" % crc32(text)
    elif name.endswith(".json"):
        files[name] = _guarded(files[name], choices)
    else:
        files[name] = _bytes(files[name], choices)


def _rename(files: Files, name: str, choices: Choices) -> None:
    """A name that lies: of a file that is there, or of an empty one."""
    number = abs(choices.one_of((*_NUMBERS, *_LARGE[:2])))
    other = choices.one_of(_NAMES).format(number)
    content = files[name] if choices.below(2) else b""
    files[f"{name.rpartition('/')[0] or 'out/00000'}/{other}"] = content


# Segments and packs


def _segment(opened: Opened, choices: Choices) -> Opened:
    kinds: list[Callable[[Opened, Choices], Opened]] = [_footer, _header, _frames, _news]
    if opened.frames:
        kinds += [_payload, _payload, _rows, _rows]
    return choices.one_of(kinds)(opened, choices)


def _footer(opened: Opened, choices: Choices) -> Opened:
    return replace(opened, footer=change_json(opened.fields, choices))


def _header(opened: Opened, choices: Choices) -> Opened:
    fields = list(opened.header)
    at = choices.one_of([1, 2, 5, 7])  # version, stream, bucket, batch
    limits = {1: 2**16, 2: 2**8, 5: 2**32, 7: 2**63}
    fields[at] = abs(choices.one_of((*_NUMBERS, *_LARGE))) % limits[at]
    return replace(opened, header=tuple(fields))


def _news(opened: Opened, choices: Choices) -> Opened:
    """A later version, or a frame of a kind that is not known yet."""
    if choices.below(2):
        return opened.of_version(choices.one_of(_LATER))
    return opened.with_unknown_kind(choices.one_of(_LATER_KINDS), choices.one_of(["x", "input32"]))


def _frames(opened: Opened, choices: Choices) -> Opened:
    """A frame more, one less, or one of another kind."""
    frames = list(opened.frames) or [(1, arrow_stream(pa.table({"a": [1]})))]
    at = choices.below(len(frames))
    change = choices.below(3)
    if change == 0:
        del frames[at]
    else:
        other = (choices.one_of([1, 2, 3, 4, 5, 6, 9, 33, 63, 64]), frames[at][1])
        frames[at : at + change - 1] = [other]
    return replace(opened, frames=tuple(frames))


def _payload(opened: Opened, choices: Choices) -> Opened:
    frames = list(opened.frames)
    at = choices.below(len(frames))
    frames[at] = (frames[at][0], _bytes(frames[at][1], choices))
    return replace(opened, frames=tuple(frames))


def _bytes(data: bytes, choices: Choices) -> bytes:
    """Numbers written over the data, or a piece taken out or put in twice."""
    at = choices.below(len(data))
    change = choices.below(8)
    if change == 6:
        return data[:at]
    if change == 7:
        return data[:at] + data[max(0, at - 8 * choices.below(9)) :]
    width = choices.one_of([1, 2, 4, 8])
    at -= at % width
    number = choices.one_of((*_NUMBERS, *_LARGE[:5])) if change < 4 else choices.below(2**31)
    raw = (number % 2 ** (8 * width)).to_bytes(width, "little")
    return bytes(data[:at] + raw + data[at + width :])


def _rows(opened: Opened, choices: Choices) -> Opened:
    """Other columns: of another type, of other values, with nulls, less or more."""
    frames = list(opened.frames)
    at = choices.below(len(frames))
    kind, payload = frames[at]
    try:
        table = pa.ipc.open_stream(payload).read_all()
        table = _columns(table, choices)
        codec = choices.one_of([None, None, "lz4", "zstd"])
        frames[at] = (kind, arrow_stream(table, codec))
    except _BEYOND_REPAIR:
        return opened
    opened = replace(opened, frames=tuple(frames))
    if choices.below(4):
        opened = _counted(opened, kind, table.num_rows)
    return opened


def _counted(opened: Opened, kind: int, rows: int) -> Opened:
    try:
        fields = opened.fields
        fields["rows"][FrameKind(kind).label] = rows
    except _BEYOND_REPAIR:
        return opened
    return opened.with_fields(fields)


def _columns(table: pa.Table, choices: Choices) -> pa.Table:
    at = choices.below(table.num_columns)
    name = table.schema.names[at]
    change = choices.below(7)
    if change == 0:
        return table.remove_column(at)
    if change == 1:
        return table.append_column(name if choices.below(2) else "more", table.column(at))
    if change == 2:
        kind = choices.one_of(_TYPES)
        try:
            column = table.column(at).cast(kind, safe=False)
        except pa.ArrowException:  # there is no way from one to the other
            column = pa.nulls(table.num_rows, kind)
        return table.set_column(at, name, column)
    if change == 3:
        column = pa.nulls(table.num_rows, table.schema.field(at).type)
        return table.set_column(at, name, column)
    if change == 4:
        parts = [table] * (2 + choices.below(3))
        return pa.concat_tables(parts)
    if change == 5:
        return table.slice(choices.below(4), choices.below(8))
    return table.set_column(at, name, _numbers(table.column(at), choices))


def _numbers(column: pa.ChunkedArray, choices: Choices) -> pa.Array:
    """A number of the column is another one, in all the bytes that it has."""
    array = column.combine_chunks()
    array = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
    validity, data, *rest = array.buffers()
    raw = np.frombuffer(data, np.uint8).copy()
    width = choices.one_of([1, 2, 4, 8, 16])
    count = len(raw) // width
    place = choices.below(count) * width if count else 0
    number = choices.one_of((*_NUMBERS, *_LARGE)) % 2 ** (8 * width)
    fresh = np.frombuffer(number.to_bytes(width, "little"), np.uint8)
    raw[place : place + width] = fresh[: len(raw[place : place + width])]
    return pa.Array.from_buffers(array.type, len(array), [validity, pa.py_buffer(raw), *rest])


def _pack(opened: OpenedPack, choices: Choices) -> bytes:
    if choices.below(3) == 0:
        return opened.sealed(_changed(opened.described(), choices))
    at = choices.below(len(opened.segments))
    opened.segments[at] = _segment(open_segment(opened.segments[at]), choices).sealed()
    return opened.sealed()


# JSON


def _guarded(text: bytes, choices: Choices) -> bytes:
    body = json.loads(text)["body"]
    changed = change_json(body, choices)
    try:
        return guarded(json.loads(changed))
    except _BEYOND_REPAIR:  # no checksum can be made for it
        return b'{"body":' + changed + b',"crc32":0}'


def change_json(value: Any, choices: Choices) -> bytes:
    """The text of something else, which may be no JSON."""
    change = choices.below(8)
    if change == 7:
        return _bytes(dump(value), choices)
    changed = _changed(value, choices)
    if change < 6:
        return dump(changed)
    depth = choices.one_of(_DEPTHS)
    deep = choices.one_of([b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth])
    return dump(_changed(value, choices, "TOO DEEP")).replace(_DEEP, deep)


def _changed(value: Any, choices: Choices, to: Any = None) -> Any:
    """The value with something else at one place, or without it."""
    value = json.loads(json.dumps(value))
    places = list(_places(value))
    if not places:
        return choices.one_of(_VALUES)
    parent, key = choices.one_of(places)
    if to is None and choices.below(8) == 7:
        del parent[key]
    else:
        parent[key] = choices.one_of(_VALUES) if to is None else to
    return value


def _places(value: Any) -> Any:
    keys: Any = ()
    if isinstance(value, dict):
        keys = sorted(value)
    elif isinstance(value, list):
        keys = range(len(value))
    for key in keys:
        yield value, key
        yield from _places(value[key])
