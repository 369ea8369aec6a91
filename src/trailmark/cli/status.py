"""``trailmark status``."""

from __future__ import annotations

import argparse
import json
import sys
import time

from trailmark.cli.codes import OK, WRONG
from trailmark.cli.drawing import draw_status
from trailmark.cli.place import find_logs
from trailmark.cli.terminal import Paint, Screen
from trailmark.status import OperatorStatus, StatusReader


def run(options: argparse.Namespace) -> int:
    """Shows one picture, or one after another until Ctrl-C."""
    reader = StatusReader(find_logs(options.path), look_back=options.look_back)
    if options.watch is not None:
        return _watch(reader, options)
    status = reader.read()
    if options.json:
        print(json.dumps(_as_json(status, options.path), indent=1))
    else:
        print("\n".join(draw_status(status, options.path, Paint(sys.stdout))))
    return OK if status.is_sound else WRONG


def _watch(reader: StatusReader, options: argparse.Namespace) -> int:
    screen = Screen(sys.stdout)
    paint = Paint(sys.stdout)
    try:
        while True:
            status = reader.read()
            if options.json:
                print(json.dumps(_as_json(status, options.path)), flush=True)
            else:
                screen.draw(draw_status(status, options.path, paint))
            time.sleep(options.watch)
    except KeyboardInterrupt:
        return OK


def _as_json(status: OperatorStatus, path: str) -> dict[str, object]:
    return {"path": path, **status.describe()}
