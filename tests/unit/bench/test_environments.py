from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.peers import environments
from bench.peers.environments import NotInstallable, Requirements, environment, telling_line


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that would be run; no package is fetched. The second one is pip's."""
    done: list[str] = []

    def step(command: Sequence[str]) -> None:
        done.append(command[2])
        if command[2] == "venv":
            Path(command[3]).mkdir()

    monkeypatch.setattr(environments, "_step", step)
    this = Requirements(("some-engine==1.*",), (sys.version_info[1],))
    monkeypatch.setitem(environments.ENGINES, "some", this)
    return done


def test_an_environment_is_made_once(tmp_path: Path, steps: list[str]) -> None:
    assert environment("some", home=tmp_path) == environment("some", home=tmp_path)
    assert steps == ["venv", "pip"]


def test_an_interrupted_environment_is_made_again(tmp_path: Path, steps: list[str]) -> None:
    interpreter = environment("some", home=tmp_path)
    (interpreter.parents[1] / "ready").unlink()
    environment("some", home=tmp_path)
    assert steps == ["venv", "pip", "venv", "pip"]


def test_other_requirements_are_another_environment(
    tmp_path: Path, steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = environment("some", home=tmp_path)
    newer = Requirements(("some-engine==2.*",), (sys.version_info[1],))
    monkeypatch.setitem(environments.ENGINES, "some", newer)
    assert environment("some", home=tmp_path) != before


def test_an_engine_for_no_python_of_this_machine_says_which_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(environments.ENGINES, "old", Requirements(("old",), (1, 2)))
    with pytest.raises(NotInstallable, match=r"Python 3\.1, 3\.2"):
        environment("old", home=tmp_path)


def test_the_reason_is_the_line_of_pip_that_names_an_error() -> None:
    said = "Collecting x\nERROR: No matching distribution found for x\n[notice] a new pip\n"
    assert telling_line(said) == "ERROR: No matching distribution found for x"


def test_the_project_itself_needs_no_environment(tmp_path: Path) -> None:
    assert environment("project", home=tmp_path) == Path(sys.executable)
    assert not list(tmp_path.iterdir())
