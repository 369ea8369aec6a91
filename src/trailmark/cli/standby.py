"""``trailmark standby``: runs a command while it has the lease, and waits for it before.

This is the passive form, for any command. Nothing keeps a command that is stopped too late from
writing: that is up to the command. What Trailmark publishes is published if absent.
"""

from __future__ import annotations

import argparse
import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from trailmark.errors import SettingError
from trailmark.leases import Holder, Keeper, Keeping, check_term, open_lease
from trailmark.log.storage.urls import redacted
from trailmark.settings import SECOND, parse_duration

_log = logging.getLogger("trailmark")

#: What is passed on to the command; the first two also end the waiting, and so does a terminal that
#: is closed.
_ENDING = (signal.SIGTERM, signal.SIGINT)
_FORWARDED = (*_ENDING, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)
_PAUSE_S = 0.05
#: Of Linux: what a process is sent when the one that started it has ended.
_PR_SET_PDEATHSIG = 1
#: As a shell tells of a process that a signal has ended.
_BY_SIGNAL = 128
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126


def run(options: argparse.Namespace) -> int:
    """Waits, runs the command, and gives its exit code; waits again if the lease is lost."""
    command = _command(options)
    term_us = check_term(options.term)
    grace_s = parse_duration(options.grace, "--grace") / SECOND
    with _told_on_stderr(), _Signals() as signals:
        path, storage = open_lease(options.lease, term_us)
        while True:
            keeper = Keeper(path, storage, Holder.of_process(options.name), term_us)
            keeper.say_ready("cold: the command has to be started")
            keeper.start()
            try:
                code = _serve(keeper, command, grace_s, signals, redacted(path))
            finally:
                keeper.end()
            if code is not None:
                return code


def _serve(
    keeper: Keeper, command: list[str], grace_s: float, signals: _Signals, path: str
) -> int | None:
    """One turn: waits for the lease and runs the command; None if the lease was lost."""
    while keeper.state is Keeping.WAITING:
        if signals.ended_by is not None:
            return _BY_SIGNAL + signals.ended_by
        keeper.wait_while(Keeping.WAITING, _PAUSE_S)
    if not keeper.is_held:
        time.sleep(_PAUSE_S)  # its thread has failed, or it came too late: nothing was run
        return None
    try:
        process = _start(command)
    except OSError as error:
        print(f"trailmark standby: {command[0]}: {error.strerror}", file=sys.stderr)
        return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
    signals.forward_to(process)
    _log.warning("lease %s: started process %d: %s", path, process.pid, command[0])
    try:
        while keeper.is_held:
            with suppress(subprocess.TimeoutExpired):
                return _code(process.wait(_PAUSE_S))
        _log.error("lease %s: lost or not renewed; process %d is stopped", path, process.pid)
        return None
    finally:
        _stop(process, grace_s)
        signals.forward_to(None)


def _start(command: list[str]) -> subprocess.Popen[bytes]:
    """In a process group of its own. It does not outlive this process where that can be had; what
    it starts itself may."""
    die_with_parent = getattr(ctypes.CDLL(None), "prctl", None)
    parent = os.getpid()

    def prepare() -> None:
        if die_with_parent is not None:
            die_with_parent(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # it was too late to ask for that
                os.kill(os.getpid(), signal.SIGKILL)

    return subprocess.Popen(command, start_new_session=True, preexec_fn=prepare)


def _stop(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """Ends the command and what it has started, which may be there when the command is not."""
    if not _is_there(process):
        return
    _send(process, signal.SIGTERM)
    until_s = time.monotonic() + grace_s
    while _is_there(process) and time.monotonic() < until_s:
        time.sleep(_PAUSE_S)
    if _is_there(process):
        _log.warning("process %d, or what it has started, does not end: killed", process.pid)
        _send(process, signal.SIGKILL)
    process.wait()


def _is_there(process: subprocess.Popen[bytes]) -> bool:
    """Whether the command or something that it has started runs."""
    # What has ended counts until somebody has asked for it.
    if process.poll() is not None:
        with suppress(ChildProcessError):  # others' orphans are only ours in a container
            while os.waitpid(-process.pid, os.WNOHANG)[0]:
                pass
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    return True


def _send(process: subprocess.Popen[bytes], number: int) -> None:
    """To the command and what it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _code(returned: int) -> int:
    return _BY_SIGNAL - returned if returned < 0 else returned


def _command(options: argparse.Namespace) -> list[str]:
    command: list[str] = options.command_line
    if command[:1] == ["--"]:
        command = command[1:]
    if not command:
        raise SettingError(
            "There is no command to run.",
            where="--",
            fix="For example: trailmark standby --lease /shared/orders.lease -- python orders.py",
        )
    return command


class _Signals:
    """Passes signals on to the command while it runs, and notes those that end the waiting."""

    def __init__(self) -> None:
        self.ended_by: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._before: dict[int, object] = {}

    def forward_to(self, process: subprocess.Popen[bytes] | None) -> None:
        self._process = process
        if process is not None and self.ended_by is not None:
            _send(process, self.ended_by)  # came while it was being started

    def _take(self, number: int, _: FrameType | None) -> None:
        process = self._process
        if number in _ENDING or (number == signal.SIGHUP and process is None):
            self.ended_by = number
        if process is not None:
            _send(process, number)

    def __enter__(self) -> _Signals:
        for number in _FORWARDED:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup wants it
                self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]


@contextmanager
def _told_on_stderr() -> Iterator[None]:
    """Every move of the lease is a line on stderr, though nobody has set up logging."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s trailmark standby: %(message)s"))
    level = _log.level
    _log.addHandler(handler)
    _log.setLevel(logging.INFO)
    try:
        yield
    finally:
        _log.removeHandler(handler)
        _log.setLevel(level)
