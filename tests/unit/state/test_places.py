"""A host's tables are kept where only their user can write, whoever has taken that name before."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from trailmark.state.cache import StateCache
from trailmark.state.places import default_roots, private_roots

_NAME = f"trailmark-{os.geteuid()}"


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory that everybody may write to, as /dev/shm."""
    base = tmp_path / "shared"
    base.mkdir()
    base.chmod(0o1777)
    return base


def _give_away(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    path.mkdir(mode=0o700)
    os.chown(path, 65534, 65534)


def _link(path: Path) -> None:
    target = path.parent / "elsewhere"
    target.mkdir(mode=0o700)
    path.symlink_to(target)


def _open_to_all(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


_TAKEN: dict[str, Callable[[Path], None]] = {
    "another's": _give_away,
    "open to all": _open_to_all,
    "link": _link,
    "dangling link": lambda path: path.symlink_to(path.parent / "nowhere"),
    "file": Path.touch,
}


def test_the_default_places_are_named_after_their_user() -> None:
    roots = default_roots()
    assert roots[0].name.startswith(_NAME)
    assert len({root.parent for root in roots}) == len(roots)


def test_a_directory_is_made_for_this_user_alone(shared: Path) -> None:
    (root,) = private_roots([shared])
    assert root == shared / _NAME
    assert root.stat().st_mode & 0o777 == 0o700
    assert private_roots([shared]) == [root]


@pytest.mark.parametrize("take", _TAKEN.values(), ids=_TAKEN)
def test_where_the_name_is_taken_all_processes_find_another_that_is_ours(
    shared: Path, take: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    take(shared / _NAME)
    with caplog.at_level(logging.WARNING, logger="trailmark"):
        (root,) = private_roots([shared])
        assert private_roots([shared]) == [root], "as the next process does"
    assert root.parent == shared
    assert not root.is_symlink()
    assert root.stat().st_uid == os.geteuid()
    assert root.stat().st_mode & 0o777 == 0o700
    (warning,) = [record.getMessage() for record in caplog.records]
    assert str(shared / _NAME) in warning
    assert str(root) in warning
    held = StateCache(root).acquire("log", 0).cached
    assert held is not None
    held.close()


@pytest.mark.parametrize("take", _TAKEN.values(), ids=_TAKEN)
def test_names_that_others_took_beside_it_are_not_used_either(
    shared: Path, take: Callable[[Path], None]
) -> None:
    _open_to_all(shared / _NAME)
    take(shared / f"{_NAME}-0000")
    (root,) = private_roots([shared])
    assert root.name not in (_NAME, f"{_NAME}-0000")
    assert private_roots([shared]) == [root]


def test_a_place_that_cannot_be_written_is_left_out(shared: Path) -> None:
    (shared / "file").write_text("")
    roots = private_roots([shared / "nothing", shared / "file", shared, shared])
    assert roots == [shared / _NAME]
