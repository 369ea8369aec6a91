"""When a heartbeat may be sent, by the order in which Spark asks."""

from __future__ import annotations

from trailmark.spark.heartbeats import AskedInVain, HeartbeatReader

_EVERY = 500


class _Spark:
    """Asks as Spark does: all sources, then `commit` and the batch if any of them has something.

    It begins with a batch, of all sources, whether they have anything or not.
    """

    def __init__(self) -> None:
        self.now = 1_000_000
        self.reader = HeartbeatReader(_EVERY, lambda: self.now)
        self.stands = self.reader.initialOffset()
        self.batches = 0
        self.told: list[int] = []

    def trigger(self, *, has_rows: bool = False) -> None:
        self.now += 100
        latest = self.reader.latestOffset(self.stands)
        if latest == self.stands and not has_rows and self.batches:
            return
        if self.batches:
            self.reader.commit(self.stands)
        if latest != self.stands or not self.batches:
            for partition in self.reader.partitions(self.stands, latest):
                assert isinstance(partition, AskedInVain)
                self.told += [asked for (asked,) in self.reader.read(partition)]
        self.stands = latest
        self.batches += 1


def test_while_rows_come_nothing_is_said() -> None:
    spark = _Spark()
    for _ in range(50):
        spark.trigger(has_rows=True)
    assert spark.told == []


def test_a_time_is_told_at_which_all_sources_were_asked_afterwards_in_vain() -> None:
    spark = _Spark()
    spark.trigger(has_rows=True)
    spark.trigger(has_rows=True)
    last_rows = spark.now
    for _ in range(3):
        spark.trigger()
    # Asked in vain the first time: another source may have been asked just before. The second time
    # all were asked after the first; the third tells.
    assert spark.told == [last_rows + 100]


def test_the_first_batch_of_a_query_is_not_taken_for_silence() -> None:
    """Spark calls no commit before it, but asks for its partitions."""
    spark = _Spark()
    spark.trigger(has_rows=True)
    first = spark.now
    for _ in range(20):
        spark.trigger()
    assert spark.told
    assert all(asked > first for asked in spark.told)


def test_it_is_told_again_only_after_a_while() -> None:
    spark = _Spark()
    for _ in range(100):
        spark.trigger()
    apart = [later - earlier for earlier, later in zip(spark.told, spark.told[1:], strict=False)]
    assert apart
    assert min(apart) >= _EVERY
    assert max(apart) <= _EVERY + 300


def test_rows_in_between_begin_it_anew() -> None:
    spark = _Spark()
    for _ in range(20):
        spark.trigger()
        spark.trigger(has_rows=True)
    assert spark.told == []


def test_a_clock_that_goes_back_is_waited_for() -> None:
    spark = _Spark()
    for _ in range(20):
        spark.trigger()
    newest = spark.told[-1]
    spark.now -= 10_000
    for _ in range(20):
        spark.trigger()
    assert spark.told[-1] == newest


def test_a_batch_that_is_repeated_says_the_same() -> None:
    reader = HeartbeatReader(_EVERY)
    (partition,) = reader.partitions({"asked_us": 5}, {"asked_us": 9})
    assert list(reader.read(partition)) == [(9,)]
    assert reader.partitions({"asked_us": 9}, {"asked_us": 9}) == []


def test_a_run_that_ends_by_itself_sends_none() -> None:
    spark = _Spark()
    spark.reader.prepareForTriggerAvailableNow()
    for _ in range(20):
        spark.trigger()
    assert spark.told == []
