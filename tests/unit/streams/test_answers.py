"""Results of an operator with the tentative ones: all, those that stand, and what came and went."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import trailmark as tm
from tests.support.answered import (
    RESULT_NAMES,
    SOME_STEPS,
    Answered,
    Change,
    Row,
    Step,
    apply_changes,
    random_steps,
)
from tests.support.cases import Case
from tests.support.orders import SCHEMA, time_case
from tests.support.seeds import reported, seeds
from tests.support.streams import SECOND, written
from trailmark.errors import DataLoss, MissingSegment, SettingError
from trailmark.inspection.logs import OperatorFiles
from trailmark.log import LocalStorage, Storage
from trailmark.records import Stream
from trailmark.streams.answers import Answers
from trailmark.streams.description import open_stream
from trailmark.streams.table import bounds, table_of
from trailmark.streams.times import Span
from trailmark.streams.view import StreamView, open_view
from trailmark.streams.writer import StreamWriter
from trailmark.testing.disk import SimulatedDisk
from trailmark.windows import functions as f
from trailmark.windows.spec import CountWindow

_FEED_NAMES = ["tentative", "_change_type", "_commit_version", "_commit_timestamp"]


def _answered(steps: Sequence[Step] = SOME_STEPS, storage: Storage | None = None) -> Answered:
    return Answered(SimulatedDisk().storage() if storage is None else storage, steps).run()


def _read(logs: Answered, answers: Answers, span: Span | None = None, **how: Any) -> pa.Table:
    return table_of(open_view(logs.storage, None, answers, **how), span or Span())


def _marked(table: pa.Table) -> list[tuple[Row, bool]]:
    """Rows of results, and whether they are tentative."""
    names = [*RESULT_NAMES, "tentative"]
    return [(row[:-1], row[-1]) for row in _tuples(table.select(names))]


def _tuples(table: pa.Table) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _changes(table: pa.Table) -> list[Change]:
    told = table.select([*RESULT_NAMES, *_FEED_NAMES[:3]])
    return [Change(row[:-3], *row[-3:]) for row in _tuples(told)]


def _trim(logs: Answered, before: int) -> None:
    files = OperatorFiles(logs.storage)
    for bucket in files.buckets:
        files.log(Stream.OUTPUT, bucket).trim(before)


# What is read


def test_stable_results_are_read_as_if_there_were_no_others(tmp_path: Path) -> None:
    logs = _answered(storage=LocalStorage(tmp_path))
    wanted = [row for row, is_tentative in logs.everything() if not is_tentative]
    assert any(is_tentative for _, is_tentative in logs.everything())
    for answers, records in ((None, None), ("stable", None), ("STABLE", "results")):
        found = tm.read_table(tmp_path, answers=answers, records=records)
        assert found.schema.names == [*RESULT_NAMES]
        assert _tuples(found) == wanted


def test_all_are_the_results_of_every_batch_and_stable_ones_come_first(tmp_path: Path) -> None:
    logs = _answered(storage=LocalStorage(tmp_path))
    found = tm.read_table(tmp_path, answers="all")
    assert found.schema.names == [*RESULT_NAMES, "tentative"]
    assert found.schema.field("tentative").type == pa.bool_()
    assert _marked(found) == logs.everything()
    part = tm.read_table(tmp_path, answers="all", starting_batch=2, ending_batch=3)
    assert _marked(part) == logs.everything(2, 3)
    assert tm.read_table(tmp_path, answers="all", columns=["tentative"]).num_rows == found.num_rows


def test_current_are_those_that_stand_at_the_end_of_the_last_batch_that_is_read() -> None:
    logs = _answered()
    counts = [0, 1, 3, 3, 0, 1, 3]
    for last in range(len(SOME_STEPS)):
        found = _marked(_read(logs, Answers.CURRENT, Span(last_batch=last)))
        assert Counter(found) == logs.current(last)
        assert sum(is_tentative for _, is_tentative in found) == counts[last]
    assert Counter(_marked(_read(logs, Answers.CURRENT))) == logs.current(len(SOME_STEPS) - 1)


def test_what_stands_goes_by_the_last_batch_within_a_time() -> None:
    logs = _answered()
    for last in range(len(SOME_STEPS)):
        until = logs.clock.now_us - (len(SOME_STEPS) - 1 - last) * SECOND
        found = _marked(_read(logs, Answers.CURRENT, Span(last_us=until)))
        assert Counter(found) == logs.current(last)
    assert _marked(_read(logs, Answers.CURRENT, Span(last_us=0))) == []


def test_windows_of_tentative_results_are_shown_as_those_of_stable_ones_are() -> None:
    steps = [
        Step([("a", 1, 1 * SECOND)]),
        Step([("a", 2, 2 * SECOND)], [("a", 3, 3 * SECOND), ("a", 4, 25 * SECOND)], since=1),
        Step([], [("a", 5, 26 * SECOND)], since=1),
        Step([("a", 3, 3 * SECOND), ("a", 4, 25 * SECOND)]),
        Step([]),
    ]
    logs = Answered(SimulatedDisk().storage(), steps, time_case([])).run()
    stable = _read(logs, Answers.STABLE)
    found = _read(logs, Answers.ALL)
    assert found.drop_columns(["tentative"]).schema == stable.schema
    assert "window" in stable.schema.names
    tentative, final = found.to_pylist()
    assert tentative == {**final, "tentative": True}, "it was right"
    feed = _read(logs, Answers.CHANGES).drop_columns(["_commit_timestamp"]).to_pylist()
    told = [(each.pop("_commit_version"), each.pop("_change_type"), each) for each in feed]
    assert told == [(2, "insert", tentative), (3, "delete", tentative), (4, "insert", final)]


# The change feed


def test_a_change_feed_deletes_what_no_longer_stands_then_inserts_stable_then_tentative(
    tmp_path: Path,
) -> None:
    logs = _answered(storage=LocalStorage(tmp_path))
    found = tm.read_table(tmp_path, change_feed=True)
    assert found.schema.names == [*RESULT_NAMES, *_FEED_NAMES]
    types = [found.schema.field(name).type for name in _FEED_NAMES]
    assert types == [pa.bool_(), pa.string(), pa.int64(), pa.timestamp("us", "UTC")]
    batches = range(len(SOME_STEPS))
    assert _changes(found) == [each for batch in batches for each in logs.changes(batch)]
    deletes = Counter(each.batch for each in _changes(found) if each.change == "delete")
    assert deletes == {3: 1, 4: 3}
    times = {batch: logs.clock.now_us - (batches[-1] - batch) * SECOND for batch in batches}
    written_at = found["_commit_timestamp"].cast(pa.int64()).to_pylist()
    assert written_at == [times[each.batch] for each in _changes(found)]


def test_columns_of_a_change_feed_are_given_as_they_are_asked_for(tmp_path: Path) -> None:
    logs = _answered(storage=LocalStorage(tmp_path))
    some = tm.read_table(tmp_path, change_feed=True, columns=["_change_type", "item"])
    whole = tm.read_table(tmp_path, change_feed=True)
    assert some == whole.select(["_change_type", "item"])
    at = datetime.fromtimestamp(logs.clock.now_us / SECOND - 2, timezone.utc)
    since = tm.read_table(tmp_path, change_feed=True, starting_timestamp=at)
    assert _changes(since) == [each for batch in (4, 5, 6) for each in logs.changes(batch)]


def test_whoever_names_a_start_is_told_of_deletes_of_what_came_before() -> None:
    logs = _answered()
    for first in range(len(SOME_STEPS)):
        found = _changes(_read(logs, Answers.CHANGES, Span(first)))
        wanted = [each for n in range(first, len(SOME_STEPS)) for each in logs.changes(n)]
        assert found == wanted


def test_a_change_feed_applied_to_nothing_is_what_stands() -> None:
    for seed in seeds(12):
        rng = random.Random(seed)
        steps = random_steps(rng)
        with reported(seed, steps):
            logs = _answered(steps)
            oldest = rng.choice((0, 0, rng.randrange(len(steps))))
            _trim(logs, oldest)
            feed = _changes(_read(logs, Answers.CHANGES))
            for last in range(oldest, len(steps)):
                told = apply_changes([each for each in feed if each.batch <= last])
                found = _marked(_read(logs, Answers.CURRENT, Span(last_batch=last)))
                assert told == Counter(found) == logs.current(last, oldest)
            part = _changes(_read(logs, Answers.CHANGES, Span(last_batch=oldest + 1)))
            assert part == [each for each in feed if each.batch <= oldest + 1]


def test_a_change_feed_that_is_read_in_parts_is_the_same_as_at_once() -> None:
    for seed in seeds(12):
        rng = random.Random(seed)
        steps = random_steps(rng)
        with reported(seed, steps):
            logs = _answered(steps)
            view = open_view(logs.storage, None, Answers.CHANGES).beginning_at(0)
            found, first = [], 0
            while first < len(steps):
                _trim(logs, view.needs(first))  # what a named reader lets go
                end = rng.randint(first + 1, len(steps))
                found += _in_order(view, first, end)
                first = end
            assert found == [each for n in range(len(steps)) for each in logs.changes(n)]


def _in_order(view: StreamView, first: int, end: int) -> list[Change]:
    chunks = [chunk for batch in view.batches(first, end, Span()) for chunk in batch.chunks]
    found: list[Change] = []
    for chunk in chunks:
        parts = list(view.read(chunk, view.schema.names, Span()))
        rows = _changes(pa.Table.from_batches(parts, view.schema))
        assert len(rows) == chunk.rows, "limits of a trigger go by it"
        found += rows
    return found


def test_a_reader_keeps_what_it_has_still_to_delete() -> None:
    view = open_view(_answered().storage, None, Answers.CHANGES)
    assert [view.needs(batch) for batch in range(8)] == [0, 0, 1, 1, 2, 4, 5, 5]
    later = view.beginning_at(3)
    assert [later.needs(batch) for batch in range(3, 8)] == [3, 3, 4, 5, 5]
    assert open_view(_answered().storage).needs(4) == 4


# What is gone


def test_deletes_of_what_is_gone_are_a_loss_of_data_that_names_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logs = _answered()
    _trim(logs, 3)
    with pytest.raises(DataLoss, match="batches 2 to 2 are gone, which batch 4 repl") as refused:
        _read(logs, Answers.CHANGES, Span(4))
    assert "retain_batches" in refused.value.fix
    with pytest.raises(DataLoss, match="Batch 2 is gone, and with it which results batch 3 repl"):
        _read(logs, Answers.CHANGES, Span(3))
    with caplog.at_level(logging.WARNING, "trailmark"):
        found = _changes(_read(logs, Answers.CHANGES, Span(4), fails_on_data_loss=False))
    assert "batches 2 to 2 are gone" in caplog.text
    wanted = [each for n in (4, 5, 6) for each in logs.changes(n)]
    gone = [each for each in wanted if each.row[0] in (1, 2) and each.change == "delete"]
    assert found == [each for each in wanted if each not in gone]
    assert _changes(_read(logs, Answers.CHANGES)) == [
        each for n in range(3, 7) for each in logs.changes(n, first=3)
    ], "who names no start has nothing to delete of what came before"


def test_what_is_removed_while_it_is_read_is_a_loss_of_data() -> None:
    logs = _answered()
    for fails in (True, False):
        view = open_view(logs.storage, None, Answers.CHANGES, fails_on_data_loss=fails)
        if fails:
            (batch,) = view.batches(4, 5, Span())
            _trim(logs, 3)
            with pytest.raises(DataLoss, match="of batch 2 are gone, which batch 4 replaces"):
                [list(view.read(chunk, ["item"], Span())) for chunk in batch.chunks]
        else:
            found = [rows for c in batch.chunks for rows in view.read(c, ["item"], Span())]
            assert sum(rows.num_rows for rows in found) == len(logs.changes(4)) - 2


def test_a_batch_that_is_missing_between_others_is_no_trimmed_one(tmp_path: Path) -> None:
    logs = _answered(storage=LocalStorage(tmp_path))
    for missing in tmp_path.glob("out*/*/*2.seg"):
        missing.unlink()
    for first in (3, 4):
        with pytest.raises(MissingSegment) as refused:
            _read(logs, Answers.CHANGES, Span(first), fails_on_data_loss=False)
        assert not isinstance(refused.value, DataLoss)


# What is refused


@pytest.mark.parametrize(
    ("asked", "what", "where"),
    [
        ({"answers": "final"}, "'final' are no answers", "answers"),
        ({"answers": "changes"}, "'changes' are no answers", "answers"),
        ({"answers": "all", "records": "input"}, "answers is about results", "records, answers"),
        ({"answers": "stable", "records": "state"}, "answers is about", "records, answers"),
        (
            {"change_feed": True, "records": "all"},
            "readChangeFeed is about results",
            "records, readChangeFeed",
        ),
        ({"change_feed": True, "answers": "all"}, "has all results", "answers, readChangeFeed"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(
    tmp_path: Path, asked: dict[str, Any], what: str, where: str
) -> None:
    _answered(SOME_STEPS[:1], LocalStorage(tmp_path))
    with pytest.raises(SettingError, match=what) as refused:
        tm.read_table(tmp_path, **asked)
    assert refused.value.where == where
    assert refused.value.fix


@pytest.mark.parametrize("answers", [True, ["stable"]])
def test_answers_that_are_no_text_are_refused(tmp_path: Path, answers: Any) -> None:
    _marked_stream(tmp_path, [True], pa.bool_())
    with pytest.raises(SettingError, match="are no answers of an operator"):
        tm.read_table(tmp_path, answers=answers)


def test_wrong_answers_are_refused_with_the_right_ones(tmp_path: Path) -> None:
    _answered(SOME_STEPS[:1], LocalStorage(tmp_path))
    with pytest.raises(SettingError) as refused:
        tm.read_table(tmp_path, answers="final")
    assert refused.value.fix == "Use one of stable, all, current."


@pytest.mark.parametrize("name", ["tentative", "Tentative", "_commit_version"])
def test_an_operator_with_a_column_of_that_name_has_only_its_own(name: str) -> None:
    values = {name: f.count()}
    window = CountWindow(2, 2)
    case = Case.of(SCHEMA, by=["item"], window=window, values=values, batches=[])
    logs = Answered(SimulatedDisk().storage(), [Step([(1, 1), (1, 2)])], case).run()
    assert _read(logs, Answers.STABLE).to_pylist() == [{"item": 1, name: 2}]
    for answers in (Answers.ALL, Answers.CURRENT, Answers.CHANGES):
        if name == "_commit_version" and answers is not Answers.CHANGES:
            assert _read(logs, answers).num_rows == 1
            continue
        with pytest.raises(SettingError, match=f"a result column of its own named {name}"):
            open_view(logs.storage, None, answers)


# Written streams


def _marked_stream(path: Path, marks: Sequence[object], kind: pa.DataType) -> None:
    schema = pa.schema([("id", pa.int64()), ("tentative", kind), ("at", pa.timestamp("us"))])
    storage = LocalStorage(path)
    meta = open_stream(storage, schema, time_column="at")
    writer = StreamWriter(storage, meta)
    for n, mark in enumerate(marks):
        row = pa.Table.from_pylist([{"id": n, "tentative": mark, "at": n * SECOND}], schema)
        writer.commit(writer.write(row.to_batches()))


def test_a_written_stream_with_marks_is_read_as_it_is_or_without_what_is_tentative(
    tmp_path: Path,
) -> None:
    marks = [False, True, None, True, False]
    _marked_stream(tmp_path, marks, pa.bool_())
    for answers in (None, "all"):
        found = tm.read_table(tmp_path, answers=answers)
        assert found["tentative"].to_pylist() == marks
    found = tm.read_table(tmp_path, answers="stable")
    assert found.schema.names == ["id", "at"]
    assert found["id"].to_pylist() == [0, 2, 4]
    later = tm.read_table(
        tmp_path, answers="stable", columns=["id"], starting_timestamp="1970-01-01 00:00:02"
    )
    assert later.to_pydict() == {"id": [2, 4]}
    assert tm.read_table(tmp_path, answers="stable", columns=[]).num_rows == 3


def test_all_rows_of_a_written_stream_without_marks_stand(tmp_path: Path) -> None:
    stream = written(LocalStorage(tmp_path / "plain"))
    stream.add([("a", 1, 1)])
    _marked_stream(tmp_path / "text", ["yes", "no"], pa.string())
    for place in ("plain", "text"):
        for answers in ("stable", "all"):
            found = tm.read_table(tmp_path / place, answers=answers)
            assert found == tm.read_table(tmp_path / place)


def test_a_written_stream_does_not_know_what_stands(tmp_path: Path) -> None:
    _marked_stream(tmp_path, [True], pa.bool_())
    with pytest.raises(SettingError, match="which of its tentative rows still stand") as refused:
        tm.read_table(tmp_path, answers="current")
    assert "path of the operator" in refused.value.fix
    with pytest.raises(SettingError, match="no change feed: its rows are only ever inserted"):
        tm.read_table(tmp_path, change_feed=True)


def test_a_view_of_stable_rows_is_one_of_the_stream(tmp_path: Path) -> None:
    _marked_stream(tmp_path, [False, True], pa.bool_())
    view, whole = (
        open_view(LocalStorage(tmp_path), None, Answers.STABLE),
        open_view(LocalStorage(tmp_path)),
    )
    assert (view.log_id, view.stream, view.time_column) == (
        whole.log_id,
        whole.stream,
        whole.time_column,
    )
    assert bounds(view.beginning_at(1), Span()) == bounds(whole, Span()) == (0, 2)
    assert view.find(SECOND) == whole.find(SECOND) == 1
    assert view.needs(1) == 1
