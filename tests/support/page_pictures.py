"""Takes the pictures of the page that the documents show: ``make page-pictures``."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.browser import Browser, why_there_is_none
from tests.support.page import served
from tests.support.pipeline import Pipeline
from trailmark.checkpoint.policy import Continuous
from trailmark.streams.union.answering import Answering

IMAGES = Path(__file__).parents[2] / "docs" / "images"
#: Batches, a second or so apart, and those before which the query was killed.
_BATCHES, _KILLED = 24, (9, 18)


def take(images: Path, *, batches: int = _BATCHES, killed: Sequence[int] = _KILLED) -> list[Path]:
    """Pictures of a pipeline that was killed and goes on, and of a union without a stream."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        policy = Continuous.within("250 ms")
        pipeline = Pipeline(root / "shop", policy, answering=Answering(300_000))
        browser = Browser(root / "chromium")
        try:
            with served("shop", interval="0.5", beside=root) as url:
                browser.size(1180, 1090)
                browser.open(url)
                for batch in range(batches):
                    pipeline.step(crash=batch in killed)
                    time.sleep(0.4)
                return _pictures(pipeline, browser, images)
        finally:
            pipeline.stop()
            browser.close()


def _pictures(pipeline: Pipeline, browser: Browser, images: Path) -> list[Path]:
    browser.wait_for_text("recoveries seen")
    time.sleep(1.5)
    found = [_take(browser, images / "page-light.png")]
    pipeline.write(["eu"])
    pipeline.wait_until_ahead()
    browser.wait_for_text("UP_FAILURE, without us")
    browser.scheme("dark")
    browser.size(1180, 640)
    found.append(_take(browser, images / "page-stall.png"))
    browser.size(390, 844, scale=1.5)
    browser.scheme("light")
    browser.run("document.querySelector('.place').scrollIntoView()")
    return [*found, _take(browser, images / "page-phone.png")]


def _take(browser: Browser, path: Path) -> Path:
    time.sleep(1)  # for charts that are drawn anew
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(browser.picture())
    return path


if __name__ == "__main__":
    reason = why_there_is_none()
    if reason:
        sys.exit(reason)
    for picture in take(IMAGES):
        print(f"{picture} ({picture.stat().st_size:,} bytes)")
