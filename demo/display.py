"""What the reader sees: one live line per run on a terminal, a few plain ones elsewhere."""

from __future__ import annotations

import shutil
import sys
from typing import TextIO

from demo.supervise import Batch

_BAR = 20
#: Lines per run where nothing can be updated.
_PLAIN_LINES = 5
_ERASE = "\r\x1b[K"


class Display:
    """Prints to a terminal or to a file, each in its way."""

    def __init__(self, batches: int, out: TextIO = sys.stdout) -> None:
        self._batches = batches
        self._out = out
        self._is_live = out.isatty()
        self._every = max(1, batches // _PLAIN_LINES)
        #: What has to be written before a line that stays.
        self._before = ""

    def title(self, text: str) -> None:
        self.say(f"\n{text}")

    def say(self, text: str) -> None:
        """A line that stays."""
        print(f"{self._before}{text}", file=self._out, flush=True)
        self._before = ""

    def passing(self, text: str) -> None:
        """A line that the next one replaces; only where that can be done."""
        if self._is_live:
            self._update(text)
            self._before = _ERASE

    def batch(self, batch: Batch) -> None:
        done = batch.batch + 1
        text = (
            f"batch {done:>{len(str(self._batches))}} of {self._batches}, "
            f"{batch.tuples_per_s / 1e6:.2f} M tuples/s, {batch.open_windows:,} windows open, "
            f"recovery would take {batch.predicted_us / 1e6:.2f} s"
        )
        if self._is_live:
            filled = _BAR * done // self._batches
            self._update(f"  {'█' * filled}{'░' * (_BAR - filled)} {text}")
            self._before = "\n"  # the last batch stays in sight
        elif done % self._every == 0 or done == self._batches:
            self.say(f"  {text}")

    def _update(self, text: str) -> None:
        width = shutil.get_terminal_size().columns
        print(f"{_ERASE}{text[: width - 1]}", end="", file=self._out, flush=True)
