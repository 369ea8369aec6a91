"""Where a run is to crash."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

from trailmark.errors import SettingError
from trailmark.testing.disk import ROOT
from trailmark.values import dataclass

Kind: TypeAlias = Literal["kill", "power failure"]
_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{8}\.[0-9]+\.[0-9a-f]{16}\.tmp")
_FIX = "Give None, a batch number, a tm.testing.Crash, a list of these, or 'everywhere'."


@dataclass(frozen=True, slots=True)
class Crash:
    """A point at which the process ends, and all that it had in memory is gone.

    Parameters
    ----------
    batch
        In which batch; the first one is 0.
    operation
        Before which operation on the storage in that batch, counted from 0; a write is interrupted
        half-way. Without it, the input of the batch has been logged and its output has not: the
        moment in which most is lost.
    kind
        ``"kill"``: whatever was written stays. ``"power failure"``: what was not synced is there in
        part, torn, or not at all.
    """

    batch: int
    operation: int | None = None
    kind: Kind = "kill"

    def __post_init__(self) -> None:
        for name in ("batch", "operation"):
            number = getattr(self, name)
            is_count = isinstance(number, int) and not isinstance(number, bool) and number >= 0
            if not is_count and not (name == "operation" and number is None):
                raise SettingError(
                    f"{name} must be a number from 0 on, got {number!r}.",
                    where=f"Crash({name}=...)",
                )
        if self.kind not in get_args(Kind):
            raise SettingError(
                f"kind must be 'kill' or 'power failure', got {self.kind!r}.",
                where="Crash(kind=...)",
            )

    def __str__(self) -> str:
        how = "killed" if self.kind == "kill" else "power failure"
        if self.operation is None:
            return f"{how} in batch {self.batch}, with its input logged and no output"
        return f"{how} in batch {self.batch}, at operation {self.operation}"


CrashAt: TypeAlias = int | Crash | Sequence[int | Crash] | Literal["everywhere"] | None


def planned_crashes(
    crash_at: CrashAt, operations: Sequence[int], *, power_failures: bool
) -> list[tuple[Crash, ...]]:
    """The crashes of each run, where batches take so many operations."""
    if crash_at is None:
        return []
    if isinstance(crash_at, str):
        return _everywhere(crash_at, operations, power_failures)
    several = crash_at if isinstance(crash_at, list | tuple) else [crash_at]
    crashes = tuple(_crash(each) for each in several)
    if not crashes:
        raise SettingError("crash_at names no crash.", where="crash_at", fix=_FIX)
    for crash in crashes:
        _check_reached(crash, operations)
    return [crashes]


def _everywhere(
    crash_at: str, operations: Sequence[int], power_failures: bool
) -> list[tuple[Crash, ...]]:
    if crash_at != "everywhere":
        raise _not_understood(crash_at)
    kinds: tuple[Kind, ...] = get_args(Kind) if power_failures else ("kill",)
    return [
        (Crash(batch, operation, kind),)
        for kind in kinds
        for batch, count in enumerate(operations)
        for operation in range(count)
    ]


def _crash(given: Any) -> Crash:
    if isinstance(given, Crash):
        return given
    if isinstance(given, int) and not isinstance(given, bool):
        return Crash(given)
    raise _not_understood(given)


def _not_understood(given: object) -> SettingError:
    return SettingError(f"crash_at cannot be {given!r}.", where="crash_at", fix=_FIX)


def _check_reached(crash: Crash, operations: Sequence[int]) -> None:
    if crash.batch >= len(operations):
        raise SettingError(
            f"There is no batch {crash.batch}: the last one is {len(operations) - 1}.",
            where="crash_at",
            fix="Batches are counted from 0.",
        )
    if crash.operation is not None and crash.operation >= operations[crash.batch]:
        raise never_reached(crash, operations[crash.batch])


def never_reached(crash: Crash, operations: int) -> SettingError:
    """What is to be said of a crash that a batch was over before."""
    point = "its output" if crash.operation is None else f"operation {crash.operation}"
    return SettingError(
        f"Batch {crash.batch} ended after {operations} operations, before {point}.",
        where="crash_at",
        fix="Operations of a batch are counted from 0. A batch whose output is in the log is "
        "answered from there.",
    )


@dataclass(frozen=True, slots=True)
class Crashing:
    """A crash that has happened, and in which operation: the name of the call, and the path."""

    crash: Crash
    stopped: tuple[str, str]

    def __str__(self) -> str:
        name, path = self.stopped
        directory, slash, last = path.removeprefix(ROOT).lstrip("/").rpartition("/")
        final = _TEMPORARY.fullmatch(last)
        place = f"{directory}{slash}{last if final is None else final[1]}" or "/"
        return f"{self.crash} ({name.replace('_', ' ')} {place})"
