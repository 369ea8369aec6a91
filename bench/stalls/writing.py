"""An application that writes a stream, in a process of its own, in plain Python.

It commits its rows ten times a second, each with the moment at which it was due as its time, and
writes down what it has committed and when. SIGUSR1 makes it silent; SIGUSR2 lets it go on, and it
commits everything that was due meanwhile at once; SIGTERM ends the stream.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import trailmark as tm
from bench.stalls.delays import Commit
from bench.stalls.due import Due

EVERY_S = 0.1
_END = "9999-12-31"
SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("item", pa.int32())])


class _Told:
    """What signals have said."""

    def __init__(self) -> None:
        self.is_silent = self.ends = False
        self.returned_us: int | None = None
        signal.signal(signal.SIGUSR1, self._fall_silent)
        signal.signal(signal.SIGUSR2, self._go_on)
        signal.signal(signal.SIGTERM, self._end)

    def _fall_silent(self, *_: Any) -> None:
        self.is_silent = True

    def _go_on(self, *_: Any) -> None:
        self.returned_us = _now_us()
        self.is_silent = False

    def _end(self, *_: Any) -> None:
        self.ends = True


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.stalls.writing", description=__doc__)
    parser.add_argument("path", type=Path, help="of the stream")
    parser.add_argument("--rate", type=int, required=True, help="rows a second")
    parser.add_argument("--items", type=int, required=True, help="different items")
    parser.add_argument("--notes", type=Path, required=True, help="where commits are written down")
    asked = parser.parse_args()
    told = _Told()
    writer = tm.stream_writer(
        asked.path, SCHEMA, name=asked.path.name, time_column="at", delay="0 seconds"
    )
    due = Due(_now_us(), asked.rate)
    with asked.notes.open("w") as notes:
        while not told.ends:
            time.sleep(EVERY_S)
            if told.is_silent:
                continue
            returned_us, told.returned_us = told.returned_us, None
            first_us, times = due.until(_now_us())
            items = (np.arange(len(times)) % asked.items).astype(np.int32)
            writer.append(pa.table([pa.array(times).cast(SCHEMA.field("at").type), items], SCHEMA))
            done = Commit(
                asked.path.name,
                writer.last,
                first_us,
                due.at_us,
                len(times),
                _now_us(),
                returned_us,
            )
            notes.write(json.dumps(done.to_json()) + "\n")
            notes.flush()
    writer.heartbeat(_END)
    return 0


def _now_us() -> int:
    return time.time_ns() // 1000


if __name__ == "__main__":
    sys.exit(main())
