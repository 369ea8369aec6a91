"""Spark's own files in an S3 bucket, through hadoop-aws."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from urllib.parse import urlparse

import boto3

from build_support import hadoop_aws
from tests.support.spark_query import Query


def why_there_is_none() -> str:
    """Why Spark cannot talk to S3 here; empty if it can."""
    return "" if hadoop_aws.jars() else "hadoop-aws is not here (make hadoop-aws fetches it)"


def s3_conf(endpoint: str) -> dict[str, str]:
    """For a session that keeps its checkpoint at ``s3a://``, as docs/clusters.md has it."""
    return {
        "spark.jars": ",".join(map(str, hadoop_aws.jars())),
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        # What Hadoop 3.5 reads with by default gives up where an answer is cut in its middle.
        "spark.hadoop.fs.s3a.input.stream.type": "classic",
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.fs.s3a.access.key": "test",
        "spark.hadoop.fs.s3a.secret.key": "test",
    }


def on_s3(query: Query, bucket: str) -> Query:
    """The query with its logs and Spark's checkpoint below a URL."""
    below = urlparse(bucket)
    checkpoint = f"s3a://{below.netloc}{below.path}/checkpoint"
    return replace(query, path=f"{bucket}/log", checkpoint=checkpoint)


def with_copied_checkpoint(query: Query, place: Path) -> Query:
    """The query with a copy of its checkpoint in a directory, for who looks at files."""
    found = urlparse(query.checkpoint)
    prefix = found.path.strip("/") + "/"
    store = boto3.client("s3")
    pages = store.get_paginator("list_objects_v2").paginate(Bucket=found.netloc, Prefix=prefix)
    for entry in (each for page in pages for each in page.get("Contents", [])):
        key = entry["Key"].removeprefix(prefix)
        if key and not key.endswith("/"):
            (place / key).parent.mkdir(parents=True, exist_ok=True)
            store.download_file(found.netloc, entry["Key"], str(place / key))
    return replace(query, checkpoint=str(place))
