"""What the page's server answers: its own files, and what was seen."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from importlib.resources import files

from trailmark.dashboard.page import Page
from trailmark.watch import Sampler
from trailmark.watch.serving import Answer, Route, text

_JSON = "application/json; charset=utf-8"
#: The files of the page, by the path under which they are asked for.
_FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/parts.js": ("parts.js", "text/javascript; charset=utf-8"),
    "/charts.js": ("charts.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    "/uPlot.iife.min.js": ("uPlot.iife.min.js", "text/javascript; charset=utf-8"),
    "/uPlot.min.css": ("uPlot.min.css", "text/css; charset=utf-8"),
}
#: Farther than any time of a log.
_DIGITS = 19


def page_routes(sampler: Sampler) -> Mapping[str, Route]:
    """Everything that is answered. Files of the page hold nothing of anybody's and are open."""
    page = Page(sampler)
    static = files("trailmark.dashboard").joinpath("static")
    routes = {}
    for path, (name, kind) in _FILES.items():
        answer = Answer(static.joinpath(name).read_bytes(), kind)
        routes[path] = Route(partial(_same, answer), is_open=True)
    routes["/api/now"] = Route(partial(_checked, partial(_now, page, sampler)))
    routes["/api/bucket"] = Route(partial(_checked, partial(_bucket, page)))
    return routes


def _same(answer: Answer, _: Mapping[str, str]) -> Answer:
    return answer


def _checked(give: Callable[[Mapping[str, str]], Answer], query: Mapping[str, str]) -> Answer:
    try:
        return give(query)
    except ValueError:
        return text("This is not a question that the page asks.", HTTPStatus.BAD_REQUEST)


def _now(page: Page, sampler: Sampler, query: Mapping[str, str]) -> Answer:
    """What was seen, unless whoever asks has it already."""
    if query.get("seen") == str(sampler.snapshot.number):
        return Answer(b"", _JSON, HTTPStatus.NO_CONTENT)
    return _json(page.now(_whole(query.get("after", "0"))))


def _bucket(page: Page, query: Mapping[str, str]) -> Answer:
    bucket, after = _whole(query.get("bucket", "")), _whole(query.get("after", "0"))
    found = page.bucket(query.get("place", ""), bucket, after)
    return text("There is no such place.", HTTPStatus.NOT_FOUND) if found is None else _json(found)


def _whole(given: str) -> int:
    if not given.isascii() or not given.isdigit() or len(given) > _DIGITS:
        raise ValueError(given)
    return int(given)


def _json(body: object) -> Answer:
    return Answer(json.dumps(body, separators=(",", ":")).encode(), _JSON)
