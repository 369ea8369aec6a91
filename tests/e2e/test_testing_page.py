"""The page about testing: its examples run as they are printed, and print what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pages import assert_prints_what_it_says

_PAGE = Path(__file__).parents[2] / "docs" / "testing-your-operators.md"


def test_the_examples_print_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert assert_prints_what_it_says(_PAGE, capsys) == 2
