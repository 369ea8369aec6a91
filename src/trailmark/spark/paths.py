"""Where operators of this driver keep their logs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from trailmark.errors import LogError, SchemaChanged, SettingError
from trailmark.log.storage.urls import full_path, is_url

#: Paths of the streaming operators this process has made, for the listener, and where each was
#: told to keep its tables.
_known: dict[str, str | None] = {}


def absolute(path: str | os.PathLike[str], spark_directory: str | None = None) -> str:
    """The path as every worker understands it, whatever its own working directory is.

    Spark goes with relative paths from the directory that it was started in. Where that is another
    one than Python's, a relative path is refused.
    """
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise SettingError(
            f"path must be a directory or URL, got {path!r}.",
            where="path",
            fix="For example path='/data/orders-average' or 's3://bucket/orders-average'.",
        )
    text = os.fspath(path)
    if is_url(text):
        return text
    full = full_path(text)
    theirs = full if spark_directory is None else _from(spark_directory, text)
    if os.path.realpath(full) != os.path.realpath(theirs):
        raise SettingError(
            f"{text!r} could be {full} or {theirs}: Python has changed its directory since Spark "
            "was started.",
            where="path",
            fix="Give the full path.",
        )
    return full


def _from(directory: str, path: str) -> str:
    return os.path.normpath(os.path.join(directory, os.path.expanduser(path)))


@contextmanager
def named_in_full(path: str) -> Iterator[None]:
    """What is wrong with logs is told with the path they are at."""
    try:
        yield
    except (LogError, SchemaChanged) as error:
        where = "/".join([path.rstrip("/"), *filter(None, [error.where])])
        raise type(error)(error.what, where=where, fix=error.fix) from error


def remember(path: str, cache_dir: str | None = None) -> None:
    _known[path] = cache_dir


def known() -> list[str]:
    return list(_known)


def cache_dirs() -> Mapping[str, str | None]:
    """Of all that are known, where their tables were told to be."""
    return dict(_known)


def forget(path: str) -> None:
    """No listener follows the operator that is there."""
    _known.pop(path, None)
