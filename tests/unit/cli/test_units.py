"""Numbers as people read them."""

from __future__ import annotations

import doctest

import pytest

from trailmark import units
from trailmark.cli import parser


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (12_345, "12.3 kB"),
        (999_499, "999 kB"),
        (999_500, "1.0 MB"),
        (1_240_000, "1.2 MB"),
        (3 * 10**9, "3.0 GB"),
        (10**19, "10,000 PB"),
    ],
)
def test_sizes(count: int, text: str) -> None:
    assert units.size(count) == text


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0 us"),
        (999, "999 us"),
        (1_000, "1 ms"),
        (1_250, "1.2 ms"),
        (340_000, "340 ms"),
        (999_600, "1 s"),
        (1_240_000, "1.2 s"),
        (59_960_000, "1 min 0 s"),
        (3_599_600_000, "1 h 0 min"),
        (86_399_000_000, "1 d 0 h"),
        (200_000_000_000, "2 d 8 h"),
    ],
)
def test_durations(us: int, text: str) -> None:
    assert units.duration(us) == text


def test_moments_are_in_utc_however_far_away() -> None:
    assert units.moment(1_700_000_000_000_000) == "2023-11-14 22:13:20Z"
    assert units.moment(-1) == "1969-12-31 23:59:59Z"
    assert units.moment(2**62) == f"{2**62} us"


@pytest.mark.parametrize("module", [units, parser])
def test_examples_are_true(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]
