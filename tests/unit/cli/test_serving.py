"""``trailmark page`` and ``trailmark metrics``: what cannot be served is said on one line."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from tests.support.written import Written
from tests.unit.cli.conftest import Run
from trailmark.cli.page import TOKEN, chosen_token
from trailmark.errors import SettingError

_COMMANDS = ("page", "metrics")


@pytest.mark.parametrize("command", _COMMANDS)
def test_a_port_in_use_and_a_path_without_logs_are_said(
    command: str, counted: Written, tmp_path: Path, run: Run
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = run(command, counted.path, "--port", port)
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert f"Port {port} of 127.0.0.1 is in use. (port) Give another one" in said.err
    (tmp_path / "none").mkdir()
    said = run(command, counted.path, tmp_path / "none", "--port", "0")
    assert (said.code, said.out) == (2, "")
    assert f"{tmp_path / 'none'} is no Trailmark log: it is empty." in said.err


def test_metrics_without_their_library_say_what_to_install(
    counted: Written, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    said = run("metrics", counted.path, "--port", "0")
    assert said.code == 2
    assert "pip install 'trailmark[metrics]'" in said.err


def test_a_token_is_made_where_others_can_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN, raising=False)
    assert chosen_token(None, "127.0.0.1").text is None
    made = [chosen_token(None, host) for host in ("0.0.0.0", "::", "example.com")]
    assert all(token.is_made and len(token.text or "") >= 32 for token in made)
    assert len({token.text for token in made}) == 3
    given = chosen_token("0123456789abcdef", "0.0.0.0")
    assert given == ("0123456789abcdef", False)
    monkeypatch.setenv(TOKEN, "fedcba9876543210")
    assert chosen_token(None, "127.0.0.1").text == "fedcba9876543210"
    for wrong in ("short", "0123456789abcde;", "0123456789 abcdef"):
        with pytest.raises(SettingError, match="The token cannot be used"):
            chosen_token(wrong, "127.0.0.1")
