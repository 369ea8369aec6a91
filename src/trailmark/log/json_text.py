"""JSON as it is stored: one spelling per value, so that it can be compared and checksummed.

What is read may be anything. Whatever is not JSON that a log can hold is told as such: too long,
nested too deep, numbers that are none, half a character.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, TypeAlias
from zlib import crc32

from trailmark.errors import SettingError
from trailmark.log.storage import Storage

JsonObject: TypeAlias = Mapping[str, Any]

#: Neither footers nor files get near it. More is not read: a length may lie, a file be sparse.
MOST_BYTES = 64 << 20
#: Three levels for each of Arrow's nested types, of which it allows 64.
_DEEPEST = 200
#: What a message repeats of a value that is wrong.
_SHOWN = 40


def dump(value: JsonObject, argument: str) -> bytes:
    """UTF-8 with sorted keys and no spaces. Integers are written in full, whatever their size."""
    try:
        text = json.dumps(
            value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
        encoded = text.encode()
        _check(encoded, value)
        return encoded
    except (TypeError, ValueError, RecursionError) as error:
        raise SettingError(
            f"This cannot be written as JSON: {error}.",
            where=argument,
            fix="Use only None, bool, int, finite float, str, and lists and dicts of them.",
        ) from None


def load(text: bytes | memoryview) -> dict[str, Any] | None:
    """The object that is spelled here; None if it is not one."""
    if len(text) > MOST_BYTES:
        return None
    try:
        encoded = bytes(text)
        value = _DECODER.decode(encoded.decode())
        _check(encoded, value)
    except (ValueError, RecursionError):  # not JSON, or not UTF-8, or nothing that was dumped
        return None
    return value if isinstance(value, dict) else None


def dump_guarded(body: JsonObject, argument: str, *, indent: int | None = 1) -> bytes:
    """A file of its own: the body, and a checksum over the body's one spelling.

    The file itself may be spelled with indents, for people to read.
    """
    guarded = {"body": body, "crc32": crc32(dump(body, argument))}
    return json.dumps(guarded, sort_keys=True, indent=indent, ensure_ascii=False).encode() + b"\n"


def load_guarded(text: bytes | memoryview) -> dict[str, Any] | None:
    """The body of a guarded file; None if it is not what was written."""
    guarded = load(text)
    body = None if guarded is None else guarded.get("body")
    if guarded is None or not isinstance(body, dict):
        return None
    try:
        found = crc32(dump(body, "body"))
    except SettingError:  # reads as JSON, but no writer of ours wrote it
        return None
    return body if found == guarded.get("crc32") else None


def read_text(storage: Storage, path: str) -> memoryview:
    """A file of JSON; of one that is too long to be any, no more than shows it."""
    return storage.read(path, 0, MOST_BYTES + 1)


def whole(value: object, least: int, most: int) -> int:
    """A stored whole number within its bounds; raises ``ValueError`` for anything else."""
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{shown(value)} is no whole number from {least} to {most}")
    return value


def text_of(value: object) -> str:
    """A stored text; raises ``ValueError`` for anything else."""
    if not isinstance(value, str):
        raise ValueError(f"{shown(value)} is no text")
    return value


def object_of(value: object) -> dict[str, Any]:
    """A stored object; raises ``ValueError`` for anything else."""
    if not isinstance(value, dict):
        raise ValueError(f"{shown(value)} is no object")
    return value


def shown(value: object) -> str:
    """A stored value as a message repeats it: not at any length."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large")
    return number


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number")


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_no_number)


def _check(text: bytes, value: object) -> None:
    """Refuses what has to be refused though Python takes it; raises ``ValueError``.

    Nearly every text has few brackets and no escapes, and is through at once.
    """
    if len(text) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
    if text.count(b"[") + text.count(b"{") > _DEEPEST and _depth(value) > _DEEPEST:
        raise ValueError(f"it is nested more than {_DEEPEST} deep")
    if b"\\u" in text:
        json.dumps(value, ensure_ascii=False).encode()  # half a character has no UTF-8


def _depth(value: object) -> int:
    depth = 0
    level = [value]
    while level := [each for each in level if isinstance(each, dict | list)]:
        depth += 1
        level = [
            inner for each in level for inner in (each.values() if isinstance(each, dict) else each)
        ]
    return depth
