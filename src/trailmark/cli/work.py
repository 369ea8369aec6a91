"""Long work on logs: says how far it has come, and ends between two steps on Ctrl-C."""

from __future__ import annotations

import signal
import threading
from types import FrameType

from trailmark.cli.terminal import Bar


class Work:
    """Work that changes logs, step by step, with a bar on a terminal.

    Ctrl-C lets the step end that is being taken, so that nothing is left half-done. A second one
    ends it at once: that harms no log either, and the next run tidies up.

    Parameters
    ----------
    verb
        What is being done.
    """

    def __init__(self, verb: str) -> None:
        self._bar = Bar(verb)
        self._is_to_end = False
        self._is_listening = False

    def begin(self, name: str, number: int, count: int) -> None:
        """A step begins: the work on one of ``count`` logs goes on."""
        if self._is_to_end:
            raise KeyboardInterrupt(
                f"before {name} ({number} of {count}). Nothing is half-done; run it again "
                "for the rest."
            )
        self._bar.begin(name, number, count)

    def _take(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_to_end:
            raise KeyboardInterrupt
        self._is_to_end = True

    def __enter__(self) -> Work:
        is_main = threading.current_thread() is threading.main_thread()
        # Whoever has set Ctrl-C to something else has a reason.
        if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._take)
            self._is_listening = True
        self._bar.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.__exit__()
        if self._is_listening:
            signal.signal(signal.SIGINT, signal.default_int_handler)
