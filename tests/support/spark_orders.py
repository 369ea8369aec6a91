"""What queries on Spark are given, what they must give, and what they left behind.

Expected results come from the oracle, which is fed the files batch by batch. A shuffle does not
keep the order of rows, and count windows depend on it; so all orders of an item in one file have
the same price and weight, and any order gives the same results. Times do differ: time windows do
not depend on the order.

A batch is one file, except after a kill between the moment the file source has noted a file and the
moment Spark has planned the batch: then it is that file and the next. So files that follow one
another have different items, and which files a batch had is read from Spark's checkpoint. A query
with time windows also has batches without a file, when the watermark has moved.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.compare import assert_same_rows
from tests.support.oracle import Oracle, Row
from tests.support.plain import batch_of
from tests.support.spark_chain import chain_paths, chain_results
from tests.support.spark_query import Query, plain_values
from trailmark.engine.progress import Recovery, read_progress
from trailmark.log import open_storage, read_meta
from trailmark.records import NO_BATCH
from trailmark.windows.spec import TimeWindow

SCHEMA = pa.schema(
    [
        ("item", pa.int32()),
        ("price", pa.int64()),
        ("weight", pa.float64()),
        ("time", pa.timestamp("us", tz="UTC")),
    ]
)
_SECOND_US = 1_000_000
#: So many files in a row have no item in common. Windows are longer than that: with fewer orders of
#: an item, a recovery would find all it needs in footprints and have nothing to replay.
_APART = 3
_START_US = 1_700_000_000 * _SECOND_US

Order = tuple[int, int | None, float | None, int | None]


@dataclass
class Orders:
    """Files of orders in a directory, each of them made from the seed and its number alone."""

    directory: Path
    seed: int
    rows: int = 400
    items: int = 60
    files: list[list[Order]] = field(default_factory=list)

    def feed(self, count: int) -> None:
        """Adds files. Spark takes them by the time of their last change, and sees whole ones."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for _ in range(count):
            number = len(self.files)
            orders = self._make(number)
            aside = self.directory.parent / f"{self.directory.name}.{number}.unfinished"
            pq.write_table(pa.Table.from_batches([batch_of(SCHEMA, orders)]), aside)
            changed = _START_US // _SECOND_US + 10 * number
            os.utime(aside, (changed, changed))
            aside.rename(self.directory / f"{number:06d}.parquet")
            self.files.append(orders)

    def feed_until(self, count: int, *, ahead_of: int) -> None:
        """Adds files until there are so many that were not taken."""
        self.feed(ahead_of + count - len(self.files))

    def _make(self, number: int) -> list[Order]:
        rng = random.Random(f"{self.seed} {number}")
        now = _START_US + 4 * _SECOND_US * number
        values: dict[int, tuple[int | None, float | None]] = {}
        made: list[Order] = []
        for _ in range(rng.randint(self.rows // 2, self.rows)):
            item = rng.randrange(self.items) * _APART + number % _APART
            price = rng.randrange(1_000_000)
            # Without price, weight and time, an order looks like a control row of the plan.
            price_and_weight = (None, None) if rng.random() < 0.05 else (price, price / 7)
            values.setdefault(item, price_and_weight)
            at = now + rng.randint(-9 * _SECOND_US, 4 * _SECOND_US)
            made.append((item, *values[item], None if rng.random() < 0.05 else at))
        return made


def batches_of(query: Query, orders: Orders) -> list[list[Order]]:
    """The orders of every batch that Spark has committed."""
    batches: list[list[Order]] = []
    taken = 0
    for batch in range(newest_of(query, "commits") + 1):
        end = _files_before_end(query, batch)
        assert 0 <= end - taken <= _APART, f"batch {batch} has {end - taken} files"
        if end == taken:
            assert query.window == "time", f"batch {batch} has no file"
            assert batches[-1], f"batch {batch} was not due"
        batches.append([order for file in orders.files[taken:end] for order in file])
        taken = end
    assert taken == len(orders.files), f"{taken} of {len(orders.files)} files were read"
    return batches


def _files_before_end(query: Query, batch: int) -> int:
    _, _, files, *_ = Path(query.checkpoint, "offsets", str(batch)).read_text().splitlines()
    return int(json.loads(files)["logOffset"]) + 1


def files_taken(query: Query) -> int:
    """How many files the committed batches have read."""
    newest = newest_of(query, "commits")
    return 0 if newest == NO_BATCH else _files_before_end(query, newest)


def expected_results(query: Query, batches: Sequence[Sequence[Order]]) -> list[Row]:
    """What the oracle gives for the orders of each batch."""
    if query.window == "chain":
        named = [[dict(zip(SCHEMA.names, order, strict=True)) for order in b] for b in batches]
        return chain_results(SCHEMA, named)
    window = query.spec()
    oracle = Oracle(SCHEMA, by=["item"], window=window, values=plain_values())
    results: list[Row] = []
    late_before: int | None = None
    latest: int | None = None
    for number, orders in enumerate(batches):
        rows = [dict(zip(SCHEMA.names, order, strict=True)) for order in orders]
        watermark = None
        if isinstance(window, TimeWindow) and latest is not None:
            watermark = latest - window.delay
        outcome = oracle.process(number, rows, late_before, watermark)
        results += oracle.published(outcome.results)
        late_before = watermark
        times = [order[3] for order in orders if order[3] is not None]
        latest = max([*times, *([] if latest is None else [latest])], default=None)
    return results


def make_query(
    directory: Path,
    orders: Orders,
    window: str,
    *,
    name: str | None = None,
    buckets: int = 2,
    slow_s: float = 0.0,
) -> Query:
    """A query with all its directories below one of its own."""
    own = directory / (name or window)
    (own / "trap").mkdir(parents=True)
    return Query(
        name=name or window,
        input=str(orders.directory),
        path=str(own / "log"),
        checkpoint=str(own / "checkpoint"),
        out=str(own / "out"),
        cache=str(own / "cache"),
        trap=str(own / "trap"),
        window=window,
        buckets=buckets,
        slow_s=slow_s,
    )


# What a query left behind


def newest_after(query: Query, orders: Orders) -> int:
    """The newest batch of a query that has run once: one file each, and a tick for time windows."""
    return len(orders.files) - (0 if query.window == "time" else 1)


def sink_files(out: str) -> list[Path]:
    """The files that belong to the sink: the others are of batches that were not completed."""
    log = Path(out) / "_spark_metadata"
    names = [path.name for path in log.iterdir() if not path.name.startswith(".")]
    compacted = max((int(n.split(".")[0]) for n in names if n.endswith(".compact")), default=-1)
    plain = sorted(int(name) for name in names if name.isdigit() and int(name) > compacted)
    logs = [f"{compacted}.compact"] if compacted >= 0 else []
    files: list[Path] = []
    for name in [*logs, *map(str, plain)]:
        version, *entries = (log / name).read_text().splitlines()
        assert version == "v1", f"{name}: {version}"
        for entry in map(json.loads, entries):
            assert entry["action"] == "add", entry
            files.append(Path(unquote(urlparse(entry["path"]).path)))
    assert len(set(files)) == len(files), "a file counts once"
    return files


def sink_content(query: Query) -> pa.RecordBatch:
    tables = [
        pq.ParquetFile(path, coerce_int96_timestamp_unit="us").read()
        for path in sink_files(query.out)
    ]
    table = pa.concat_tables(tables).combine_chunks()
    if query.window == "time":
        bounds = table.column("window").combine_chunks()
        table = table.drop_columns(["window"])
        for end in ("start", "end"):
            table = table.append_column(f"window_{end}", bounds.field(end))
    batches = table.combine_chunks().to_batches()
    assert len(batches) == 1, "the sink is not empty"
    return batches[0]


def assert_sink_is_right(query: Query, orders: Orders) -> None:
    """Every result of every file is in the sink, exactly once."""
    expected = expected_results(query, batches_of(query, orders))
    assert len(expected) > 100, "a test without results proves nothing"
    assert_same_rows(sink_content(query), expected, f"sink of query {query.name}")


def newest_of(query: Query, log: str) -> int:
    """The newest batch in ``offsets`` (planned) or ``commits`` (done) of Spark's checkpoint."""
    try:
        names = os.listdir(f"{query.checkpoint}/{log}")
    except FileNotFoundError:
        return NO_BATCH
    return max((int(name) for name in names if name.isdigit()), default=NO_BATCH)


def operator_paths(query: Query) -> list[str]:
    return list(chain_paths(query).values()) if query.window == "chain" else [query.path]


def newest_segments(query: Query, path: str, stream: str) -> list[int]:
    """The newest batch of each bucket in the ``in`` or ``out`` log of an operator."""
    found = []
    for bucket in range(query.buckets):
        directory = Path(path) / stream / f"{bucket:05d}"
        names = [path.stem for path in directory.glob("*.seg")] if directory.exists() else []
        found.append(max((int(name.split("-")[-1]) for name in names), default=NO_BATCH))
    return found


def recoveries(query: Query) -> list[Recovery]:
    """All recoveries of a query that has come to an end."""
    return recoveries_in(query.path, newest_of(query, "commits"))


def recoveries_in(path: str | Path, last: int) -> list[Recovery]:
    """All recoveries of an operator up to a batch, from the footers of its log."""
    storage = open_storage(path)
    meta = read_meta(storage)
    assert meta is not None
    found: list[Recovery] = []
    for batch in range(last + 1):
        found += read_progress(storage, meta, batch).recoveries
    return found


def fingerprints(*directories: str) -> dict[str, str]:
    """Every file below the directories, with a digest of its content."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for directory in directories
        for path in sorted(Path(directory).rglob("*"))
        if path.is_file()
    }
