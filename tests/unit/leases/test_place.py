"""Where a lease may be, and where it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from trailmark.errors import SettingError, UnknownFormat
from trailmark.leases import is_lease, open_lease


def test_a_lease_is_begun_once_and_found_again(tmp_path: Path) -> None:
    path, storage = open_lease(tmp_path / "lease")
    assert path == str(tmp_path / "lease")
    assert is_lease(storage)
    assert open_lease(path)[0] == path


def test_a_relative_path_is_another_lease_elsewhere_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = []
    for place in (tmp_path / "here", tmp_path / "there"):
        place.mkdir()
        monkeypatch.chdir(place)
        path, _ = open_lease("shop/lease")
        found.append(path)
        (line,) = caplog.messages
        assert line.startswith(f"lease {path}: given as 'shop/lease', which is another lease")
        caplog.clear()
    assert found == [f"{tmp_path}/here/shop/lease", f"{tmp_path}/there/shop/lease"]
    open_lease(found[0])
    open_lease(f"file://{found[0]}")
    assert not caplog.messages


@pytest.mark.parametrize("below", ["", "/lease", "/deep/er/lease"])
def test_no_lease_is_among_the_logs_of_an_operator_or_a_stream(tmp_path: Path, below: str) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/meta.json").write_text("{}")
    with pytest.raises(SettingError, match=f"the logs at {tmp_path}/logs"):
        open_lease(f"{tmp_path}/logs{below}")
    assert [each.name for each in (tmp_path / "logs").iterdir()] == ["meta.json"]


def test_no_lease_is_in_a_checkpoint_of_spark(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets/0").write_text("v1")
    with pytest.raises(SettingError, match="checkpoint of Spark"):
        open_lease(tmp_path)


@pytest.mark.parametrize("path", ["", None, 7])
def test_what_is_no_path_is_refused(path: object) -> None:
    with pytest.raises(SettingError, match="lease must be a directory or URL"):
        open_lease(path)  # type: ignore[arg-type]


def test_a_lease_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    _, storage = open_lease(tmp_path)
    (tmp_path / "lease.json").write_text('{"body": {"version": 2}, "crc32": 0}')
    with pytest.raises(UnknownFormat, match=r"no lease that this Trailmark knows"):
        open_lease(tmp_path)
    assert is_lease(storage)
