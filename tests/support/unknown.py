"""Files as a later Trailmark might write them: whole, and of a format that is not known here."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.support.followed import Followed
from tests.support.orders import count_case, random_orders
from tests.support.reseal import Opened, open_pack, open_segment
from trailmark.checkpoint.policy import Continuous
from trailmark.log import Storage

#: What may be new about a segment, and what is said about it.
NEWS: dict[str, tuple[Callable[[Opened], Opened], str]] = {
    "a version": (lambda opened: opened.of_version(3), "version 3 of the log format"),
    "a kind": (lambda opened: opened.with_unknown_kind(), "Frames of kind 'sketches'"),
}


def ended_query(batches: int) -> Followed:
    """A query that has ended, with so many batches in its logs."""
    orders = random_orders(random.Random(2), batches=batches, rows=30, items=20)
    run = Followed(count_case(orders), Continuous(q=30))
    run.run()
    run.query.stop()
    return run


def renew_segment(storage: Storage, path: str, news: str) -> bytes:
    """Puts a segment of a later format in the place of one; what is there now."""
    return _replace(storage, path, _renewed(bytes(storage.read(path)), news))


def renew_in_pack(storage: Storage, path: str, place: int, news: str) -> bytes:
    """The same for one of the segments in a pack."""
    pack = open_pack(bytes(storage.read(path)))
    pack.segments[place] = _renewed(pack.segments[place], news)
    return _replace(storage, path, pack.sealed())


def renew_pack(storage: Storage, path: str) -> bytes:
    """Puts a pack of a later version in the place of one."""
    pack = open_pack(bytes(storage.read(path)))
    pack.version = pack.index["version"] = 3
    return _replace(storage, path, pack.sealed())


def _renewed(segment: bytes, news: str) -> bytes:
    return NEWS[news][0](open_segment(segment)).sealed()


def _replace(storage: Storage, path: str, content: bytes) -> bytes:
    storage.delete(path)
    assert storage.publish(path, [content])
    return content
