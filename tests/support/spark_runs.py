"""Runs of Spark applications: their input, their processes, and whether the results are right.

Expected results come from the oracle, which is fed the files batch by batch. A shuffle does not
keep the order of rows, and count windows depend on it; so all orders of an item in one file have
the same price and weight, and any order gives the same results. Times do differ: time windows do
not depend on the order.

A batch is one file, except after a kill between the moment the file source has noted a file and the
moment Spark has planned the batch: then it is that file and the next. So files that follow one
another have different items, and which files a batch had is read from Spark's checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark

from tests.support.compare import assert_same_rows
from tests.support.oracle import Oracle, Row
from tests.support.plain import batch_of
from tests.support.spark_query import Config, Query, plain_values
from trailmark.engine.progress import Recovery, read_progress
from trailmark.log import open_storage, read_meta
from trailmark.records import NO_BATCH
from trailmark.windows.spec import TimeWindow

_REPOSITORY = Path(__file__).parents[2]
#: Far more than anything takes here, on a busy machine too.
PATIENCE_S = 120.0

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


# Input


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
        assert 1 <= end - taken <= _APART, f"batch {batch} has {end - taken} files"
        batches.append([order for file in orders.files[taken:end] for order in file])
        taken = end
    assert taken == len(orders.files), f"{taken} of {len(orders.files)} files were read"
    return batches


def _files_before_end(query: Query, batch: int) -> int:
    *_, offset = Path(query.checkpoint, "offsets", str(batch)).read_text().splitlines()
    return int(json.loads(offset)["logOffset"]) + 1


def files_taken(query: Query) -> int:
    """How many files the committed batches have read."""
    newest = newest_of(query, "commits")
    return 0 if newest == NO_BATCH else _files_before_end(query, newest)


def expected_results(query: Query, batches: Sequence[Sequence[Order]]) -> list[Row]:
    """What the oracle gives for the orders of each batch."""
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


# What a query left behind


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


def newest_segments(query: Query, stream: str) -> list[int]:
    """The newest batch of each bucket in the ``in`` or ``out`` log."""
    found = []
    for bucket in range(query.buckets):
        directory = Path(query.path) / stream / f"{bucket:05d}"
        names = [path.stem for path in directory.glob("*.seg")] if directory.exists() else []
        found.append(max((int(name.split("-")[-1]) for name in names), default=NO_BATCH))
    return found


def recoveries(query: Query) -> list[Recovery]:
    """All recoveries of a query that has come to an end, from the footers of its log."""
    storage = open_storage(query.path)
    meta = read_meta(storage)
    assert meta is not None
    found: list[Recovery] = []
    for batch in range(newest_of(query, "commits") + 1):
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


# Processes


@dataclass(frozen=True)
class Process:
    """A process as /proc shows it."""

    pid: int
    parent: int
    session: int
    command: str


def all_processes() -> Iterator[Process]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError):
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                command = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ")
                if fields[0] not in "ZX":
                    text = command.decode(errors="replace")
                    yield Process(int(name), int(fields[1]), int(fields[3]), text)


def wait_until(what: str, is_so: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    until = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < until, f"waited in vain: {what}"
        time.sleep(0.01)


def _kill(processes: Sequence[Process]) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


class Application:
    """A Spark application in processes of its own; whatever is left of it ends with the test.

    Parameters
    ----------
    directory
        For its configuration and all that Spark writes beside the queries' own directories.
    queries
        What it runs first.
    wrapper
        A command to run it under.
    """

    def __init__(
        self,
        directory: Path,
        queries: Sequence[Query],
        *,
        master: str = "local[2]",
        conf: dict[str, str] | None = None,
        serve: bool = False,
        wrapper: Sequence[str] = (),
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        config = directory / "config.json"
        Config(master, str(directory), list(queries), conf or {}, serve).write(config)
        self._said: list[str] = []
        self._rounds = 0  # that of the configuration
        self._errors = directory / "stderr"
        with open(self._errors, "ab") as errors:
            self._process = subprocess.Popen(
                [*wrapper, sys.executable, "-m", "tests.support.spark_query", str(config)],
                cwd=_REPOSITORY,
                env=_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._said.append(line.rstrip("\n"))

    @property
    def said(self) -> list[str]:
        return list(self._said)

    def batches(self, name: str) -> list[int]:
        """The batches of a query that this application has committed."""
        marks = [line.split() for line in self.said if line.startswith(f"batch {name} ")]
        return [int(mark[2]) for mark in marks]

    def wait_until(self, what: str, is_so: Callable[[], bool]) -> None:
        """Waits for something to happen while the application runs."""

        def has_come() -> bool:
            if is_so():
                return True
            assert self.is_running, f"{what}: it ended before\n{self.story()}"
            return is_so()

        try:
            wait_until(what, has_come)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.story()}") from None

    def wait_for_batch(self, query: Query, batch: int = 0) -> None:
        """Waits until a query has committed a batch that is not before this one."""
        self.wait_until(
            f"batch {batch} of {query.name}",
            lambda: any(done >= batch for done in self.batches(query.name)),
        )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def run(self, queries: Sequence[Query]) -> str:
        """Lets a serving application run queries to the end; returns the message of a failure."""
        return self.start(queries).outcome()

    def start(self, queries: Sequence[Query]) -> Round:
        """Lets a serving application run queries, after those that it was given before."""
        assert self._process.stdin is not None
        self._rounds += 1
        self._process.stdin.write(json.dumps([asdict(query) for query in queries]) + "\n")
        self._process.stdin.flush()
        return Round(self, self._rounds)

    def outcomes(self) -> list[str]:
        """What became of the rounds that have ended: the message of a failure, or nothing."""
        ends = [line for line in self.said if line.startswith(("finished", "failed "))]
        return [json.loads(end[7:]) if end.startswith("failed ") else "" for end in ends]

    def finish(self) -> None:
        """Waits for it to end by itself, with everything done, and to leave nothing behind."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end\n{self.story()}") from None
        assert code == 0, self.story()
        wait_until("all its processes are gone", lambda: not self.processes(), 30)
        self.close()

    # Harm

    def processes(self) -> list[Process]:
        """All that belong to it: Python's daemons leave the process group, not the session."""
        return [p for p in all_processes() if p.session == self._process.pid]

    def workers(self) -> list[int]:
        """Python workers: the children of pyspark's daemons."""
        found = self.processes()
        daemons = {p.pid for p in found if "pyspark.daemon" in p.command}
        return [p.pid for p in found if p.parent in daemons]

    def executor_of(self, worker: int) -> int:
        """The executor JVM that a Python worker works for."""
        found = {p.pid: p for p in self.processes()}
        executor = found[found[found[worker].parent].parent]
        assert "CoarseGrainedExecutorBackend" in executor.command, executor
        return executor.pid

    def executors(self) -> list[int]:
        return [p.pid for p in self.processes() if "CoarseGrainedExecutorBackend" in p.command]

    def kill_driver(self, *, with_workers: bool) -> None:
        """kill -9 of the driver's Python and JVM; its Python workers notice, or die with it."""
        assert self.is_running, f"it ended before it was killed\n{self.story()}"
        others = self.processes() if with_workers else []
        os.killpg(self._process.pid, signal.SIGKILL)
        _kill(others)
        assert self._process.wait(PATIENCE_S) == -signal.SIGKILL
        self._drain()

    def kill(self, pid: int) -> None:
        """kill -9 of one of its processes, and wait until it is gone."""
        _kill([process for process in self.processes() if process.pid == pid])
        self.wait_until("it is gone", lambda: pid not in {p.pid for p in self.processes()})

    def close(self) -> None:
        """Ends what is left of it."""
        _kill(self.processes())
        self._process.wait(PATIENCE_S)
        self._drain()

    def _drain(self) -> None:
        """Takes in the last words of a process that has ended."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._reader.join(PATIENCE_S)

    def __enter__(self) -> Application:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def errors(self) -> str:
        """What Spark and the workers have logged, those of earlier runs in the directory too."""
        return self._errors.read_text(errors="replace")

    def story(self) -> str:
        """For the message of a failed test."""
        return "\n".join([*self.said[-20:], "--- stderr:", self.errors()[-6000:]])


@dataclass(frozen=True)
class Round:
    """Queries that an application runs side by side."""

    application: Application
    number: int

    @property
    def has_ended(self) -> bool:
        return len(self.application.outcomes()) > self.number

    def outcome(self) -> str:
        """Waits for the end; the message of a failure, or nothing."""
        self.application.wait_until("the end of the queries", lambda: self.has_ended)
        return self.application.outcomes()[self.number]


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(_REPOSITORY),
        "SPARK_HOME": os.path.dirname(pyspark.__file__),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


class Cluster:
    """A standalone cluster with one worker per address.

    Spark starts the twin of a task on another host only, and all executors of ``local-cluster`` are
    on the same one. Here, every loopback address is a host.
    """

    def __init__(self, directory: Path, hosts: Sequence[str]) -> None:
        self._directory = directory
        directory.mkdir(parents=True)
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            anywhere = ["--port", "0", "--webui-port", "0"]
            self._start("master", "master.Master", "--host", "127.0.0.1", *anywhere)
            self.url = self._wait_for("master", "Starting Spark master at ")
            for number, host in enumerate(hosts):
                name = f"worker-{number}"
                work = str(directory / name)
                size = ["--cores", "1", "--memory", "1g", "--work-dir", work]
                self._start(name, "worker.Worker", "--host", host, *anywhere, *size, self.url)
                self._wait_for(name, "Successfully registered with master ")
        except BaseException:
            self.close()
            raise

    def _start(self, name: str, role: str, *arguments: str) -> None:
        environment = {
            **_environment(),
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "SPARK_DAEMON_MEMORY": "256m",
        }
        del environment["SPARK_LOCAL_IP"]  # every worker has its own
        command = Path(environment["SPARK_HOME"], "bin", "spark-class")
        with open(self._log(name), "wb") as log:
            process = subprocess.Popen(
                [str(command), f"org.apache.spark.deploy.{role}", *arguments],
                cwd=self._directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append(process)

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def _wait_for(self, name: str, words: str) -> str:
        """What follows the words in the log."""

        def is_there() -> bool:
            assert self._processes[-1].poll() is None, self._log(name).read_text()
            return words in self._log(name).read_text()

        wait_until(f"{words!r} of {name}", is_there)
        return self._log(name).read_text().partition(words)[2].split()[0]

    def close(self) -> None:
        """Ends the cluster and the executors that its workers have started."""
        sessions = {process.pid for process in self._processes}
        _kill([process for process in all_processes() if process.session in sessions])
        for started in self._processes:
            started.wait(PATIENCE_S)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# Traps (see `tests.support.spark_query`)


def set_trap(query: Query, kind: str) -> None:
    Path(query.trap, kind).touch()


def caught(query: Query, kind: str) -> list[int]:
    """The processes that have met a trap and have not been let go."""
    return [int(path.suffix[1:]) for path in Path(query.trap).glob(f"{kind}.*")]


def release(query: Query) -> None:
    for path in Path(query.trap).glob("hold.*"):
        path.unlink()


def hold_a_worker(application: Application, query: Query) -> int:
    """The process id of a worker that now stands still in the middle of a batch."""
    set_trap(query, "hold")
    application.wait_until("a worker is held", lambda: bool(caught(query, "hold")))
    (pid,) = caught(query, "hold")
    return pid
