"""Gets a Kafka broker, and Spark's source and sink for it, for tests, where that may be: from Maven
Central, below ``.venv``.

Where they cannot be had, the tests that need them are skipped, and say so.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from build_support.maven import Module, spark_jars, why_not_fetched

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


def why_not() -> str:
    """Fetches what is missing; returns why that cannot be, or nothing if all is there."""
    reason = "" if BROKER.exists() else why_not_fetched(BROKER, [_BROKER])
    if reason or CONNECTOR.exists():
        return reason
    reason = _why_no_connector(_CONNECTOR)
    if reason and not _why_no_connector(_OLDER, _OLDER_TOKENS):
        print(f"Kafka is tested with the connector of Spark {_OLDER[2]}. {reason}.")
        return ""
    return reason


def connector_jars() -> list[str]:
    """For ``spark.jars``: Spark's source and sink, and what they need; none if there are none."""
    return sorted(map(str, CONNECTOR.glob("*.jar")))


def _why_no_connector(module: Module, *instead: Module) -> str:
    fetched = CONNECTOR.with_name(f"{CONNECTOR.name}-with-all")
    reason = "" if fetched.exists() else why_not_fetched(fetched, [module], instead=instead)
    if not reason:
        _remove_what_spark_has(fetched)
        fetched.rename(CONNECTOR)
    return reason


def _remove_what_spark_has(jars: Path) -> None:
    there = {_artifact(jar) for jar in spark_jars().glob("*.jar")}
    for jar in jars.glob("*.jar"):
        if _artifact(jar) in there:
            jar.unlink()


def _artifact(jar: Path) -> str:
    return jar.name.rpartition("-")[0]


if __name__ == "__main__":
    reason = why_not()
    if reason:
        print(f"no Kafka, so it is not tested: {reason}")
