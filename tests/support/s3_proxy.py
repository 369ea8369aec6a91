"""A proxy before an S3 server, on loopback, that loses answers, delays, throttles and cuts."""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol
from urllib.parse import urlsplit

_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"
_BROKEN = b"<Error><Code>InternalError</Code><Message>Please try again.</Message></Error>"


class Fault(Enum):
    """What becomes of a request."""

    LOST_ANSWER = "carried out, and the connection closed without an answer"
    FAILED_ANSWER = "carried out, and answered with 500"
    CUT_ANSWER = "carried out, and the connection closed in the middle of the answer"
    CUT_REQUEST = "the connection closed in the middle of the request, which is not carried out"
    THROTTLED = "answered with 503, not carried out"
    DELAYED = "carried out after a while"


#: Those after which the client does not know that the request was carried out.
LOST = (Fault.LOST_ANSWER, Fault.FAILED_ANSWER, Fault.CUT_ANSWER)


class Plan(Protocol):
    """Which fault, if any, a request meets; requests are numbered from 1."""

    def __call__(self, number: int, method: str) -> Fault | None: ...


class RandomFaults:
    """A share of all requests meets a random fault, with a seed."""

    def __init__(self, seed: int, share: float = 0.2) -> None:
        self._rng = random.Random(seed)
        self._share = share

    def __call__(self, number: int, method: str) -> Fault | None:
        del number, method
        return self._rng.choice(list(Fault)) if self._rng.random() < self._share else None


class Proxy(ThreadingHTTPServer):
    """Hands requests on to a server, as far as its ``plan`` lets it."""

    daemon_threads = True

    def __init__(self, upstream: str, delay_seconds: float = 0.05) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = urlsplit(upstream).netloc
        self.delay_seconds = delay_seconds
        self.plan: Plan | None = None
        self.requests = 0
        self.met: list[Fault] = []
        self._lock = threading.Lock()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def begin(self, plan: Plan | None) -> None:
        """From now on, by this plan; requests are numbered anew."""
        with self._lock:
            self.plan, self.requests, self.met = plan, 0, []

    def fault_of(self, method: str) -> Fault | None:
        with self._lock:
            self.requests += 1
            fault = None if self.plan is None else self.plan(self.requests, method)
            if fault is not None:
                self.met.append(fault)
            return fault

    def handle_error(self, request: object, client_address: object) -> None:
        del request, client_address  # a client that has given up


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def _handle(self) -> None:
        fault = self.server.fault_of(self.command)
        length = int(self.headers.get("Content-Length") or 0)
        if fault is Fault.CUT_REQUEST:
            self.rfile.read(length // 2)
            self.close_connection = True
            return
        body = self.rfile.read(length)
        if fault is Fault.THROTTLED:
            self._answer(503, {}, _SLOW_DOWN)
            return
        if fault is Fault.DELAYED:
            time.sleep(self.server.delay_seconds)
        status, headers, content = self._hand_on(body)
        if fault is Fault.LOST_ANSWER:
            self.close_connection = True
        elif fault is Fault.FAILED_ANSWER:
            self._answer(500, {}, _BROKEN)
        else:
            self._answer(status, headers, content, is_cut=fault is Fault.CUT_ANSWER)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _handle

    def _hand_on(self, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        connection = http.client.HTTPConnection(self.server.upstream, timeout=60)
        try:
            connection.request(self.command, self.path, body, dict(self.headers.items()))
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def _answer(
        self, status: int, headers: Mapping[str, str], content: bytes, *, is_cut: bool = False
    ) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        is_head = self.command == "HEAD"
        if is_head:
            content = b""  # whatever is sent behind the headers counts as the next answer
        lengths = {name.lower(): value for name, value in headers.items()}
        size = lengths.get("content-length", "0") if is_head else str(len(content))
        self.send_header("Content-Length", size)
        if is_cut and (is_head or not content):
            self.wfile.write(b"".join(self._headers_buffer)[:-10])  # type: ignore[attr-defined]
        else:
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if is_cut else content)
        self.close_connection = self.close_connection or is_cut

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextmanager
def proxy_before(upstream: str) -> Iterator[Proxy]:
    """Runs a proxy."""
    proxy = Proxy(upstream)
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()
