"""What policies are given, checked and read: durations, budgets, counts, rates of failures."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import lru_cache
from typing import Any

from trailmark.errors import SettingError
from trailmark.settings import parse_duration

_FAILURES = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s+per\s+(second|minute|hour|day|week)\s*")
_SECONDS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}


def check_budget(
    interval: str | timedelta | None, period: str | timedelta | None, where: str
) -> None:
    if (interval is None) != (period is None):
        raise SettingError(
            "interval and period belong together.",
            where=f"{where}(interval=..., period=...)",
            fix='For example interval="5 ms", period="100 ms".',
        )
    if interval is None or period is None:
        return
    if not 0 < parse_duration(interval, "interval") <= parse_duration(period, "period"):
        raise SettingError(
            "interval must be longer than zero and at most as long as period.",
            where=f"{where}(interval=..., period=...)",
        )


def budget_us(interval: str | timedelta | None, period: str | timedelta | None) -> tuple[int, int]:
    """Interval and period of a budget; zeros without one."""
    if interval is None or period is None:
        return 0, 0
    return microseconds(interval, "interval"), microseconds(period, "period")


def describe_budget(
    interval: str | timedelta | None, period: str | timedelta | None
) -> dict[str, Any]:
    return {
        "interval_us": None if interval is None else microseconds(interval, "interval"),
        "period_us": None if period is None else microseconds(period, "period"),
    }


def check_every(every: int | str | timedelta, where: str) -> None:
    if isinstance(every, int):
        is_wrong = not is_count(every) or not every
    else:
        is_wrong = not parse_duration(every, "every")
    if is_wrong:
        raise SettingError(
            f"every must be a number of batches from 1 on, or a time longer than zero; got "
            f"{every!r}.",
            where=f"{where}(every=...)",
            fix='For example every=10 or every="10 seconds".',
        )


def describe_every(every: int | str | timedelta) -> dict[str, Any]:
    if isinstance(every, int):
        return {"every_batches": every}
    return {"every_us": microseconds(every, "every")}


def is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def read_failures(rate: str | float) -> float:
    if isinstance(rate, int | float) and not isinstance(rate, bool):
        return float(rate)
    found = _FAILURES.fullmatch(rate) if isinstance(rate, str) else None
    if found is None:
        raise SettingError(
            f"{rate!r} is not a rate of failures.",
            where="CostBenefit(failure_rate=...)",
            fix='Write "1 per day", or a number per second.',
        )
    return float(found[1]) / _SECONDS[found[2]]


# Asked for in every batch. What was refused when the policy was made never comes here.
microseconds = lru_cache(parse_duration)
failures = lru_cache(read_failures)
