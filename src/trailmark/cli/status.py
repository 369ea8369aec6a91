"""``trailmark status``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial

from trailmark.cli.codes import OK, WRONG
from trailmark.cli.drawing import draw_status
from trailmark.cli.place import find_logs, holds_stream
from trailmark.cli.stream_drawing import draw_stream
from trailmark.cli.terminal import Paint, Screen
from trailmark.status import StatusReader
from trailmark.streams.status import StreamStatusReader
from trailmark.values import dataclass


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
    """Gives picture after picture of an operator or of a written stream."""
    storage, path = find_logs(options.path), options.path
    if holds_stream(storage):
        streams = StreamStatusReader(storage, look_back=options.look_back)

        def look_at_stream() -> _Picture:
            status = streams.read()
            draw = partial(draw_stream, status, path)
            return _Picture({"path": path, **status.describe()}, draw, status.is_sound)

        return look_at_stream
    operators = StatusReader(storage, look_back=options.look_back)

    def look_at_operator() -> _Picture:
        status = operators.read()
        draw = partial(draw_status, status, path)
        return _Picture({"path": path, **status.describe()}, draw, status.is_sound)

    return look_at_operator
