"""Opens the path that a command was given, or says in one line why it cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from trailmark.errors import LogError, NoPermission, SettingError, StorageError
from trailmark.log import OperatorMeta, Storage, open_storage
from trailmark.log.meta import META_PATH
from trailmark.log.storage.urls import full_path, is_url
from trailmark.settings import LogSettings
from trailmark.status.logs import OperatorFiles, existing_meta
from trailmark.status.read_only import ReadOnly
from trailmark.streams.description import is_stream
from trailmark.streams.stored import StreamFiles
from trailmark.streams.union.description import is_union

#: What a path may hold.
Files: TypeAlias = OperatorFiles | StreamFiles

#: Operators that are named in a complaint, and directories that are looked into for them.
_NAMED = 5
_LOOKED_INTO = 1_000


def find_logs(path: str) -> Storage:
    """The storage at a path, which has to hold an operator's logs or a stream. Nothing is made."""
    storage = open_storage(path)
    path = path if is_url(path) else full_path(path)
    try:
        if storage.exists(META_PATH):
            return storage
        entries = storage.list("")
    except NoPermission as error:
        raise NoPermission(
            error.what, where=error.where, fix="Run it as a user who may read the logs."
        ) from error
    except StorageError as error:
        if isinstance(error.__cause__, NotADirectoryError):
            raise _no_log(path, "it is not a directory") from error
        raise
    raise _nothing_there(path, storage, is_empty=not entries)


def holds_stream(storage: Storage) -> bool:
    """Whether it is a written stream that is here; not known if its description is damaged."""
    return _holds(storage, is_stream)


def holds_union(storage: Storage) -> bool:
    """Whether these are the files of a union; not known if its description is damaged."""
    return _holds(storage, is_union)


def _holds(storage: Storage, is_one: Callable[[OperatorMeta], bool]) -> bool:
    try:
        return is_one(existing_meta(storage))
    except LogError:
        return False


def find_rows(path: str) -> Storage:
    """The storage at a path, which has to hold rows: logs of an operator, or a stream."""
    storage = find_logs(path)
    if holds_union(storage):
        raise SettingError(
            f"{path} is a union: it has no rows of its own, only what it has decided.",
            fix="Use trailmark status, or give the path of one of its streams.",
        )
    return storage


def open_to_look(path: str) -> Files:
    """The logs at a path, only to be looked at."""
    return _open(ReadOnly(find_rows(path)), None)


def open_to_change(path: str) -> Files:
    """The logs at a path, to be changed."""
    return _open(find_rows(path), LogSettings())


def _open(storage: Storage, settings: LogSettings | None) -> Files:
    if holds_stream(storage):
        return StreamFiles(storage, settings)
    return OperatorFiles(storage, settings)


def only_operator(files: Files, what: str, fix: str) -> OperatorFiles:
    """The logs of an operator; a written stream is refused."""
    if isinstance(files, StreamFiles):
        raise SettingError(what, fix=fix)
    return files


def chosen_buckets(files: Files, bucket: int | None) -> range:
    """All buckets, or the one that was asked for."""
    if bucket is None:
        return files.buckets
    if bucket not in files.buckets:
        raise SettingError(
            f"There is no bucket {bucket}.",
            where="--bucket",
            fix=f"There are buckets 0 to {files.meta.buckets - 1}.",
        )
    return range(bucket, bucket + 1)


def _nothing_there(path: str, storage: Storage, *, is_empty: bool) -> SettingError:
    try:
        directories = storage.directories("")
    except FileNotFoundError:
        return _no_log(path, "it does not exist")
    if is_empty and not directories:
        return _no_log(path, "it is empty")
    below = [name for name in directories[:_LOOKED_INTO] if _holds_logs(storage, name)]
    if not below:
        return _no_log(path, f"it has no {META_PATH}")
    base = path.rstrip("/")
    named = ", ".join(f"{base}/{name}" for name in below[:_NAMED])
    more = f" and {len(below) - _NAMED} more" if len(below) > _NAMED else ""
    return SettingError(
        f"{path} is no Trailmark log itself, but there are some in it.",
        fix=f"Name one of them: {named}{more}.",
    )


def _holds_logs(storage: Storage, directory: str) -> bool:
    try:
        return storage.exists(f"{directory}/{META_PATH}")
    except StorageError:
        return False  # not ours to look into


def _no_log(path: str, why: str) -> SettingError:
    return SettingError(
        f"{path} is no Trailmark log: {why}.",
        fix="Give the path that the operator was given as `path`, or the path of the stream.",
    )
