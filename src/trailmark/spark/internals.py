"""Names inside of Spark that have no public counterpart in PySpark.

Another version may lack any of them. Then these functions have no answer, and whoever asks does
without; but no operator runs without `as_streaming`, save on Spark Connect, and nothing is
explained without `read_plan`: these refuse.
``tests/spark/test_internals.py`` says what is expected of Spark, and what is lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any
from uuid import UUID

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery

from trailmark.errors import SettingError
from trailmark.spark.connect import is_connect
from trailmark.values import dataclass

#: What comes of a name that is not there (py4j knows a package of it, or nothing), and of a JVM
#: that is not.
_GONE = (Py4JError, AttributeError, ImportError, OSError, TypeError)

_SCHEDULER = "org.apache.spark.scheduler.DAGScheduler"

#: What Spark calls a relation of files.
_FILES = "HadoopFsRelation"

#: Nodes that hold no row back, and add none of another stream.
_ROW_BY_ROW = frozenset(
    {
        "EventTimeWatermark",
        "Filter",
        "Generate",
        "Join",
        "Project",
        "Repartition",
        "RepartitionByExpression",
        "ResolvedHint",
        "SubqueryAlias",
        "View",
    }
)
#: Those of them that may change the order of rows.
_REARRANGING = frozenset({"Join", "Repartition", "RepartitionByExpression"})

#: Told of a batch: the id of its query, that of the run, and its number.
OnBatch = Callable[[UUID, UUID, int], None]


def as_streaming(rows: DataFrame) -> DataFrame:
    """A DataFrame of literals as a stream that has the same rows in every micro-batch.

    ``LocalRelation.isStreaming``: Spark's planner takes such a relation in a union with a stream,
    and it is no source. PySpark has no name for it.
    """
    session = rows.sparkSession
    try:
        plan = rows._jdf.queryExecution().optimizedPlan()
        if plan.nodeName() != "LocalRelation":
            raise TypeError(f"literals become {plan.nodeName()}")
        rest = [getattr(plan, f"copy$default${n}")() for n in range(4, plan.productArity() + 1)]
        streaming = plan.copy(plan.output(), plan.data(), True, *rest)
        jvm: Any = session.sparkContext._jvm
        dataset = jvm.org.apache.spark.sql.classic.Dataset
        return ClassicDataFrame(dataset.ofRows(session._jsparkSession, streaming), session)
    except _GONE as error:
        raise SettingError(
            f"Spark {session.version} cannot send a row to every bucket: what this Trailmark uses "
            f"of its planner is not there ({error!r}).",
            where="SparkSession",
            fix="Use a newer Trailmark, or a Spark from 4.0 to 4.3.",
        ) from error


def driver_directory(session: SparkSession) -> str | None:
    """The directory from which Spark's driver goes with relative paths."""
    try:
        jvm: Any = session.sparkContext._jvm
        return str(jvm.System.getProperty("user.dir"))
    except _GONE:
        return None


def checkpoint_of(query: StreamingQuery) -> str | None:
    """Where Spark keeps the checkpoint of a running query; None if this Spark does not tell.

    ``StreamExecution.resolvedCheckpointRoot`` is a path as Hadoop spells it, with its scheme and
    without escapes.
    """
    try:
        found = query._jsq.streamingQuery().resolvedCheckpointRoot()
    except _GONE:
        return None
    return found if isinstance(found, str) else None


@dataclass(frozen=True, slots=True)
class Source:
    """What a DataFrame reads, by the name of its format.

    ``paths`` is empty where there is none, and of files all that were given. ``options`` are known
    of newer kinds of sources only; they may hold secrets.
    """

    format: str
    paths: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()


def stream_sources(df: DataFrame) -> list[Source]:
    """The sources with paths that a streaming DataFrame reads."""
    if is_connect(df.sparkSession):
        return [source for source in _sources_of_client(df) if source.paths]
    try:
        leaves = _listed(df._jdf.queryExecution().analyzed().collectLeaves())
        found = [_source(leaf) for leaf in leaves if leaf.isStreaming()]
        return [source for source in found if source is not None and source.paths]
    except _GONE:
        return []


def _sources_of_client(df: DataFrame) -> list[Source]:
    """The streaming sources that a client of Spark Connect knows of; not those behind views."""
    try:
        client: Any = df
        plan = client._plan.to_proto(client.sparkSession.client)
        found = [read for read in _reads(plan) if read.is_streaming]
        return [_source_of_read(read.data_source) for read in found]
    except _GONE:
        return []


def _reads(message: Any) -> Iterator[Any]:
    if message.DESCRIPTOR.full_name == "spark.connect.Read":
        yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for each in [value] if hasattr(value, "ListFields") else value:
                if hasattr(each, "ListFields"):  # a map has keys
                    yield from _reads(each)


def _source_of_read(read: Any) -> Source:
    given = {name.lower(): text for name, text in read.options.items()}
    path = given.pop("path", None)
    paths = tuple(read.paths) if path is None else (path,)
    return Source(read.format, paths, tuple(sorted(given.items())))


def only_source(df: DataFrame) -> Source | None:
    """What a DataFrame reads that does nothing else; None if it does, or if that is not known."""
    try:
        plan = df._jdf.queryExecution().analyzed()
        return _source(plan) if plan.isStreaming() and plan.children().isEmpty() else None
    except _GONE:
        return None


def source_row_by_row(df: DataFrame, note: str, *, in_order: bool = False) -> Source | None:
    """What a streaming DataFrame reads and passes on at once, a row at a time, with ``in_order``
    also in the order in which it is read; None if it does more than that, or if that is not known.

    Nor may a table that it is joined with have columns with a ``note`` in their metadata: in the
    result nobody could tell whose it is.
    """
    nodes = _ROW_BY_ROW - _REARRANGING if in_order else _ROW_BY_ROW
    try:
        plan = df._jdf.queryExecution().analyzed()
        while not plan.children().isEmpty():
            below = _listed(plan.children())
            streaming = [each for each in below if each.isStreaming()]
            if plan.nodeName() not in nodes or len(streaming) != 1:
                return None
            (plan,) = streaming
            others = [each for each in below if not each.isStreaming()]
            if any(
                note in _metadata(column) for each in others for column in _listed(each.output())
            ):
                return None
        return _source(plan)
    except _GONE:
        return None


def changing_expression(df: DataFrame) -> str | None:
    """An expression in the plan of a DataFrame that is something else whenever it is computed, for
    the same rows, as SQL; None if there is none, or if this Spark does not tell."""
    try:
        jvm: Any = df.sparkSession.sparkContext._jvm
        clock = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
        waiting = [df._jdf.queryExecution().analyzed()]
        while waiting:
            plan = waiting.pop()
            for each in _listed(plan.expressions()):
                if not each.deterministic() or each.containsPattern(clock):
                    return str(each.sql())
            waiting += _listed(plan.children())
    except _GONE:
        return None
    return None


def reads_without_note(df: DataFrame, note: str, is_wanted: Callable[[Source], bool]) -> bool:
    """Whether a DataFrame reads a certain source, and no node in between puts a ``note`` into the
    metadata of a column. Where plans cannot be read, nobody knows of any source."""
    try:
        return _reads_without_note(df._jdf.queryExecution().analyzed(), note, is_wanted)
    except _GONE:
        return False


def _reads_without_note(plan: Any, note: str, is_wanted: Callable[[Source], bool]) -> bool:
    if plan.nodeName() == "Project" and any(
        each.nodeName() == "Alias"
        and each.explicitMetadata().isDefined()
        and each.explicitMetadata().get().contains(note)
        for each in _listed(plan.projectList())
    ):
        return False
    below = _listed(plan.children())
    if below:
        return any(_reads_without_note(each, note, is_wanted) for each in below)
    found = _source(plan)
    return found is not None and is_wanted(found)


def _source(leaf: Any) -> Source | None:
    """What a leaf of a plan reads; None if that is Spark's own: literals, ranges, RDDs."""
    kind = leaf.nodeName()
    if kind == "StreamingRelation":
        source = leaf.dataSource()
        path = source.options().get("path")
        return Source(source.className(), (path.get(),) if path.isDefined() else ())
    if kind == "StreamingRelationV2":
        return _source_of(leaf.sourceName(), leaf.extraOptions())
    if kind == "DataSourceV2Relation":
        return _source_of(leaf.table().name(), leaf.options())
    if kind == "LogicalRelation" and leaf.relation().getClass().getSimpleName() == _FILES:
        paths = _listed(leaf.relation().location().rootPaths())
        return Source(str(leaf.relation().fileFormat()), tuple(str(path) for path in paths))
    return None


def _source_of(name: str, options: Any) -> Source:
    given = dict(options.asCaseSensitiveMap())
    path = given.pop("path", None)
    return Source(name, () if path is None else (path,), tuple(sorted(given.items())))


def _listed(sequence: Any) -> list[Any]:
    """The elements of a ``Seq`` of Scala's."""
    return [sequence.apply(place) for place in range(sequence.size())]


@dataclass(frozen=True, slots=True)
class Called:
    """A function call that a column of Spark's stands for.

    An argument is the name of a column of the DataFrame, a `Constant`, or None where it is
    something else. ``alias`` is the name that the column was given, empty if it has none.
    """

    function: str
    arguments: tuple[str | Constant | None, ...]
    is_distinct: bool = False
    alias: str = ""


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal; a list of numbers is a tuple of them. ``*`` stands for all columns."""

    value: Any


def called_function(column: Column, df: DataFrame) -> Called | None:
    """The call of a function that a column stands for; None if it stands for anything else, or if
    this Spark does not tell.

    A column of classic PySpark is a tree of ``ColumnNode``, which is not resolved before the plan
    is: names may be written in another case than those of the DataFrame.
    """
    try:
        tree: Any = column._jc
        node, alias = tree.node(), ""
        if _class(node) == "Alias":
            (alias,) = _listed(node.name())
            node = node.child()
        if _class(node) != "UnresolvedFunction" or node.isUserDefinedFunction():
            return None
        arguments = tuple(_argument(each, df) for each in _listed(node.arguments()))
        return Called(str(node.functionName()), arguments, bool(node.isDistinct()), alias)
    except (*_GONE, ValueError):
        return None


def _class(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _argument(node: Any, df: DataFrame) -> str | Constant | None:
    kind = _class(node)
    if kind == "UnresolvedStar":
        return None if node.unparsedTarget().isDefined() else Constant("*")
    if kind == "Literal":
        value = node.value()
        return Constant(value if isinstance(value, bool | int | float | str) else None)
    if kind == "UnresolvedFunction" and node.functionName() == "array":
        parts = [_argument(each, df) for each in _listed(node.arguments())]
        values = tuple(part.value for part in parts if isinstance(part, Constant))
        return Constant(values) if len(values) == len(parts) else None
    if kind == "UnresolvedAttribute":
        names = _listed(node.nameParts())
        return _own_name(names[0], df) if len(names) == 1 else None
    if kind == "ExpressionColumnNode":  # df["price"]
        return _own_attribute(node.expression(), df)
    return None


def _own_name(name: str, df: DataFrame) -> str | None:
    """A column as the DataFrame names it; names of no column stay, to be refused by that name."""
    if name in df.columns or df.sparkSession.conf.get("spark.sql.caseSensitive") == "true":
        return name
    found = [each for each in df.columns if each.lower() == name.lower()]
    return found[0] if len(found) == 1 else name


def _own_attribute(attribute: Any, df: DataFrame) -> str | None:
    """The name of a resolved column, if it is one of this DataFrame's."""
    if attribute.nodeName() != "AttributeReference":
        return None
    outputs = _listed(df._jdf.queryExecution().analyzed().output())
    is_own = any(each.exprId().equals(attribute.exprId()) for each in outputs)
    return str(attribute.name()) if is_own else None


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A node of an analyzed plan, by its name, with those below it.

    ``metadata`` is that of the first column, and read of the branches of unions only.
    """

    name: str
    is_streaming: bool
    children: tuple[PlanNode, ...] = ()
    source: Source | None = None
    metadata: Mapping[str, Any] | None = None


def read_plan(df: DataFrame, wanted: Collection[str]) -> PlanNode:
    """The analyzed plan of a DataFrame, with subqueries.

    Nodes with one child, which are most of them, are left out unless their names are wanted. Common
    table expressions are where they are used.
    """
    try:
        return _PlanReader(wanted).read(df._jdf.queryExecution().analyzed())
    except _GONE as error:
        raise SettingError(
            f"Spark {df.sparkSession.version} does not show its plans as this Trailmark knows them "
            f"({error!r}).",
            where="df",
            fix="Use a newer Trailmark, or a Spark from 4.0 to 4.3. Queries run all the same.",
        ) from error


class _PlanReader:
    def __init__(self, wanted: Collection[str]) -> None:
        self._wanted = wanted
        self._common: dict[int, Any] = {}

    def read(self, plan: Any, *, is_branch: bool = False) -> PlanNode:
        metadata = _first_metadata(plan) if is_branch else None
        plan, name, below = self._passed(plan)
        return PlanNode(
            name,
            plan.isStreaming(),
            tuple(self.read(each, is_branch=name == "Union") for each in below),
            None if below else _source(plan),
            metadata,
        )

    def _passed(self, plan: Any) -> tuple[Any, str, list[Any]]:
        """The first node from here on that is not left out, its name, and what is below it."""
        while True:
            name = plan.nodeName()
            below = _listed(plan.children()) + _listed(plan.subqueries())
            if name == "WithCTE":
                self._common |= {each.id(): each.child() for each in below[:-1]}
                plan = below[-1]
            elif name == "CTERelationRef" and plan.cteId() in self._common:
                plan = self._common[plan.cteId()]
            elif len(below) == 1 and name not in self._wanted:
                plan = below[0]
            else:
                return plan, name, below


def _first_metadata(plan: Any) -> Mapping[str, Any]:
    columns = plan.output()
    return {} if columns.isEmpty() else _metadata(columns.head())


def _metadata(column: Any) -> Mapping[str, Any]:
    found = json.loads(column.metadata().json())
    assert isinstance(found, dict)
    return found


def executor_ids(session: SparkSession) -> str | None:
    """The executors that a session has now, as one text; None if this Spark does not tell."""
    try:
        return str(session.sparkContext._jsc.sc().getExecutorIds().mkString(" "))
    except _GONE:
        return None


def slots_of_executors(session: SparkSession) -> dict[str, int]:
    """How many tasks each executor runs at a time; empty if this Spark does not tell."""
    try:
        context: Any = session.sparkContext._jsc.sc()
        cores_of_task = int(context.conf().get("spark.task.cpus", "1"))
        found = _listed(context.statusStore().executorList(True))
        slots = {str(each.id()): each.totalCores() // cores_of_task for each in found}
    except _GONE:
        return {}
    # The driver is listed as an executor that runs none.
    return {executor: count for executor, count in slots.items() if count > 0}


class CachedPartitions:
    """The partitions of a cached DataFrame, and the executors that have them.

    The ``BlockManagerMaster`` knows. The way to it that Spark itself takes is not open: py4j looks
    at all methods of a class that it meets, and ``SparkEnv`` has one with types of a library that
    PySpark comes without.
    """

    def __init__(self, session: SparkSession, rdd: Any) -> None:
        jvm: Any = session.sparkContext._jvm
        scheduler = session.sparkContext._jsc.sc().dagScheduler()
        field = jvm.java.lang.Class.forName(_SCHEDULER).getDeclaredField("blockManagerMaster")
        field.setAccessible(True)
        self._master = field.get(scheduler)
        self._block = jvm.org.apache.spark.storage.RDDBlockId
        self._rdd = rdd.id()
        self._count = rdd.getNumPartitions()

    @classmethod
    def of(cls, df: DataFrame) -> CachedPartitions | None:
        """None if they have not been cached yet, or if this Spark does not tell."""
        session: Any = df.sparkSession
        try:
            manager = session._jsparkSession.sharedState().cacheManager()
            found = manager.lookupCachedData(df._jdf)
            if found.isEmpty():
                return None
            built = found.get().cachedRepresentation().cacheBuilder()
            if not built.isCachedColumnBuffersLoaded():
                return None
            return cls(session, built.cachedColumnBuffers())
        except _GONE:
            return None

    def by_executor(self) -> dict[str, list[int]]:
        """The numbers of partitions that executors have; those that none has are left out."""
        held: dict[str, list[int]] = {}
        try:
            for number in range(self._count):
                for where in _listed(self._master.getLocations(self._block(self._rdd, number))):
                    held.setdefault(where.executorId(), []).append(number)
        except _GONE:
            return {}
        return held

    def drop(self, number: int) -> None:
        """Has a partition removed from wherever it is cached; who needs it makes it again."""
        try:
            self._master.removeBlock(self._block(self._rdd, number))
        except _GONE:
            return


def is_running(spark: SparkSession) -> bool:
    """Whether a session has not been stopped."""
    if is_connect(spark):
        client: Any = spark
        return not client.is_stopped
    return getattr(spark.sparkContext, "_jsc", None) is not None


def wait_for_events(spark: SparkSession, patience_ms: int) -> bool:
    """Waits until all listeners have been told what has happened; False if that is not known.

    ``LiveListenerBus.waitUntilEmpty`` raises when it has waited for too long.
    """
    try:
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(patience_ms)
    except _GONE:
        return False
    return True


def tell_briefly(
    spark: SparkSession, listener: StreamingQueryListener, on_batch: OnBatch | None
) -> None:
    """Has ``on_batch`` called instead of a listener's ``onQueryProgress``, before it is added.

    PySpark makes Python objects of all that is in an event, whether anybody looks at them or not.
    That takes some 450 calls into the JVM for every batch, and more time than a small batch. Where
    names are missing, ``onQueryProgress`` is called as ever.
    """
    try:
        from pyspark.java_gateway import ensure_callback_server_started
        from pyspark.sql.streaming.listener import JStreamingQueryListener

        context: Any = spark.sparkContext
        ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]
        streaming = context._jvm.org.apache.spark.sql.streaming
        brief = _BriefEvents(JStreamingQueryListener(listener), on_batch)
        listener._jlistenerobj = streaming.PythonStreamingQueryListenerWrapper(brief)
    except _GONE:
        return


class _BriefEvents:
    """What the JVM calls for a listener."""

    def __init__(self, whole: Any, on_batch: OnBatch | None) -> None:
        self.onQueryStarted = whole.onQueryStarted
        self.onQueryIdle = whole.onQueryIdle
        self.onQueryTerminated = whole.onQueryTerminated
        self._on_batch = on_batch

    def onQueryProgress(self, event: Any) -> None:
        if self._on_batch is not None:
            done = event.progress()
            query_id, run = UUID(done.id().toString()), UUID(done.runId().toString())
            self._on_batch(query_id, run, int(done.batchId()))

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)
