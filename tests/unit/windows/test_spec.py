"""Windows as values: what they mean, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from trailmark.errors import SettingError, UnsupportedType
from trailmark.windows.spec import CountWindow, TimeWindow, count_window, time_window


def test_slide_is_the_size_unless_given() -> None:
    assert count_window(10) == CountWindow(10, 10)
    assert time_window("t", "1 minute") == TimeWindow("t", 60_000_000, 60_000_000, 0)


def test_durations_are_words_or_timedeltas() -> None:
    words = time_window("t", "1 hour 30 minutes", slide="500 ms", delay="2 seconds")
    values = time_window(
        "t",
        timedelta(hours=1.5),
        slide=timedelta(milliseconds=500),
        delay=timedelta(seconds=2),
    )
    assert words == values == TimeWindow("t", 5_400_000_000, 500_000, 2_000_000)


@pytest.mark.parametrize("size", [0, -1, 1.0, "10", None, True, (1 << 40) + 1])
def test_a_count_window_needs_a_whole_number_of_tuples(size: Any) -> None:
    with pytest.raises(SettingError, match="size must be a whole number of tuples, at least 1"):
        count_window(size)
    if size is not None:
        with pytest.raises(SettingError, match=r"slide must be .*\n  where: count_window\(slide="):
            count_window(10, slide=size)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"size": "0 seconds"}, "size must be longer than zero"),
        ({"size": timedelta(0)}, "size must be longer than zero"),
        ({"size": "1 second", "slide": "0 ms"}, "slide must be longer than zero"),
        ({"size": "99999999 weeks"}, "size must not be longer than 36,000 years"),
        ({"size": "1 second", "slide": "99999999 weeks"}, "slide must not be longer"),
        ({"size": "1 second", "delay": "99999999 weeks"}, "delay must not be longer"),
        ({"size": "soon"}, "'soon' is not a duration"),
        ({"size": 5}, "5 is not a duration"),
        ({"size": timedelta(seconds=-1)}, "is not a duration"),
        ({"size": "1 second", "delay": timedelta(seconds=-1)}, "is not a duration"),
        ({"size": "1 second", "delay": None}, "None is not a duration"),
    ],
)
def test_a_time_window_of_no_or_impossible_length_is_refused(
    arguments: dict[str, Any], text: str
) -> None:
    with pytest.raises(SettingError, match=text):
        time_window("t", **arguments)


def test_only_overlapping_and_time_windows_of_a_key_differ_by_a_start() -> None:
    assert not count_window(3).has_start
    assert not count_window(3, 5).has_start
    assert count_window(3, 2).has_start
    assert time_window("t", "1 second").has_start


def test_a_description_holds_everything_that_must_not_change() -> None:
    assert count_window(10, 5).describe() == {"kind": "count", "size": 10, "slide": 5}
    assert time_window("t", "1 second", delay="1 ms").describe() == {
        "kind": "time",
        "column": "t",
        "size": 1_000_000,
        "slide": 1_000_000,
        "delay": 1_000,
    }


@pytest.mark.parametrize("kind", [pa.int64(), pa.date32(), pa.string(), pa.time64("us")], ids=str)
def test_event_time_must_be_a_timestamp(kind: pa.DataType) -> None:
    with pytest.raises(
        UnsupportedType, match=r"(?s)need a timestamp column; .t. is .*Cast the column"
    ):
        time_window("t", "1 second").check_schema(pa.schema([("t", kind)]))


@pytest.mark.parametrize(
    "make",
    [
        lambda: count_window(100_001, slide=1),
        lambda: time_window("t", "1 day", slide="1 ms"),
    ],
    ids=["count", "time"],
)
def test_a_window_that_overlaps_with_too_many_others_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(SettingError, match="windows at once") as refusal:
        make()
    assert "slide" in refusal.value.where
    assert count_window(100_000, slide=1).slide == 1
