"""What `make test-versions` does, but for the tests themselves."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import versions
from tests.versions import Outcome, Version

_ROOT = Path(__file__).parents[2]
_MADE_UP = (Version("4.0", "9.9"), Version("4.1", "3.12"), Version("4.2", "3.11"))


def test_all_of_the_subset_is_there() -> None:
    for test in (test for tests in versions.SUBSET.values() for test in tests):
        module, _, name = test.partition("::")
        assert f"def {name}(" in (_ROOT / module).read_text() if name else (_ROOT / module).exists()


def test_a_python_is_found_only_if_it_runs_and_is_of_that_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    own = ".".join(map(str, sys.version_info[:2]))
    assert versions.find_python(own) == Path(sys.executable)
    shim = tmp_path / "python3.77"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    assert versions.find_python("3.77") is None
    installed = tmp_path / "versions" / "3.77.1" / "bin" / "python"
    installed.parent.mkdir(parents=True)
    installed.write_text("#!/bin/sh\necho 3.77\n")
    installed.chmod(0o755)
    assert versions.find_python("3.77") == installed


def test_a_version_that_fails_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(versions, "_HOME", tmp_path)
    monkeypatch.setattr(versions, "build_wheel", lambda directory: directory / "a.whl")
    monkeypatch.setattr(versions, "VERSIONS", _MADE_UP)
    monkeypatch.setattr(versions, "make_environment", _make)
    monkeypatch.setattr(versions, "_installed", lambda version: {"pyspark": f"{version.spark}.1"})
    failed = {"4.1": 2, "4.2": 0}
    monkeypatch.setattr(
        versions,
        "_run_tests",
        lambda version, installed, workers: Outcome(
            version, installed, passed=40, failed=failed[version.spark]
        ),
    )
    assert versions.main([]) == 1
    *_, first, second, third, end = capsys.readouterr().out.splitlines()
    assert "there is no Python 9.9" in first
    assert [line.split()[0] for line in (second, third)] == ["4.1.1", "4.2.1"]
    assert end == "FAILED on Spark 4.0, 4.1"
    assert versions.main(["4.2"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "all versions passed"


def _make(version: Version, wheel: Path) -> None:
    if version.python == "9.9":
        raise versions.CannotBeMade("there is no Python 9.9")
