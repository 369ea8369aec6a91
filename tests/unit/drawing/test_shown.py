"""`tm.status`: what the command says, as a value that shows itself."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import trailmark as tm
from tests.support.stored import stored_at
from tests.support.written import Written, count_orders, write_logs
from tests.unit.cli.conftest import Run, run
from trailmark.checkpoint.policy import Continuous
from trailmark.drawing import Cell, Table, html_of, line
from trailmark.drawing.bars import Bar, Bars, bars_of

__all__ = ["run"]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Written:
    policy = Continuous.within("30 seconds")
    return write_logs(tmp_path_factory.mktemp("logs") / "orders", count_orders(), policy)


class _Page(HTMLParser):
    """Checks that every element is closed, and gathers what there is to see."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, _: object) -> None:
        self.open.append(tag)
        self.seen.add(tag)

    def handle_startendtag(self, tag: str, _: object) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_it_says_what_the_command_says(logs: Written, run: Run) -> None:
    def settled(said: str) -> str:
        return re.sub(r"written .* ago", "", said)

    status = tm.status(logs.path)
    assert settled(repr(status)) == settled(run("status", logs.path).out.rstrip("\n"))
    described = run("status", logs.path, "--json").json
    assert json.loads(json.dumps(status.describe())) == {
        **described,
        "looked_us": status.status.looked_us,
    }
    assert status.is_sound


def test_a_notebook_gets_a_table_and_a_picture(logs: Written) -> None:
    status = tm.status(logs.path)
    page = _Page(status._repr_html_())
    assert {"table", "svg", "rect", "pre"} <= page.seen
    for bucket in range(len(logs.reports[-1])):
        assert f"bucket {bucket}: " in page.text
    assert "a recovery now would take (objective 30 s)" in page.text
    assert "script" not in page.seen


def test_no_text_is_markup_or_a_trick() -> None:
    evil = "<script>alert('x')</script>\x1b[2J\u202e\""
    table = Table((evil,), ((Cell(evil, "bad"),),))
    picture = Bars(evil, (Bar(evil, 1), Bar("other", 3)), str, 2).svg()
    html = html_of([line(Cell(evil, "bold"), evil), table]) + picture
    assert "<script" not in html
    assert not {"\x1b", "\u202e"} & set(html)
    assert _Page(html).text.count("alert('x')") >= 4


def test_a_bar_that_is_too_long_is_pointed_out() -> None:
    bars = Bars("recoveries", (Bar("a", 5), Bar("b", 20, is_bad=True)), str, 10)
    lengths = [float(each) for each in re.findall(r'<rect [^>]* width="([\d.]+)"', bars.svg())]
    assert lengths[1] == pytest.approx(4 * lengths[0], rel=0.01)
    colours = re.findall(r'<rect [^>]*fill="(#\w+)"', bars.svg())
    assert len(set(colours)) == 2


def test_of_many_the_longest_are_shown_in_their_order() -> None:
    many = tuple(Bar(f"bucket {n}", n * 7 % 100) for n in range(100))
    svg = Bars("recoveries", many, str).svg()
    names = [int(n) for n in re.findall(r"<title>bucket (\d+):", svg)]
    assert names == sorted(names)
    assert {n * 7 % 100 for n in names} == set(range(100 - len(names), 100))
    assert f"the longest {len(names)} of 100" in svg


def test_of_a_stream_the_readers_are_pictured(tmp_path: Path) -> None:
    stream = stored_at(tmp_path / "stream")
    status = tm.status(stream.path)
    assert "stream of" in repr(status)
    assert bars_of(status.status) is None
    assert "<svg" not in status._repr_html_()


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(tm.TrailmarkError, match="no Trailmark log"):
        tm.status(tmp_path / "nothing")
    with pytest.raises(tm.TrailmarkError, match="look back"):
        tm.status(tmp_path, look_back=0)
