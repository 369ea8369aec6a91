"""Logs and tables are little-endian; nothing turns bytes around."""

from __future__ import annotations

import sys

import pytest

from trailmark.errors import TrailmarkError
from trailmark.kernel import library


def test_a_machine_of_another_byte_order_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "byteorder", "big")
    with pytest.raises(TrailmarkError, match="highest byte"):
        library._load()
