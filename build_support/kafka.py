"""Gets a Kafka broker, and Spark's source and sink for it, for tests, where that may be: from Maven
Central, below ``.venv``.

Apache Ivy resolves them. It is among PySpark's own jars, so that this takes a Java and nothing
else. Where they cannot be had, the tests that need them are skipped, and say so.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from build_support.fetching import why_it_fails

_SCALA = "2.13"
_SPARK = version("pyspark")
_BROKER = ("org.apache.kafka", f"kafka_{_SCALA}", "4.1.1")
_CONNECTOR = ("org.apache.spark", f"spark-sql-kafka-0-10_{_SCALA}", _SPARK)
#: Instead, where Maven Central has none for this Spark: the newest one that it has, and the newest
#: of the module for Kerberos that belongs to it and that these tests have no use for.
_OLDER = (*_CONNECTOR[:2], "4.2.0")
_OLDER_TOKENS = ("org.apache.spark", f"spark-token-provider-kafka-0-10_{_SCALA}", "4.0.0")
_PLACE = Path(__file__).parents[1] / ".venv" / "kafka"
#: Directories of jars.
BROKER = _PLACE / f"broker-{_BROKER[2]}"
CONNECTOR = _PLACE / f"connector-{_SPARK}"

_Module = tuple[str, str, str]


def why_not() -> str:
    """Fetches what is missing; returns why that cannot be, or nothing if all is there."""
    reason = "" if BROKER.exists() else _why_not_fetched(BROKER, _BROKER)
    if reason or CONNECTOR.exists():
        return reason
    reason = _why_not_fetched(CONNECTOR, _CONNECTOR)
    if reason and not _why_not_fetched(CONNECTOR, _OLDER, _OLDER_TOKENS):
        print(f"Kafka is tested with the connector of Spark {_OLDER[2]}. {reason}.")
        return ""
    return reason


def connector_jars() -> list[str]:
    """For ``spark.jars``: Spark's source and sink, and what they need; none if there are none."""
    return sorted(map(str, CONNECTOR.glob("*.jar")))


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


def _why_not_fetched(jars: Path, module: _Module, instead: _Module | None = None) -> str:
    """Puts a module and all that it needs into a directory, which is there when it is whole.

    ``instead`` names the version of something that it needs.
    """
    command = java()
    if command is None:
        return "there is no Java"
    _PLACE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_PLACE) as place:
        fetched = Path(place, "jars")
        Path(place, "ivy.xml").write_text(_wanted(module, instead))
        ivy = ["-cp", str(spark_jars() / "*"), "org.apache.ivy.Main", "-m2compatible", "-error"]
        wanted = ["-ivy", "ivy.xml", "-confs", "default", "-types", "jar", "bundle"]
        kept = ["-cache", f"{place}/cache", "-retrieve", f"{fetched}/[artifact]-[revision].[ext]"]
        failure = why_it_fails([command, *ivy, *wanted, *kept], cwd=Path(place))
        if failure or not any(fetched.glob(f"{module[1]}-*.jar")):
            return f"Ivy cannot get {':'.join(module)} with all that it needs from Maven Central"
        if jars == CONNECTOR:
            _remove_what_spark_has(fetched)
        fetched.rename(jars)
    return ""


def _remove_what_spark_has(jars: Path) -> None:
    there = {_artifact(jar) for jar in spark_jars().glob("*.jar")}
    for jar in jars.glob("*.jar"):
        if _artifact(jar) in there:
            jar.unlink()


def _artifact(jar: Path) -> str:
    return jar.name.rpartition("-")[0]


def _wanted(module: _Module, instead: _Module | None) -> str:
    """For Ivy: the module as a dependency."""
    names = zip(("org", "name", "rev"), module, strict=True)
    dependency = " ".join(f'{name}="{value}"' for name, value in names)
    override = ""
    if instead is not None:
        names = zip(("org", "module", "rev"), instead, strict=True)
        override = f"<override {' '.join(f'{name}={value!r}' for name, value in names)}/>"
    return f"""<ivy-module version="2.0">
  <info organisation="trailmark" module="tests"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency {dependency} conf="default->default"/>
    {override}
  </dependencies>
</ivy-module>
"""


if __name__ == "__main__":
    reason = why_not()
    if reason:
        print(f"no Kafka, so it is not tested: {reason}")
