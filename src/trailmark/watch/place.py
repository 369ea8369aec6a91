"""Finds what a path holds, or says in one line why nothing can be looked at there."""

from __future__ import annotations

from collections.abc import Callable

from trailmark.errors import LogError, NoPermission, SettingError, StorageError
from trailmark.inspection import ReadOnly
from trailmark.inspection.logs import existing_meta
from trailmark.leases import is_lease
from trailmark.log import OperatorMeta, Storage, open_storage
from trailmark.log.meta import META_PATH
from trailmark.log.storage.urls import full_path, is_url
from trailmark.streams.description import is_stream
from trailmark.streams.union.description import is_union

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


def find_lease(path: str) -> Storage | None:
    """The storage of the lease at a path, only to be looked at; None if there is none."""
    storage = open_storage(path)
    try:
        return ReadOnly(storage) if is_lease(storage) else None
    except StorageError:
        return None  # whoever looks for logs says what is wrong


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
