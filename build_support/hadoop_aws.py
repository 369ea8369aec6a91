"""Gets what Spark needs to keep its checkpoint on S3, for tests, where that may be: from Maven
Central, below ``.venv``.

Hadoop's own package asks for all of Amazon's SDK in one file of some 600 MB. The few modules of it
that are used here have 19 MB together. Where they cannot be had, the tests that need them are
skipped, and say so.
"""

from __future__ import annotations

from pathlib import Path

from build_support.maven import spark_jars, why_not_fetched

_PLACE = Path(__file__).parents[1] / ".venv" / "hadoop-aws"
_SDK = "2.35.4"
_MODULES = ("s3", "s3-transfer-manager", "sts", "apache-client")


def jars() -> list[Path]:
    """The files, or none where they are not there."""
    return sorted(_place().glob("*.jar"))


def _place() -> Path:
    """For each Hadoop its own."""
    return _PLACE / _hadoop()


def _hadoop() -> str:
    """The version of Hadoop that this PySpark brings."""
    (found,) = spark_jars().glob("hadoop-client-api-*.jar")
    return found.stem.rpartition("-")[2]


def why_not() -> str:
    """Fetches them if they are missing; returns why that cannot be, or nothing if they are."""
    if _place().exists():
        return ""
    modules = [("org.apache.hadoop", "hadoop-aws", _hadoop())]
    modules += [("software.amazon.awssdk", module, _SDK) for module in _MODULES]
    return why_not_fetched(_place(), modules, without=[("software.amazon.awssdk", "bundle")])


if __name__ == "__main__":
    reason = why_not()
    if reason:
        print(f"no hadoop-aws, so Spark's checkpoint on S3 is not tested: {reason}")
