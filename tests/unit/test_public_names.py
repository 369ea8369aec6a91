"""The names a user imports: sorted, all there, and no others."""

from __future__ import annotations

import inspect

import trailmark


def test_public_names_are_sorted_and_complete() -> None:
    assert list(trailmark.__all__) == sorted(trailmark.__all__)
    later = {"aggregate", "listen", "read_table", "register"}  # imported when they are asked for
    defined = later | {
        name
        for name, value in vars(trailmark).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert defined == set(trailmark.__all__)


def test_every_public_name_explains_itself() -> None:
    for name in trailmark.__all__:
        assert inspect.getdoc(getattr(trailmark, name)), name
