"""An S3 server on loopback, for tests that talk to a real one."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import boto3
import pytest
from moto.server import ThreadedMotoServer


@contextmanager
def s3_server() -> Iterator[str]:
    """Runs a server; gives its endpoint."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


def use_s3(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Points the usual variables at a server."""
    variables = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def new_bucket() -> str:
    """A URL in an empty bucket of the server in use."""
    bucket = f"logs-{uuid.uuid4().hex}"
    boto3.client("s3").create_bucket(Bucket=bucket)
    return f"s3://{bucket}/some/prefix"
