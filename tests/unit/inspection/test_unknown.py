"""Files of a later format are shown as unknown, and never as whole."""

from __future__ import annotations

import json

import pytest

from tests.support.followed import Followed
from tests.support.harm import segment_path
from tests.support.reseal import guarded
from tests.support.unknown import NEWS, ended_query, renew_segment
from trailmark.errors import UnknownFormat
from trailmark.inspection.logs import OperatorFiles
from trailmark.inspection.plan import plan_bucket, predict_us
from trailmark.inspection.read import read_status
from trailmark.inspection.verify import Verification, verify_operator
from trailmark.log.readers import register
from trailmark.records import Stream

_BATCHES = 8
_NEXT = "Use the Trailmark that wrote it, or a newer one."


@pytest.fixture
def run() -> Followed:
    return ended_query(_BATCHES)


@pytest.fixture(params=NEWS)
def news(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _verify(run: Followed) -> Verification:
    return verify_operator(run.disk.storage())


@pytest.mark.parametrize("batch", [3, _BATCHES - 1])
@pytest.mark.parametrize("stream", [Stream.INPUT, Stream.OUTPUT])
def test_verify_names_the_segment_and_what_to_do(
    run: Followed, news: str, stream: Stream, batch: int
) -> None:
    path = segment_path(stream, batch)
    renew_segment(run.disk.storage(), path, news)
    found = _verify(run)
    (finding,) = found.findings
    assert not found.is_whole
    assert (finding.path, finding.trouble, finding.batch) == (path, "unknown", batch)
    assert NEWS[news][1] in finding.what
    assert finding.fix.startswith(_NEXT)


@pytest.mark.parametrize("batch", [3, _BATCHES - 1])
def test_status_tells_of_it(run: Followed, news: str, batch: int) -> None:
    renew_segment(run.disk.storage(), segment_path(Stream.OUTPUT, batch), news)
    status = read_status(run.disk.storage())
    (bucket,) = status.buckets
    assert NEWS[news][1] in bucket.problem
    assert segment_path(Stream.OUTPUT, batch) in bucket.problem
    assert bucket.batch == (batch - 1 if batch == _BATCHES - 1 else _BATCHES - 1)


def test_no_plan_goes_around_it(run: Followed, news: str) -> None:
    files = OperatorFiles(run.disk.storage())
    plan = plan_bucket(files, 0)
    renew_segment(run.disk.storage(), segment_path(Stream.OUTPUT, _BATCHES - 1), news)
    with pytest.raises(UnknownFormat, match=NEWS[news][1]):
        plan_bucket(files, 0)
    assert predict_us(files, 0, plan) is None


def _describe(run: Followed, **changed: object) -> None:
    body = json.loads(run.disk.content("meta.json"))["body"]
    run.disk.storage().replace("meta.json", [guarded({**body, **changed})])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"version": 3}, "version 3 of the log format"),
        ({"operator": {"operator": "sketch"}}, "Operators of kind 'sketch'"),
        ({"operator": {}}, "Operators of kind None"),
    ],
)
def test_a_description_of_something_unknown_is_refused_and_found(
    run: Followed, changed: dict[str, object], said: str
) -> None:
    _describe(run, **changed)
    for look in (OperatorFiles, read_status):
        with pytest.raises(UnknownFormat, match=said) as caught:
            look(run.disk.storage())
        assert caught.value.fix == _NEXT
    (finding,) = _verify(run).findings
    assert (finding.path, finding.trouble, finding.fix) == ("meta.json", "unknown", _NEXT)
    assert said in finding.what


def test_a_reader_of_an_unknown_stream_is_shown(run: Followed) -> None:
    storage = run.disk.storage()
    register(storage, "billing", Stream.OUTPUT, 3)
    body = {"name": "billing", "needs": 3, "seen_us": 5, "stream": "sketches"}
    storage.replace("readers/billing.json", [guarded(body)])
    (finding,) = _verify(run).findings
    assert (finding.path, finding.trouble) == ("readers/billing.json", "unknown")
    (reader,) = read_status(storage).readers
    assert "stream 'sketches'" in reader.problem
    assert reader.fix == _NEXT
