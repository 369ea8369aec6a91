"""Fetches jars, and all that they need, from Maven Central.

Apache Ivy resolves them. It is among PySpark's own jars, so that this takes a Java and nothing
else.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from build_support.fetching import why_it_fails

Module = tuple[str, str, str]


def why_not_fetched(
    jars: Path,
    modules: Sequence[Module],
    *,
    instead: Sequence[Module] = (),
    without: Sequence[tuple[str, str]] = (),
) -> str:
    """Puts modules and all that they need into a directory, which is there when it is whole;
    returns why that cannot be, or nothing.

    ``instead`` names versions of what they need, ``without`` what is left out.
    """
    command = java()
    if command is None:
        return "there is no Java"
    jars.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=jars.parent) as place:
        fetched = Path(place, "jars")
        Path(place, "ivy.xml").write_text(_wanted(modules, instead, without))
        ivy = ["-cp", str(spark_jars() / "*"), "org.apache.ivy.Main", "-m2compatible", "-error"]
        wanted = ["-ivy", "ivy.xml", "-confs", "default", "-types", "jar", "bundle"]
        kept = ["-cache", f"{place}/cache", "-retrieve", f"{fetched}/[artifact]-[revision].[ext]"]
        failure = why_it_fails([command, *ivy, *wanted, *kept], cwd=Path(place))
        missing = [each for each in modules if not any(fetched.glob(f"{each[1]}-*.jar"))]
        if failure or missing:
            named = ":".join((missing or modules)[0])
            return f"Ivy cannot get {named} with all that it needs from Maven Central"
        fetched.rename(jars)
    return ""


def java() -> Path | None:
    """The Java that runs Spark here."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    return Path(found) if found else None


def spark_jars() -> Path:
    """Where PySpark has its jars."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "jars"


def _wanted(
    modules: Sequence[Module], instead: Sequence[Module], without: Sequence[tuple[str, str]]
) -> str:
    """For Ivy: the modules as dependencies."""
    lines = [
        f'<dependency org="{group}" name="{name}" rev="{version}" conf="default->default"/>'
        for group, name, version in modules
    ]
    lines += [f'<exclude org="{group}" module="{name}"/>' for group, name in without]
    lines += [
        f'<override org="{group}" module="{name}" rev="{version}"/>'
        for group, name, version in instead
    ]
    return f"""<ivy-module version="2.0">
  <info organisation="trailmark" module="tests"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>{"".join(lines)}</dependencies>
</ivy-module>
"""
