"""Gets what Spark needs to keep its checkpoint on S3, for tests, where that may be: from Maven
Central, below ``.venv``.

Hadoop's own package asks for all of Amazon's SDK in one file of some 600 MB. The few modules of it
that are used here have 19 MB together. Where they cannot be had, the tests that need them are
skipped, and say so.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pyspark

_SECONDS = 900
_PLACE = Path(__file__).parents[1] / ".venv" / "hadoop-aws"
_SDK = "2.35.4"
_MODULES = ("s3", "s3-transfer-manager", "sts", "apache-client")


def jars() -> list[Path]:
    """The files, or none, where they are not there or are another Hadoop's."""
    found = sorted(_PLACE.glob("jars/*.jar"))
    return found if any(jar.name.endswith(f"hadoop-aws-{_hadoop()}.jar") for jar in found) else []


def _hadoop() -> str:
    """The version of Hadoop that this PySpark brings."""
    (found,) = Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar")
    return found.stem.rpartition("-")[2]


def why_not() -> str:
    """Fetches them if they are missing; returns why that cannot be, or nothing if they are."""
    if jars():
        return ""
    packages = [f"org.apache.hadoop:hadoop-aws:{_hadoop()}"]
    packages += [f"software.amazon.awssdk:{module}:{_SDK}" for module in _MODULES]
    command = [
        str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
        *("--packages", ",".join(packages)),
        *("--exclude-packages", "software.amazon.awssdk:bundle"),
        *("--conf", f"spark.jars.ivy={_PLACE}"),
    ]
    with tempfile.NamedTemporaryFile("w", suffix=".py") as nothing:
        try:
            done = subprocess.run(
                [*command, nothing.name],
                check=False,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
            )
        except subprocess.TimeoutExpired:
            return "Maven Central takes too long"
    if done.returncode != 0 or not jars():
        reason = (done.stderr.strip().splitlines() or ["it failed"])[-1]
        return f"spark-submit --packages: {reason}"
    return ""


if __name__ == "__main__":
    reason = why_not()
    if reason:
        print(f"no hadoop-aws, so Spark's checkpoint on S3 is not tested: {reason}")
