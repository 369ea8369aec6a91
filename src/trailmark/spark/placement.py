"""On several hosts, a bucket's tasks run where its state is.

The state is in the memory of the host that ran the bucket's last task. Which host runs the next one
is Spark's choice, and the shuffle before it leaves that open. But a task that reads a cached
partition runs on the executor that has it. So the rows are joined with an *anchor*: a cached
DataFrame with a partition for each bucket, and in it one row, which adds nothing to any other.

A partition of an anchor is cached by the first task that asks for it. So it lies where the state
is, and what ends the executor ends both: the next task runs anywhere, makes the partition there and
recovers the state. Nothing else depends on an anchor. One that is not cached is made for the batch.

Executors that come later would have no buckets. So when they have changed, those that hold more
buckets than their share drop some partitions, which are made again where there is room.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_
from uuid import UUID

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as spark

from trailmark.spark.connect import is_connect
from trailmark.spark.control import as_key, quoted
from trailmark.spark.internals import CachedPartitions, executor_ids, slots_of_executors
from trailmark.spark.received import ControlKeys
from trailmark.values import dataclass

_log = logging.getLogger("trailmark")

#: Whether Spark runs a task where much of its input was written, which comes before what is cached.
_BY_INPUT = "spark.shuffle.reduceLocality.enabled"


def has_several_hosts(session: SparkSession) -> bool:
    """Whether tasks may run on other hosts than the driver's, as far as the master's URL says. A
    server of Spark Connect does not say where buckets are."""
    return not is_connect(session) and not (session.sparkContext.master or "").startswith("local")


@dataclass(frozen=True, slots=True)
class _Kind:
    """What tells an anchor from others. Operators with equal keys and buckets share one.

    ``may_move`` is false for states that could not be recovered elsewhere.
    """

    application: str
    types: tuple[str, ...]
    place: int
    numbers: tuple[int, ...]
    may_move: bool


#: The anchors of the running application.
_anchors: dict[_Kind, DataFrame] = {}


def anchored(
    rows: DataFrame, keys: Sequence[spark.StructField], control: ControlKeys, *, may_move: bool
) -> DataFrame:
    """The rows of all buckets, partitioned by their keys, with an anchor for each."""
    anchor = _anchor(rows.sparkSession, keys, control, may_move)
    same = [
        rows[quoted(key.name)] == anchor[name]
        for key, name in zip(keys, anchor.columns, strict=False)
    ]
    # The rows stream through, past a table of one row.
    joined = rows.join(anchor.hint("shuffle_hash"), reduce(and_, same), "left")
    return joined.select(*(rows[quoted(name)] for name in rows.columns))


def _anchor(
    session: SparkSession, keys: Sequence[spark.StructField], control: ControlKeys, may_move: bool
) -> DataFrame:
    application = session.sparkContext.applicationId
    for kind in [kind for kind in _anchors if kind.application != application]:
        del _anchors[kind]
    types = tuple(key.dataType.simpleString() for key in keys)
    place = [key.name for key in keys].index(control.column)
    kind = _Kind(application, types, place, control.numbers, may_move)
    if kind not in _anchors:
        _check_setting(session)
        rows = _key_rows(session, keys, control)
        parts = rows.repartition(len(control.numbers), *rows.columns)
        # New names keep a projection above the shuffle. Where the anchor is not cached, Spark would
        # else join two shuffles, and take its own number of partitions for both.
        renamed = [F.col(name).alias(f"anchor_{name}") for name in rows.columns]
        # Spark takes equal plans for one: those that stay must not be taken for those that move.
        _anchors[kind] = parts.select(*renamed, F.lit(may_move).alias("may_move"))
    anchor = _anchors[kind]
    # A cache that was cleared is filled again with the next query.
    return anchor if anchor.storageLevel.useMemory else anchor.persist()


def _key_rows(
    session: SparkSession, keys: Sequence[spark.StructField], control: ControlKeys
) -> DataFrame:
    """The keys of the control row of each bucket.

    Spark must not find out what is in them before it runs: it would leave rows with nulls out,
    which join with nothing, and the partitions with them.
    """
    count = len(control.numbers)
    place = F.col("id").cast("int") + 1
    nothing = F.array_repeat(F.lit(None).cast("boolean"), count)
    rows = session.range(0, count, 1, 1).select(
        F.element_at(F.array(*map(F.lit, control.numbers)), place).alias("number"),
        F.element_at(nothing, place).alias("nothing"),
    )
    values = [as_key(key.dataType).cast(key.dataType) for key in keys]
    columns = [
        value if key.name == control.column else F.when(F.col("nothing"), value)
        for key, value in zip(keys, values, strict=True)
    ]
    return rows.select(*(column.alias(f"key_{n}") for n, column in enumerate(columns)))


def _check_setting(session: SparkSession) -> None:
    if session.sparkContext.getConf().get(_BY_INPUT, "true") != "false" and not _anchors:
        _log.warning(
            "Spark runs tasks where their input was written, so buckets move between hosts and "
            "recover there again and again. Set %s=false when the session starts; see "
            "docs/clusters.md.",
            _BY_INPUT,
        )


class Spreading:
    """Lets buckets go from executors that hold more than their share when others have come."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._settled_with: str | None = None

    def __call__(self, query: UUID, run: UUID, batch: int) -> None:
        """Looks at executors after a batch; asks where buckets are only when they have changed."""
        executors = executor_ids(self._session)
        if executors is None or executors == self._settled_with:
            return
        slots = slots_of_executors(self._session)
        is_settled = True
        for kind, anchor in _anchors.items():
            if not kind.may_move:
                continue
            partitions = CachedPartitions.of(anchor)
            if partitions is None:
                continue  # no task has asked for it
            held = partitions.by_executor()
            known = sum(map(len, held.values()))
            moving = surplus(held, slots)
            for number in moving:
                partitions.drop(number)
            is_settled &= not moving and known == len(kind.numbers)
            if moving:
                _log.info("%d of %d buckets move to executors that have room", len(moving), known)
        if is_settled:
            self._settled_with = executors


def surplus(held: Mapping[str, Sequence[int]], slots: Mapping[str, int]) -> list[int]:
    """The partitions that executors should not have: those beyond what they can run at a time, or,
    where that is not enough for all, beyond their part of all."""
    total = sum(slots.values())
    count = sum(len(numbers) for executor, numbers in held.items() if executor in slots)
    found: list[int] = []
    for executor, numbers in held.items():
        if executor in slots:
            share = -(-count * slots[executor] // total)
            found += sorted(numbers)[max(share, slots[executor]) :]
    return found
