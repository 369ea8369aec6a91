"""What is whole and of a later format is refused by everybody, and stays where it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.logs import append, fill, open_log
from tests.support.reseal import guarded
from tests.support.unknown import NEWS, renew_in_pack, renew_pack, renew_segment
from trailmark.errors import UnknownFormat
from trailmark.log import RepeatedTrim, StreamLog
from trailmark.log.readers import read_reader, register, registered
from trailmark.records import Stream
from trailmark.testing.disk import SimulatedDisk

_BATCHES = 8


def _segment(batch: int) -> str:
    return f"in/00003/{batch:020d}.seg"


_PACK = f"in/00003/{0:020d}-{3:020d}.pack"


@pytest.fixture(params=NEWS)
def news(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _with_news_in(batch: int, news: str) -> tuple[SimulatedDisk, StreamLog, str]:
    """A log with a segment of a later format, and what is said about that."""
    disk = SimulatedDisk()
    fill(open_log(disk.storage()), _BATCHES)
    renew_segment(disk.storage(), _segment(batch), news)
    return disk, open_log(disk.storage()), NEWS[news][1]


def _contents(disk: SimulatedDisk) -> dict[str, bytes]:
    return {name: disk.content(name) for name in disk.files()}


@pytest.mark.parametrize(
    "read",
    [
        lambda log: log.read(5),
        lambda log: log.read_footer(5),
        lambda log: list(log.read_from()),
        lambda log: list(log.read_backward(7)),
        lambda log: log.repair(),
        lambda log: log.trim(7),
        lambda log: log.trim(7, most=6),
        lambda log: RepeatedTrim(log.reader).trim(7, 7),
        lambda log: log.set_aside_after(4),
        lambda log: log.set_aside_after(1),
    ],
)
def test_whoever_comes_to_it_is_refused_and_changes_nothing(
    news: str, read: Callable[[StreamLog], object]
) -> None:
    disk, log, said = _with_news_in(5, news)
    before = _contents(disk)
    with pytest.raises(UnknownFormat, match=said):
        read(log)
    assert _contents(disk) == before


def test_a_trim_that_is_repeated_stops_at_it(news: str) -> None:
    disk, log, said = _with_news_in(5, news)
    trim = RepeatedTrim(log.reader)
    trim.trim(2, 2)
    trim.trim(4, 2)
    with pytest.raises(UnknownFormat, match=said):
        trim.trim(6, 2)
    assert {_segment(4), _segment(5)} <= set(disk.files())
    assert (log.oldest(), log.newest()) == (4, 7)


def test_what_lies_before_it_may_be_trimmed(news: str) -> None:
    disk, log, _ = _with_news_in(5, news)
    assert log.trim(5).oldest == 5
    assert _segment(5) in disk.files()


def test_verify_calls_it_unknown(news: str) -> None:
    _, log, said = _with_news_in(5, news)
    report = log.verify()
    (problem,) = report.problems
    assert (problem.trouble, problem.batch, problem.path) == ("unknown", 5, _segment(5))
    assert said in problem.what
    assert not report.is_whole


@pytest.mark.parametrize("batch", [0, 5, _BATCHES - 1])
def test_a_merge_stops_before_it(news: str, batch: int) -> None:
    disk, log, said = _with_news_in(batch, news)
    content = disk.content(_segment(batch))
    report = log.merge(_BATCHES)
    assert said in str(report.stopped_by)
    assert report.merged == list(range(batch))
    assert disk.content(_segment(batch)) == content


def test_a_merge_deletes_no_original_whose_copy_is_unknown(news: str) -> None:
    disk = SimulatedDisk()
    log = open_log(disk.storage())
    fill(log, _BATCHES)
    originals = {batch: disk.content(_segment(batch)) for batch in range(4)}
    log.merge(3)
    renew_in_pack(disk.storage(), _PACK, 1, news)
    for batch, content in originals.items():
        disk.storage().publish(_segment(batch), [content])
    assert NEWS[news][1] in str(open_log(disk.storage()).merge(3).stopped_by)
    assert disk.content(_segment(1)) == originals[1]
    assert disk.content(_PACK)


def test_a_torn_tail_behind_it_is_not_set_aside(news: str) -> None:
    disk, log, said = _with_news_in(5, news)
    disk.flip(_segment(7), 100, 0)
    disk.truncate(_segment(6), 200)
    before = _contents(disk)
    with pytest.raises(UnknownFormat, match=said):
        log.repair()
    assert _contents(disk) == before


def test_it_is_damage_if_its_checksums_are_wrong(news: str) -> None:
    disk, log, _ = _with_news_in(7, news)
    disk.flip(_segment(7), 100, 0)
    (problem,) = log.verify().problems
    assert (problem.trouble, problem.batch) == ("damaged", 7)
    assert log.repair().is_whole
    assert _segment(7) not in disk.files()


def test_no_time_is_looked_for_behind_it(news: str) -> None:
    _, log, said = _with_news_in(5, news)
    found = log.time_index().find(65_000_000)
    with pytest.raises(UnknownFormat, match=said):
        list(log.read_from(found))


def test_the_batch_is_not_written_again(news: str) -> None:
    disk, log, said = _with_news_in(7, news)
    before = _contents(disk)
    with pytest.raises(UnknownFormat, match=said):
        append(log, 7, log.read(6).link)
    assert _contents(disk) == before


# Packs


def _packed() -> SimulatedDisk:
    disk = SimulatedDisk()
    log = open_log(disk.storage())
    fill(log, _BATCHES)
    log.merge(3)
    return disk


@pytest.mark.parametrize("what", ["read", "read_footer"])
def test_a_pack_of_a_later_version_is_refused(what: str) -> None:
    disk = _packed()
    renew_pack(disk.storage(), _PACK)
    with pytest.raises(UnknownFormat, match="version 3"):
        getattr(open_log(disk.storage()), what)(2)


@pytest.mark.parametrize("what", ["repair", "trim", "truncate"])
def test_a_pack_of_a_later_version_stays_where_it_is(what: str) -> None:
    disk = _packed()
    renew_pack(disk.storage(), _PACK)
    before = _contents(disk)
    log = open_log(disk.storage())
    does: dict[str, Callable[[], object]] = {
        "repair": log.repair,
        "trim": lambda: log.trim(6),
        "truncate": lambda: log.set_aside_after(1),
    }
    with pytest.raises(UnknownFormat, match="version 3"):
        does[what]()
    assert _contents(disk) == before
    assert {problem.trouble for problem in log.verify().problems} == {"unknown"}


@pytest.mark.parametrize("what", ["read", "repair", "trim", "truncate"])
def test_a_pack_with_news_in_it_stays_where_it_is(news: str, what: str) -> None:
    disk = _packed()
    renew_in_pack(disk.storage(), _PACK, 2, news)
    before = _contents(disk)
    log = open_log(disk.storage())
    does: dict[str, Callable[[], object]] = {
        "read": lambda: log.read(2),
        "repair": log.repair,
        "trim": lambda: log.trim(6),
        "truncate": lambda: log.set_aside_after(1),
    }
    assert log.read(1).batch == 1
    with pytest.raises(UnknownFormat, match=NEWS[news][1]):
        does[what]()
    assert _contents(disk) == before


def test_a_damaged_pack_is_not_taken_apart_if_that_would_lose_news(news: str) -> None:
    disk = _packed()
    size = len(renew_in_pack(disk.storage(), _PACK, 2, news))
    disk.flip(_PACK, size - 30, 0)
    before = _contents(disk)
    with pytest.raises(UnknownFormat, match=NEWS[news][1]):
        open_log(disk.storage()).repair()
    assert _contents(disk) == before


# Readers


def test_a_reader_of_an_unknown_stream_is_kept_and_holds_everything() -> None:
    storage = SimulatedDisk().storage()
    register(storage, "billing", Stream.INPUT, 3)
    body = {"name": "billing", "needs": 3, "seen_us": 5, "stream": "sketches"}
    storage.replace("readers/billing.json", [guarded(body)])
    for ask in (
        lambda: read_reader(storage, "billing"),
        lambda: registered(storage),
        lambda: register(storage, "billing", Stream.INPUT, 0),
    ):
        with pytest.raises(UnknownFormat, match="stream 'sketches'"):
            ask()
    assert bytes(storage.read("readers/billing.json")) == guarded(body)
