"""The options of ``format("trailmark")``, read once and refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from trailmark.errors import SettingError
from trailmark.log.readers import check_reader_name
from trailmark.settings import Compression, Durability, LogSettings, parse_bytes, parse_duration
from trailmark.spark import paths
from trailmark.spark.limits import ReadLimits
from trailmark.streams.retention import Retention
from trailmark.streams.times import Span, parse_timestamp

#: Options of a read by the name that users write; Spark gives them in lower case.
_Given = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a query that reads was given."""

    path: str
    records: str | None
    span: Span
    starts_at_end: bool
    limits: ReadLimits
    reader: str | None
    fails_on_data_loss: bool

    @classmethod
    def parse(cls, given: _Given) -> ReadOptions:
        """Read and check the options."""
        starting = _one_of(given, "startingOffsets", ("earliest", "latest")) or "earliest"
        span = Span(
            _whole(given, "startingBatch"),
            _whole(given, "endingBatch"),
            _time(given, "startingTimestamp"),
            _time(given, "endingTimestamp"),
        )
        _check_one_start(given, span)
        reader = given.get("reader")
        return cls(
            _path(given),
            given.get("records"),
            span,
            starting == "latest",
            ReadLimits(
                _whole(given, "maxRowsPerTrigger", least=1), _bytes(given, "maxBytesPerTrigger")
            ),
            None if reader is None else check_reader_name(reader),
            _is_true(given, "failOnDataLoss", default=True),
        )

    def for_stream(self) -> ReadOptions:
        """The options of a streaming read, which has no end."""
        if self.span.last_batch is not None or self.span.last_us is not None:
            raise SettingError(
                "A streaming read goes on and on; it cannot be given an end.",
                where="endingBatch, endingTimestamp",
                fix="Use spark.read, or the trigger availableNow to end with what is there.",
            )
        # Where it begins is an offset, kept in the query's checkpoint; only times stay a filter.
        return self


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What a query that writes was given."""

    path: str
    keys: tuple[str, ...] | None
    buckets: int | None
    time_column: str | None
    retention: Retention
    settings: LogSettings

    @classmethod
    def parse(cls, given: _Given) -> WriteOptions:
        """Read and check the options."""
        keys = given.get("partitionby")
        names = None if keys is None else tuple(name.strip() for name in keys.split(","))
        if names is not None and not all(names):
            raise SettingError(
                f"{keys!r} names no columns.",
                where="partitionBy",
                fix="Write their names with commas between, such as 'item_id,region'.",
            )
        duration = given.get("retention")
        settings = LogSettings(
            durability=_one_of(given, "durability", tuple(each.value for each in Durability))
            or Durability.SYNCED,  # type: ignore[arg-type]
            compression=_one_of(given, "compression", get_args(Compression)) or "auto",  # type: ignore[arg-type]
        )
        return cls(
            _path(given),
            names,
            _whole(given, "buckets", least=1),
            given.get("timecolumn"),
            Retention(
                None if duration is None else parse_duration(duration, "retention"),
                _bytes(given, "retentionBytes"),
                _whole(given, "retentionBatches", least=1),
            ),
            settings,
        )


def _path(given: _Given) -> str:
    path = given.get("path")
    if not path:
        raise SettingError(
            "No path was given.",
            where="path",
            fix="For example .option('path', '/data/orders') or .load('/data/orders').",
        )
    return paths.absolute(path)


def _check_one_start(given: _Given, span: Span) -> None:
    starts = [
        name
        for name in ("startingOffsets", "startingBatch", "startingTimestamp")
        if name.lower() in given
    ]
    if len(starts) > 1:
        raise SettingError(
            f"{' and '.join(starts)} both say where to begin.",
            where=", ".join(starts),
            fix="Give one of them.",
        )


def _whole(given: _Given, name: str, least: int = 0) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not text.isdecimal() or int(text) < least:
        raise SettingError(
            f"{text!r} is not a whole number from {least} up.",
            where=name,
            fix=f"Write it in digits, such as {max(least, 100)}.",
        )
    return int(text)


def _bytes(given: _Given, name: str) -> int | None:
    text = given.get(name.lower())
    return None if text is None else parse_bytes(text, name)


def _time(given: _Given, name: str) -> int | None:
    text = given.get(name.lower())
    return None if text is None else parse_timestamp(text, name)


def _one_of(given: _Given, name: str, known: tuple[str, ...]) -> str | None:
    text = given.get(name.lower())
    if text is not None and text.lower() not in known:
        raise SettingError(f"{text!r} is unknown.", where=name, fix=f"Use {' or '.join(known)}.")
    return None if text is None else text.lower()


def _is_true(given: _Given, name: str, *, default: bool) -> bool:
    text = _one_of(given, name, ("true", "false"))
    return default if text is None else text == "true"
