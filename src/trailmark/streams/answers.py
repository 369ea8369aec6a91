"""Which results readers ask for, where an operator also gives tentative ones."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import pyarrow as pa

from trailmark.errors import SettingError
from trailmark.records import MARK

#: Columns of a change feed, named as Delta's are: what happened to a row, in which batch, and when
#: that was written.
CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = (
    "_change_type",
    "_commit_version",
    "_commit_timestamp",
)
INSERT, DELETE = "insert", "delete"
#: In the change feed of replicas: what is tentative and of an earlier version is void.
UNDO = "undo"

#: Options, as errors name them.
ANSWERS, READ_CHANGE_FEED = "answers", "readChangeFeed"


class Answers(Enum):
    """What is read of an operator's results.

    Attributes
    ----------
    STABLE
        Those that stand for good.
    ALL
        Tentative ones as well, of every batch, whatever became of them.
    CURRENT
        Tentative ones as well that nothing has replaced yet.
    CHANGES
        What came and went with every batch. Asked for as a change feed.
    """

    STABLE = "stable"
    ALL = "all"
    CURRENT = "current"
    CHANGES = "changes"


_BY_NAME = {each.value: each for each in Answers if each is not Answers.CHANGES}


def asked_answers(
    answers: str | None, records: str | None, *, change_feed: bool = False
) -> Answers | None:
    """What is asked for by these names; None if nothing is said of it."""
    name = answers.lower() if isinstance(answers, str) else None
    found = None if name is None else _BY_NAME.get(name)
    if answers is not None and found is None:
        raise SettingError(
            f"{answers!r} are no answers of an operator.",
            where=ANSWERS,
            fix=f"Use one of {', '.join(_BY_NAME)}.",
        )
    where = READ_CHANGE_FEED if change_feed else ANSWERS
    if (found is not None or change_feed) and records not in (None, "results"):
        raise SettingError(
            f"{where} is about results, not about records {records!r}.",
            where=f"records, {where}",
            fix="Leave out one of them.",
        )
    if not change_feed:
        return found
    if found is not None:
        raise SettingError(
            f"A change feed has all results, so answers {answers!r} say nothing.",
            where=f"{ANSWERS}, {READ_CHANGE_FEED}",
            fix="Leave out one of them.",
        )
    return Answers.CHANGES


def marked_schema(shown: pa.Schema, answers: Answers) -> pa.Schema:
    """The columns of results with those that are added to them."""
    added = [pa.field(MARK, pa.bool_())]
    if answers is Answers.CHANGES:
        added += [
            pa.field(CHANGE_TYPE, pa.string()),
            pa.field(COMMIT_VERSION, pa.int64()),
            pa.field(COMMIT_TIMESTAMP, pa.timestamp("us", "UTC")),
        ]
    _check_free(shown.names, [field.name for field in added], answers)
    return pa.schema([*shown, *added])


def _check_free(names: Sequence[str], added: Sequence[str], answers: Answers) -> None:
    """Spark does not tell names apart by case."""
    taken = [name for name in names if name.lower() in added]
    if taken:
        is_feed = answers is Answers.CHANGES
        raise SettingError(
            f"The operator has a result column of its own named {taken[0]}, as the one that "
            f"{'a change feed' if is_feed else f'answers {answers.value!r}'} would add.",
            where=READ_CHANGE_FEED if is_feed else ANSWERS,
            fix="Give the operator's column another name, or read answers='stable'.",
        )


def refuse_current_stream() -> SettingError:
    """The error to raise about a stream of what stands."""
    return SettingError(
        "A streaming read cannot take back what it has given out, so it cannot be what stands.",
        where=ANSWERS,
        fix="Follow the change feed (option readChangeFeed 'true'), whose deletes say what no "
        "longer stands; or use spark.read.",
    )


def refuse_of_replicas(answers: Answers) -> SettingError:
    """The error to raise about a table of what only a stream of replicas can say."""
    return SettingError(
        "What came and went is told to who follows replicas, and is not kept: each has answered in "
        "its own batches.",
        where=READ_CHANGE_FEED if answers is Answers.CHANGES else ANSWERS,
        fix="Read answers 'current' for what stands now, or follow them with spark.readStream; or "
        "read the path of one replica.",
    )


def refuse_written(answers: Answers) -> SettingError:
    """The error to raise about a written stream, which does not know what stands."""
    if answers is Answers.CHANGES:
        return SettingError(
            "A written stream has no change feed: its rows are only ever inserted.",
            where=READ_CHANGE_FEED,
            fix="Leave the option out. For what is taken back, read the operator's path.",
        )
    return SettingError(
        "A written stream does not know which of its tentative rows still stand.",
        where=ANSWERS,
        fix="Read the path of the operator that gave them, or answers 'stable' or 'all'.",
    )
