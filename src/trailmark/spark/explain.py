"""`tm.explain`: the operators in the plan of a DataFrame, and how they would recover."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame

from trailmark.checkpoint.wording import policy_title
from trailmark.errors import LogError, StorageError
from trailmark.inspection import BucketStatus, OperatorStatus, read_status
from trailmark.log import open_storage, read_meta
from trailmark.log.storage.urls import redacted
from trailmark.operators.kinds import caution_of, title_of
from trailmark.spark.arguments import check_classic
from trailmark.spark.explained import ExplainedOperator, Explanation, LogsNow, Step
from trailmark.spark.internals import PlanNode, Source, read_plan
from trailmark.spark.plan_note import PlanNote
from trailmark.spark.source import TrailmarkSource
from trailmark.spark.ticks import TickSource
from trailmark.spark.union_source import UnionOptions, UnionSource

#: What `mapInArrow` becomes in a plan.
_FUNCTION = "MapInArrow"
#: Nodes of Spark's that keep state in a stream.
_STATEFUL = frozenset(
    {
        "Aggregate",
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "Distinct",
        "FlatMapGroupsInPandasWithState",
        "FlatMapGroupsWithState",
        "GlobalLimit",
        "TransformWithState",
        "TransformWithStateInPandas",
        "TransformWithStateInPySpark",
    }
)


def explain(df: DataFrame) -> None:
    """Print the Trailmark operators of a DataFrame as a tree, with how each of them would recover.

    For each operator: its keys and window, its policy and what that promises, where its logs are,
    and, when there are some, the newest batch and how long a recovery would take now. Below it is
    what it reads: other operators, operators of Spark's that keep state, sources. Nothing is run
    or changed.

    Parameters
    ----------
    df
        Any DataFrame, streaming or not.

    Examples
    --------
    >>> tm.explain(average)                                           # doctest: +SKIP
    == Trailmark Operators ==
    aggregate by item_id, windows of 10 tuples
    :    policy    continuous (objective 2 s): recovers within 2 seconds
    :    path      /data/orders-average, 4 buckets
    :    logs      batch 41, 20,318 pieces of state open
    :    recovery  would take about 340 ms (objective 2 s)
    +- parquet: /data/orders
    """
    print(explanation(df))


def explanation(df: DataFrame) -> Explanation:
    """What :func:`trailmark.explain` prints, as a value: for scripts and tests.

    Examples
    --------
    >>> [operator.warnings for operator in tm.explanation(average).operators]  # doctest: +SKIP
    [()]
    """
    check_classic(df, "tm.explain")
    return Explanation(tuple(_steps(read_plan(df, {_FUNCTION, *_STATEFUL}))))


def _steps(node: PlanNode) -> list[Step]:
    """A node of the plan as there is something to say of it, or else what is below it."""
    note, branches = _operator_in(node)
    inputs = tuple(step for branch in branches for step in _steps(branch))
    if note is not None:
        # Spark makes one union of those of the operator and of its input.
        is_union = len(inputs) > 1 and len(note.inputs) < 2
        read = (Step("Spark: Union", inputs),) if is_union else inputs
        return [Step(title_of(note.operator), read, _operator(note))]
    if not node.children:
        return _leaf(node)
    if _is_stateful(node):
        return [Step(f"Spark: {node.name}, with state in Spark's own checkpoint", inputs)]
    return [Step(f"Spark: {node.name}", inputs)] if len(inputs) > 1 else list(inputs)


def _operator_in(node: PlanNode) -> tuple[PlanNote | None, tuple[PlanNode, ...]]:
    """The note of an operator if the node is one, and where its rows come from."""
    if node.name == _FUNCTION and len(node.children) == 1:
        (below,) = node.children
        # On several hosts, an anchor is joined to what the operator reads.
        united = below.children[0].children if below.name == "Join" else below.children
        notes = [PlanNote.from_metadata(branch.metadata) for branch in united]
        for note in notes:
            if note is not None:
                return note, tuple(b for b, n in zip(united, notes, strict=True) if n is None)
    return None, node.children


def _is_stateful(node: PlanNode) -> bool:
    if node.name == "Join":
        return sum(side.is_streaming for side in node.children) > 1
    return node.is_streaming and node.name in _STATEFUL


def _leaf(node: PlanNode) -> list[Step]:
    source = node.source
    if source is None:
        return [Step(f"Spark: {node.name}")]
    if source.format == TickSource.name():
        return []  # part of an operator
    return [Step(_source_title(source))]


def _source_title(source: Source) -> str:
    """A source by format and path. Options of others than Trailmark's may be secrets."""
    if source.format == UnionSource.name():
        union = UnionOptions.of({**dict(source.options), "path": source.paths[0]})
        streams = (f"{name}: {redacted(path)}" for name, path in union.paths.items())
        return f"tm.union at {redacted(union.path)} of {', '.join(streams)}"
    is_ours = source.format == TrailmarkSource.name()
    name = "Trailmark stream" if is_ours else source.format
    given = [redacted(path) for path in source.paths]
    if is_ours:
        given += [f"{option} {value}" for option, value in source.options]
    return f"{name}: {', '.join(given)}" if given else name


def _operator(note: PlanNote) -> ExplainedOperator:
    logs, trouble = None, ""
    if note.is_streaming and note.policy is not None:
        logs, trouble = _read_logs(note, note.policy)
    return ExplainedOperator(
        note.buckets,
        "none" if note.policy is None else policy_title(note.policy),
        note.promise,
        None if note.policy is None else note.policy.get("objective_us"),
        caution_of(note.operator),
        redacted(note.path) if note.is_streaming else None,
        logs,
        trouble,
    )


def _read_logs(note: PlanNote, policy: Mapping[str, Any]) -> tuple[LogsNow | None, str]:
    """What the logs say, or why they do not; neither before there are any."""
    try:
        storage = open_storage(note.path)
        if read_meta(storage) is None:
            return None, ""
        return _logs_now(read_status(storage, look_back=1), policy), ""
    except (LogError, StorageError) as error:
        return None, f"the logs cannot be read: {error.line}"


def _logs_now(status: OperatorStatus, policy: Mapping[str, Any]) -> LogsNow:
    others = [b.policy_title for b in status.buckets if b.policy not in (None, policy)]
    return LogsNow(
        status.last_batch,
        sum(account.open_windows for account in status.accounts),
        status.predicted_us,
        " / ".join(dict.fromkeys(others)),
        tuple(
            f"bucket {bucket.bucket}: {text}"
            for bucket in status.buckets
            for text in _complaints(bucket, policy)
        ),
    )


def _complaints(bucket: BucketStatus, policy: Mapping[str, Any]) -> list[str]:
    """What is wrong with a bucket; what another policy did not keep is no matter."""
    shortfall = bucket.shortfall if bucket.policy == policy else ""
    return [text for text in (bucket.problem, shortfall) if text]
