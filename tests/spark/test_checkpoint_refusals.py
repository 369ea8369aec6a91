"""A checkpoint or path that is not what it was: refused, with what to do, and nothing changed."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.support.spark_orders import (
    Orders,
    assert_sink_is_right,
    fingerprints,
    make_query,
    newest_after,
    newest_of,
)
from tests.support.spark_query import Query
from tests.support.spark_runs import Application
from trailmark.engine.refused import REFUSED

_RESTORE = "or start with a new path and a new checkpoint"


@dataclass
class Scene:
    """A query that has run for some batches, with a copy of its checkpoint and new input."""

    application: Application
    orders: Orders
    query: Query
    kept: str
    before: dict[str, str]

    @classmethod
    def prepare(cls, application: Application, directory: Path, window: str) -> Scene:
        orders = Orders(directory / "in", seed=8)
        orders.feed(4)
        query = make_query(directory, orders, window, name=directory.name)
        assert application.run([query]) == ""
        assert newest_of(query, "commits") == newest_after(query, orders)
        kept = str(directory / "kept")
        shutil.copytree(query.checkpoint, kept)
        orders.feed(4)
        return cls(application, orders, query, kept, fingerprints(query.path, query.out))

    def assert_refused(self, query: Query, error: str, next_step: str) -> None:
        """The query fails with this error, says what to do, and leaves everything as it was."""
        message = self.application.run([query])
        assert f"trailmark.errors.{error}: " in message, message or "it was not refused"
        assert "  where: " in message
        following = message.partition("  next:  ")[2].partition("\n")[0]
        assert next_step in following, following
        if "delete this file" in following:
            Path(query.path, "rolled-back").unlink()
        self.assert_nothing_changed()

    def assert_nothing_changed(self) -> None:
        """Apart from the note that says what was refused, for `trailmark status`."""
        found = fingerprints(self.query.path, self.query.out)
        assert found.pop(str(Path(self.query.path, REFUSED)), None) is not None
        assert found == self.before

    def assert_goes_on_once_restored(self) -> None:
        """What the message asks for works, so nothing was harmed that the files do not show."""
        shutil.rmtree(self.query.checkpoint, ignore_errors=True)
        shutil.copytree(self.kept, self.query.checkpoint)
        assert self.application.run([self.query]) == ""
        assert_sink_is_right(self.query, self.orders)

    def roll_back(self, batches: int) -> None:
        """Takes the newest batches out of Spark's checkpoint."""
        newest = newest_of(self.query, "commits")
        for log in ("offsets", "commits"):
            for batch in range(newest - batches + 1, newest + 1):
                directory = Path(self.query.checkpoint, log)
                (directory / str(batch)).unlink()
                (directory / f".{batch}.crc").unlink()
        assert newest_of(self.query, "offsets") == newest - batches


def other_sink(query: Query) -> Query:
    """The same query with an empty sink. One that has the batch already would not ask for it."""
    return replace(query, out=f"{query.out}-2")


def test_a_deleted_checkpoint_is_refused_and_nothing_is_overwritten(
    tmp_path: Path, application: Application
) -> None:
    scene = Scene.prepare(application, tmp_path, "count")
    shutil.rmtree(scene.query.checkpoint)
    scene.assert_refused(other_sink(scene.query), "OtherQuery", "Give each query a path of its own")
    scene.assert_goes_on_once_restored()


@pytest.mark.parametrize("window", ["count", "time"])
def test_a_checkpoint_rolled_back_by_two_batches_is_refused_and_nothing_is_overwritten(
    tmp_path: Path, application: Application, window: str
) -> None:
    scene = Scene.prepare(application, tmp_path, window)
    scene.roll_back(2)
    scene.assert_refused(other_sink(scene.query), "BatchGoesBackward", _RESTORE)
    scene.assert_goes_on_once_restored()


def test_a_batch_that_is_planned_again_with_other_rows_is_refused_and_nothing_is_overwritten(
    tmp_path: Path, application: Application
) -> None:
    scene = Scene.prepare(application, tmp_path, "count")
    scene.roll_back(1)  # with the new file, the batch that was the last has two
    scene.assert_refused(other_sink(scene.query), "InputDiffers", _RESTORE)
    scene.assert_goes_on_once_restored()


def test_a_deleted_checkpoint_is_refused_where_the_sink_has_the_batches_already(
    tmp_path: Path, application: Application
) -> None:
    scene = Scene.prepare(application, tmp_path, "count")
    shutil.rmtree(scene.query.checkpoint)
    scene.assert_refused(scene.query, "OtherQuery", "Give each query a path of its own")
    scene.assert_goes_on_once_restored()


def test_a_rolled_back_checkpoint_is_refused_where_the_sink_has_the_batches_already(
    tmp_path: Path, application: Application
) -> None:
    scene = Scene.prepare(application, tmp_path, "count")
    scene.roll_back(2)
    scene.assert_refused(scene.query, "BatchGoesBackward", "Restore it and delete this file")
    scene.assert_goes_on_once_restored()


def test_a_path_of_another_query_is_refused_and_nothing_is_overwritten(
    tmp_path: Path, application: Application
) -> None:
    scene = Scene.prepare(application, tmp_path, "time")
    other = make_query(tmp_path, scene.orders, "time", name=f"other-{tmp_path.name}")
    other = replace(other, path=scene.query.path)
    scene.assert_refused(other, "OtherQuery", "Give each query a path of its own")
    assert newest_of(other, "commits") == -1, "it has got nowhere"
    scene.assert_goes_on_once_restored()


@pytest.mark.parametrize("window", ["count", "time"])
def test_a_deleted_path_is_refused_and_only_said_to_be(
    tmp_path: Path, application: Application, window: str
) -> None:
    scene = Scene.prepare(application, tmp_path, window)
    aside = f"{scene.query.path}-aside"
    Path(scene.query.path).rename(aside)
    message = application.run([scene.query])
    assert "trailmark.errors.BatchSkipped: " in message, message or "it was not refused"
    assert "  next:  " in message
    written = {path.name for path in Path(scene.query.path).rglob("*") if path.is_file()}
    assert written == {"meta.json", REFUSED}
    assert fingerprints(scene.query.out) == {
        name: digest for name, digest in scene.before.items() if name.startswith(scene.query.out)
    }
    shutil.rmtree(scene.query.path)
    Path(aside).rename(scene.query.path)
    assert fingerprints(scene.query.path, scene.query.out) == scene.before
    scene.assert_goes_on_once_restored()
