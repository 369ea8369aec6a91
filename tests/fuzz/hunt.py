"""Keeps a fuzzing process running until the time is over, and what it dies of."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).parents[2]
#: For a process to start and to end, and for one input, on a machine that others use.
_PATIENCE_S = 60.0
#: Frames of a trace, as Python and faulthandler print them.
_FRAME = re.compile(r'File "[^"]*?(src/trailmark|tests)/([^"]+)", line (\d+),? in (\w+)')

_ERROR = re.compile(r"([\w.]*(?:Error|Invalid|Disagreement|Exception)\b.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Finding:
    """An input that something is wrong with: what, where it is kept, and when it was found."""

    what: str
    path: Path
    after_s: float
    trace: str


class Hunt:
    """Starts processes of `tests.fuzz.child`, one after another."""

    def __init__(self, place: Path, seed: int, is_guided: bool) -> None:
        self._place = place
        self._seed = seed
        self._is_guided = is_guided
        self._corpus = place / "corpus"
        self._found = place / "found"
        for directory in (self._corpus, self._found):
            directory.mkdir(parents=True, exist_ok=True)
        self._current = place / "current"

    def run(
        self, seconds: float, most: int, on_finding: Callable[[Finding], None] = lambda _: None
    ) -> list[Finding]:
        """All findings that differ, in the order they came."""
        began = time.monotonic()
        found: dict[str, Finding] = {}
        lives = 0
        while (left := seconds - (time.monotonic() - began)) > 0 and len(found) < most:
            code, trace = self._child(left, self._seed + lives)
            lives += 1
            if code == 0:
                continue
            finding = self._keep(code, trace, time.monotonic() - began)
            if finding.what not in found:
                found[finding.what] = finding
                on_finding(finding)
        return list(found.values())

    def _child(self, seconds: float, seed: int) -> tuple[int, str]:
        """How a process ended, and what it said."""
        arguments = [str(self._current), "--seconds", str(seconds), "--seed", str(seed)]
        if self._is_guided:
            arguments += ["--corpus", str(self._corpus)]
        child = subprocess.Popen(
            # The directory is for `tests`. Where Trailmark is imported from, the environment says,
            # as it does here: else another one is fuzzed than the one that tries findings again.
            [sys.executable, "-m", "tests.fuzz.child", *arguments],
            cwd=_ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        try:
            said, _ = child.communicate(timeout=seconds + _PATIENCE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            said, _ = child.communicate()
            if not self._is_stuck():
                return 0, said
        return child.returncode, said

    def _is_stuck(self) -> bool:
        """Whether the input under way is not a new one: the machine may only be slow."""
        return time.time() - self._current.stat().st_mtime > _PATIENCE_S

    def _keep(self, code: int, trace: str, after_s: float) -> Finding:
        data = self._current.read_bytes() if self._current.exists() else b""
        path = self._found / hashlib.sha256(data).hexdigest()[:16]
        path.write_bytes(data)
        path.with_suffix(".txt").write_text(trace)
        return Finding(_summary(code, trace), path, after_s, trace)


def _summary(code: int, trace: str) -> str:
    """How it ended, and the innermost line of Trailmark's: the same fault gives the same one."""
    ending = "timeout" if "Timeout (" in trace else f"exit code {code}"
    errors = _ERROR.findall(trace)
    if "Fatal Python error" in trace:
        ending = trace.partition("Fatal Python error: ")[2].partition("\n")[0]
    elif errors and "Timeout (" not in trace:
        ending = errors[-1][:120]
    frames = [f for f in _FRAME.findall(trace) if f[0] == "src/trailmark"]
    if not frames:
        return ending
    # A traceback ends with the innermost frame; what faulthandler prints begins with it.
    is_first = "most recent call first" in trace
    _, path, line, name = frames[0 if is_first else -1]
    return f"{ending} in {path}:{line} {name}"
