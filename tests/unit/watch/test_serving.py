"""Who gets an answer: this machine's names, GET and HEAD, and whoever has the token."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from trailmark.errors import SettingError
from trailmark.watch import serving
from trailmark.watch.serving import Route, Serving, is_loopback, text

TOKEN = "a-token-of-24-characters"


def _answers(message: str) -> Any:
    return lambda query: text(f"{message} {query}")


_ROUTES = {"/": Route(_answers("page"), is_open=True), "/api": Route(_answers("secret"))}


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    made = Serving(_ROUTES, "127.0.0.1", 0)
    yield made
    made.close()


@pytest.fixture(scope="module")
def guarded() -> Iterator[Serving]:
    made = Serving(_ROUTES, "127.0.0.1", 0, TOKEN)
    yield made
    made.close()


def _ask(
    server: Serving, path: str, method: str = "GET", **headers: str
) -> tuple[int, str, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers
    finally:
        connection.close()


def test_only_what_is_in_the_table_is_answered(server: Serving) -> None:
    assert _ask(server, "/")[:2] == (200, "page {}\n")
    assert _ask(server, "/api?a=1&b=%2F")[:2] == (200, "secret {'a': '1', 'b': '/'}\n")
    for path in (
        "/../etc/passwd",
        "/%2e%2e/",
        "/page.css/..",
        "/API",
        f"/api?a={'x' * 2000}",
    ):
        assert _ask(server, path)[0] == 404


def test_head_has_no_body_and_nothing_else_is_taken(server: Serving) -> None:
    status, body, headers = _ask(server, "/", "HEAD")
    assert (status, body, headers["Content-Length"]) == (200, "", "8")
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE"):
        status, _, headers = _ask(server, "/", method)
        assert (status, headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", ["/", "/api", "/nothing"])
def test_every_answer_has_the_headers_that_bind_a_browser(server: Serving, path: str) -> None:
    headers = _ask(server, path)[2]
    policy = dict(each.split(maxsplit=1) for each in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:1234", 200),
        ("127.0.0.1", 200),
        ("[::1]:80", 200),
        (socket.gethostname(), 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example:80", 421),
        ("", 421),
        ("[::1", 421),
    ],
)
def test_a_name_of_somebody_else_is_refused(server: Serving, host: str, status: int) -> None:
    assert _ask(server, "/api", Host=host)[0] == status


def test_without_the_token_only_open_answers_are_given(guarded: Serving) -> None:
    assert _ask(guarded, "/")[0] == 200
    status, body, headers = _ask(guarded, "/api")
    assert (status, headers["WWW-Authenticate"]) == (401, 'Bearer realm="trailmark"')
    assert "secret" not in body
    for wrong in (TOKEN[:-1], f"{TOKEN}x", "", "\u00e9".encode().decode("latin-1")):
        assert _ask(guarded, "/api", Authorization=f"Bearer {wrong}")[0] == 401
        assert _ask(guarded, "/api", Cookie=f"trailmark-{guarded.port}={wrong}")[0] == 401
    assert _ask(guarded, f"/api?token={TOKEN}")[0] == 401


def test_the_token_comes_as_bearer_and_then_as_a_cookie(guarded: Serving) -> None:
    status, body, headers = _ask(guarded, "/api", Authorization=f"Bearer {TOKEN}")
    assert (status, body) == (200, "secret {}\n")
    cookie = headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    again = _ask(guarded, "/api", Cookie=cookie.partition(";")[0])
    assert again[0] == 200
    assert "Set-Cookie" not in again[2]


@pytest.mark.parametrize("other", ['x={"a":1}', "no name", "a[0]=1", "", "caf\xe9=1"])
def test_cookies_of_others_on_this_host_do_not_hide_the_token(guarded: Serving, other: str) -> None:
    own = f"trailmark-{guarded.port}={TOKEN}"
    for cookies in (f"{other}; {own}", f"{own}; {other}"):
        assert _ask(guarded, "/api", Cookie=cookies)[0] == 200
    assert _ask(guarded, "/api", Cookie=f"{other}; x{own}")[0] == 401


def test_nothing_is_logged(guarded: Serving, capsys: pytest.CaptureFixture[str]) -> None:
    _ask(guarded, "/api", Authorization=f"Bearer {TOKEN}")
    _ask(guarded, f"/api?token={TOKEN}")
    said = capsys.readouterr()
    assert said.out + said.err == ""


def test_requests_at_once_are_bounded_and_dribbling_ones_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "_MOST_AT_ONCE", 3)
    monkeypatch.setattr(serving, "_SECONDS", 0.2)
    server = Serving(_ROUTES, "127.0.0.1", 0)
    try:
        idle = [socket.create_connection(("127.0.0.1", server.port), 30) for _ in range(4)]
        assert idle[3].recv(1) == b""  # one too many
        for each in idle[:3]:
            each.sendall(b"GET / HT")
            assert each.recv(1) == b""  # cut off, though it would have gone on
        until = time.monotonic() + 30
        while True:
            try:
                assert _ask(server, "/")[0] == 200
                break
            except (ConnectionError, http.client.RemoteDisconnected):
                assert time.monotonic() < until, "there is never room again"
        for each in idle:
            each.close()
    finally:
        server.close()


def test_a_port_in_use_and_a_host_that_is_not_ours_are_said(server: Serving) -> None:
    with pytest.raises(SettingError, match=f"Port {server.port} of 127.0.0.1 is in use"):
        Serving(_ROUTES, "127.0.0.1", server.port)
    for host in ("192.0.2.1", "no.such.host.invalid"):
        with pytest.raises(SettingError, match="is no address of this machine"):
            Serving(_ROUTES, host, 0)


def test_only_addresses_of_this_machine_alone_are_loopback() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "127.8.0.1", "::1", "localhost"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "10.0.0.1", "example.com", ""]))


def test_its_address_can_be_followed(server: Serving) -> None:
    assert server.url == f"http://127.0.0.1:{server.port}/"
    everywhere = Serving(_ROUTES, "0.0.0.0", 0)
    assert everywhere.url == f"http://{socket.gethostname()}:{everywhere.port}/"
    everywhere.close()
