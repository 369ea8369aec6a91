"""The same query several times, and one that follows its replicas."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import trailmark as tm
from tests.support.replica_streams import START, Streams, at, replica_query
from tests.support.spark_apply import Count
from tests.support.spark_runs import Application, wait_until
from tests.support.spark_union import NAMES, REPLICA_WINDOW_S
from trailmark.cli import main
from trailmark.errors import SettingError
from trailmark.log import LocalStorage
from trailmark.log.readers import read_reader


def _replica(
    streams: Streams, root: Path, name: str, answer_within: str | None = None, **given: Any
) -> DataFrame:
    rows = tm.union(
        {each: streams.root / each for each in NAMES},
        time="time",
        path=root / name / "union",
        interval="500 ms",
        reader=name,
        answer_within=answer_within,
    )
    return _counts(rows, root / name / "counts", **given)


def _counts(rows: DataFrame, path: Path, **given: Any) -> DataFrame:
    asked = {
        "by": "item",
        "window": tm.time_window("time", f"{REPLICA_WINDOW_S} seconds"),
        "values": {"n": tm.count(), "total": tm.sum("price")},
        "buckets": 2,
        "numbered": True,
    }
    return tm.aggregate(rows, path=path, **{**asked, **given})


def _paths(root: Path) -> list[Path]:
    return [root / name / "counts" for name in ("a", "b")]


def _follow(spark: SparkSession, paths: list[Path], **options: str) -> DataFrame:
    reader = spark.readStream.format("trailmark").options(**options)
    return reader.option("replicas", ",".join(map(str, paths))).load()


Row = tuple[Any, ...]


class Followed:
    """What a query has got that follows replicas."""

    def __init__(self, df: DataFrame, checkpoint: Path) -> None:
        self._df = df
        self._checkpoint = checkpoint
        self.rows: Counter[Row] = Counter()

    def start(self) -> StreamingQuery:
        def keep(rows: DataFrame, number: int) -> None:
            self.rows += _rows(rows)

        writer = self._df.writeStream.foreachBatch(keep)
        return writer.option("checkpointLocation", str(self._checkpoint)).start()

    @contextmanager
    def running(self) -> Iterator[StreamingQuery]:
        query = self.start()
        try:
            yield query
        finally:
            query.stop()

    def wait_for(self, windows: Counter[Row]) -> None:
        wait_until("all windows come", lambda: self.rows.total() >= windows.total())
        assert self.rows == windows


class Table:
    """Rows that stand, and tentative ones with their versions, kept by a change feed of replicas as
    docs/high-availability.md says."""

    def __init__(self, df: DataFrame, checkpoint: Path) -> None:
        self._df = df
        self._checkpoint = checkpoint
        self._tentative: list[tuple[int, Row]] = []
        self._applied = -1
        self.stable: Counter[Row] = Counter()

    @contextmanager
    def running(self) -> Iterator[StreamingQuery]:
        writer = self._df.writeStream.foreachBatch(self._keep)
        query = writer.option("checkpointLocation", str(self._checkpoint)).start()
        try:
            yield query
        finally:
            query.stop()

    def tentative(self) -> Counter[Row]:
        return Counter(row for _, row in self._tentative)

    def _keep(self, changes: DataFrame, number: int) -> None:
        rows, tentative = changes.collect(), self._tentative
        for change in rows:
            if change._change_type == "undo":
                tentative = [each for each in tentative if each[0] >= change._commit_version]
        new = [row for row in rows if row._change_type == "insert"]
        new = [row for row in new if row._commit_version > self._applied]
        self._tentative = tentative + [
            (row._commit_version, _plain(row)) for row in new if row.tentative
        ]
        self.stable += Counter(_plain(row) for row in new if not row.tentative)
        self._applied = max((row._commit_version for row in new), default=self._applied)


def _rows(rows: DataFrame) -> Counter[Row]:
    return Counter(map(_plain, rows.collect()))


def _plain(row: Any) -> Row:
    begin = round(row.window.start.timestamp() - START.timestamp())
    return row.item, begin, row.n, row.total


def test_what_is_tentative_is_that_of_one_replica_and_then_of_another(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A stream falls silent for both; then the replica that was followed stops, too."""
    streams, paths = Streams(tmp_path / "in"), _paths(tmp_path)
    streams.go_on(4)
    names, running = ("a", "b"), {}
    with ExitStack() as until_the_end:
        for name in names:
            df = _replica(streams, tmp_path, name, "1 second")
            writer = df.writeStream.format("noop").option(
                "checkpointLocation", str(tmp_path / name / "check")
            )
            running[name] = writer.start()
            until_the_end.callback(running[name].stop)
            running[name].processAllAvailable()
        feed = _follow(spark, paths, readChangeFeed="true", reader="sums")
        table = Table(feed, tmp_path / "followed")

        def wait_for_answers() -> None:
            """The other stream alone, for all that is not complete."""
            answers = streams.windows(NAMES[0])
            expected = Counter({row: 1 for row in answers if row[1] >= streams.seconds})
            wait_until("what is there is answered", lambda: table.tentative() == expected)
            assert table.stable == streams.windows()

        with table.running():
            wait_until("all windows stand", lambda: table.stable == streams.windows())
            streams.go_on(4, NAMES[0])
            wait_for_answers()
            refused = _follow(spark, paths, answers="all", reader="next")
            values, pairs = {"n": tm.sum("n")}, tm.count_window(2)
            with pytest.raises(SettingError, match="Rows of replicas may be tentative"):
                tm.aggregate(
                    refused, by="item", window=pairs, values=values, path=tmp_path / "next"
                )
            current = spark.read.format("trailmark").option("answers", "current")
            found = current.option("replicas", ",".join(map(str, paths))).load()
            assert _rows(found.where("tentative")) == table.tentative()
            assert _rows(found.where("not tentative")) == table.stable
            followed = next(each for each in names if _follows(tmp_path / each / "counts"))
            running[followed].stop()
            streams.go_on(6, NAMES[0])
            wait_for_answers()
        with table.running():  # from where it was
            streams.go_on(10, NAMES[1])
            wait_until("all windows stand", lambda: table.stable == streams.windows())
            wait_until("nothing is tentative", lambda: not table.tentative())


def _run(df: DataFrame, checkpoint: Path, **trigger: Any) -> None:
    writer = df.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    writer.trigger(**(trigger or {"availableNow": True})).start().awaitTermination()


def test_one_is_followed_and_then_another(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    streams = Streams(tmp_path / "in")
    streams.go_on(10)
    one, other = (_replica(streams, tmp_path, name) for name in ("a", "b"))
    _run(one, tmp_path / "a" / "check")
    paths = _paths(tmp_path)
    followed = Followed(_follow(spark, [paths[0], paths[1]], reader="sums"), tmp_path / "followed")
    with followed.running():
        followed.wait_for(streams.windows())
        # The other one takes everything as one batch, and goes further.
        streams.go_on(7)
        _run(other, tmp_path / "b" / "check")
        followed.wait_for(streams.windows())
        wait_until(
            "both keep what it needs, and know whom it follows",
            lambda: [_follows(path) for path in paths] == [False, True],
        )
        # What the first one has is taken from there again, and what was read is not repeated.
        streams.go_on(6)
        _run(one, tmp_path / "a" / "check")
        followed.wait_for(streams.windows())
        assert _compare(paths, capsys) == (0, streams.windows().total() - 15)
        paths[0].rename(tmp_path / "gone")  # at once: the reader goes on to say what it needs
        streams.go_on(4)
        _run(other, tmp_path / "b" / "check")
        followed.wait_for(streams.windows())
    table = tm.read_table([paths[0], paths[1]])
    assert table.num_rows == streams.windows().total()
    batch = spark.read.format("trailmark").option("replicas", f"{paths[0]},{paths[1]}").load()
    assert _rows(batch) == streams.windows()
    behind = tm.aggregate(
        _follow(spark, paths),
        by="item",
        window=tm.count_window(2),
        values={"n": tm.sum("n")},
        path=tmp_path / "next",
    )
    assert f"replicas {paths[0]},{paths[1]}" in str(tm.explanation(behind))
    _run(behind, tmp_path / "next-check")
    pairs = sum(len(of) // 2 for of in _by_item(streams.windows()).values())
    assert tm.read_table(tmp_path / "next").num_rows == pairs


def _by_item(windows: Counter[Row]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for row in windows:
        found.setdefault(row[0], []).append(row)
    return found


def _follows(path: Path) -> bool | None:
    reader = read_reader(LocalStorage(path), "sums")
    return None if reader is None else reader.follows


def _compare(paths: list[Path], capsys: pytest.CaptureFixture[str]) -> tuple[int, int]:
    capsys.readouterr()
    code = main(["compare", *map(str, paths), "--json"])
    return code, json.loads(capsys.readouterr().out)["compared"]


def test_one_that_is_of_other_streams_is_not_followed(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    streams, others = Streams(tmp_path / "in"), Streams(tmp_path / "others")
    streams.go_on(10)
    others.go_on(4)
    others.add(NAMES[0], {"time": at(5), "item": 1, "price": 10**6})
    others.go_on(20)
    _run(_replica(streams, tmp_path, "a"), tmp_path / "a" / "check")
    _run(_replica(others, tmp_path, "b"), tmp_path / "b" / "check")
    paths = _paths(tmp_path)
    followed = Followed(_follow(spark, [paths[0]]), tmp_path / "followed")
    with followed.running() as query:
        followed.wait_for(streams.windows())
        query.processAllAvailable()  # else the batch may be there again with the next query
    both = Followed(_follow(spark, paths), tmp_path / "followed")
    both.rows = followed.rows
    with both.running() as query:
        query.processAllAvailable()
        streams.go_on(6)
        _run(_replica(streams, tmp_path, "a"), tmp_path / "a" / "check")
        both.wait_for(streams.windows())
    code, _ = _compare(paths, capsys)
    assert code == 1
    assert main(["compare", *map(str, paths)]) == 1
    said = capsys.readouterr().out
    assert "differs from number" in said
    assert said.count("$start=") >= 2, "of both, the result that differs"


def test_what_cannot_be_the_same_everywhere_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    streams = Streams(tmp_path / "in")
    streams.go_on(2)
    rows = tm.union(
        {each: streams.root / each for each in NAMES}, time="time", path=tmp_path / "union"
    )
    source = spark.readStream.format("trailmark").load(str(streams.root / NAMES[0]))
    items = spark.createDataFrame([(1, "one")], "item int, name string")
    cases: list[tuple[str, Callable[[], DataFrame]]] = [
        ("numbered must be True", lambda: _counts(rows, tmp_path / "x", numbered=1)),
        (
            "depends on the cores|cores that a replica",
            lambda: _counts(rows, tmp_path / "x", buckets=None),
        ),
        ("loss", lambda: _counts(rows, tmp_path / "x", loss="bounded", recover_within="1 second")),
        ("tm.union", lambda: _counts(source, tmp_path / "x")),
        # Rows with one time would come from several tasks, in whatever order these end.
        ("in its order", lambda: _counts(rows.repartition(3), tmp_path / "x")),
        ("in its order", lambda: _counts(rows.join(items, "item"), tmp_path / "x")),
        *[
            (f"(?i){name}.* is something else whenever", partial(_counts, each, tmp_path / "x"))
            for name, each in {
                "rand": rows.where(F.rand() < 0.5),
                "uuid": rows.withColumn("id", F.expr("uuid()")),
                "current_timestamp": rows.where("time < current_timestamp()"),
                "monotonically": rows.withColumn("n", F.monotonically_increasing_id()),
            }.items()
        ],
        ("order_by", lambda: _counts(rows, tmp_path / "x", window=tm.count_window(3))),
        ("kept in the logs", lambda: _applied(rows, checkpoint=None)),
        ("no event time", lambda: _applied(rows, path=tmp_path / "x")),
    ]
    for what, make in cases:
        with pytest.raises((SettingError, TypeError), match=what):
            make()
    idle = tm.union(
        {each: streams.root / each for each in NAMES},
        time="time",
        path=tmp_path / "idle",
        delay="1 second",
        idle_after="5 seconds",
    )
    with pytest.raises(SettingError, match="idle_after"):
        _counts(idle, tmp_path / "x")
    twice = rows.withColumn("twice", F.col("item") * 2).where("length(string(twice)) < 9")
    _counts(twice, tmp_path / "x")  # is the same wherever it is computed


def _applied(rows: DataFrame, **given: Any) -> DataFrame:
    asked = {"by": "item", "schema": "item int, n long", "buckets": 2, "numbered": True}
    return tm.apply(rows, Count, **{**asked, **given})


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"replicas": "a,,b"}, "no paths of replicas"),
        ({"replicas": "a,a"}, "no paths of replicas"),
        ({"replicas": "a,b", "answers": "each"}, "no answers of an operator"),
        ({"replicas": "a,b", "answers": "all", "readChangeFeed": "true"}, "say nothing"),
        ({"replicas": "a,b", "startingBatch": "3"}, "startingBatch"),
        ({"replicas": "/nowhere/a,/nowhere/b"}, "None of the replicas has begun"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    spark: SparkSession, options: dict[str, str], what: str
) -> None:
    with pytest.raises((AnalysisException, SettingError), match=what):
        spark.readStream.format("trailmark").options(**options).load()


def test_operators_without_numbers_and_others_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    streams = Streams(tmp_path / "in")
    streams.go_on(4)
    _run(_replica(streams, tmp_path, "a", numbered=False), tmp_path / "a" / "check")
    _run(_replica(streams, tmp_path, "b"), tmp_path / "b" / "check")
    _run(_replica(streams, tmp_path, "c", buckets=3), tmp_path / "c" / "check")
    a, b, c = (tmp_path / name / "counts" for name in "abc")
    with pytest.raises(AnalysisException, match="numbered=True"):
        _follow(spark, [a, b])
    with pytest.raises(AnalysisException, match=r"(?s)no replicas of one another.*buckets: 2 -> 3"):
        _follow(spark, [b, c])


def test_replicas_are_killed_in_turn_and_nobody_notices(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    streams = Streams(tmp_path / "in")
    streams.go_on(4)
    queries = {name: replica_query(tmp_path, name) for name in ("a", "b")}
    with ExitStack() as until_the_end:

        def started(name: str, life: int) -> Application:
            directory = tmp_path / f"{name}-{life}"
            application = Application(directory, [queries[name]], master="local[1]")
            return until_the_end.enter_context(application)

        running = {name: started(name, 0) for name in queries}
        for name, application in running.items():
            application.wait_for_batch(queries[name])
        paths = [Path(query.path) for query in queries.values()]
        followed = Followed(_follow(spark, paths, reader="sums"), tmp_path / "followed")
        with followed.running():
            streams.go_on(4)
            followed.wait_for(streams.windows())
            for life, name in enumerate(("a", "b"), start=1):
                running[name].kill_driver(with_workers=True)
                streams.go_on(6)
                followed.wait_for(streams.windows())
                running[name] = started(name, life)
                # What it missed it takes in as one batch, or as other ones than the other had.
                running[name].wait_for_batch(queries[name])
        streams.go_on(2)
        wait_until(
            "both have everything",
            lambda: _compare(paths, capsys) == (0, streams.windows().total()),
        )
    with followed.running():
        followed.wait_for(streams.windows())
