"""Through a read-only storage nothing can be changed, not even by mistake."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trailmark.errors import NoPermission
from trailmark.inspection import ReadOnly
from trailmark.log import Entry
from trailmark.testing.disk import SimulatedDisk

_CHANGES: dict[str, Callable[[ReadOnly], object]] = {
    "publish": lambda storage: storage.publish("a", [b"x"]),
    "replace": lambda storage: storage.replace("in/a", [b"x"]),
    "settle": lambda storage: storage.settle("in/a"),
    "delete": lambda storage: storage.delete("in/a"),
    "set aside": lambda storage: storage.set_aside("in/a"),
    "clean": lambda storage: storage.clean("in"),
}


@pytest.mark.parametrize("change", _CHANGES.values(), ids=_CHANGES)
def test_every_change_is_refused_and_none_is_made(change: Callable[[ReadOnly], object]) -> None:
    disk = SimulatedDisk()
    disk.storage().publish("in/a", [b"four"])
    before = disk.operations
    with pytest.raises(NoPermission, match="only being looked at"):
        change(ReadOnly(disk.storage()))
    assert disk.operations == before


def test_looking_gives_what_the_storage_gives_and_counts_the_bytes() -> None:
    disk = SimulatedDisk()
    disk.storage().publish("in/a", [b"four"])
    read: list[int] = []
    storage = ReadOnly(disk.storage(), read.append)
    assert bytes(storage.read("in/a")) == b"four"
    assert bytes(storage.read("in/a", 1, 2)) == b"ou"
    tail, size = storage.read_tail("in/a", 3)
    assert (bytes(tail), size) == (b"our", 4)
    assert read == [4, 2, 3]
    assert storage.size("in/a") == 4
    assert storage.exists("in/a")
    assert not storage.exists("in/b")
    assert storage.list("in") == [Entry("a", 4)]
    assert storage.directories("") == ["in"]
