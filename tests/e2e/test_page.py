"""The page in a real browser, beside an engine that goes on, is killed, and recovers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.browser import Browser, why_there_is_none
from tests.support.cases import Case
from tests.support.page import served
from tests.support.pipeline import Pipeline
from tests.support.processes import Run, Worker, serve
from tests.support.written import count_orders, write_logs
from trailmark.checkpoint.policy import Continuous
from trailmark.engine.commits import mark_committed
from trailmark.log import LocalStorage
from trailmark.log.readers import forget, register
from trailmark.records import Stream
from trailmark.settings import Durability, LogSettings
from trailmark.streams.union.answering import Answering
from trailmark.windows import functions as f
from trailmark.windows.spec import CountWindow

pytestmark = pytest.mark.skipif(bool(why_there_is_none()), reason=why_there_is_none())

EVIL = "<script>document.title='owned'</script><img src=x onerror=alert(1)>"
TAB, ENTER = "\ue004", "\ue007"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    made = Browser(tmp_path_factory.mktemp("chromium"))
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _usual_window(browser: Browser) -> None:
    browser.size(1200, 900)
    browser.scheme("light")
    browser.open("about:blank")
    browser.complaints()  # of pages whose server has ended


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path / "all", rows=300, answering=Answering(200_000))
    for _ in range(3):
        made.step()
    yield made
    made.stop()


def _row(browser: Browser, first: str) -> list[str]:
    """The cells of the row of a table that begins so."""
    script = """
        const rows = [...document.querySelectorAll("tbody tr")];
        const row = rows.find((each) => each.cells[0].innerText === arguments[0]);
        return row === undefined ? null : [...row.cells].map((cell) => cell.textContent);
    """
    found: list[str] = browser.run(script, first)
    return found


def _is_wider_than_window(browser: Browser) -> bool:
    return bool(browser.run("return document.documentElement.scrollWidth > innerWidth"))


def test_the_page_goes_with_an_engine_that_goes_on(browser: Browser, pipeline: Pipeline) -> None:
    with served(pipeline.root) as url:
        browser.open(url)
        browser.wait_for_text("All is well: 1 operator, 1 union, 3 streams")
        assert _row(browser, "2")[1] == "2"
        reports = pipeline.step()
        browser.wait_for_text(r"Committed up to\s+3\b")
        row = _row(browser, "2")
        account = reports[2].account
        assert (row[1], row[3]) == ("3", f"{account.open_windows:,}")
        assert browser.run("return document.querySelectorAll('figure canvas').length") == 2
        edges = "document.querySelectorAll('.graph path:not(.tip)').length"
        assert browser.run(f"return {edges}") == 4
        reads = "[...document.querySelectorAll('.node')].map((each) => each.textContent).join()"
        assert "reads eu, us" in browser.run(f"return {reads}")
        assert browser.complaints() == []
    browser.wait_for_text("does not answer: what you see is old")


def test_a_crash_and_the_recovery_after_it_are_seen(browser: Browser, tmp_path: Path) -> None:
    logs = write_logs(tmp_path / "orders", count_orders(8), buckets=1)
    rows = logs.place.case.batches
    with served(logs.path) as url, Worker(serve, logs.place) as worker:
        browser.open(url)
        browser.wait_for_text(r"Last batch\s+7\b")
        worker.ask(Run(8, rows[0]))
        mark_committed(LocalStorage(logs.path), 8, "a run")
        browser.wait_for_text(r"Last batch\s+8\b")
        browser.wait_for_text(r"1 recovery seen")  # it took over from the query that had ended
        os.kill(worker.pid, signal.SIGKILL)
        browser.wait_for_text(r"Written\s+[1-9][0-9.]* s ago")
        with Worker(serve, logs.place) as again:
            report = again.ask(Run(9, rows[1]))
            browser.wait_for_text(r"2 recoveries seen")
            assert report.recovery is not None
            found = browser.run(
                "return document.querySelectorAll('tbody')[1].rows[0].innerText.split('\\t')"
            )
            assert found[1:3] == ["0", "9"]
            assert found[5] == f"{report.recovery.plan.open_windows:,}"
            again.send(None)
            again.finish()
        assert browser.complaints() == []


def test_a_union_that_stalls_says_whom_it_misses(browser: Browser, pipeline: Pipeline) -> None:
    with served(pipeline.root) as url:
        browser.open(url)
        browser.wait_for_text("All is well")
        pipeline.write(["eu"])
        pipeline.wait_until_ahead()
        browser.wait_for_text("UP_FAILURE, without us")
        browser.wait_for_text("1 of 5 need a look")
        assert _row(browser, "us")[2] == "missing"
        assert browser.run("return document.title").startswith("! 1 of 5")


def test_a_thousand_buckets_do_not_freeze_it(browser: Browser, tmp_path: Path) -> None:
    policy = Continuous.within("10 seconds")
    quick = LogSettings(durability=Durability.UNSYNCED)
    logs = write_logs(tmp_path / "wide", count_orders(1), policy, buckets=1_000, settings=quick)
    with served(logs.path) as url:
        browser.open(url)
        browser.wait_for_text("1,000 buckets")
        browser.wait_for("performance.getEntriesByName('shown').length > 3")
        times = "performance.getEntriesByName('shown').map((each) => each.duration)"
        assert sorted(browser.run(f"return {times}"))[1] < 250  # ms, on a machine that is busy
        assert browser.run("return document.querySelectorAll('*').length") < 2_000
        assert browser.run("return document.querySelectorAll('tbody tr').length") == 50
        click = "[...document.querySelectorAll('button')].find((b) => b.innerText === arguments[0])"
        browser.run(f"{click}.click()", "By number")
        assert _row(browser, "0")[1] == "0"
        browser.run(f"{click}.click()", "Next")
        browser.wait_for_text("51 to 100")
        assert _row(browser, "99")[1] == "0"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_in_light_and_in_dark(
    browser: Browser, pipeline: Pipeline, scheme: str
) -> None:
    browser.size(360, 740)
    browser.scheme(scheme)
    with served(pipeline.root) as url:
        browser.open(url)
        browser.wait_for_text("All is well")
        assert not _is_wider_than_window(browser)
        assert browser.run(_CONTRASTS) >= 4.5
        colour = "return getComputedStyle(document.body).backgroundColor"
        light = sum(map(int, browser.run(colour)[4:-1].split(","))) > 3 * 128
        assert light == (scheme == "light")


#: The least contrast of any text with what is behind it.
_CONTRASTS = """
    const parts = (text) => text.match(/[\\d.]+/g).map(Number);
    const light = (c) => (c <= 10.3 ? c / 3294.6 : ((c / 255 + 0.055) / 1.055) ** 2.4);
    const shine = ([r, g, b]) => 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b);
    const ground = (element) => {
        for (let at = element; at !== null; at = at.parentElement) {
            const colour = parts(getComputedStyle(at).backgroundColor);
            if (colour.length === 3) return colour;
        }
    };
    const texts = [...document.querySelectorAll("body *")].filter((each) =>
        each.offsetParent !== null && !each.disabled &&
        [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim()));
    return Math.min(...texts.map((each) => {
        const [a, b] = [shine(parts(getComputedStyle(each).color)), shine(ground(each))];
        return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    }));
"""


def test_a_keyboard_reaches_everything_and_everything_has_a_name(
    browser: Browser, pipeline: Pipeline
) -> None:
    with served(pipeline.root) as url:
        browser.open(url)
        browser.wait_for_text("All is well")
        browser.keys(TAB)
        assert browser.run("return document.activeElement.innerText") == "Skip to the figures"
        for _ in range(40):
            browser.keys(TAB)
            if browser.run("return document.activeElement.ariaLabel") == "Draw bucket 1":
                break
        browser.keys(ENTER)
        browser.wait_for_text(r"bucket 1, now \d+")
        pressed = "document.activeElement.getAttribute('aria-pressed')"
        assert browser.run(f"return {pressed}") == "true"
        tree = browser.devtools("Accessibility.getFullAXTree")["nodes"]
        roles = [_value(node, "role") for node in tree if not node.get("ignored")]
        assert {"banner", "main", "contentinfo", "navigation", "status"} <= set(roles)
        for node in tree:
            if _value(node, "role") in ("link", "button", "table", "region", "columnheader"):
                assert _value(node, "name"), node


def _value(node: Any, name: str) -> str:
    return str(node.get(name, {}).get("value", ""))


def test_names_from_logs_are_shown_as_text(browser: Browser, tmp_path: Path) -> None:
    case = Case.of(
        pa.schema([(EVIL, pa.string())]),
        by=[EVIL],
        window=CountWindow(10, 10),
        values={f"n{EVIL}": f.count()},
        batches=[(n, [(EVIL,)]) for n in range(3)],
    )
    logs = write_logs(tmp_path / EVIL.replace("/", "_"), case, buckets=1)
    (logs.path / "rolled-back").write_text(EVIL)
    with served(tmp_path) as url:
        browser.open(url)
        browser.wait_for_text("refused: it went back")
        assert f"aggregate by {EVIL}" in browser.text()
        assert f"the query has gone back and is refused: {EVIL}" in browser.text()
        assert browser.run("return document.querySelectorAll('img, script').length") == 3
        assert browser.run("return document.title") == "! 1 of 1 need a look - Trailmark"
        assert browser.complaints() == []


def test_what_cannot_be_read_at_first_is_shown_in_full_once_it_can(
    browser: Browser, tmp_path: Path
) -> None:
    logs = write_logs(tmp_path / "orders", count_orders(3), buckets=1)
    meta = logs.path / "meta.json"
    whole = meta.read_bytes()
    meta.write_bytes(b"{}")
    with served(logs.path) as url:
        browser.open(url)
        browser.wait_for_text("1 of 1 need a look")
        meta.write_bytes(whole)
        browser.wait_for_text("aggregate by item")
        browser.wait_for("document.querySelectorAll('figure canvas').length === 2")
        browser.run("document.querySelector('tbody button').click()")
        browser.wait_for_text(r"bucket 0, now \d+")
        assert browser.complaints() == []


def test_a_table_goes_with_what_it_is_about(browser: Browser, tmp_path: Path) -> None:
    logs = write_logs(tmp_path / "orders", count_orders(3), buckets=1)
    storage = LocalStorage(logs.path)
    register(storage, "copies", Stream.OUTPUT, 1)
    with served(logs.path) as url:
        browser.open(url)
        browser.wait_for_text("copies")
        tables = browser.run("return document.querySelectorAll('table').length")
        forget(storage, "copies")
        browser.wait_for("!document.body.innerText.includes('copies')")
        assert browser.run("return document.querySelectorAll('table').length") == tables - 1
        assert browser.complaints() == []


_TWO_DAYS = """
    return import("/charts.js").then(({Charts}) => {
        const charts = new Charts();
        charts.pick("0");
        for (let at = 0; at < 2 * 86400; at += 2)
            charts.addPicked({at_us: [at * 1e6], predicted_us: [7]});
        return charts.picked.size;
    });
"""


def test_a_bucket_that_was_picked_days_ago_is_kept_for_an_hour(
    browser: Browser, tmp_path: Path
) -> None:
    logs = write_logs(tmp_path / "orders", count_orders(1), buckets=1)
    with served(logs.path) as url:
        browser.open(url)
        browser.wait_for_text("aggregate by item")
        assert browser.run(_TWO_DAYS) == 1_800


def test_elsewhere_a_token_is_asked_for(browser: Browser, tmp_path: Path) -> None:
    logs = write_logs(tmp_path / "orders", count_orders(3))
    with served(logs.path, "--host", "0.0.0.0") as url:
        address, _, token = url.replace(url.split("/")[2].split(":")[0], "127.0.0.1").partition(
            "#token="
        )
        assert len(token) >= 32
        browser.open(address)
        browser.wait_for_text("Whoever started trailmark page can see it on the terminal")
        assert "aggregate" not in browser.text()
        browser.run("document.getElementById('token').value = 'wrong-wrong-wrong'")
        submit = "document.querySelector('#enter button').click()"
        browser.run(submit)
        browser.wait_for_text("This is not the token")
        browser.run("document.getElementById('token').value = arguments[0]", token)
        browser.run(submit)
        browser.wait_for_text("aggregate by item")
        browser.open(address)  # the cookie is enough from now on
        browser.wait_for_text("aggregate by item")
        assert browser.run("return document.cookie") == ""
        browser.open(f"{address}#token={token}")
        browser.wait_for("location.hash === ''")
        browser.wait_for_text("aggregate by item")
