"""Policies in words: what they were given, and what they promise.

Both follow from their descriptions, which are all that is left of a policy in logs and plans.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trailmark import units
from trailmark.settings import format_duration

#: Within so many times that `Incremental` writes, every group is written.
ROUND = 64

Description = Mapping[str, Any]


def policy_title(described: Description) -> str:
    """The policy and what it was given, whichever policy it is.

    >>> policy_title({"policy": "delta", "every_us": 10_000_000, "full_every": 10})
    'delta (every 10 s, full_every 10)'
    """
    # By name, as logs have them: so it is the same text wherever the description comes from.
    given = [_setting(name, described[name]) for name in sorted(described) if name != "policy"]
    shown = ", ".join(each for each in given if each)
    name = str(described.get("policy", "unknown"))
    return f"{name} ({shown})" if shown else name


def _setting(name: str, value: object) -> str:
    """An argument with its value; empty if it was left out or is off."""
    if value is None or value is False:
        return ""
    if not isinstance(value, int):
        return f"{name} {value}"
    if value is True:
        return name
    if name.endswith("_us"):
        return f"{name.removesuffix('_us')} {units.duration(value)}"
    if name.endswith("_batches"):
        return f"{name.removesuffix('_batches')} {units.some(value, 'batch')}"
    return f"{name} {value:,}"


def policy_promise(described: Description) -> str:
    """What a recovery of a bucket can rely on, or cannot; empty for a policy of somebody's own.

    >>> policy_promise({"policy": "slow windows", "threshold_us": 1_000_000, "period_us": 500_000})
    'replays the input of at most 2 seconds'
    """
    say = _PROMISES.get(described["policy"])
    return "" if say is None else say(described)


def _no_checkpoint(described: Description) -> str:
    return "writes no state: replays all input since nothing was open, or since the log began"


def _upstream_backup(described: Description) -> str:
    return (
        "writes no state: replays the input since the oldest open window of time opened; for "
        "windows of a count, all input since nothing was open, or since the log began"
    )


def _continuous(described: Description) -> str:
    if described["objective_us"] is not None:
        return f"recovers within {format_duration(described['objective_us'])}"
    q, u = described["q"], described["u"]
    targets = [
        *([] if q is None else [f"reads at most {units.some(q, 'record')} of output"]),
        *([] if u is None else [f"replays at most {units.some(u, 'tuple')}"]),
    ]
    if not targets:
        return "promises nothing: what is written once, when it opens, is not written again"
    budget = "" if described["interval_us"] is None else ", as far as the budget allows"
    return " and ".join(targets) + budget


def _cost_benefit(described: Description) -> str:
    return "promises no time: writes what is expected to save more recovery time than it costs"


def _slow_windows(described: Description) -> str:
    longest = described["threshold_us"] + 2 * described["period_us"]
    return f"replays the input of at most {format_duration(longest)}"


def _full_snapshot(described: Description) -> str:
    # One that is written behind counts when its file is there, which may be when the next is due.
    times = 2 if described["asynchronous"] else 1
    return f"loads the last snapshot and replays at most {_every(described, times)}"


def _delta(described: Description) -> str:
    reads = _every(described, described["full_every"])
    return f"replays at most {_every(described)}, and reads the output of at most {reads}"


def _incremental(described: Description) -> str:
    reads = _every(described, ROUND)
    return f"replays at most {_every(described)}, and reads the output of at most {reads}"


def _every(described: Description, times: int = 1) -> str:
    if "every_us" in described:
        return f"{format_duration(times * described['every_us'])} of input"
    return units.some(times * described["every_batches"], "batch")


_PROMISES: Mapping[str, Callable[[Description], str]] = {
    "none": _no_checkpoint,
    "upstream backup": _upstream_backup,
    "continuous": _continuous,
    "cost-benefit": _cost_benefit,
    "slow windows": _slow_windows,
    "full snapshot": _full_snapshot,
    "delta": _delta,
    "incremental": _incremental,
}
