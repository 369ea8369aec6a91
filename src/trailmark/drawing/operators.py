"""The status of an operator, drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields

from trailmark import units
from trailmark.drawing.parts import Cell, Part, Style, Table, line
from trailmark.drawing.readers import closing_parts
from trailmark.engine.tentative import STABLE
from trailmark.inspection import Activity, BucketStatus, OperatorStatus
from trailmark.operators.kinds import title_of
from trailmark.records import NO_BATCH, Loss
from trailmark.watch.words import operator_warnings

_TITLES = (
    "bucket",
    "batch",
    "committed",
    "windows",
    "oldest",
    "age",
    "extent",
    "replay",
    "recovery",
    "objective",
    "late",
    "size",
)


def draw_operator(status: OperatorStatus, path: str) -> list[Part]:
    """The drawing, from the general to the particular; what is wrong comes last."""
    rows = [_bucket_row(bucket) for bucket in status.buckets]
    if len(rows) > 1:
        rows.append(_total_row(status))
    return [
        line(Cell(path, "bold"), f": {title_of(status.operator)}"),
        line(_position(status)),
        line(),
        Table.of(_TITLES, rows, frozenset()),
        line(),
        *map(line, _activities(status)),
        line(),
        *map(line, _facts(status)),
        *closing_parts(status, operator_warnings(status), path),
    ]


def _position(status: OperatorStatus) -> str:
    if status.last_batch == NO_BATCH:
        return "no batch yet"
    text = f"batch {status.last_batch}"
    if status.whole_batch < status.last_batch:
        text += f" (not yet in every bucket: {units.batch(status.whole_batch)} is)"
    text += f", committed up to {units.batch(status.committed)}"
    if status.written_us is not None:
        ago = max(0, status.looked_us - status.written_us)
        text += f", written {units.duration(ago)} ago"
    return text if status.phase == STABLE else f"{text}, {status.phase}"


def _bucket_row(bucket: BucketStatus) -> list[Cell]:
    account = bucket.account
    start = [
        Cell(str(bucket.bucket)),
        Cell(units.batch(bucket.output.newest), "bad" if bucket.problem else "plain"),
        Cell(units.batch(bucket.committed)),
    ]
    if account is None or bucket.recent is None:
        return [*start, *[Cell("-")] * 8, Cell(units.size(bucket.bytes))]
    oldest = "none" if account.oldest == NO_BATCH else units.batch(account.oldest)
    objective = bucket.objective_us
    return [
        *start,
        Cell(f"{account.open_windows:,}"),
        Cell(oldest),
        Cell("-" if bucket.age is None else str(bucket.age)),
        Cell(f"{account.extent:,}"),
        Cell(f"{account.replay:,}"),
        Cell(units.duration(account.predicted_us), _objective_style(bucket)),
        Cell("-" if objective is None else units.duration(objective)),
        Cell(f"{bucket.recent.late_rows:,}"),
        Cell(units.size(bucket.bytes)),
    ]


def _objective_style(bucket: BucketStatus) -> Style:
    if bucket.is_within_objective is None:
        return "plain"
    return "good" if bucket.is_within_objective else "bad"


def _total_row(status: OperatorStatus) -> list[Cell]:
    ages = [bucket.age for bucket in status.buckets if bucket.age is not None]
    predicted = status.predicted_us
    recents = [bucket.recent for bucket in status.buckets if bucket.recent is not None]
    return [
        Cell("all", "dim"),
        Cell(units.batch(status.last_batch)),
        Cell(units.batch(status.committed)),
        Cell(f"{sum(account.open_windows for account in status.accounts):,}"),
        Cell(""),
        Cell(str(max(ages)) if ages else "-"),
        Cell(f"{sum(account.extent for account in status.accounts):,}"),
        Cell(f"{sum(account.replay for account in status.accounts):,}"),
        Cell("-" if predicted is None else units.duration(predicted)),
        Cell(""),
        Cell(f"{sum(recent.late_rows for recent in recents):,}"),
        Cell(units.size(sum(bucket.bytes for bucket in status.buckets))),
    ]


def _activities(status: OperatorStatus) -> Iterator[str]:
    """What was written: in the newest batch, in those looked at, and since the log began."""
    newest = [b.newest for b in status.buckets if b.newest is not None]
    recent = [b.recent for b in status.buckets if b.recent is not None]
    if newest:
        yield f"last batch        {_activity_text(newest)}"
    if recent:
        title = units.some(max(each.batches for each in recent), "batch")
        yield f"{f'last {title}':<17} {_activity_text(recent)}"
    accounts = status.accounts
    tuples = sum(account.inputs_total for account in accounts)
    records = sum(account.records_total for account in accounts)
    yield (
        f"since the start   {units.some(tuples, 'tuple')}, "
        f"{units.some(records, 'record')} (results and footprints)"
    )


def _activity_text(activities: Sequence[Activity]) -> str:
    total = {
        field.name: sum(getattr(each, field.name) for each in activities)
        for field in fields(Activity)
    }
    text = (
        f"{units.some(total['tuples'], 'tuple')}, {units.some(total['results'], 'result')}, "
        f"footprints: {total['footprints_opened']:,} open, {total['footprints_checked']:,} check, "
        f"late: {units.some(total['late_rows'], 'tuple')}"
    )
    if total["tentative"]:
        text += f", tentative: {units.some(total['tentative'], 'result')}"
    if total["null_times"]:
        text += f", without a time: {total['null_times']:,}"
    return text


def _facts(status: OperatorStatus) -> Iterator[str]:
    policies = dict.fromkeys(b.policy_title for b in status.buckets if b.policy is not None)
    yield f"policy            {' / '.join(policies) or '-'}"
    losing = [each for each in status.accounts if each.loss is Loss.BOUNDED]
    if losing:
        most = units.some(sum(each.replay for each in losing), "tuple")
        yield f"loss              bounded: a recovery now would lose at most {most}"
    yield f"last recovery     {_recovery_text(status)}"
    if status.older_table is not None:
        yield f"last older table  {status.older_table}"
    buckets = status.buckets
    parts = [
        f"{name} {units.size(sum(log.bytes for log in logs))} in "
        f"{units.some(sum(log.files for log in logs), 'file')}"
        for name, logs in (
            ("input", [b.input for b in buckets]),
            ("output", [b.output for b in buckets]),
            ("snapshots", [b.snapshots for b in buckets]),
        )
        if name != "snapshots" or any(log.files for log in logs)
    ]
    aside = sum(bucket.aside[0] for bucket in buckets)
    if aside:
        size = units.size(sum(bucket.aside[1] for bucket in buckets))
        parts.append(f"set aside {size} in {units.some(aside, 'file')}")
    yield f"on disk           {', '.join(parts)}"


def _recovery_text(status: OperatorStatus) -> str:
    found = status.recovery
    if found is None:
        looked = max((b.recent.batches for b in status.buckets if b.recent is not None), default=0)
        return f"none in the last {units.some(looked, 'batch')}" if looked else "none"
    text = (
        f"bucket {found.bucket} before batch {found.batch}, in {units.duration(found.took_us)} "
        f"(predicted {units.duration(found.predicted_us)}), as {found.why}: "
        f"{units.some(found.footprints, 'window')} from "
        f"{units.some(found.segments_read, 'segment')}, "
    )
    if found.lost is not None:
        return f"{text}lost: {found.lost}"
    text += f"{units.some(found.replay_tuples, 'tuple')} replayed"
    return text + (f", around {found.skipped} damaged" if found.skipped else "")
