"""An S3 server on loopback, for tests that talk to a real one."""

from __future__ import annotations

import io
import logging
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Lock, Thread
from typing import Any

import boto3
import pytest
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import make_server


class _OnePutAtATime:
    """Moto looks whether an object is there, and then puts it: of two that put it at once if it is
    absent, both would succeed. S3 itself lets one of them."""

    def __init__(self) -> None:
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._putting = Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "PUT":
            return self._answer(environ, start_response)
        # What comes slowly, or never, keeps nobody else waiting.
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        with self._putting:
            return self._answer({**environ, "wsgi.input": io.BytesIO(body)}, start_response)

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        answer: Iterable[bytes] = self._moto(environ, start_response)
        return answer


class _OnlyBelow(_OnePutAtATime):
    """Objects elsewhere are not even looked at, as with rights for a prefix alone."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        _, _, key = environ["PATH_INFO"].lstrip("/").partition("/")
        if not key or f"{key}/".startswith(f"{self._prefix}/"):
            return super().__call__(environ, start_response)
        start_response("403 Forbidden", [("Content-Type", "application/xml")])
        return [b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"]


@contextmanager
def s3_server(only_below: str | None = None) -> Iterator[str]:
    """Runs a server, which may refuse all keys but those below one; gives its endpoint."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app = _OnePutAtATime() if only_below is None else _OnlyBelow(only_below)
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=MotoRequestHandler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def serve_s3(host: str) -> None:
    """Runs a server until the process ends; says its port."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server(
        host, 0, _OnePutAtATime(), threaded=True, request_handler=MotoRequestHandler
    )
    print(server.server_port, flush=True)
    server.serve_forever()


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
