"""Finds a Java that Spark runs on, or gets one: prints its JAVA_HOME.

Looked for, in this order: ``$JAVA_HOME``, ``java`` on the PATH, then the oldest that will do in
``~/.jdk`` (where install-jdk puts them) and in ``/usr/lib/jvm``.

With ``--install``, where there is none: install-jdk fetches one into ``~/.jdk``, which needs no
root; failing that, and only as root, the system's packages. Needs nothing but the standard library,
and install-jdk for that last step.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

OLDEST = 17
#: Spark's launcher asks for this module, and cut-down runtimes lack it.
_ASK = ["--add-modules=jdk.incubator.vector", "-XshowSettings:properties", "-version"]
_PACKAGES = (f"openjdk-{OLDEST}-jre-headless", "default-jre-headless")
_SYSTEM = Path("/usr/lib/jvm")
_ASK_SECONDS = 60


@dataclass(frozen=True, order=True, slots=True)
class Java:
    """A Java that has answered."""

    version: int
    home: Path


def find_java(system: Path = _SYSTEM) -> Path | None:
    """JAVA_HOME of a Java that is new enough, or None."""
    for executable in _chosen_by_user():
        java = ask(executable)
        if java is not None and java.version >= OLDEST:
            return java.home
    for directory in (Path.home() / ".jdk", system):
        installed = [ask(executable) for executable in _executables(directory)]
        fitting = [java for java in installed if java is not None and java.version >= OLDEST]
        if fitting:
            return min(fitting).home
    return None


def _chosen_by_user() -> Iterator[Path]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Path(home, "bin", "java")
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path)


def _executables(directory: Path) -> list[Path]:
    """One per installation; on macOS they are a level deeper."""
    found = [*directory.glob("*/bin/java"), *directory.glob("*/Contents/Home/bin/java")]
    return sorted({path.resolve() for path in found})


def ask(executable: Path) -> Java | None:
    """What a Java says about itself; None if it does not run the way Spark will run it."""
    try:
        answer = subprocess.run(
            [executable, *_ASK], capture_output=True, text=True, timeout=_ASK_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = answer.stdout + answer.stderr
    home = re.search(r"^\s*java\.home = (.+?)\s*$", said, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = ([0-9]+)\s*$", said, re.MULTILINE)
    if answer.returncode or home is None or version is None:
        return None
    return Java(int(version[1]), Path(home[1]))


def install_java() -> bool:
    """Gets one, without root if possible. Whoever asks looks for it afterwards."""
    return _install_for_user() or _install_package()


def _install_for_user() -> bool:
    _say(f"no Java {OLDEST} or later found: fetching one into ~/.jdk")
    # A process of its own: whatever goes wrong in there, there is another way to try.
    fetch = [sys.executable, "-c", f"import jdk; jdk.install('{OLDEST}')"]
    return _succeeds(fetch)


def _install_package() -> bool:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    _say("that failed: trying the system's packages")
    _succeeds(["apt-get", "update"])
    return any(_succeeds(["apt-get", "install", "-y", package]) for package in _PACKAGES)


def _succeeds(command: list[str]) -> bool:
    """Runs it with its output hidden but for the last line if it fails."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
    )
    if done.returncode:
        _say((done.stdout.strip().splitlines() or ["it said nothing"])[-1])
    return done.returncode == 0


def _say(text: str) -> None:
    print(f"java: {text}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None, system: Path = _SYSTEM) -> int:
    parser = argparse.ArgumentParser(description="Print the JAVA_HOME of a Java for Spark.")
    parser.add_argument("--install", action="store_true", help="get one if there is none")
    options = parser.parse_args(arguments)
    home = find_java(system)
    if home is None and options.install and install_java():
        home = find_java(system)
    if home is None:
        _say(f"install Java {OLDEST} or later, or set JAVA_HOME to where one is.")
        return 1
    print(home)
    return 0


if __name__ == "__main__":
    sys.exit(main())
