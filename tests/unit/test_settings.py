from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trailmark.errors import SettingError
from trailmark.settings import (
    Durability,
    LogSettings,
    format_duration,
    parse_bytes,
    parse_duration,
)


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("5 seconds", 5_000_000),
        ("1 second", 1_000_000),
        ("100 ms", 100_000),
        ("100ms", 100_000),
        ("1 minute", 60_000_000),
        ("2 hours", 7_200_000_000),
        ("1 day", 86_400_000_000),
        ("1 week", 7 * 86_400_000_000),
        ("1 hour 30 minutes", 5_400_000_000),
        ("INTERVAL 1 Hour 30 Minutes", 5_400_000_000),
        ("  7   microseconds ", 7),
        ("3 µs", 3),
        ("0.5 seconds", 500_000),
        ("1.25 ms", 1_250),
        ("0 seconds", 0),
        (timedelta(seconds=2, microseconds=1), 2_000_001),
    ],
)
def test_a_duration_is_read(text: str | timedelta, microseconds: int) -> None:
    assert parse_duration(text) == microseconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "5",
        "seconds",
        "-5 seconds",
        "5 fortnights",
        "5 seconds and more",
        "0.1 us",
        "5 mss",
        "1 month",
        5,
        None,
        timedelta(seconds=-1),
    ],
)
def test_anything_else_is_refused_naming_the_argument(text: object) -> None:
    with pytest.raises(SettingError) as caught:
        parse_duration(text, "recover_within")  # type: ignore[arg-type]
    assert caught.value.where == "recover_within"
    assert caught.value.fix


def test_a_duration_is_written() -> None:
    assert format_duration(0) == "0 seconds"
    assert format_duration(1_500_000) == "1 second 500 milliseconds"
    assert format_duration(90_061_000_001) == "1 day 1 hour 1 minute 1 second 1 microsecond"


@given(st.integers(0, 10**18))
def test_a_written_duration_is_read_back(microseconds: int) -> None:
    assert parse_duration(format_duration(microseconds)) == microseconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (0, 0),
        (12, 12),
        ("12", 12),
        ("12 b", 12),
        ("64 MiB", 64 * 1024**2),
        ("64m", 64 * 1024**2),
        ("64MB", 64 * 1024**2),
        ("2 kB", 2048),
        ("1g", 1024**3),
        ("1 TiB", 1024**4),
    ],
)
def test_a_size_is_read(text: str | int, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "MiB", "-1", -1, "1.5 MiB", "1 PB", True, None, 1.0])
def test_anything_else_is_not_a_size(text: object) -> None:
    with pytest.raises(SettingError) as caught:
        parse_bytes(text, "merge_bytes")  # type: ignore[arg-type]
    assert caught.value.where == "merge_bytes"


def test_the_default_is_synced_automatic_compression_and_64_mib() -> None:
    assert LogSettings() == LogSettings(Durability.SYNCED, "auto", 64 * 1024 * 1024)


def test_settings_take_the_words_a_user_writes() -> None:
    settings = LogSettings("unsynced", "none", "1 MiB")  # type: ignore[arg-type]
    assert settings.durability is Durability.UNSYNCED
    assert settings.merge_bytes == 1024 * 1024


@pytest.mark.parametrize(
    ("wrong", "argument"),
    [
        ({"durability": "maybe"}, "durability"),
        ({"compression": "gzip"}, "compression"),
        ({"merge_bytes": 0}, "merge_bytes"),
        ({"merge_bytes": "many"}, "merge_bytes"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(wrong: dict[str, object], argument: str) -> None:
    with pytest.raises(SettingError) as caught:
        LogSettings(**wrong)  # type: ignore[arg-type]
    assert caught.value.where == argument
