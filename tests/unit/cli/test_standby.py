"""A turn of ``trailmark standby``: what is run, and when."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from trailmark.cli.standby import _serve, _Signals
from trailmark.leases import Holder, Keeper, open_lease
from trailmark.settings import SECOND


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_nothing_is_started_where_nobody_has_taken_the_lease(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "trailmark")
    path, storage = open_lease(tmp_path / "lease")
    keeper = Keeper(path, storage, Holder("a" * 32, "a", "host", 1), SECOND)

    def fail() -> float:
        raise RuntimeError("a fault of ours")

    keeper._wait = fail  # type: ignore[method-assign]
    keeper.start()
    with _Signals() as signals:
        assert _serve(keeper, ["true"], 1.0, signals, path) is None
    keeper.end()
    assert not [line for line in caplog.messages if "started" in line]
