"""Pictures of whatever is at a path: an operator, a written stream, a union or a lease."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias
from uuid import UUID

from trailmark.errors import SettingError
from trailmark.inspection import OperatorStatus, StatusReader
from trailmark.inspection.logs import existing_meta
from trailmark.leases.status import LeaseStatus, LeaseStatusReader, LeaseWatcher
from trailmark.log import Clock, Storage, wall_clock_us
from trailmark.streams.status import StreamStatus, StreamStatusReader
from trailmark.streams.union.status import UnionStatus, UnionStatusReader
from trailmark.watch.place import find_lease, find_logs, holds_stream, holds_union

#: Of what has logs; a lease has none.
LogPicture: TypeAlias = OperatorStatus | StreamStatus | UnionStatus
Picture: TypeAlias = LogPicture | LeaseStatus
Kind: TypeAlias = Literal["operator", "stream", "union", "lease"]


class Looker:
    """Makes picture after picture of what is at a path; what is known is not read again.

    What was deleted and begun anew in the same place is another log, and looked at as such.
    """

    def __init__(self, path: str, look_back: int, clock: Clock = wall_clock_us) -> None:
        self._path = path
        self._look_back = look_back
        self._clock = clock
        self._log_id: UUID | None = None
        self._read: Callable[[], Picture] | None = None
        self._watcher: LeaseWatcher | None = None

    def __call__(self) -> Picture:
        """The picture as of now."""
        if self._watcher is not None and find_lease(self._path) is not None:
            return self._watcher.look()  # what else might be there need not be found out again
        try:
            storage = find_logs(self._path)
        except SettingError:
            lease = find_lease(self._path)
            if lease is None:
                raise
            return self._look_at_lease(lease)
        log_id = existing_meta(storage).log_id
        if self._read is None or log_id != self._log_id:
            self._read, self._log_id = self._open(storage), log_id
        return self._read()

    def _look_at_lease(self, lease: Storage) -> Picture:
        self._watcher = LeaseWatcher(lease, clock=self._clock)
        return self._watcher.look()

    def _open(self, storage: Storage) -> Callable[[], Picture]:
        if holds_union(storage):
            return UnionStatusReader(storage, clock=self._clock).read
        reader = StreamStatusReader if holds_stream(storage) else StatusReader
        return reader(storage, look_back=self._look_back, clock=self._clock).read


def kind_of_picture(picture: Picture) -> Kind:
    """What the picture is of."""
    if isinstance(picture, OperatorStatus):
        return "operator"
    if isinstance(picture, LeaseStatus):
        return "lease"
    return "union" if isinstance(picture, UnionStatus) else "stream"


def log_of(picture: Picture) -> str | None:
    """Which logs these are; None where there are none."""
    return None if isinstance(picture, LeaseStatus) else picture.log_id


def looker(path: str, look_back: int) -> Callable[[], Picture]:
    """Makes picture after picture of what is at a path, which may be a lease."""
    lease = find_lease(path)
    return Looker(path, look_back) if lease is None else LeaseStatusReader(lease).read
