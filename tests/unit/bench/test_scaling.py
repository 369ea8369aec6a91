"""The model of growth: its numbers of requests are those that a storage counts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from bench.experiment import Raw
from bench.scaling import measured, requests, tables
from bench.scaling.counted import BatchCounts, CountedQuery
from bench.scaling.counting import Request
from bench.scaling.model import Cluster, Costs, batch_ms, lost_host_ms
from bench.scaling.requests import Shape
from tests.support.object_store import new_bucket, s3_server, use_s3
from tests.support.s3_proxy import Fault, proxy_before
from trailmark.engine import upkeep
from trailmark.log import LocalStorage, open_storage
from trailmark.settings import Durability

#: Batches after which logs are as long as they stay, while trims keep so many.
_IN_STRIDE, _RETAINED = 49, 32
_FORGET = requests.FORGET_EVERY


def _smaller(shape: Shape) -> set[int]:
    """Batches after which marks and watermarks are forgotten, or results merged, for the first
    time: there are fewer of them."""
    found = {_FORGET}
    if shape.has_event_time:
        found.add(2 * _FORGET)
    return found | {_MERGED - 1} if shape.keeps_all else found


#: Results are merged so often in these tests: it takes two merges until one is like the next.
_MERGED = 64


def _run(query: CountedQuery, batches: int) -> list[BatchCounts]:
    return [query.step() for _ in range(batches)]


def _query(root: Path, shape: Shape) -> CountedQuery:
    storage = LocalStorage(root / "logs", Durability.UNSYNCED)
    return CountedQuery(storage, root / "cache", shape, None if shape.keeps_all else _RETAINED)


@pytest.mark.parametrize(
    ("shape", "batches"),
    [
        (Shape(1), 65),
        (Shape(2), 129),
        (Shape(3, has_event_time=True), 193),
        (Shape(1, keeps_all=True), 129),
    ],
    ids=str,
)
def test_a_batch_makes_the_requests_that_the_model_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: Shape, batches: int
) -> None:
    cadence = (upkeep._TRIM_EVERY, upkeep._MERGE_EVERY)
    assert cadence == (requests.TRIM_EVERY, requests.MERGE_EVERY)
    for module, name in ((upkeep, "_MERGE_EVERY"), (requests, "MERGE_EVERY")):
        monkeypatch.setattr(module, name, _MERGED)
    found = _run(_query(tmp_path, shape), batches)
    for batch in set(range(_IN_STRIDE, batches)) - _smaller(shape):
        assert found[batch].everybody() == requests.of_batch(shape, batch), batch
    _check_parts(found[_IN_STRIDE], shape)


def _check_parts(counts: BatchCounts, shape: Shape) -> None:
    """Of a batch in which nothing is due that comes only now and then."""
    assert counts.listener == requests.of_listener(shape)
    assert counts.ticks == requests.of_ticks(shape)
    first, *others = counts.tasks
    assert first == requests.of_task(shape) + requests.of_watermark(shape)
    assert others == [requests.of_task(shape)] * (shape.buckets - 1)
    waited = [each.total() for each in counts.in_turn]
    alone = requests.in_turn(shape)
    assert waited == [alone + requests.of_watermark(shape).total(), *[alone] * len(others)]


def test_a_store_is_asked_what_was_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Counter[str] = Counter()

    def watch(number: int, method: str) -> Fault | None:
        asked[method] += 1
        return None

    with s3_server() as endpoint, proxy_before(endpoint) as proxy:
        use_s3(proxy.endpoint, monkeypatch)
        shape = Shape(1, has_event_time=True)
        query = CountedQuery(open_storage(new_bucket()), tmp_path / "cache", shape, 8)
        proxy.begin(watch)
        counted = sum((counts.everybody() for counts in _run(query, 33)), Counter[Request]())
        assert counted[Request.DELETE], "logs were trimmed"
        assert asked == {
            "PUT": counted[Request.PUT],
            "HEAD": counted[Request.HEAD],
            "GET": counted[Request.GET] + counted[Request.LIST],
            "POST": counted[Request.DELETE],  # as the client asks for it
        }


def test_who_begins_at_the_same_time_works_out_the_same_watermark() -> None:
    alone, racing = Shape(100, has_event_time=True), Shape(100, has_event_time=True, racing=8)
    more = requests.of_watermark(racing) - requests.of_watermark(alone)
    assert more[Request.GET] == 7 * (100 + 2)
    assert requests.of_watermark(Shape(100, racing=8)) == Counter()


def test_the_page_has_the_tables_that_the_model_gives() -> None:
    page = tables.PAGE.read_text()
    assert tables.put_into(page, tables.request_tables()) == page, "python -m bench.scaling --write"


def test_a_day_costs_what_its_requests_cost() -> None:
    shape = Shape(10)
    counts = requests.per_day(shape, batches=1_000 * requests.CYCLE)
    cycle = requests.of_cycle(shape)
    dear = cycle[Request.PUT] + cycle[Request.LIST]
    cheap = cycle[Request.GET] + cycle[Request.HEAD]
    assert tables.Prices(put=2.0, get=0.5).of(counts) == pytest.approx(2.0 * dear + 0.5 * cheap)


#: A batch takes 100 ms, and a task 50 ms, with 2 microseconds for a row.
_COSTS = Costs(2, 100.0, 1.0, 50.0, 2_000.0, 10.0, 300.0, 1.0)


def test_costs_are_found_again_in_the_times_that_they_make() -> None:
    batches = [
        {"buckets": buckets, "tuples": tuples, "ms": batch_ms(_COSTS, Cluster(1, 2), shape, tuples)}
        for buckets in (2, 4, 8)
        for tuples in (0, 1_000_000)
        for shape in [Shape(buckets)]
    ]
    fitted = Costs.fitted(
        2,
        batches,
        [{"tasks": tasks, "ms": 20.0 + tasks} for tasks in (2, 500, 1_000)],
        [{"windows": n, "ms": 10.0 + 0.0003 * n} for n in (1_000, 1_000_000)],
        [{"files": n, "ms": 0.5 + 0.001 * n} for n in (100, 10_000)],
    )
    found = [getattr(fitted, name) for name in Costs.__slots__]
    assert found == pytest.approx([getattr(_COSTS, name) for name in Costs.__slots__])


def test_more_hosts_help_until_every_bucket_has_a_core() -> None:
    shape = Shape(64)
    times = [batch_ms(_COSTS, Cluster(hosts, 4), shape, 1_000_000) for hosts in (1, 4, 16, 100)]
    assert times[0] > times[1] > times[2] == times[3]


def test_so_many_buckets_that_the_driver_takes_longer_to_launch_them_than_they_take() -> None:
    many, more = (batch_ms(_COSTS, Cluster(1_000, 4), Shape(n), 1_000) for n in (2_000, 4_000))
    assert more - many == pytest.approx(2_000 * _COSTS.launch_ms)


def test_a_slow_store_makes_every_wave_wait() -> None:
    shape = Shape(16)
    near, far = (batch_ms(_COSTS, Cluster(2, 4, latency), shape, 0) for latency in (0.0, 30.0))
    assert far - near == pytest.approx(2 * 30.0 * requests.in_turn(shape))


def test_buckets_of_a_lost_host_recover_in_waves_on_those_that_are_left() -> None:
    # 8 of 16 buckets, 4 at a time, with a million windows each
    assert lost_host_ms(_COSTS, Cluster(2, 4), Shape(16), 16_000_000) == pytest.approx(2 * 310.0)


def test_a_watermark_on_a_slow_store_takes_a_wait_for_every_sixteen_buckets() -> None:
    cluster = Cluster(100, 16, latency_ms=30.0)
    counts, times = (batch_ms(_COSTS, cluster, Shape(64, kind), 0) for kind in (False, True))
    alone = [requests.in_turn(Shape(64, kind)) for kind in (False, True)]
    assert times - counts == pytest.approx(30.0 * (64 / 16 + 2 + alone[1] - alone[0]))


def test_what_was_measured_is_shown_beside_what_the_model_says() -> None:
    local, cluster = Cluster(1, 2), Cluster(2, 1)
    times = [
        {"what": what, "buckets": n, "tuples": tuples, "ms": factor * modelled}
        for what, place, factor in (("local", local, 1.0), ("cluster", cluster, 1.25))
        for n in (2, 8)
        for tuples in (1_000, 1_000_000)
        for modelled in [batch_ms(_COSTS, place, Shape(n), tuples)]
    ]
    times += [{"what": "stage", "tasks": n, "ms": 20.0 + n} for n in (2, 1_000)]
    times += [{"what": "recovery", "windows": n, "ms": 10 + 3e-4 * n} for n in (1_000, 100_000)]
    times += [{"what": "listing", "files": n, "ms": 0.5 + 1e-3 * n} for n in (100, 10_000)]
    settings = {
        "slots": 2,
        "assumed": {"cores": 4, "store_ms": 30.0},
        "tuples": 1_000_000,
        "open_windows": 10_000_000,
        "retained": 100,
    }
    raw = Raw("scaling", "quick", "2026-11-19", 1.0, {}, {}, settings, 1, times, {})
    text = measured.show(raw).text
    (row,) = (line for line in text.splitlines() if line.startswith("| 1,000 tuples, 8 buckets"))
    assert [cell.strip() for cell in row.split("|")][4:7:2] == ["1.00 x", "0.80 x"], row
    assert "| 1,000 | " in text
