"""An operator on the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trailmark import units
from trailmark.dashboard.elements import Cell, Column, Shown, State, Table
from trailmark.dashboard.streams import ago, readers_table
from trailmark.engine.tentative import STABLE
from trailmark.inspection import BucketStatus, OperatorStatus, Recovered
from trailmark.operators.kinds import title_of
from trailmark.records import NO_BATCH, Loss
from trailmark.watch import History

_COLUMNS = (
    Column("Bucket"),
    Column("Batch"),
    Column("Committed", is_minor=True),
    Column("Windows"),
    Column("Oldest footprint", is_minor=True),
    Column("Extent", is_minor=True),
    Column("Replay", is_minor=True),
    Column("Recovery"),
    Column("Objective"),
    Column("Late", is_minor=True),
    Column("Size"),
)
_RECOVERY_COLUMNS = (
    Column("When", is_number=False),
    Column("Bucket"),
    Column("Before batch", is_minor=True),
    Column("Took"),
    Column("Predicted"),
    Column("Windows", is_minor=True),
    Column("Replayed", is_minor=True),
    Column("Why", is_number=False),
)


def show_operator(
    path: str, status: OperatorStatus, history: History, trouble: Sequence[str]
) -> Shown:
    """An operator, from the general to the particular."""
    state, word = _state(status)
    tables = [_buckets(status)]
    if history.recoveries:
        tables.append(_recoveries(history.recoveries, status.looked_us))
    if status.readers:
        tables.append(readers_table(status.readers, status.looked_us))
    return Shown(
        "operator",
        path,
        title_of(status.operator),
        state,
        word,
        list(_facts(status, history)),
        tables,
        trouble,
        has_chart=True,
    )


def _state(status: OperatorStatus) -> tuple[State, str]:
    if status.rolled_back:
        return "bad", "refused: it went back"
    if status.refusal is not None:
        return "bad", "stopped by an error"
    if not status.is_sound:
        return "bad", "cannot be read in full"
    if status.phase != STABLE:
        return "warning", status.phase
    if any(bucket.shortfall for bucket in status.buckets):
        return "warning", "recovery would take too long"
    if status.last_batch == NO_BATCH:
        return "none", "no batch yet"
    return "good", STABLE


def _facts(status: OperatorStatus, history: History) -> Iterator[tuple[str, Cell]]:
    yield "Last batch", units.batch(status.last_batch)
    yield "Committed up to", units.batch(status.committed)
    if status.written_us is not None:
        yield "Written", ago(status.written_us, status.looked_us)
    accounts = status.accounts
    yield "Windows open", f"{sum(account.open_windows for account in accounts):,}"
    points = history.after(0)
    rate = points[-1].rate if points else None
    yield "Throughput", "-" if rate is None else f"{rate:,.0f} tuples/s"
    yield "Recovery, predicted", _prediction(status)
    yield "Footprints", _footprints(status)
    yield "Policy", " / ".join(dict.fromkeys(b.policy_title for b in status.buckets if b.policy))
    losing = [account for account in accounts if account.loss is Loss.BOUNDED]
    if losing:
        most = units.some(sum(account.replay for account in losing), "tuple")
        yield "Loss accepted", f"at most {most} now"
    yield "On disk", units.size(status.bytes)


def _prediction(status: OperatorStatus) -> Cell:
    longest = status.predicted_us
    if longest is None:
        return "-"
    objectives = [b.objective_us for b in status.buckets if b.objective_us is not None]
    if not objectives:
        return units.duration(longest)
    is_kept = all(bucket.is_within_objective is not False for bucket in status.buckets)
    text = f"{units.duration(longest)} of {units.duration(min(objectives))}"
    return text, "good" if is_kept else "bad"


def _footprints(status: OperatorStatus) -> str:
    recents = [bucket.recent for bucket in status.buckets if bucket.recent is not None]
    if not recents:
        return "-"
    opened = sum(recent.footprints_opened for recent in recents)
    checked = sum(recent.footprints_checked for recent in recents)
    batches = units.some(max(recent.batches for recent in recents), "batch")
    return f"{opened:,} open, {checked:,} check in {batches}"


def _buckets(status: OperatorStatus) -> Table:
    longest_first = sorted(
        range(len(status.buckets)), key=lambda place: -_predicted(status.buckets[place])
    )
    rows = [_row(bucket) for bucket in status.buckets]
    caption = units.some(len(rows), "bucket")
    return Table("buckets", caption, _COLUMNS, rows, order=longest_first, picks=True)


def _predicted(bucket: BucketStatus) -> int:
    return -1 if bucket.account is None else bucket.account.predicted_us


def _row(bucket: BucketStatus) -> list[Cell]:
    account, recent = bucket.account, bucket.recent
    newest = units.batch(bucket.output.newest)
    start: list[Cell] = [
        str(bucket.bucket),
        (newest, "bad") if bucket.problem else newest,
        units.batch(bucket.committed),
    ]
    if account is None or recent is None:
        return [*start, *["-"] * 7, units.size(bucket.bytes)]
    objective, recovery = bucket.objective_us, units.duration(account.predicted_us)
    is_kept = bucket.is_within_objective
    return [
        *start,
        f"{account.open_windows:,}",
        "none" if account.oldest == NO_BATCH else units.batch(account.oldest),
        f"{account.extent:,}",
        f"{account.replay:,}",
        recovery if is_kept is None else (recovery, "good" if is_kept else "bad"),
        "-" if objective is None else units.duration(objective),
        f"{recent.late_rows:,}",
        units.size(bucket.bytes),
    ]


def _recoveries(found: Sequence[Recovered], now_us: int) -> Table:
    rows: list[list[Cell]] = [
        [
            ago(each.written_us, now_us),
            str(each.bucket),
            str(each.batch),
            units.duration(each.took_us),
            units.duration(each.predicted_us),
            f"{each.footprints:,}",
            units.some(each.replay_tuples, "tuple"),
            each.why if each.lost is None else f"{each.why}; lost: {each.lost}",
        ]
        for each in found
    ]
    caption = units.some(len(rows), "recovery").replace("recoverys", "recoveries")
    return Table("recoveries", f"{caption} seen", _RECOVERY_COLUMNS, rows)
