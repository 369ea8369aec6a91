"""Picks the storage that a path or URL names."""

from __future__ import annotations

import os

from trailmark.log.clock import Clock, wall_clock_us
from trailmark.log.storage.local import LocalStorage
from trailmark.log.storage.protocol import Storage
from trailmark.log.storage.urls import (
    file_url_path,
    full_path,
    is_url,
    no_storage,
    provider_of,
)
from trailmark.settings import LogSettings


def open_storage(
    url: str | os.PathLike[str],
    settings: LogSettings | None = None,
    *,
    clock: Clock = wall_clock_us,
    patience_us: int | None = None,
) -> Storage:
    """Storage at a plain path, ``file://...``, ``s3://bucket/prefix`` or one of its like.

    Nothing is read or written yet. ``patience_us`` is how long a request to a store may take, and
    be repeated, for whoever has no use for a later answer.
    """
    settings = settings or LogSettings()
    text = os.fspath(url)
    if not text or "\0" in text:
        raise no_storage(text)
    directory = file_url_path(text) if is_url(text) else full_path(text)
    if directory is not None:
        return LocalStorage(directory, settings.durability, clock=clock)
    provider = provider_of(text)
    # Only who uses one waits for its import.
    from trailmark.log.storage.object_store import open_object_store

    return open_object_store(text, provider, patience_us)
