"""The applications of these tests run what is tested."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.spark_runs import Application


def test_an_application_imports_the_trailmark_of_the_python_path(
    tmp_path: Path, other_trailmark: None
) -> None:
    with (
        Application(tmp_path / "app", []) as application,
        pytest.raises(AssertionError, match="ImportError: the other one"),
    ):
        application.finish()
