"""The JSON behind the page says what the engine did, in words that can be shown as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.pipeline import Pipeline
from tests.support.written import count_orders, time_orders, write_logs
from trailmark import units
from trailmark.checkpoint.policy import Continuous
from trailmark.dashboard import page_routes
from trailmark.dashboard.layers import layers
from trailmark.dashboard.page import in_words
from trailmark.engine.refused import leave_refusal
from trailmark.errors import DamagedSegment
from trailmark.log import LocalStorage
from trailmark.watch import Places, Point, Sampler


def _asked(sampler: Sampler, path: str, **query: str) -> Any:
    answer = page_routes(sampler)[path].give(query)
    assert answer.kind.startswith("application/json")
    return json.loads(answer.body)


def _now(sampler: Sampler, **query: str) -> Any:
    return _asked(sampler, "/api/now", **query)


def _table(place: Any, name: str) -> list[dict[str, str]]:
    (table,) = [each for each in place["tables"] if each["name"] == name]
    titles = [column[0] for column in table["columns"]]
    plain = [[cell if isinstance(cell, str) else cell[0] for cell in row] for row in table["rows"]]
    return [dict(zip(titles, row, strict=True)) for row in plain]


def _looked(path: Path) -> Sampler:
    sampler = Sampler(Places([str(path)]))
    sampler.look()
    return sampler


def test_buckets_are_told_as_the_engine_reported_them(tmp_path: Path) -> None:
    logs = write_logs(tmp_path / "orders", count_orders(), stop_before=7)
    (place,) = _now(_looked(logs.path))["places"]
    assert (place["name"], place["kind"], place["state"]) == ("orders", "operator", "good")
    assert place["title"] == "aggregate by item, windows of 10 tuples"
    for row, report in zip(_table(place, "buckets"), logs.reports[-1], strict=True):
        account = report.account
        assert row["Batch"] == row["Committed"] == str(logs.newest)
        assert row["Windows"] == f"{account.open_windows:,}"
        assert (row["Extent"], row["Replay"]) == (f"{account.extent:,}", f"{account.replay:,}")
        assert row["Recovery"] == units.duration(account.predicted_us)
    facts = dict(place["facts"])
    assert facts["Last batch"] == str(logs.newest)
    windows = sum(report.account.open_windows for report in logs.reports[-1])
    assert facts["Windows open"] == f"{windows:,}"
    recovered = [report.recovery for report in logs.reports[7] if report.recovery is not None]
    rows = _table(place, "recoveries")
    assert sorted(row["Windows"] for row in rows) == sorted(
        f"{each.plan.open_windows:,}" for each in recovered
    )
    assert {row["Before batch"] for row in rows} == {"7"}


def test_a_pipeline_is_drawn_from_its_streams_to_its_results(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, rows=100, buckets=2)
    pipeline.step()
    pipeline.stop()
    found = _now(_looked(tmp_path))
    names = {place["id"]: place["name"] for place in found["places"]}
    drawn = [[names[place] for place in layer] for layer in found["layers"]]
    assert drawn == [["eu", "us"], ["union"], ["average"], ["averages"]]
    assert (found["state"], found["summary"]) == (
        "good",
        "All is well: 1 operator, 1 union, 3 streams",
    )
    assert [place["kind"] for place in found["places"]] == ["operator", "union", *["stream"] * 3]
    assert str(tmp_path) not in json.dumps([found["layers"], found["edges"]])


def test_what_is_known_is_not_told_again(tmp_path: Path) -> None:
    logs = write_logs(tmp_path / "orders", count_orders(3))
    sampler = _looked(logs.path)
    first = _now(sampler)
    (line,) = first["history"].values()
    assert len(line["at_us"]) == len(line["predicted_us"]) == 1
    answer = page_routes(sampler)["/api/now"].give({"seen": str(first["number"])})
    assert (answer.status, answer.body) == (204, b"")
    sampler.look()
    (line,) = _now(sampler, after=str(line["at_us"][0]))["history"].values()
    assert len(line["at_us"]) == 1
    sampler.look()
    assert len(next(iter(_now(sampler)["history"].values()))["at_us"]) == 3


def test_the_line_of_one_bucket_can_be_asked_for(tmp_path: Path) -> None:
    logs = write_logs(tmp_path / "orders", count_orders(3))
    sampler = _looked(logs.path)
    (place,) = _now(sampler)["places"]
    line = _asked(sampler, "/api/bucket", place=place["id"], bucket="1")
    assert line["predicted_us"] == [logs.reports[-1][1].account.predicted_us]
    give = page_routes(sampler)["/api/bucket"].give
    assert give({"place": "../..", "bucket": "0"}).status == 404
    for wrong in ({}, {"bucket": "-1"}, {"bucket": "\u0661"}, {"bucket": "9" * 30}):
        assert give({"place": place["id"], **wrong}).status == 400
    assert _asked(sampler, "/api/bucket", place=place["id"], bucket="9999")["predicted_us"] == [
        None
    ]


def test_refusals_and_missed_objectives_are_told_in_words(tmp_path: Path) -> None:
    slow = write_logs(tmp_path / "slow", count_orders(), Continuous.within("1 ms"))
    stopped = write_logs(tmp_path / "stopped", time_orders())
    error = DamagedSegment("Something <b>was</b> wrong.", where="out", fix="Mend it.")
    leave_refusal(LocalStorage(stopped.path), error, "query", 12, None)
    found = _now(_looked(tmp_path))
    places = {place["name"]: place for place in found["places"]}
    assert found["state"] == "bad"
    assert found["summary"] == "2 of 2 need a look"
    assert places["slow"]["state"] == "warning"
    assert any("objective" in each or "target" in each for each in places["slow"]["trouble"])
    (told,) = places["stopped"]["trouble"]
    assert "the query was stopped at batch 12" in told
    assert "Something <b>was</b> wrong." in told
    assert slow.newest == stopped.newest


def test_of_many_troubles_some_are_told_and_the_others_counted(tmp_path: Path) -> None:
    logs = write_logs(tmp_path / "a", count_orders(2), Continuous.within("1 us"), buckets=40)
    (place,) = _now(_looked(logs.path))["places"]
    assert len(place["trouble"]) == 21
    assert place["trouble"][-1].startswith("and ")


def test_a_path_that_cannot_be_read_is_shown_as_such(tmp_path: Path) -> None:
    logs = write_logs(tmp_path / "a", count_orders(2))
    (logs.path / "meta.json").write_text("{}")
    (place,) = _now(_looked(logs.path))["places"]
    assert (place["kind"], place["state"]) == ("problem", "bad")


@pytest.mark.parametrize(
    ("points", "words"),
    [
        ([], "No recovery has been predicted yet."),
        ([(1, 2_000, None), (61_000_001, 4_000, None)], "There is no objective."),
        ([(1, 2_000, 3_000), (2, 4_000, 3_000)], "Objective 3 ms: exceeded in 1 of 2 looks."),
        ([(1, 2_000, 3_000), (2, None, None)], "Objective 3 ms: kept all the time."),
    ],
)
def test_a_line_is_told_in_words(points: list[tuple[int, int, int]], words: str) -> None:
    assert in_words([Point(*point, None) for point in points]).endswith(words)


def test_layers_follow_the_rows_and_end_in_circles() -> None:
    edges = [("a", "b"), ("b", "c"), ("a", "c"), ("d", "c")]
    assert layers(list("cbad"), edges) == [["a", "d"], ["b"], ["c"]]
    circle = layers(list("abc"), [("a", "b"), ("b", "c"), ("c", "a")])
    assert sorted(place for layer in circle for place in layer) == list("abc")
    assert layers([], []) == []
