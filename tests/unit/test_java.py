"""Finding a Java, with fakes: what this machine has installed must not matter."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from build_support import java

_ANSWER = """#!/bin/sh
case "$*" in *{missing}*) echo "Module not found" >&2; exit 1;; esac
echo "    java.home = {home}" >&2
echo "    java.specification.version = {version}" >&2
"""


@pytest.fixture(autouse=True)
def _empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    (tmp_path / "path").mkdir()


def _script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def _java(home: Path, version: str, missing: str = "nothing-that-is-asked-for") -> Path:
    """A Java of this version, which refuses options that name what it is missing."""
    text = _ANSWER.format(home=home, version=version, missing=missing)
    _script(home / "bin" / "java", text)
    return home


def _find(tmp_path: Path) -> Path | None:
    return java.find_java(tmp_path / "system")


def test_nothing_is_found_where_nothing_is(tmp_path: Path) -> None:
    assert _find(tmp_path) is None


def test_java_home_comes_before_the_path_and_the_path_before_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _java(tmp_path / "system" / "jdk-17", "17")
    in_user = _java(tmp_path / "user" / ".jdk" / "jdk-17", "17")
    assert _find(tmp_path) == in_user
    on_path = _java(tmp_path / "elsewhere", "21")
    (tmp_path / "path" / "java").symlink_to(on_path / "bin" / "java")
    assert _find(tmp_path) == on_path
    chosen = _java(tmp_path / "chosen", "25")
    monkeypatch.setenv("JAVA_HOME", str(chosen))
    assert _find(tmp_path) == chosen


@pytest.mark.parametrize("version", ["1.8", "11", "16"])
def test_one_that_is_too_old_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path / "old", version)))
    assert _find(tmp_path) is None
    new = _java(tmp_path / "system" / "jdk-17", "17")
    assert _find(tmp_path) == new


def test_of_several_installed_the_oldest_that_will_do_is_taken(tmp_path: Path) -> None:
    for version in ("8", "11", "17", "21", "100"):
        _java(tmp_path / "system" / f"jdk-{version}", version)
    assert _find(tmp_path) == tmp_path / "system" / "jdk-17"


def test_a_runtime_without_the_module_that_spark_asks_for_is_passed_over(tmp_path: Path) -> None:
    _java(tmp_path / "system" / "cut-down", "17", missing="jdk.incubator.vector")
    assert _find(tmp_path) is None


def test_a_home_that_holds_nothing_or_garbage_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    assert _find(tmp_path) is None
    _script(tmp_path / "gone" / "bin" / "java", "not a program")
    assert _find(tmp_path) is None


def test_a_java_that_is_there_is_printed_and_nothing_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(java, "install_java", lambda: pytest.fail("installed"))
    home = _java(tmp_path / "system" / "jdk-17", "17")
    assert java.main(["--install"], tmp_path / "system") == 0
    assert capsys.readouterr().out == f"{home}\n"


def test_without_java_one_line_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert java.main([], tmp_path / "system") == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "java: install Java 17 or later, or set JAVA_HOME to where one is.\n"


def test_installs_for_the_user_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed = tmp_path / "user" / ".jdk" / "jdk-17"
    ready = _java(tmp_path / "downloaded", "17")
    text = f"""#!/bin/sh
        test "$2" = "import jdk; jdk.install('17')" || exit 1
        echo "noise"
        /bin/mkdir -p {installed.parent} && /bin/ln -s {ready} {installed}
    """
    monkeypatch.setattr(sys, "executable", str(_script(tmp_path / "python", text)))
    assert java.main(["--install"], tmp_path / "system") == 0
    assert capsys.readouterr().out == f"{ready}\n"


def _without_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that cannot download, but has packages; returns what these install."""
    fails = _script(tmp_path / "python", "#!/bin/sh\necho no network\nexit 1\n")
    monkeypatch.setattr(sys, "executable", str(fails))
    home = tmp_path / "system" / "jdk-17"
    ready = _java(tmp_path / "packaged", "17")
    # The first package is unknown to it, as Java 17 is to Debian 13.
    text = f"""#!/bin/sh
        case "$*" in
            update) exit 0;;
            "install -y default-jre-headless") ;;
            *) echo "no such package"; exit 100;;
        esac
        /bin/mkdir -p {home.parent} && /bin/ln -s {ready} {home}
    """
    _script(tmp_path / "path" / "apt-get", text)
    return ready


def test_root_gets_one_from_the_system_if_the_download_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    packaged = _without_download(tmp_path, monkeypatch)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert java.main(["--install"], tmp_path / "system") == 0
    said = capsys.readouterr()
    assert said.out == f"{packaged}\n"
    assert "no network" in said.err


def test_others_leave_the_system_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _without_download(tmp_path, monkeypatch)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert java.main(["--install"], tmp_path / "system") == 1
    assert capsys.readouterr().err.endswith("or set JAVA_HOME to where one is.\n")
