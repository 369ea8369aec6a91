"""``trailmark status``."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

from trailmark.cli.codes import OK, WRONG
from trailmark.cli.terminal import Screen, show
from trailmark.drawing import draw
from trailmark.watch.pictures import Picture, looker


def run(options: argparse.Namespace) -> int:
    """Shows one picture, or one after another until Ctrl-C."""
    look = looker(options.path, options.look_back)
    if options.watch is not None:
        return _watch(look, options)
    status = look()
    if options.json:
        print(json.dumps(_described(status, options.path), indent=1))
    else:
        show(draw(status, options.path))
    return OK if status.is_sound else WRONG


def _watch(look: Callable[[], Picture], options: argparse.Namespace) -> int:
    try:
        with Screen() as screen:
            while True:
                status = look()
                if options.json:
                    print(json.dumps(_described(status, options.path)), flush=True)
                else:
                    screen.draw(draw(status, options.path))
                time.sleep(options.watch)
    except KeyboardInterrupt:
        return OK


def _described(status: Picture, path: str) -> dict[str, object]:
    return {"path": path, **status.describe()}
