"""Picks the storage that a path or URL names."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote, urlsplit

from trailmark.errors import SettingError
from trailmark.log.clock import Clock, wall_clock_us
from trailmark.log.storage.local import LocalStorage
from trailmark.log.storage.protocol import Storage
from trailmark.settings import LogSettings

#: This machine: `file:/path`, `file:///path` and `file://localhost/path`. Another host is refused.
_FILE_URL = re.compile(r"file:(?://(?:localhost)?)?(/(?!/).*)", re.IGNORECASE | re.DOTALL)


def open_storage(
    url: str | os.PathLike[str],
    settings: LogSettings | None = None,
    *,
    clock: Clock = wall_clock_us,
) -> Storage:
    """Storage at a plain path, ``file://...`` or ``s3://bucket/prefix``.

    Nothing is read or written yet.
    """
    settings = settings or LogSettings()
    text = os.fspath(url)
    if not text or "\0" in text:
        raise _unknown(text)
    is_file_url = text[:5].lower() == "file:"
    if "://" not in text and not is_file_url:
        return LocalStorage(text, settings.durability, clock=clock)
    if is_file_url:
        return LocalStorage(_file_path(text), settings.durability, clock=clock)
    parts = urlsplit(text)
    if parts.scheme == "s3" and parts.netloc:
        # Only who uses one waits for its import.
        from trailmark.log.storage.object_store import open_object_store

        return open_object_store(text)
    raise _unknown(text)


def _file_path(url: str) -> str:
    found = _FILE_URL.fullmatch(url)
    if found is None:
        raise _unknown(url)
    return unquote(found[1])


def _unknown(url: str) -> SettingError:
    return SettingError(
        f"{url!r} names no storage.",
        where="path",
        fix="Use a path, file:///directory or s3://bucket/prefix.",
    )
