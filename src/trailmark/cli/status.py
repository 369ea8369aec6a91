"""``trailmark status``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from trailmark.cli.codes import OK, WRONG
from trailmark.cli.drawing import draw_status
from trailmark.cli.lease_drawing import draw_lease
from trailmark.cli.place import find_lease
from trailmark.cli.stream_drawing import draw_stream
from trailmark.cli.terminal import Paint, Screen
from trailmark.cli.union_drawing import draw_union
from trailmark.inspection import OperatorStatus, StatusReader
from trailmark.leases.status import LeaseStatus, LeaseStatusReader
from trailmark.streams.status import StreamStatus, StreamStatusReader
from trailmark.streams.union.status import UnionStatus, UnionStatusReader
from trailmark.values import dataclass
from trailmark.watch.place import find_logs, holds_stream, holds_union

#: A status of what is at the path.
Status = TypeVar("Status", OperatorStatus, StreamStatus, UnionStatus, LeaseStatus)


@dataclass(frozen=True, slots=True)
class _Picture:
    """A status of whatever is at the path, as it is printed."""

    described: dict[str, object]
    draw: Callable[[Paint], list[str]]
    is_sound: bool


def run(options: argparse.Namespace) -> int:
    """Shows one picture, or one after another until Ctrl-C."""
    look = _looker(options)
    if options.watch is not None:
        return _watch(look, options)
    picture = look()
    if options.json:
        print(json.dumps(picture.described, indent=1))
    else:
        print("\n".join(picture.draw(Paint(sys.stdout))))
    return OK if picture.is_sound else WRONG


def _watch(look: Callable[[], _Picture], options: argparse.Namespace) -> int:
    screen = Screen(sys.stdout)
    paint = Paint(sys.stdout)
    try:
        while True:
            picture = look()
            if options.json:
                print(json.dumps(picture.described), flush=True)
            else:
                screen.draw(picture.draw(paint))
            time.sleep(options.watch)
    except KeyboardInterrupt:
        return OK


def _looker(options: argparse.Namespace) -> Callable[[], _Picture]:
    """Gives picture after picture of an operator, a written stream, a union or a lease."""
    lease = find_lease(options.path)
    if lease is not None:
        return partial(_look, LeaseStatusReader(lease).read, draw_lease, options.path)
    storage, path = find_logs(options.path), options.path
    if holds_union(storage):
        return partial(_look, UnionStatusReader(storage).read, draw_union, path)
    if holds_stream(storage):
        streams = StreamStatusReader(storage, look_back=options.look_back)
        return partial(_look, streams.read, draw_stream, path)
    operators = StatusReader(storage, look_back=options.look_back)
    return partial(_look, operators.read, draw_status, path)


def _look(
    read: Callable[[], Status], draw: Callable[[Status, str, Paint], list[str]], path: str
) -> _Picture:
    status = read()
    described = {"path": path, **status.describe()}
    return _Picture(described, partial(draw, status, path), status.is_sound)
