"""Which paths are looked at: those named, and whatever appears in directories of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.stored import stored_at
from tests.support.written import count_orders, write_logs
from trailmark.errors import SettingError
from trailmark.watch import Places


def test_paths_are_found_in_directories_as_they_appear(tmp_path: Path) -> None:
    write_logs(tmp_path / "all" / "logs" / "counts", count_orders(1))
    stored_at(tmp_path / "all" / "orders")
    stored_at(tmp_path / "alone")
    (tmp_path / "all" / "other").mkdir()
    places = Places([str(tmp_path / "alone"), str(tmp_path / "all")])
    known = [str(tmp_path / name) for name in ("alone", "all/logs/counts", "all/orders")]
    assert places() == known
    stored_at(tmp_path / "all" / "streams" / "late")
    assert places() == [*known, str(tmp_path / "all" / "streams" / "late")]


def test_a_log_is_not_looked_into_for_others(tmp_path: Path) -> None:
    stored_at(tmp_path / "all" / "orders")
    stored_at(tmp_path / "all" / "orders" / "inner")
    assert Places([str(tmp_path / "all")])() == [str(tmp_path / "all" / "orders")]


@pytest.mark.parametrize(
    ("name", "why"), [("missing", "does not exist"), ("empty", "it is empty"), ("x", "no meta")]
)
def test_a_path_that_holds_nothing_is_refused(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "x" / "y").mkdir(parents=True)
    with pytest.raises(SettingError, match=why):
        Places([str(tmp_path / name)])


def test_a_directory_that_is_emptied_holds_nothing(tmp_path: Path) -> None:
    stored = stored_at(tmp_path / "all" / "orders")
    places = Places([str(tmp_path / "all")])
    (stored.path / "meta.json").unlink()
    assert places() == []
