"""``trailmark recover --dry-run`` tells what a recovery will do; the recovery then does that."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.written import Written, count_orders, time_orders, write_logs
from tests.unit.cli.conftest import Run
from trailmark.checkpoint.policy import Continuous, FullSnapshot, NoCheckpoint, Policy


def test_without_dry_run_it_says_when_recovery_happens(counted: Written, run: Run) -> None:
    said = run("recover", counted.path)
    assert (said.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    assert "Recovery happens by itself when the query starts" in said.err
    assert "--dry-run" in said.err


@pytest.mark.parametrize(
    "policy",
    [Continuous(q=10, u=30), NoCheckpoint(), FullSnapshot(every=3, asynchronous=True)],
    ids=lambda policy: type(policy).__name__,
)
@pytest.mark.parametrize("kind", ["count", "time"])
def test_the_plan_is_what_the_next_start_of_the_query_does(
    policy: Policy, kind: str, tmp_path: Path, run: Run
) -> None:
    case = count_orders(13) if kind == "count" else time_orders(13)
    *batches, last = case.batches
    object.__setattr__(case, "batches", tuple(batches))
    logs = write_logs(tmp_path / "a", case, policy)
    said = run("recover", logs.path, "--dry-run", "--json")
    assert said.code == 0
    for number, part in enumerate(case.split(last, 2)):
        bucket = logs.place.bucket(number)
        report = bucket.run(12, part)
        bucket.close()
        assert report.recovery is not None
        told = said.json["plans"][number]
        did = report.recovery.describe()
        for name in ("target", "base", "oldest", "segments_read", "records_read"):
            assert told[name] == did[name], name
        assert told["footprints"] == did["footprints"]
        assert told["replay_tuples"] == did["replay_tuples"]
        # The rates of the footer are rounded.
        expected = logs.reports[-1][number].account.predicted_us
        assert told["predicted_us"] == pytest.approx(expected, rel=0.01)


def test_the_plan_for_people_names_what_is_read_loaded_and_replayed(
    counted: Written, run: Run
) -> None:
    said = run("recover", counted.path, "--dry-run", "--bucket", 1)
    assert said.code == 0
    account = counted.reports[-1][1].account
    assert said.out.startswith(f"bucket 1: recover to the end of batch {counted.newest}\n")
    assert f"{account.extent:,} records" in said.out
    assert f"{account.open_windows:,} footprints" in said.out
    assert f"{account.replay:,} tuples" in said.out
    assert "takes    about" in said.out
    assert "bucket 0" not in said.out


def test_an_older_batch_can_be_asked_for(counted: Written, run: Run) -> None:
    said = run("recover", counted.path, "--dry-run", "--to-batch", 5, "--json")
    for number, told in enumerate(said.json["plans"]):
        account = counted.reports[5][number].account
        assert told["target"] == 5
        assert told["footprints"] == account.open_windows
        assert told["replay_tuples"] == account.replay


def test_damage_is_gone_around_and_said(counted: Written, run: Run) -> None:
    counted.flip(f"out/00000/{counted.newest:020d}.seg")
    said = run("recover", counted.path, "--dry-run", "--bucket", 0)
    assert said.code == 0
    assert f"skipped  batch {counted.newest}: " in said.out


def test_a_state_that_cannot_be_rebuilt_gives_code_1(counted: Written, run: Run) -> None:
    for batch in range(counted.newest + 1):
        (counted.path / f"in/00000/{batch:020d}.seg").unlink(missing_ok=True)
    said = run("recover", counted.path, "--dry-run")
    assert said.code == 1
    assert "bucket 0 cannot be recovered: Recovery has to read" in said.out
    assert "bucket 1: recover to" in said.out


@pytest.mark.parametrize("batch", [99])
def test_a_batch_that_is_not_there_gives_code_1(batch: int, counted: Written, run: Run) -> None:
    said = run("recover", counted.path, "--dry-run", "--to-batch", batch)
    assert said.code == 1
    assert "holds batches 0 to 11" in said.out
