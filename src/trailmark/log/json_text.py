"""JSON as it is stored: one spelling per value, so that it can be compared and checksummed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias
from zlib import crc32

from trailmark.errors import SettingError

JsonObject: TypeAlias = Mapping[str, Any]


def dump(value: JsonObject, argument: str) -> bytes:
    """UTF-8 with sorted keys and no spaces. Integers are written in full, whatever their size."""
    try:
        text = json.dumps(
            value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
        return text.encode()
    except (TypeError, ValueError) as error:
        raise SettingError(
            f"This cannot be written as JSON: {error}.",
            where=argument,
            fix="Use only None, bool, int, finite float, str, and lists and dicts of them.",
        ) from None


def load(text: bytes | memoryview) -> dict[str, Any] | None:
    """The object that is spelled here; None if it is not one."""
    try:
        value = json.loads(bytes(text))
    except ValueError:  # not JSON, or not UTF-8
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
    except SettingError:  # reads as JSON, but no writer of ours wrote it (NaN, half a character)
        return None
    return body if found == guarded.get("crc32") else None
