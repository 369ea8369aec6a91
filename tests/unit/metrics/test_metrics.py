"""What Prometheus reads is what the engine knows; dashboard and alerts ask for what there is."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.support.pipeline import Pipeline
from tests.support.promql import parse
from trailmark.engine.refused import leave_refusal
from trailmark.errors import DamagedSegment, SettingError
from trailmark.log import LocalStorage
from trailmark.metrics import serve_metrics
from trailmark.metrics.families import METRICS
from trailmark.metrics.serving import exposition
from trailmark.streams.union.answering import Answering
from trailmark.watch import Places, Sampler

OPS = Path(__file__).parents[3] / "ops"
Labels = tuple[tuple[str, str], ...]


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path / "all", rows=200, buckets=2, answering=Answering(200_000))
    made.step()
    yield made
    made.stop()


def _parsed(text: str) -> dict[tuple[str, Labels], float]:
    """Every sample, by its name and labels; the parser refuses what Prometheus would."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def _exposed(sampler: Sampler) -> dict[tuple[str, Labels], float]:
    return _parsed(exposition(sampler)({}).body.decode())


def test_figures_are_those_that_the_engine_reported(pipeline: Pipeline) -> None:
    sampler = Sampler(Places([str(pipeline.root)]))
    sampler.look()
    reports = pipeline.step(crash=True)
    sampler.look()
    found = _exposed(sampler)
    path = str(pipeline.place.path)
    for number, report in enumerate(reports):
        labels = (("bucket", str(number)), ("path", path))
        account = report.account
        assert found["trailmark_open_windows", labels] == account.open_windows
        assert found["trailmark_replay_tuples", labels] == account.replay
        assert found["trailmark_tuples_total", labels] == account.inputs_total
        assert found["trailmark_records_total", labels] == account.records_total
        predicted = found["trailmark_recovery_predicted_seconds", labels]
        assert predicted == pytest.approx(account.predicted_us / 1e6)
        assert found["trailmark_recovery_objective_seconds", labels] == 2
    of_path = (("path", path),)
    assert found["trailmark_last_batch", of_path] == 1
    assert found["trailmark_recoveries_total", of_path] == sum(
        report.recovery is not None for report in reports
    )
    assert found["trailmark_refused", of_path] == found["trailmark_warnings", of_path] == 0
    assert found["trailmark_phase", (("path", path), ("phase", "STABLE"))] == 1
    stream = (("path", str(pipeline.root / "streams" / "eu")),)
    assert found["trailmark_stream_rows_total", stream] == 20
    assert found["trailmark_stream_heard_timestamp_seconds", stream] > 1.7e9


def test_a_refusal_a_missing_input_and_a_path_that_is_gone_are_seen(pipeline: Pipeline) -> None:
    sampler = Sampler(Places([str(pipeline.root)]))
    sampler.look()
    path, union = str(pipeline.place.path), str(pipeline.root / "union")
    leave_refusal(LocalStorage(path), DamagedSegment("It was wrong."), "query", 2, None)
    pipeline.write(["eu"])
    pipeline.wait_until_ahead()
    sampler.look()
    found = _exposed(sampler)
    assert found["trailmark_refused", (("path", path),)] == 1
    assert found["trailmark_warnings", (("path", path),)] == 1
    assert found["trailmark_input_missing", (("input", "us"), ("path", union))] == 1
    assert found["trailmark_input_missing", (("input", "eu"), ("path", union))] == 0
    assert found["trailmark_phase", (("path", union), ("phase", "UP_FAILURE"))] == 1
    gone = Sampler(lambda: [path, str(pipeline.root / "nowhere")])
    gone.look()
    found = _exposed(gone)
    assert found["trailmark_up", (("path", path),)] == 1
    assert found["trailmark_up", (("path", str(pipeline.root / "nowhere")),)] == 0


def test_names_follow_the_conventions_and_labels_do_not_grow(pipeline: Pipeline) -> None:
    for metric in METRICS:
        assert re.fullmatch("trailmark_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == metric.is_counter
        assert metric.says.endswith(".")
        assert set(metric.labels) <= {"path", "bucket", "input", "phase"}
    assert len(METRICS) == len({metric.name for metric in METRICS}) < 25
    sampler = Sampler(Places([str(pipeline.root)]))
    sampler.look()
    before = set(_exposed(sampler))
    for _ in range(3):
        pipeline.step()
        sampler.look()
    new = {name for name, _ in set(_exposed(sampler)) - before}
    assert new <= {"trailmark_recovery_last_seconds"}


def test_they_are_served_to_whoever_has_the_token(pipeline: Pipeline) -> None:
    token = "a-token-of-24-characters"
    server = serve_metrics(Places([str(pipeline.root)]), port=0, interval_s=0.05, token=token)
    try:
        asked = Request(server.url, headers={"Authorization": f"Bearer {token}"})
        found: dict[Any, float] = {}
        while not found:  # until the first look has ended
            with urlopen(asked, timeout=30) as answer:
                assert answer.headers["Content-Type"].startswith("text/plain")
                found = _parsed(answer.read().decode())
        assert found["trailmark_up", (("path", str(pipeline.place.path)),)] == 1
        with pytest.raises(OSError, match="401"):
            urlopen(server.url, timeout=30)
    finally:
        server.close()


def test_without_the_library_it_says_what_to_install(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(SettingError, match=r"pip install 'trailmark\[metrics\]'"):
        serve_metrics(Places([str(pipeline.root)]), port=0)


def _expressions() -> Iterator[tuple[str, str]]:
    for group in yaml.safe_load((OPS / "alerts.yml").read_text())["groups"]:
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in ("warning", "critical")
            assert set(rule["annotations"]) == {"summary", "description"}
            yield rule["alert"], rule["expr"]
    for panel in json.loads((OPS / "grafana.json").read_text())["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"].replace("$path", ".*")


def test_dashboard_and_alerts_ask_for_what_there_is() -> None:
    known = {metric.name: set(metric.labels) for metric in METRICS}
    asked = set()
    for where, expression in _expressions():
        parsed = parse(expression)
        asked |= parsed.metrics
        assert parsed.metrics <= set(known), where
        labels = set.union(*(known[name] for name in parsed.metrics))
        assert parsed.labels <= labels, where
    alerts = {name for name, _ in _expressions()}
    assert {"TrailmarkRecoveryTooLong", "TrailmarkNoCommit", "TrailmarkInputStalled"} <= alerts
    assert set(known) == asked | {"trailmark_last_batch"}


@pytest.mark.parametrize(
    "wrong",
    ["sum by path (a)", "a >", "rate(a)", "a{b}", "a{b='c'", "(a", "a b", "a[5m", "", "a == == b"],
)
def test_what_prometheus_would_refuse_is_refused(wrong: str) -> None:
    with pytest.raises((ValueError, IndexError)):
        parse(wrong)
