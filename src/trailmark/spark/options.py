"""The options of ``format("trailmark")``: which there are, and what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from trailmark.errors import SettingError
from trailmark.log.readers import check_reader_name
from trailmark.settings import Compression, Durability, LogSettings, parse_duration
from trailmark.spark import paths
from trailmark.spark.given import Given, OptionNames
from trailmark.spark.limits import ReadLimits
from trailmark.streams.answers import (
    ANSWERS,
    READ_CHANGE_FEED,
    Answers,
    asked_answers,
    refuse_current_stream,
    refuse_of_replicas,
)
from trailmark.streams.retention import Retention
from trailmark.streams.table import check_no_code
from trailmark.streams.times import Span
from trailmark.streams.view import STATE

#: The column of the rows that `with_heartbeat` adds: when the sources were asked in vain.
HEARTBEAT = "$heartbeat"

_STARTS = ("startingOffsets", "startingBatch", "startingTimestamp")
#: docs/streams.md explains them. Those for streams are ignored by other reads.
READING = OptionNames(
    "reading",
    (
        "path",
        "startingBatch",
        "endingBatch",
        "startingTimestamp",
        "endingTimestamp",
        "records",
        "operator",
        ANSWERS,
        READ_CHANGE_FEED,
        "failOnDataLoss",
        "startingOffsets",
        "maxRowsPerTrigger",
        "maxBytesPerTrigger",
        "reader",
    ),
)
#: The option that makes a read one of several replicas.
REPLICAS = "replicas"
#: Those of a read of replicas: it goes by numbers of results, and batches are each replica's own.
FOLLOWING = OptionNames(
    "reading replicas",
    (
        REPLICAS,
        ANSWERS,
        READ_CHANGE_FEED,
        "startingOffsets",
        "maxRowsPerTrigger",
        "maxBytesPerTrigger",
        "reader",
    ),
)
#: The last two are Spark's own.
WRITING = OptionNames(
    "writing",
    (
        "path",
        "timeColumn",
        "delay",
        "heartbeat",
        "partitionBy",
        "buckets",
        "retention",
        "retentionBytes",
        "retentionBatches",
        "repeatedBatch",
        "durability",
        "compression",
        "checkpointLocation",
        "queryName",
    ),
)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a query that reads was given."""

    path: str
    records: str | None
    operator: str | None
    answers: Answers | None
    span: Span
    starts_at_end: bool
    limits: ReadLimits
    reader: str | None
    fails_on_data_loss: bool

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Read and check the options."""
        given = Given(options, READING, [WRITING])
        starting = given.one_of("startingOffsets", ("earliest", "latest")) or "earliest"
        span = Span(
            given.whole("startingBatch"),
            given.whole("endingBatch"),
            given.time("startingTimestamp"),
            given.time("endingTimestamp"),
        )
        _check_one_start(given.names(*_STARTS))
        reader = given.text("reader")
        records, operator = given.text("records"), given.text("operator")
        if records != STATE:
            check_no_code(operator)
        return cls(
            given.path(),
            records,
            operator,
            asked_answers(
                given.text(ANSWERS),
                records,
                change_feed=given.is_true(READ_CHANGE_FEED, default=False),
            ),
            span,
            starting == "latest",
            ReadLimits(
                given.whole("maxRowsPerTrigger", least=1), given.bytes("maxBytesPerTrigger")
            ),
            None if reader is None else check_reader_name(reader),
            given.is_true("failOnDataLoss", default=True),
        )

    def for_stream(self) -> ReadOptions:
        """The options of a streaming read, which has no end."""
        if self.records == STATE:
            raise SettingError(
                "A state is as of the end of one batch; it cannot be followed.",
                where="records",
                fix="Use spark.read. To follow how it changes, read records 'all'.",
            )
        if self.answers is Answers.CURRENT:
            raise refuse_current_stream()
        if self.span.last_batch is not None or self.span.last_us is not None:
            raise SettingError(
                "A streaming read goes on and on; it cannot be given an end.",
                where="endingBatch, endingTimestamp",
                fix="Use spark.read, or the trigger availableNow to end with what is there.",
            )
        # Where it begins is an offset, kept in the query's checkpoint; only times stay a filter.
        return self


@dataclass(frozen=True, slots=True)
class ReplicasOptions:
    """What a query that reads replicas was given."""

    paths: tuple[str, ...]
    starts_at_end: bool
    limits: ReadLimits
    reader: str | None
    answers: Answers = Answers.STABLE

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReplicasOptions:
        """Read and check the options."""
        given = Given(options, FOLLOWING, [READING, WRITING])
        text = given.text(REPLICAS) or ""
        named = [each.strip() for each in text.split(",")]
        if not all(named) or len(set(named)) != len(named):
            raise SettingError(
                f"{text!r} are no paths of replicas.",
                where=REPLICAS,
                fix="Give the path of each once, with commas between, such as "
                "'/data/a/counts,/data/b/counts'.",
            )
        reader = given.text("reader")
        answers = asked_answers(
            given.text(ANSWERS),
            None,
            change_feed=given.is_true(READ_CHANGE_FEED, default=False),
        )
        return cls(
            tuple(paths.absolute(each) for each in named),
            given.one_of("startingOffsets", ("earliest", "latest")) == "latest",
            ReadLimits(
                given.whole("maxRowsPerTrigger", least=1), given.bytes("maxBytesPerTrigger")
            ),
            None if reader is None else check_reader_name(reader),
            answers or Answers.STABLE,
        )

    def for_stream(self) -> ReplicasOptions:
        """The options of a streaming read."""
        if self.answers is Answers.CURRENT:
            raise refuse_current_stream()
        return self

    def for_table(self) -> ReplicasOptions:
        """The options of a read that has an end."""
        if self.answers in (Answers.ALL, Answers.CHANGES):
            raise refuse_of_replicas(self.answers)
        return self


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What a query that writes was given."""

    path: str
    keys: tuple[str, ...] | None
    buckets: int | None
    time_column: str | None
    retention: Retention
    compares_repeated: bool
    settings: LogSettings
    delay_us: int | None = None
    heartbeat: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Read and check the options."""
        given = Given(options, WRITING, [READING])
        keys = given.text("partitionBy")
        names = None if keys is None else tuple(name.strip() for name in keys.split(","))
        if names is not None and not all(names):
            raise SettingError(
                f"{keys!r} names no columns.",
                where="partitionBy",
                fix="Write their names with commas between, such as 'item_id,region'.",
            )
        duration, delay = given.text("retention"), given.text("delay")
        settings = LogSettings(
            durability=given.one_of("durability", tuple(each.value for each in Durability))
            or Durability.SYNCED,  # type: ignore[arg-type]
            compression=given.one_of("compression", get_args(Compression)) or "auto",  # type: ignore[arg-type]
        )
        return cls(
            given.path(),
            names,
            given.whole("buckets", least=1),
            given.text("timeColumn"),
            Retention(
                None if duration is None else parse_duration(duration, "retention"),
                given.bytes("retentionBytes"),
                given.whole("retentionBatches", least=1),
            ),
            given.one_of("repeatedBatch", ("compare", "keep")) != "keep",
            settings,
            None if delay is None else parse_duration(delay, "delay"),
            given.text("heartbeat"),
        )


def _check_one_start(starts: list[str]) -> None:
    if len(starts) > 1:
        raise SettingError(
            f"{' and '.join(starts)} both say where to begin.",
            where=", ".join(starts),
            fix="Give one of them.",
        )
