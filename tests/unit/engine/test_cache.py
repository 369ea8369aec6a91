"""The cache of tables saves recoveries, and is never believed when it should not be."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.compare import assert_same_states
from tests.support.followed import Followed
from tests.support.hooked import HookedAggregate
from tests.support.orders import count_case, random_orders, random_timed_orders, time_case
from trailmark.checkpoint.policy import Continuous
from trailmark.engine import Bucket
from trailmark.errors import CacheLost, NoPermission
from trailmark.operators.protocol import AnyOperator
from trailmark.records import SegmentLink
from trailmark.state.cache import StateCache, Token, boot_id

_BATCHES = 8


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def run(root: Path) -> Followed:
    """String keys: their table uses every file there is."""
    batches = random_timed_orders(random.Random(5), batches=_BATCHES, rows=30, items=12)
    case = time_case(batches, size=40_000_000, slide=20_000_000)
    return Followed(case, Continuous(q=60), cache_root=root)


def _directory(root: Path) -> Path:
    (directory,) = root.glob("*/00000")
    return directory


def _token(root: Path) -> Path:
    return _directory(root) / "token"


def _bucket(run: Followed, operator: AnyOperator | None = None) -> Bucket:
    """Another process at work on the same bucket."""
    query = run.query
    assert query.cache_root is not None
    return Bucket(
        query.case.operator() if operator is None else operator,
        query.logs(),
        0,
        query.policy,
        StateCache(query.cache_root),
        query.clock,
    )


def _edit(token: Path, change: Callable[[dict[str, Any]], None]) -> None:
    stored = json.loads(token.read_text())
    change(stored)
    token.write_text(json.dumps(stored))


def test_the_next_process_goes_on_from_the_table_it_finds(run: Followed) -> None:
    for batch in range(_BATCHES):
        (report,) = run.step()
        assert report.recovery is None, f"batch {batch}"
        run.check_accounts()
        run.query.stop()


def test_there_is_no_token_while_a_table_changes(run: Followed, root: Path) -> None:
    run.run(2)
    run.query.stop()
    seen: list[bool] = []

    def look() -> None:
        seen.append(_token(root).exists())

    bucket = _bucket(run, HookedAggregate(run.case, before=look, after=look))
    assert _token(root).exists()
    bucket.run(2, run.parts(2)[0])
    assert seen == [False, False]
    assert _token(root).exists()
    bucket.close()


def test_a_batch_that_fails_half_way_leaves_no_token(run: Followed, root: Path) -> None:
    run.run(2)
    run.query.stop()

    def fail() -> None:
        raise RuntimeError("half way")

    bucket = _bucket(run, HookedAggregate(run.case, after=fail))
    with pytest.raises(RuntimeError, match="half way"):
        bucket.run(2, run.parts(2)[0])
    assert not _token(root).exists()
    (report,) = run.step()
    assert report.recovery is not None
    assert report.recovery.why == "no whole table in the cache"
    run.run()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda t: t.update(boot="an earlier one"), "no whole table in the cache"),
        (lambda t: t.update(layout="of other columns"), "the cached table is another's"),
        (lambda t: t.update(log_id="another log"), "the cached table is another's"),
        (lambda t: t.update(bucket=1), "the cached table is another's"),
        (lambda t: t["output"].update(batch=1), "the cached table is another's"),
        (lambda t: t["output"].update(checksum=1), "the cached table is another's"),
        (lambda t: t.pop("layout"), "no whole table in the cache"),
        (lambda t: t.update(output=7), "no whole table in the cache"),
        (lambda t: t.update(notes={}), "no whole table in the cache"),
        (lambda t: t["notes"].update(bucket={}), "no whole table in the cache"),
        (lambda t: t["notes"]["bucket"].update(more=1), "no whole table in the cache"),
        (lambda t: t["notes"].update(rates={}), "no whole table in the cache"),
        (lambda t: t["notes"]["rates"].update(open_us=-1.0), "no whole table in the cache"),
        (lambda t: t.update(files={}), "no whole table in the cache"),
        (lambda t: t["files"].pop("ledger"), "no whole table in the cache"),
        (lambda t: t.update(ended_us=10**400), "no whole table in the cache"),
        (lambda t: t.update(ended_us="yesterday"), "no whole table in the cache"),
        (lambda t: t.update(bucket=False), "no whole table in the cache"),
        (lambda t: t["output"].update(batch=2.0), "no whole table in the cache"),
    ],
    ids=[
        "boot",
        "layout",
        "log",
        "bucket",
        "batch",
        "checksum",
        "field missing",
        "strange link",
        "no notes",
        "no notes of the bucket",
        "a note too many",
        "no rates",
        "a rate below zero",
        "no files",
        "a file less",
        "an end far ahead",
        "an end that is no number",
        "a bucket that is no number",
        "a batch that is not whole",
    ],
)
def test_a_token_of_anything_else_is_not_believed(
    run: Followed, root: Path, change: Callable[[dict[str, Any]], None], why: str
) -> None:
    run.run(3)
    run.query.stop()
    _edit(_token(root), change)
    (report,) = run.step()
    assert report.recovery is not None
    assert report.recovery.why == why
    run.run()


@pytest.mark.parametrize("text", [b"", b"{", b"[1, 2]", b"\xff\xfe\x00", b"null", b"{}" * 9])
def test_a_token_that_is_no_token_is_not_believed(run: Followed, root: Path, text: bytes) -> None:
    run.run(3)
    run.query.stop()
    _token(root).write_bytes(text)
    (report,) = run.step()
    assert report.recovery is not None
    run.run()


def test_a_table_left_behind_by_the_log_catches_up(run: Followed, root: Path) -> None:
    run.run(2)
    run.query.stop()
    kept = root.with_name("kept")
    shutil.copytree(root, kept)
    run.run(2)
    run.query.stop()
    shutil.rmtree(root)
    kept.rename(root)
    (report,) = run.step()
    assert report.recovery is None
    assert report.caught_up is not None
    assert (report.caught_up.after, report.caught_up.batches) == (1, 2)
    run.run()


def test_a_boot_is_named_and_does_not_change_by_itself() -> None:
    assert boot_id()
    assert boot_id() == boot_id()


def test_a_bucket_whose_cache_is_in_use_works_privately(run: Followed, root: Path) -> None:
    run.run(2)
    run.query.stop()
    holder = StateCache(root).acquire(run.query.logs().log_id, 0).cached
    assert holder is not None
    (report,) = run.step()
    assert report.recovery is not None
    assert report.recovery.why == "the cache is in use by another process"
    (report,) = run.step()
    assert report.recovery is None, "it keeps its private table"
    run.query.stop()
    holder.close()
    (report,) = run.step()
    assert report.recovery is None
    assert report.caught_up is not None, "the cached table was left behind"
    run.query.stop()
    (report,) = run.step()
    assert report.recovery is None
    run.run()


def test_only_one_process_at_a_time_holds_a_bucket(root: Path) -> None:
    first = StateCache(root).acquire("log", 3).cached
    assert first is not None
    assert StateCache(root).acquire("log", 3).cached is None
    other = StateCache(root).acquire("log", 4).cached
    assert other is not None
    first.close()
    again = StateCache(root).acquire("log", 3).cached
    assert again is not None
    again.close()
    other.close()


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o707, 0o722])
def test_a_cache_that_others_can_write_is_refused(run: Followed, root: Path, mode: int) -> None:
    root.mkdir()
    root.chmod(mode)
    with pytest.raises(NoPermission, match="can be written by other users") as refused:
        run.step()
    assert refused.value.where == str(root)
    assert refused.value.fix
    root.chmod(0o700)
    run.run()


def test_a_link_in_place_of_the_cache_is_refused(run: Followed, root: Path) -> None:
    (root.parent / "elsewhere").mkdir(mode=0o700)
    root.symlink_to(root.parent / "elsewhere")
    with pytest.raises(NoPermission):
        run.step()
    assert not list((root.parent / "elsewhere").iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_cache_of_another_user_is_refused(run: Followed, root: Path) -> None:
    root.mkdir(mode=0o700)
    os.chown(root, 12_345, 12_345)
    with pytest.raises(NoPermission):
        run.step()


def test_a_cache_that_cannot_be_made_is_done_without(run: Followed, root: Path) -> None:
    root.parent.joinpath("file").write_text("not a directory")
    run.query.cache_root = root.parent / "file" / "cache"
    run.run()
    assert run.query.open()[0].state() is not None


def _delete_everything(root: Path) -> None:
    shutil.rmtree(root)


def _delete_bucket(root: Path) -> None:
    shutil.rmtree(_directory(root))


def _delete_content(root: Path) -> None:
    for path in sorted(_directory(root).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


@pytest.mark.parametrize("is_held", [False, True], ids=["between processes", "while held"])
@pytest.mark.parametrize("delete", [_delete_everything, _delete_bucket, _delete_content])
def test_a_cache_that_vanishes_costs_a_recovery_and_nothing_else(
    run: Followed, root: Path, delete: Callable[[Path], None], is_held: bool
) -> None:
    run.run(3)
    if not is_held:
        run.query.stop()
    delete(root)
    (report,) = run.step()
    assert (report.recovery is None) == is_held, "who holds a table goes on with it"
    run.query.stop()
    run.run(2)
    run.query.stop()
    (report,) = run.step()
    assert report.recovery is None, "the cache is in use again"
    run.run()


def _files_of_a_table(root: Path) -> list[str]:
    files = (path for path in _directory(root).rglob("*") if path.is_file())
    return sorted(path.name for path in files)


@pytest.mark.parametrize("harm", ["deleted", "cut off", "emptied"])
@pytest.mark.parametrize("name", ["header", "slots", "index", "heap", "starts", "ledger", "token"])
def test_a_table_with_a_file_missing_or_cut_off_is_not_believed(
    run: Followed, root: Path, name: str, harm: str
) -> None:
    """Whoever clears old files from a temporary directory does it one by one."""
    run.run(4)
    run.query.stop()
    assert name in _files_of_a_table(root)
    (file,) = _directory(root).rglob(name)
    if harm == "deleted":
        file.unlink()
    else:
        os.truncate(file, 0 if harm == "emptied" else file.stat().st_size // 2)
    (report,) = run.step()
    assert report.recovery is not None
    run.run()


def test_a_table_is_not_taken_for_that_of_a_process_that_lost_its_directory(
    run: Followed, root: Path
) -> None:
    """One process goes on in a deleted directory while another has made it anew."""
    run.run(3)
    run.query.stop()

    def take_over() -> None:
        shutil.rmtree(root)

        def give_up() -> None:
            assert second.state() is not None
            raise RuntimeError("half way")

        second = _bucket(run, HookedAggregate(run.case, after=give_up))
        with pytest.raises(RuntimeError, match="half way"):
            second.run(3, run.parts(3)[0])

    first = _bucket(run, HookedAggregate(run.case, after=take_over))
    first.run(3, run.parts(3)[0])
    first.close()
    # The token must not be believed: it describes the deleted table, not the half-changed one.
    run.step()
    run.run()


def test_whoever_holds_a_deleted_directory_does_not_reach_into_the_new_one(root: Path) -> None:
    held = StateCache(root).acquire("log", 0).cached
    assert held is not None
    shutil.rmtree(root)
    other = StateCache(root).acquire("log", 0).cached
    assert other is not None, "the new directory is nobody's yet"
    region = other.memory(is_new=True).region("header", 100)
    region.bytes[:5] = 7
    other.end_change(Token(boot_id(), "log", 0, SegmentLink(3, 9), "", {"header": region.size}))
    held.begin_change()
    held.clear()
    with pytest.raises(CacheLost, match="was deleted"):
        held.memory(is_new=True).region("header", 100)
    held.end_change(Token(boot_id(), "log", 0, SegmentLink(4, 9), "", {}))
    held.close()
    token = other.token()
    assert token is not None
    assert token.output.batch == 3
    assert bytes((_directory(root) / "header").read_bytes()[:6]) == b"\7" * 5 + b"\0"
    other.close()


def test_two_processes_never_share_a_table_though_files_were_deleted_under_one(
    run: Followed, root: Path
) -> None:
    run.run(3)
    run.query.stop()
    first, second = _bucket(run), _bucket(run)
    first.run(3, run.parts(3)[0])
    for path in _directory(root).iterdir():
        if path.name not in ("token", "header", "slots", "index"):
            path.unlink()  # as a cleaner of old files does, with locks for one
    second.run(4, run.parts(4)[0])
    for bucket in (first, second):
        run.step()  # answered from the log, for the oracle to know
        table = bucket.state()
        assert table is not None
        found = run.case.states(run.case.operator(), table)
        what = f"after batch {run.next_batch - 1}"
        assert_same_states(found, run.judge.oracle(0).open_windows(), what)
        bucket.close()
    run.run()


def test_a_long_run_with_the_cache_equals_one_without(root: Path) -> None:
    rng = random.Random(11)
    case = count_case(random_orders(rng, batches=40, rows=200, items=500), size=4, slide=3)
    run = Followed(case, Continuous(q=900, u=700), cache_root=root, buckets=2)
    for reports in run.steps():
        assert all(report.recovery is None for report in reports)
        run.check_accounts()
        if rng.random() < 0.5:
            run.query.stop()
