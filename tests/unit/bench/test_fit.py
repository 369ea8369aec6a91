"""Curves through points whose law is known."""

from __future__ import annotations

import pytest

from bench.fit import fit_line, fit_power

_SIZES = [1_000, 10_000, 100_000, 1_000_000]


@pytest.mark.parametrize("exponent", [-1.0, 0.0, 0.5, 1.0, 2.0])
def test_the_exponent_of_a_power_is_found(exponent: float) -> None:
    found = fit_power(_SIZES, [3.5 * size**exponent for size in _SIZES])
    assert found.exponent == pytest.approx(exponent, abs=1e-9)
    assert found.at(5_000) == pytest.approx(3.5 * 5_000**exponent)


def test_a_point_that_is_off_counts_alike_wherever_it_is() -> None:
    low = fit_power([1, 10, 100], [1.1, 1, 1])
    high = fit_power([1, 10, 100], [1, 1, 1.1])
    assert low.exponent == pytest.approx(-high.exponent)


def test_what_is_fixed_is_found_beside_a_slope_that_dwarfs_it() -> None:
    found = fit_line(_SIZES, [0.002 + 1e-7 * size for size in _SIZES])
    assert (found.fixed, found.slope) == pytest.approx((0.002, 1e-7))


def test_the_largest_point_alone_does_not_decide_what_is_fixed() -> None:
    costs = [0.002 + 1e-7 * size for size in _SIZES]
    costs[-1] *= 1.1
    assert fit_line(_SIZES, costs).fixed == pytest.approx(0.002, rel=0.05)
