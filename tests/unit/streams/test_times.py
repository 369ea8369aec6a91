from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from typing import Any

import pytest

from trailmark.errors import SettingError
from trailmark.log import TimeRange
from trailmark.streams.times import Span, parse_timestamp

_NOON = 1_769_860_800_000_000  # 2026-01-31 12:00:00 UTC
_HOUR = 3_600_000_000


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("2026-01-31 12:00:00", _NOON),
        ("2026-01-31T12:00:00", _NOON),
        ("  2026-01-31 12:00  ", _NOON),
        ("2026-01-31T12:00:00Z", _NOON),
        ("2026-01-31T12:00:00z", _NOON),
        ("2026-01-31T13:00:00+01:00", _NOON),
        ("2026-01-31T02:30:00-09:30", _NOON),
        ("2026-01-31 12:00:00.000001", _NOON + 1),
        ("2026-01-31", _NOON - 12 * _HOUR),
        ("1969-12-31 23:59:59.999999", -1),
        ("0001-01-01", -62_135_596_800_000_000),
        ("9999-12-31 23:59:59.999999", 253_402_300_799_999_999),
        (datetime(2026, 1, 31, 12), _NOON),
        (datetime(2026, 1, 31, 12, tzinfo=timezone.utc), _NOON),
        (datetime(2026, 1, 31, 12, tzinfo=timezone(timedelta(hours=-2))), _NOON + 2 * _HOUR),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))), -62_135_647_200_000_000),
    ],
)
def test_a_time_is_understood_and_without_a_zone_it_is_in_utc(given: Any, expected: int) -> None:
    assert parse_timestamp(given, "t") == expected


@pytest.mark.parametrize(
    "given", ["", "Z", "noon", "2026-13-01", "2026-01-3T", "12:00", 5, None, date(2026, 1, 31)]
)
def test_what_is_no_time_is_refused_by_its_argument(given: Any) -> None:
    with pytest.raises(SettingError, match="is not a time") as caught:
        parse_timestamp(given, "starting_timestamp")
    assert caught.value.where == "starting_timestamp"


@pytest.mark.parametrize(
    ("first", "last", "is_met"),
    [
        (None, None, True),
        (None, 9, False),
        (None, 10, True),
        (20, None, True),
        (21, None, False),
        (10, 10, True),
        (20, 20, True),
        (12, 13, True),
        (0, 99, True),
        (0, 9, False),
        (21, 99, False),
    ],
)
def test_both_ends_of_a_span_are_included(
    first: int | None, last: int | None, is_met: bool
) -> None:
    assert Span(first_us=first, last_us=last).meets(TimeRange(10, 20)) == is_met


def test_rows_without_a_time_are_met_only_where_no_time_is_asked_for() -> None:
    assert Span(first_batch=3).meets(None)
    assert not Span(first_us=0).meets(None)
    assert not Span(last_us=0).meets(None)


@pytest.mark.parametrize(
    ("span", "where"),
    [
        ({"first_batch": 3, "last_batch": 2}, "startingBatch, endingBatch"),
        ({"first_us": 3, "last_us": 2}, "startingTimestamp, endingTimestamp"),
    ],
)
def test_a_span_that_ends_before_it_begins_is_refused(span: dict[str, int], where: str) -> None:
    with pytest.raises(SettingError, match="3 to 2") as caught:
        Span(**span)
    assert caught.value.where == where


def test_a_span_of_one_batch_or_one_microsecond_is_none_of_those() -> None:
    assert not Span(first_batch=2, last_batch=2).has_times
    assert Span(first_us=2, last_us=2).has_times
