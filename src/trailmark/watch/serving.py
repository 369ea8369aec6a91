"""A small read-only HTTP server: a fixed set of answers, for whoever may see them.

Who may: requests with a host name that is this machine's (a name of somebody else's that leads here
is a web page's trick), and, where a token is set, with that token. Only GET and HEAD are answered;
every path is looked up in a table, no file name is ever made of one.
"""

from __future__ import annotations

import errno
import hmac
import ipaddress
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from trailmark.errors import SettingError

#: Requests that are answered at once, and how long one may take to be asked and answered.
_MOST_AT_ONCE = 32
_SECONDS = 20.0
_LONGEST_QUERY = 1_000

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Answer(NamedTuple):
    """What is sent for a request."""

    body: bytes
    kind: str
    status: HTTPStatus = HTTPStatus.OK


#: Gives an answer for the query of a request.
Give = Callable[[Mapping[str, str]], Answer]


class Route(NamedTuple):
    """An answer, and whether everybody may have it who reaches the server."""

    give: Give
    is_open: bool = False


def text(message: str, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    """A line of plain text."""
    return Answer(f"{message}\n".encode(), "text/plain; charset=utf-8", status)


class Serving:
    """The server, from when it is made until it is closed.

    Parameters
    ----------
    routes
        What is answered, by path.
    host, port
        Where it listens; port 0 is any free one.
    token
        What has to come with a request for what is not open; None: nothing.
    """

    def __init__(
        self, routes: Mapping[str, Route], host: str, port: int, token: str | None = None
    ) -> None:
        self.host = host
        self._server = _open(routes, host, port, token)
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="trailmark-http", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """Its address for a browser on this machine or, where it listens on one address, there."""
        try:
            is_any = ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            is_any = False
        host = socket.gethostname() if is_any else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    def close(self) -> None:
        """Ends it; requests that are being answered are cut off when the process ends."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server there."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _open(routes: Mapping[str, Route], host: str, port: int, token: str | None) -> _Server:
    try:
        return _Server(routes, host, port, token)
    except OSError as error:
        raise _cannot_listen(error, host, port) from error


def _cannot_listen(error: OSError, host: str, port: int) -> SettingError:
    if error.errno == errno.EADDRINUSE:
        return SettingError(
            f"Port {port} of {host} is in use.",
            where="port",
            fix="Give another one, or 0 for any that is free.",
        )
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return SettingError(
            f"{host!r} is no address of this machine.",
            where="host",
            fix="Use 127.0.0.1 for this machine alone, or 0.0.0.0 for all of its addresses.",
        )
    return SettingError(
        f"Nothing can listen on port {port} of {host}: {error.strerror or error}.",
        where="port",
        fix="Give another port, such as 8765; those below 1024 are for root.",
    )


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(
        self, routes: Mapping[str, Route], host: str, port: int, token: str | None
    ) -> None:
        self.routes = routes
        self.token = token
        self.names = {"localhost", host.lower(), socket.gethostname().lower()}
        self._room = threading.BoundedSemaphore(_MOST_AT_ONCE)
        self._began: dict[socket.socket, float] = {}
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        # That of HTTPServer looks its own name up, which may take seconds without a network.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        self._began[request] = time.monotonic()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._began.pop(request, None)
            self._room.release()

    def service_actions(self) -> None:
        """Called twice a second: ends requests that dribble in."""
        for request, began in list(self._began.items()):
            if time.monotonic() - began > _SECONDS:
                try:
                    request.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue  # it has ended meanwhile

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error of ours; others are shown as Python shows them."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def knows(self, host: str | None) -> bool:
        """Whether a request's Host is a name of this machine, or an address of any."""
        if host is None:
            return False
        try:
            name = urlsplit(f"//{host}").hostname or ""
            return name in self.names or bool(ipaddress.ip_address(name))
        except ValueError:
            return False

    def may(self, handler: BaseHTTPRequestHandler) -> bool:
        """Whether a request has the token, if there is one."""
        if self.token is None:
            return True
        kind, _, given = handler.headers.get("Authorization", "").partition(" ")
        offered = given.strip() if kind.lower() == "bearer" else self._cookie(handler)
        return hmac.compare_digest(offered.encode(), self.token.encode())

    @property
    def cookie_name(self) -> str:
        """Browsers send cookies to all ports of a host."""
        return f"trailmark-{self.server_port}"

    def _cookie(self, handler: BaseHTTPRequestHandler) -> str:
        # Not by a parser, which stops at the first one that breaks a rule: others' come along.
        cookies = (each.strip().partition("=") for each in _cookies(handler))
        return next((value for name, _, value in cookies if name == self.cookie_name), "")


def _cookies(handler: BaseHTTPRequestHandler) -> list[str]:
    return ";".join(handler.headers.get_all("Cookie", [])).split(";")


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "Trailmark", ""
    timeout = 10

    def do_GET(self) -> None:
        self._send(self._answer(), with_body=True)

    def do_HEAD(self) -> None:
        self._send(self._answer(), with_body=False)

    def log_message(self, *_: object) -> None:
        """Nothing: a request may hold what is secret."""

    def send_error(self, code: int, *_: object) -> None:
        """What is wrong with a request, in place of a page made of pieces of it."""
        status = HTTPStatus(code)
        if status is HTTPStatus.NOT_IMPLEMENTED:
            status = HTTPStatus.METHOD_NOT_ALLOWED
        self._send(text("Only GET and HEAD are answered here.", status), with_body=True)

    def _answer(self) -> Answer:
        path, _, query = self.path.partition("?")
        if not self.server.knows(self.headers.get("Host")):
            return text(
                "This host name is not that of the machine that Trailmark runs on. Use its "
                "address, or localhost.",
                HTTPStatus.MISDIRECTED_REQUEST,
            )
        route = self.server.routes.get(path)
        if route is None or len(query) > _LONGEST_QUERY:
            return text("There is nothing here.", HTTPStatus.NOT_FOUND)
        if not route.is_open and not self.server.may(self):
            return text("A token is needed.", HTTPStatus.UNAUTHORIZED)
        return route.give(dict(parse_qsl(query)))

    def _send(self, answer: Answer, *, with_body: bool) -> None:
        self.send_response(answer.status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Connection", "close")
        if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        if answer.status is HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", 'Bearer realm="trailmark"')
        if answer.status is HTTPStatus.OK and self._came_with_token():
            value = f"{self.server.cookie_name}={self.server.token}"
            self.send_header("Set-Cookie", f"{value}; HttpOnly; SameSite=Strict; Path=/")
        self.end_headers()
        if with_body:
            self.wfile.write(answer.body)

    def _came_with_token(self) -> bool:
        """Whoever has shown the token gets it as a cookie, which scripts cannot read."""
        headers = getattr(self, "headers", None)
        if self.server.token is None or headers is None or "Authorization" not in headers:
            return False
        return self.server.may(self)
