"""Pictures of whatever is at a path: an operator, a written stream, a union or a lease."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias
from uuid import UUID

from trailmark.inspection import OperatorStatus, StatusReader
from trailmark.inspection.logs import existing_meta
from trailmark.leases.status import LeaseStatus, LeaseStatusReader
from trailmark.log import Clock, Storage, wall_clock_us
from trailmark.streams.status import StreamStatus, StreamStatusReader
from trailmark.streams.union.status import UnionStatus, UnionStatusReader
from trailmark.watch.place import find_lease, find_logs, holds_stream, holds_union

Picture: TypeAlias = OperatorStatus | StreamStatus | UnionStatus
Status: TypeAlias = Picture | LeaseStatus
Kind: TypeAlias = Literal["operator", "stream", "union"]


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

    def __call__(self) -> Picture:
        """The picture as of now."""
        storage = find_logs(self._path)
        log_id = existing_meta(storage).log_id
        if self._read is None or log_id != self._log_id:
            self._read, self._log_id = self._open(storage), log_id
        return self._read()

    def _open(self, storage: Storage) -> Callable[[], Picture]:
        if holds_union(storage):
            return UnionStatusReader(storage, clock=self._clock).read
        reader = StreamStatusReader if holds_stream(storage) else StatusReader
        return reader(storage, look_back=self._look_back, clock=self._clock).read


def kind_of_picture(picture: Picture) -> Kind:
    """What the picture is of."""
    if isinstance(picture, OperatorStatus):
        return "operator"
    return "union" if isinstance(picture, UnionStatus) else "stream"


def looker(path: str, look_back: int) -> Callable[[], Status]:
    """Makes picture after picture of what is at a path, which may be a lease."""
    lease = find_lease(path)
    return Looker(path, look_back) if lease is None else LeaseStatusReader(lease).read
