"""Examples in the documentation of windows and functions do what they say."""

from __future__ import annotations

import doctest
from types import ModuleType

import pytest

from trailmark.windows import functions, interval, session, spec


@pytest.mark.parametrize(
    "module", [functions, interval, session, spec], ids=lambda module: module.__name__
)
def test_examples_run_and_print_what_they_say(module: ModuleType) -> None:
    outcome = doctest.testmod(module)
    assert outcome.attempted > 0
    assert outcome.failed == 0
