"""The state of an operator as a table: what it is, and as of which batch."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from tests.support.cases import Case
from tests.support.orders import count_case, random_orders, random_timed_orders, time_case
from tests.support.shown_states import POLICY, StatedQuery, offered, stated_query
from tests.support.wide import EVERY_FUNCTION, EVERY_WINDOW, wide_case
from trailmark.checkpoint.policy import Continuous, FullSnapshot, NoCheckpoint, UpstreamBackup
from trailmark.engine.commits import mark_committed
from trailmark.errors import (
    MissingInput,
    MissingSegment,
)
from trailmark.windows import functions as f
from trailmark.windows.functions import AnyFunction
from trailmark.windows.spec import CountWindow

# What it is


@pytest.mark.parametrize("kind", EVERY_WINDOW)
def test_every_function_and_window_has_the_state_of_the_oracle_after_every_batch(
    kind: str,
) -> None:
    stated = stated_query(wide_case(EVERY_WINDOW[kind], EVERY_FUNCTION))
    assert sum(map(len, stated.states)) > 30
    for batch in range(len(stated.states)):
        stated.check(stated.open().table(batch), batch)
    stated.check(stated.open().table(), len(stated.states) - 1)


@pytest.mark.parametrize(
    ("kind", "leading"),
    [
        ("tumbling", {"item": "string", "opened": "int64", "fill": "int64"}),
        (
            "overlapping",
            {"item": "string", "start": "int64", "opened": "int64", "fill": "int64"},
        ),
        (
            "time",
            {
                "item": "string",
                "window": "struct<start: timestamp[us, tz=UTC], end: timestamp[us, tz=UTC]>",
                "opened": "int64",
            },
        ),
    ],
)
def test_columns_have_the_full_types_of_the_state_also_before_the_first_batch(
    kind: str, leading: dict[str, str]
) -> None:
    values: dict[str, AnyFunction] = {
        "n": f.count(),
        "total": f.sum("n"),
        "mean": f.avg("d"),
        "dev": f.stddev("x"),
        "text": f.last("item"),
        "least": f.min("x"),
    }
    case = wide_case(EVERY_WINDOW[kind], values)
    stated = StatedQuery.of(case, NoCheckpoint(), 2)
    stated.query.logs()
    expected = {
        "batch": "int64",
        "bucket": "int32",
        **leading,
        "n.count": "int64",
        "total.sum": "decimal128(38, 0)",
        "total.count": "int64",
        "mean.sum": "decimal128(38, 3)",
        "mean.count": "int64",
        "dev.count": "int64",
        "dev.mean": "double",
        "dev.m2": "double",
        "text.value": "string",
        "text.seen": "int8",
        "least.value": "double",
        "least.seen": "int64",
    }
    empty = stated.open().table()
    assert {field.name: str(field.type) for field in empty.schema} == expected
    assert empty.num_rows == 0
    stated.run()
    found = stated.open().table()
    assert found.schema == empty.schema
    assert found.num_rows > 0
    assert set(found["bucket"].to_pylist()) == {0, 1}
    stated.query.stop()


def test_names_that_the_operator_has_itself_keep_theirs() -> None:
    schema = pa.schema([("opened", pa.int32()), ("batch", pa.int32()), ("fill.sum", pa.int32())])
    case = Case.of(
        schema,
        by=["opened", "batch"],
        window=CountWindow(3, 3),
        values={"fill": f.sum("fill.sum")},
        batches=[(0, [(1, 2, 30), (1, 2, 40), (7, 2, 5)])],
    )
    stated = stated_query(case, 1)
    rows = stated.open().table().to_pylist()
    named = ["$batch", "bucket", "opened", "batch", "$opened", "fill", "fill.sum", "fill.count"]
    assert list(rows[0]) == named
    found = {row["opened"]: tuple(row.values()) for row in rows}
    assert found == {1: (0, 0, 1, 2, 0, 2, 70, 2), 7: (0, 0, 7, 2, 0, 1, 5, 1)}


@pytest.mark.parametrize(
    "policy", [NoCheckpoint(), UpstreamBackup(), FullSnapshot(3), Continuous(q=0)], ids=repr
)
def test_it_is_the_same_under_every_policy(policy: Any) -> None:
    rows = random_timed_orders(random.Random(2), batches=9, rows=30, items=5)
    stated = StatedQuery.of(time_case(rows), policy, 2).run()
    stated.query.stop()
    assert stated.check_all() == 0


def test_looking_at_it_changes_no_file() -> None:
    stated = stated_query()
    before = {name: stated.disk.content(name) for name in stated.disk.files()}
    for batch in (None, 3):
        assert stated.open().table(batch).num_rows > 0
    assert {name: stated.disk.content(name) for name in stated.disk.files()} == before


# Which batch


def test_it_is_as_of_the_newest_committed_batch() -> None:
    case = count_case(random_orders(random.Random(5), batches=6, rows=20, items=6), size=4)
    stated = StatedQuery.of(case, POLICY).run([0, 1, 2])
    stated.query.run(3, [case.batches[3]])
    stated.check(stated.open().table(), 2)
    with pytest.raises(MissingSegment, match="as of batch 3: it is not committed") as refused:
        stated.open().table(3)
    assert refused.value.where == "endingBatch"
    assert offered(refused.value) == {0, 1, 2}
    mark_committed(stated.disk.storage(), 3, "a run")
    assert set(stated.open().table()["batch"].to_pylist()) == {3}
    stated.query.stop()


def test_nothing_is_open_before_the_first_batch_and_no_batch_can_be_asked_for() -> None:
    stated = StatedQuery.of(count_case([[(1, 2)]]), POLICY)
    stated.query.logs()
    assert stated.open().table().num_rows == 0
    with pytest.raises(MissingSegment, match="not committed") as refused:
        stated.open().table(0)
    assert "read it later" in refused.value.fix


def test_batches_whose_input_was_trimmed_are_refused_with_those_that_can_be_read() -> None:
    rows = random_orders(random.Random(9), batches=24, rows=20, items=12)
    stated = StatedQuery.of(count_case(rows, size=6), Continuous(q=20, u=60))
    for batch in range(len(rows)):
        stated.run([batch])
        if batch in (10, 20):
            stated.query.open()[0].trim()
    stated.query.stop()
    assert 0 < stated.check_all() < 24
    first = stated.query.logs().input(0).start()
    with pytest.raises(MissingInput, match=r"state as of batch .* cannot be rebuilt") as refused:
        stated.open().table(first // 2)
    assert "is gone" in refused.value.what
    assert "keeps input as long as a recovery may need it" in refused.value.fix
    some = min(offered(refused.value))
    stated.check(stated.open().table(some), some)


def test_batches_whose_output_was_trimmed_are_refused() -> None:
    case = count_case(random_orders(random.Random(9), batches=20, rows=20, items=6), size=4)
    stated = StatedQuery.of(case, Continuous(q=10)).run()
    stated.query.open()[0].trim(15)
    stated.query.stop()
    start = stated.query.logs().output(0).start()
    assert start > 0
    with pytest.raises(MissingSegment, match="not in the output log any more") as refused:
        stated.open().table(start - 1)
    assert min(offered(refused.value)) >= start
