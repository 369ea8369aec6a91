"""Merges three streams, stops the writer of one, and shows what is answered meanwhile.

Three processes write orders, each to a stream of its own; one query on Spark merges them and counts
orders in windows of a second, with ``answer_within="3 seconds"``. Then one writer is stopped with
SIGSTOP, for twelve seconds. Answers without it come in time, marked as tentative, and are replaced
when it goes on. In the end the counts that stand are compared with those of a plain loop over the
streams.

The exit code is 0 if all are equal, and 1 if they are not or anything else went wrong.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from demo.failure import DemoFailure
from demo.places import directory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NAMES = ("eu", "us", "asia")
_WITHIN = "3 seconds"
_ORDERS_PER_S, _ITEMS = 3_000, 20
_BEFORE_S, _STOPPED_S, _AFTER_S = 8, 12, 8
_PICTURE = Path(__file__).parent / "out" / "stall.png"
#: Nothing comes after this.
_END = "9999-12-31"

#: Item, and the second in which its window ends.
Window = tuple[int, int]


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m demo.stall",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    text = f"where the picture goes (default {os.path.relpath(_PICTURE)})"
    parser.add_argument("--picture", type=Path, default=_PICTURE, metavar="FILE", help=text)
    parser.add_argument("--write", metavar="STREAM", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.write is not None:
        return _write(Path(options.write))
    try:
        with directory("trailmark-stall-") as root:
            return 0 if _demonstrate(root, options.picture) else 1
    except KeyboardInterrupt:
        print("\nInterrupted; everything that was started is stopped.")
        return 130
    except DemoFailure as failure:
        print(f"\n{failure}")
        return 1


def _write(path: Path) -> int:
    """Writes orders until it is told to end, twenty batches a second."""
    import pyarrow as pa

    import trailmark as tm

    ends = False

    def end(*_: Any) -> None:
        nonlocal ends
        ends = True

    signal.signal(signal.SIGTERM, end)
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("item", pa.int64())])
    writer = tm.stream_writer(path, schema, name=path.name, time_column="at", delay="100 ms")
    written_us = time.time_ns() // 1000
    while not ends:
        time.sleep(0.05)
        now_us = time.time_ns() // 1000
        # What would have come while the process was stopped comes now, late but in order.
        times = range(written_us, now_us, 1_000_000 // (_ORDERS_PER_S // len(_NAMES)))
        columns = [pa.array(times, schema.field("at").type), [at % _ITEMS for at in times]]
        writer.append(pa.table(columns, schema))
        written_us = times.start + len(times) * times.step
    writer.heartbeat(_END)
    return 0


@dataclass
class _Shown:
    """What the query has given: the windows that stand, and when each answer came."""

    began_s: float = field(default_factory=time.time)
    stable: dict[Window, int] = field(default_factory=dict)
    #: When it came, how long after the end of its window, and whether it was tentative.
    answers: list[tuple[float, float, bool]] = field(default_factory=list)

    def show(self, rows: DataFrame, number: int) -> None:
        """Takes a batch, and prints a line of it."""
        now_s = time.time()
        counted: dict[bool, Counter[int]] = {False: Counter(), True: Counter()}
        for row in rows.collect():
            end_s = round(row.window.end.timestamp())
            counted[row.tentative][end_s] += row.n
            if not row.tentative:
                if (row["item"], end_s) in self.stable:
                    raise AssertionError(f"window {end_s} of item {row['item']} came twice")
                self.stable[row["item"], end_s] = row.n
        for is_tentative, windows in counted.items():
            self.answers += [(now_s, now_s - end_s, is_tentative) for end_s in windows]
            for end_s, orders in sorted(windows.items()):
                what = "tentative" if is_tentative else "stable"
                clock = datetime.fromtimestamp(end_s, timezone.utc).strftime("%M:%S")
                print(
                    f"  {now_s - self.began_s:5.1f} s   second to {clock}: {orders:5,} orders   "
                    f"{what:<9}   after {now_s - end_s:4.1f} s",
                    flush=True,
                )

    def newest(self, *, is_tentative: bool | None = None) -> float:
        """When the last answer came, of one kind or of any."""
        found = [at for at, _, is_one in self.answers if is_tentative in (None, is_one)]
        return max(found, default=0.0)


def _demonstrate(root: Path, picture: Path) -> bool:
    import trailmark as tm

    _say("Starting three writers and Spark")
    with _writers(root) as writers, _session(root) as spark:
        orders = tm.union(
            {name: root / name for name in _NAMES},
            time="at",
            path=root / "union",
            answer_within=_WITHIN,
        )
        counts = tm.aggregate(
            orders,
            by="item",
            window=tm.time_window("at", "1 second"),
            values={"n": tm.count()},
            path=root / "counts",
        )
        shown = _Shown()
        writer = counts.writeStream.foreachBatch(shown.show)
        query = writer.option("checkpointLocation", str(root / "checkpoint")).start()
        _wait("the first answer", lambda: bool(shown.answers), query)
        time.sleep(_BEFORE_S)
        _say(f"kill -STOP asia, for {_STOPPED_S} seconds")
        stopped_s = time.time()
        writers["asia"].send_signal(signal.SIGSTOP)
        time.sleep(_STOPPED_S)
        _say("kill -CONT asia")
        back_s = time.time()
        writers["asia"].send_signal(signal.SIGCONT)
        time.sleep(_AFTER_S)
        for process in writers.values():
            process.terminate()
            process.wait()
        expected = _expected(root)
        _wait("the last window", lambda: len(shown.stable) >= len(expected), query)
        query.stop()
        assert spark is not None
    return _judge(shown, expected, (stopped_s, back_s), picture)


@contextmanager
def _writers(root: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    started = {
        name: subprocess.Popen([sys.executable, "-m", "demo.stall", "--write", str(root / name)])
        for name in _NAMES
    }
    try:
        until = time.monotonic() + 60
        while not all((root / name / "meta.json").exists() for name in _NAMES):
            has_ended = any(each.poll() is not None for each in started.values())
            if time.monotonic() > until or has_ended:
                raise DemoFailure("A writer did not begin.")
            time.sleep(0.05)
        yield started
    finally:
        for process in started.values():
            process.kill()
            process.wait()


@contextmanager
def _session(root: Path) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("trailmark-stall")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": str(root / "spark"),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def _say(text: str) -> None:
    print(f"\n{text}", flush=True)


def _wait(what: str, is_so: Any, query: Any) -> None:
    until = time.monotonic() + 60
    while not is_so():
        if not query.isActive:
            raise DemoFailure(f"The query ended: {query.exception()}")
        if time.monotonic() > until:
            raise DemoFailure(f"Waited in vain for {what}.")
        time.sleep(0.05)


def _expected(root: Path) -> dict[Window, int]:
    """The orders of every item and second, counted one by one."""
    import trailmark as tm

    found: Counter[Window] = Counter()
    for name in _NAMES:
        table = tm.read_table(root / name)
        for at, item in zip(table["at"].to_pylist(), table["item"].to_pylist(), strict=True):
            found[item, int(at.timestamp()) + 1] += 1
    return dict(found)


def _judge(
    shown: _Shown, expected: dict[Window, int], stopped: tuple[float, float], picture: Path
) -> bool:
    stopped_s, back_s = stopped
    during = [each for each in shown.answers if stopped_s < each[0] < back_s]
    tentative = [late_s for _, late_s, is_tentative in during if is_tentative]
    if not tentative:
        raise DemoFailure("Nothing was answered while asia was stopped.")
    print(
        f"\nWhile asia was stopped, {len(tentative)} seconds were answered without it, each within "
        f"{max(tentative):.1f} s of its end."
    )
    replaced = [at for at, _, is_tentative in shown.answers if at > back_s and not is_tentative]
    print(f"The first of these was replaced {min(replaced) - back_s:.1f} s after asia was back.")
    is_equal = shown.stable == expected
    verdict = "are equal to" if is_equal else "DIFFER FROM"
    print(f"{len(shown.stable):,} counts that stand {verdict} those of a plain loop.")
    _draw(shown, stopped, picture)
    print(f"Picture: {os.path.relpath(picture)}")
    return is_equal


def _draw(shown: _Shown, stopped: tuple[float, float], picture: Path) -> None:
    """The delay of every answer over time, and which were tentative."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes = figure.add_subplot()
    axes.axvspan(*(at - shown.began_s for at in stopped), color="0.92", label="asia is stopped")
    kinds = ((False, "tab:blue", "stable"), (True, "tab:orange", "tentative"))
    for is_tentative, color, label in kinds:
        # Not those of the beginning, which had to wait for Spark.
        points = [
            (at, late)
            for at, late, is_one in shown.answers
            if is_one == is_tentative and at > stopped[0] - _BEFORE_S / 2
        ]
        axes.plot(
            [at - shown.began_s for at, _ in points],
            [late for _, late in points],
            "o",
            color=color,
            label=label,
            markersize=4,
        )
    axes.axhline(3, color="0.5", linewidth=0.8, linestyle="--")
    axes.set_xlabel("seconds since the query began")
    axes.set_ylabel("answer after the end of its second, in s")
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left")
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture)


if __name__ == "__main__":
    sys.exit(main())
