"""Drawings on terminals that can do much, little or nothing."""

from __future__ import annotations

import io
import sys

import pytest

from trailmark.cli.guarded import Guarded
from trailmark.cli.terminal import Bar, show
from trailmark.drawing import Cell, Part, Table, line

_ROWS = ((Cell("a"), Cell("1,000", "bad")), (Cell("bcd"), Cell("7")))
_DRAWN: list[Part] = [
    line(Cell("orders", "bold"), ": aggregate"),
    line(),
    Table(("name", "n"), _ROWS, frozenset({"name"})),
]
_PLAIN = "orders: aggregate\n\nname      n\na     1,000\nbcd       7\n"


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _shown(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "stdout", Guarded(stream))
    show(_DRAWN)
    return stream.getvalue()


@pytest.fixture(autouse=True)
def _usual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")


def test_a_file_gets_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _shown(io.StringIO(), monkeypatch) == _PLAIN


def test_a_terminal_without_rich_gets_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert _shown(_Terminal(), monkeypatch) == _PLAIN


def test_a_terminal_gets_colours_and_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    said = _shown(_Terminal(), monkeypatch)
    assert said.startswith("\x1b[1morders\x1b[0m: aggregate\n\n")
    assert "\x1b[31m1,000\x1b[0m" in said
    assert "──" in said


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_terminal_that_wants_no_colours_gets_none(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    said = _shown(_Terminal(), monkeypatch)
    assert "1,000" in said
    assert "\x1b" not in said


def test_no_figure_is_cut_short_where_a_table_does_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "12")
    figures = tuple(Cell("123,456,789") for _ in range(5))
    stream = _Terminal()
    monkeypatch.setattr(sys, "stdout", Guarded(stream))
    show([Table(tuple("abcde"), (figures,)), line("a line that is longer than that")])
    assert stream.getvalue().count("123,456,789") == 5
    assert "a line that is longer than that\n" in stream.getvalue()


def test_a_bar_is_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (io.StringIO(), _Terminal()):
        monkeypatch.setattr(sys, "stderr", Guarded(stream))
        with Bar("verifying") as bar:
            bar.begin("in/\x1b[2J", 1, 2)
            bar.read(2_000_000)
        said = stream.getvalue()
        assert ("verifying in/\\x1b[2J" in said) is stream.isatty()
        assert ("0/2" in said) is ("2.0 MB read" in said) is stream.isatty()
        assert "\x1b[2J" not in said
