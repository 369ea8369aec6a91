"""The demonstration from begin to end: run, kill, restart, run again undisturbed, compare, draw."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from demo.display import Display
from demo.failure import DemoFailure
from demo.orders import WINDOW, Workload, expected_results, write_orders
from demo.picture import draw
from demo.places import Places
from demo.results import Rows, compare, read_sink
from demo.supervise import Batch, Run, running
from trailmark.engine.progress import Recovery
from trailmark.errors import SettingError
from trailmark.settings import SECOND, parse_duration

#: Part of the batches after which the query is killed.
_KILL_AFTER = 0.45


def demonstrate(
    workload: Workload, root: Path, cache: Path, recover_within: str, picture: Path
) -> bool:
    """Whether all results were equal; raises `DemoFailure` if it did not get that far."""
    began = time.monotonic()
    try:
        target_s = parse_duration(recover_within, "--recover-within") / SECOND
    except SettingError as error:
        raise DemoFailure(str(error)) from error
    display = Display(workload.files)
    display.say(
        f"The average price of every {WINDOW} orders of an item, with Trailmark on Spark:\n"
        f"{workload.items:,} items, {workload.files} batches of {workload.orders_per_file:,} "
        f"orders, recovery wanted within {recover_within}."
    )
    orders = root / "orders"
    write_orders(workload, orders)

    display.title("1. A query that is killed")
    disturbed = Places(orders, root / "disturbed", cache / "disturbed", recover_within)
    killed = run_and_kill(disturbed, workload, display)
    display.title("2. The same query, started again")
    restarted = run_to_end(disturbed, display)
    if not any(batch.recoveries for batch in restarted.batches):
        raise DemoFailure("Nothing had to be recovered, so nothing was shown; use more --files.")
    display.title("3. The same query from the beginning, undisturbed")
    undisturbed = Places(orders, root / "undisturbed", cache / "undisturbed", recover_within)
    run_to_end(undisturbed, display)

    display.title("4. The results, compared bit by bit")
    expected = expected_results(orders, workload.items)
    found = {
        "killed and restarted": read_sink(disturbed.sink),
        "undisturbed": read_sink(undisturbed.sink),
    }
    is_equal = report_equality(expected, found, display)
    draw(picture, killed, restarted, target_s=target_s)
    display.say(f"\nPicture: {os.path.relpath(picture)}")
    verdict = "All results are equal" if is_equal else "RESULTS DIFFER"
    display.say(f"{verdict}. That took {time.monotonic() - began:.0f} s.")
    return is_equal


def run_and_kill(places: Places, workload: Workload, display: Display) -> Run:
    """Lets the query get to about the middle and kills it in the middle of a batch."""
    display.passing("  Spark starts ...")
    with running(places) as run:
        for batch in run.follow():
            display.batch(batch)
            if batch.batch + 1 >= _KILL_AFTER * workload.files:
                time.sleep(min(other.took_s for other in run.batches) / 2)
                break
        if run.has_ended:
            raise DemoFailure("The query ended before it could be killed; use more --files.")
        count = run.kill()
    shutil.rmtree(places.cache, ignore_errors=True)
    last = run.batches[-1].batch + 1
    display.say(
        f"  kill -9 after batch {last}: {count} processes (driver, JVM, Python workers)\n"
        "  The state they had cached is deleted, too, as if the machine were gone."
    )
    return run


def run_to_end(places: Places, display: Display) -> Run:
    """Runs the query to its end, and shows what it did to recover if it had to."""
    display.passing("  Spark starts ...")
    with running(places) as run:
        for batch in run.follow():
            if batch.batch > 0 and len(run.batches) == 1:
                display.say(f"  {describe_restart(run, batch)}")
            for recovery in batch.recoveries:
                display.say(f"  {describe_recovery(recovery)}")
            display.batch(batch)
    return run


def describe_restart(run: Run, first: Batch) -> str:
    assert run.ready_at is not None, "known before the first batch"
    return (
        f"Spark was up after {run.ready_at - run.started_at:.1f} s, and batch {first.batch + 1} "
        f"was committed {first.time - run.started_at:.1f} s after the restart"
    )


def describe_recovery(recovery: Recovery) -> str:
    return (
        f"bucket {recovery.bucket} recovered in {recovery.took_us / 1e6:.2f} s (predicted: "
        f"{recovery.predicted_us / 1e6:.2f} s): {recovery.footprints:,} windows loaded, "
        f"{recovery.replay_tuples:,} tuples replayed"
    )


def report_equality(expected: Rows, found: dict[str, Rows], display: Display) -> bool:
    """Says for each run whether its results are the expected ones; whether all are."""
    display.say(f"  {'computed by hand:':<22} {len(expected):,} averages")
    is_equal = True
    for name, rows in found.items():
        difference = compare(expected, rows)
        verdict = f"not equal: {difference}" if difference else "equal"
        display.say(f"  {name + ':':<22} {len(rows):,} averages, {verdict}")
        is_equal = is_equal and not difference
    return is_equal
