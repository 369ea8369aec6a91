"""Opens the path that a command was given, or says in one line why it cannot."""

from __future__ import annotations

from typing import TypeAlias

from trailmark.errors import SettingError
from trailmark.inspection.logs import OperatorFiles
from trailmark.inspection.read_only import ReadOnly
from trailmark.log import Storage
from trailmark.settings import LogSettings
from trailmark.streams.stored import StreamFiles
from trailmark.watch.place import find_logs, holds_stream, holds_union

#: What a path may hold.
Files: TypeAlias = OperatorFiles | StreamFiles


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
