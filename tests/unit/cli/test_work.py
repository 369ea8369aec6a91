"""Ctrl-C ends long work between two steps: one line, and nothing half-done."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence

import pytest

from tests.support.stored import StoredAt
from tests.support.written import Written
from tests.unit.cli.conftest import Run
from trailmark.cli.work import Work
from trailmark.log import LocalStorage
from trailmark.log.storage import Part


@pytest.fixture(autouse=True)
def ctrl_c_as_in_a_command() -> Iterator[None]:
    """PySpark, which other tests of the process have started, sets Ctrl-C to something else."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def _press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_the_step_that_is_being_taken_ends() -> None:
    done = []
    with Work("merging") as work:
        work.begin("a", 1, 2)
        _press_ctrl_c()
        done.append("a")
        with pytest.raises(KeyboardInterrupt, match="before b"):
            work.begin("b", 2, 2)
    assert done == ["a"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_one_ends_it_at_once() -> None:
    with Work("merging") as work:
        work.begin("a", 1, 1)
        _press_ctrl_c()
        with pytest.raises(KeyboardInterrupt):
            _press_ctrl_c()


def test_one_that_comes_in_the_last_step_changes_nothing() -> None:
    with Work("merging") as work:
        work.begin("a", 1, 1)
        _press_ctrl_c()


def test_a_handler_of_somebody_else_stays() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    try:
        with Work("merging") as work:
            work.begin("a", 1, 2)
            _press_ctrl_c()
            work.begin("b", 2, 2)
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [signal.SIGINT]


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Presses Ctrl-C when the first file is published: a pack, or the mark of a trim."""
    published: list[str] = []
    publish = LocalStorage.publish

    def publish_and_press(
        self: LocalStorage, path: str, parts: Sequence[Part], *, force_sync: bool = False
    ) -> bool:
        published.append(path)
        if len(published) == 1:
            _press_ctrl_c()
        return publish(self, path, parts, force_sync=force_sync)

    monkeypatch.setattr(LocalStorage, "publish", publish_and_press)
    return published


def test_an_interrupted_merge_leaves_whole_packs(
    counted: Written, hurried: list[str], run: Run
) -> None:
    said = run("merge", counted.path)
    assert said.code == 130
    assert said.out == ""
    assert said.err == (
        "trailmark merge: interrupted before out/00001 (2 of 2). Nothing is half-done; run it "
        "again for the rest.\n"
    )
    assert [path.split("/")[1] for path in hurried] == ["00000"]
    (pack,) = [name for name in counted.files() if name.endswith(".pack")]
    assert pack == hurried[0]
    assert run("verify", counted.path).code == 0
    assert "bucket 0: nothing to merge\nbucket 1: " in run("merge", counted.path).out


def test_an_interrupted_trim_leaves_whole_logs(
    counted: Written, hurried: list[str], run: Run
) -> None:
    said = run("trim", counted.path, "--before-batch", 100)
    assert said.code == 130
    assert said.err.startswith("trailmark trim: interrupted before ")
    assert said.err.count("\n") == 1
    assert len(hurried) == 1
    assert run("verify", counted.path).code == 0
    assert run("trim", counted.path, "--before-batch", 100).code == 0
    assert run("recover", counted.path, "--dry-run").code == 0


def test_an_interrupted_trim_of_a_stream_leaves_a_whole_stream(
    stream: StoredAt, hurried: list[str], run: Run
) -> None:
    said = run("trim", stream.path, "--before-batch", 3)
    assert said.code == 130
    assert "before files that are left over" in said.err
    assert run("verify", stream.path).code == 0
