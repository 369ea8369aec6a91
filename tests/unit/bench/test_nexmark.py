"""The events of NEXMark, their files, and what judges the queries."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from bench.nexmark import plain
from bench.nexmark.events import BURST_MS, KINDS, Stream
from bench.nexmark.files import Batches, closing, prepare
from bench.nexmark.plain import Auction, Bid, Person, Site
from bench.nexmark.results import digest, rows_in

_STREAM = Stream(100_000)
_TIMES = {"person": "joined", "auction": "opened", "bid": "at"}


def _ms(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    ms: npt.NDArray[np.int64] = column.cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_numpy()
    return ms


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_the_others_bids() -> None:
    assert [_STREAM.table(kind).num_rows for kind in KINDS] == [2000, 6000, 92_000]
    numbers = np.concatenate([_STREAM.numbers(kind) for kind in KINDS])
    assert np.array_equal(np.sort(numbers), np.arange(100_000))


@pytest.mark.parametrize("events", [0, 1, 2, 5, 51])
def test_a_stream_may_end_anywhere(events: int) -> None:
    assert sum(Stream(events).table(kind).num_rows for kind in KINDS) == events


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_events(kind: str) -> None:
    assert _STREAM.table(kind).equals(replace(_STREAM).table(kind))
    assert not _STREAM.table(kind).equals(replace(_STREAM, seed=2).table(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_times_never_go_back_and_follow_the_rate(kind: str) -> None:
    times = _ms(_STREAM.table(kind)[_TIMES[kind]])

    assert (np.diff(times) >= 0).all()
    assert times[-1] - times[0] == pytest.approx(10_000, abs=10)


def test_a_million_bids_are_made_in_columns() -> None:
    began = time.process_time()
    Stream(1_000_000).bids()

    assert time.process_time() - began < 5  # a loop over them takes longer


def test_some_are_hot() -> None:
    bids, auctions = _STREAM.bids(), _STREAM.auctions()

    assert np.mean(bids["auction"].to_numpy() % 100 == 0) == pytest.approx(1 / 2, abs=0.02)
    assert np.mean(bids["bidder"].to_numpy() % 100 == 1) == pytest.approx(3 / 4, abs=0.02)
    assert np.mean(auctions["seller"].to_numpy() % 100 == 0) == pytest.approx(3 / 4, abs=0.02)


def test_bids_and_auctions_name_who_is_active_or_is_about_to_be() -> None:
    bids = _STREAM.bids()
    newest = 1000 + _STREAM.numbers("bid") // 50
    behind = newest - bids["bidder"].to_numpy()
    opened = 1000 + _STREAM.numbers("bid") // 50 * 3 + 2

    assert behind.min() == -10
    assert behind.max() <= 1000
    assert (opened - bids["auction"].to_numpy()).min() == -10
    assert (opened - bids["auction"].to_numpy()).max() <= 100


def test_auctions_end_after_they_open_and_no_two_of_a_seller_at_once() -> None:
    auctions = _STREAM.auctions()
    length = _ms(auctions["expires"]) - _ms(auctions["opened"])
    ends = set(zip(auctions["seller"].to_pylist(), _ms(auctions["expires"]), strict=True))

    assert length.min() >= 1
    assert length.max() <= _STREAM.longest_ms
    assert length.mean() == pytest.approx(167, abs=5)
    assert len(ends) == len(auctions)


def test_bids_arrive_in_bursts_after_they_were_made() -> None:
    bids = _STREAM.bids()
    waited = _ms(bids["arrived"]) - _ms(bids["at"])

    assert set(_ms(bids["arrived"]) % BURST_MS) == {0}
    assert 0 < waited.min() <= waited.max() <= BURST_MS


def test_the_bound_of_q3_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    site = plain.site(*(_STREAM.table(kind) for kind in KINDS))
    bounded = list(plain.q3(site))
    monkeypatch.setattr(plain, "REACH_MS", 1 << 60)

    assert bounded == list(plain.q3(site))


@pytest.mark.parametrize("kind", KINDS)
def test_files_hold_the_events_in_batches_and_once_more_as_text(kind: str, tmp_path: Path) -> None:
    batches = Batches(5000, 3, rate=1000)
    directory = prepare(batches, tmp_path)
    whole = batches.stream.table(kind)

    files = sorted((directory / kind).iterdir())
    assert [pq.read_metadata(file).num_rows for file in files[:-1]] == [len(whole) // 3] * 3
    assert pa.concat_tables([pq.read_table(file) for file in files[:-1]]).equals(whole)
    assert pq.read_table(files[-1]).equals(closing(batches, kind))
    halves = [
        csv.read_csv(file, csv.ReadOptions(column_names=whole.column_names))
        for file in sorted((directory / "csv" / kind).iterdir())
    ]
    text = [row for half in halves for row in plain.rows_of(half)]
    assert sorted(text) == sorted(plain.rows_of(whole))
    assert all((np.diff(half[_TIMES[kind]].to_numpy()) >= 0).all() for half in halves)


# The plain queries, on events that one can look through.

_ADA = Person(1, "Ada", "Bend", "OR", 1000)
_BEN = Person(2, "Ben", "Kent", "WA", 1000)
_LAMP = Auction(7, 1, 10, 2000, 6000)
_DESK = Auction(8, 1, 11, 3000, 5000)
_VASE = Auction(9, 2, 10, 12_000, 14_000)
_BIDS = [
    Bid(7, 2, 50, 1999, 2000),  # too early
    Bid(7, 2, 60, 2000, 2500),
    Bid(8, 2, 30, 5000, 5500),
    Bid(8, 2, 99, 5001, 5500),  # too late
    Bid(7, 1, 70, 6000, 6500),
    Bid(9, 1, 10, 13_000, 13_500),
    Bid(9, 1, 10, 25_000, 25_500),
]
_SITE = Site([_ADA, _BEN], [_LAMP, _DESK, _VASE], _BIDS)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("q3", [(7, "Ada", "Bend", "OR")]),
        ("q4", [(10, 0, 70.0), (10, 10_000, 10.0), (11, 0, 30.0)]),
        ("q6", [(1, 5000, 30.0), (1, 6000, 50.0), (2, 14_000, 10.0)]),
        ("q7", [(8, 0, 2, 99, 5001), (9, 10_000, 1, 10, 13_000), (9, 20_000, 1, 10, 25_000)]),
        ("q8", [(1, 0, "Ada")]),
        ("q11", [(1, 6000, 23_000, 2), (1, 25_000, 35_000, 1), (2, 1999, 15_001, 4)]),
        ("q12", [(1, 0, 1), (1, 10_000, 1), (1, 20_000, 1), (2, 0, 4)]),
    ],
)
def test_plain_queries_give_what_one_can_see(query: str, expected: list[plain.Row]) -> None:
    assert sorted(plain.QUERIES[query](_SITE)) == expected


def test_the_hottest_are_all_that_have_as_many_bids() -> None:
    hottest = list(plain.q5(_SITE))

    assert (7, 0, 3) in hottest
    assert [row for row in hottest if row[1] == 4000] == [(8, 4000, 2)]
    assert [row for row in hottest if row[1] == 6000] == [(7, 6000, 1), (9, 6000, 1)]


def test_results_are_equal_whatever_file_they_are_in(tmp_path: Path) -> None:
    at = pa.array([1_700_000_000_500, 1_700_000_001_000], pa.timestamp("ms", "UTC"))
    rows = pa.table({"id": [3, 0], "at": at, "name": ["Ada B", ""], "price": [0.1, 2.0]})
    for name in ("spark", "flink"):
        (tmp_path / name).mkdir()
    pq.write_table(rows, tmp_path / "spark" / "part-0.snappy.parquet")
    (tmp_path / "flink" / "part-1-0").write_text('3,"2023-11-14 22:13:20.5","Ada B",0.1\n')
    (tmp_path / "flink" / ".part-1-1.inprogress").write_text("not committed")

    found = [rows_in(tmp_path / name) for name in ("spark", "flink")]

    assert found[0] == found[1] == [(3, 1_700_000_000_500, "Ada B", 0.1)]
    assert digest(found[0]) == digest(found[1]) != digest([])
