"""The model's tables: requests and what they cost, which are exact; times, which come from what was
measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.experiment import table
from bench.scaling import model, requests
from bench.scaling.counting import Request
from bench.scaling.model import Cluster, Costs
from bench.scaling.requests import Shape

BUCKETS = (1, 4, 16, 64, 256, 1_000)
HOSTS = (1, 3, 10, 30, 100)
#: A batch every so many seconds, on so many cores.
INTERVAL_S, SLOTS = 10.0, 64
#: The page that has the tables of requests, between two marks.
PAGE = Path("docs/scaling.md")
_BEGIN, _END = "<!-- python -m bench.scaling --write -->\n", "\n<!-- end -->"
_DAY_S = 86_400
_KINDS = [Request.PUT, Request.LIST, Request.GET, Request.HEAD, Request.DELETE]


@dataclass(frozen=True, slots=True)
class Prices:
    """Of a thousand requests. Assumed: list prices of Amazon S3 Standard in us-east-1, in US
    dollars, as they were known in November 2026; deletions are free there."""

    put: float = 0.005
    get: float = 0.0004

    def of(self, counts: Mapping[Request, float]) -> float:
        dear = counts[Request.PUT] + counts[Request.LIST]
        cheap = counts[Request.GET] + counts[Request.HEAD]
        return (dear * self.put + cheap * self.get) / 1_000


_LISTED = Prices()


def put_into(page: str, tables: str) -> str:
    """The page with these tables between its marks."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    assert begin, "the page has lost its mark"
    assert end, "the page has lost its end"
    return f"{before}{begin}{tables}{end}{after}"


def request_tables(
    buckets: Sequence[int] = BUCKETS,
    interval_s: float = INTERVAL_S,
    prices: Prices = _LISTED,
    slots: int = SLOTS,
) -> str:
    """All tables that follow from counts alone."""
    parts = ["Requests of a query in its stride:", counted()]
    for has_event_time, windows in ((False, "counts"), (True, "event time")):
        text = f"A day of batches every {interval_s:g} s, windows of {windows}"
        parts += [
            f"{text}; {prices.put:g} USD for 1,000 PUT or LIST, {prices.get:g} for 1,000 GET or "
            "HEAD, DELETE free:",
            daily(buckets, interval_s, prices, has_event_time=has_event_time, slots=slots),
        ]
    return "\n\n".join(parts)


def counted() -> str:
    """Requests of one task, of one batch and of all that comes now and then."""
    rows = []
    for shape in (Shape(16), Shape(16, has_event_time=True)):
        what = "event time" if shape.has_event_time else "counts"
        rows += [
            _counts(f"a task, {what}", requests.of_task(shape)),
            _counts(f"the driver, after a batch of 16 buckets, {what}", _driver(shape)),
        ]
    watermark = requests.of_watermark(Shape(16, has_event_time=True))
    rows += [
        _counts(
            "a watermark of 16 buckets, by every task that begins before it is there", watermark
        ),
        _counts(
            f"a bucket, every {requests.TRIM_EVERY} batches: both logs trimmed",
            requests.of_trim(Shape(16)),
        ),
        _counts(
            f"a bucket, every {requests.MERGE_EVERY} batches: results merged", requests.of_merge()
        ),
    ]
    return table(["", *(kind.name for kind in _KINDS)], rows)


def _driver(shape: Shape) -> requests.Requests:
    return requests.of_listener(shape) + requests.of_ticks(shape)


def _counts(what: str, counts: requests.Requests) -> list[str]:
    return [what, *(f"{counts[kind]:,}" for kind in _KINDS)]


def daily(
    buckets: Sequence[int], interval_s: float, prices: Prices, *, has_event_time: bool, slots: int
) -> str:
    """Requests of a day, in thousands, and what they cost."""
    rows = []
    for number in buckets:
        shape = Shape(number, has_event_time)
        worst = replace(shape, racing=min(slots, number))
        batches = _DAY_S / interval_s
        counts = requests.per_day(shape, batches)
        row = [f"{number:,}", *(f"{counts[kind] / 1e3:,.0f}" for kind in _KINDS)]
        row.append(f"{prices.of(counts):,.2f}")
        if has_event_time:
            row.append(f"{prices.of(requests.per_day(worst, batches)):,.2f}")
        rows.append(row)
    header = ["buckets", *(f"{kind.name}, thousands" for kind in _KINDS), "USD a day"]
    return table([*header, f"{slots} at once, USD"] if has_event_time else header, rows)


def batches(
    costs: Costs, cores: int, latency_ms: float, tuples: int, *, has_event_time: bool
) -> str:
    """Milliseconds of a batch, with few and many buckets on few and many hosts."""
    rows = []
    for number in BUCKETS:
        shape = Shape(number, has_event_time)
        clusters = [Cluster(hosts, cores, latency_ms) for hosts in HOSTS]
        times = [model.batch_ms(costs, cluster, shape, tuples) for cluster in clusters]
        rows.append([f"{number:,}", *(f"{each:,.0f}" for each in times)])
    return table(["buckets", *map(_hosts, HOSTS)], rows)


def recoveries(costs: Costs, cores: int, windows: int) -> str:
    """Seconds that a batch takes longer after a host was lost."""
    rows = []
    for number in BUCKETS:
        times = [
            model.lost_host_ms(costs, Cluster(hosts, cores), Shape(number), windows) / 1e3
            for hosts in HOSTS[1:]
        ]
        rows.append([f"{number:,}", *(f"{each:,.2f}" for each in times)])
    return table(["buckets", *map(_hosts, HOSTS[1:])], rows)


def following(costs: Costs, latency_ms: float, retained: int) -> str:
    """What is done beside the batches: by a listener, and by whoever looks at all directories."""
    rows = []
    for number in BUCKETS:
        shape, cluster = Shape(number, has_event_time=True), Cluster(1, 1, latency_ms)
        each = requests.files_kept(Shape(1), retained) // 2
        listed = 2 * number * model.listing_ms(costs, cluster, each)
        local = 2 * number * model.listing_ms(costs, Cluster(1, 1), each)
        rows.append(
            [
                f"{number:,}",
                f"{requests.files_kept(shape, retained):,}",
                f"{model.follow_ms(cluster, shape) / 1e3:,.1f}",
                f"{listed / 1e3:,.1f}",
                f"{local / 1e3:,.2f}",
            ]
        )
    header = [
        "buckets",
        "files",
        "listener, s a batch, store",
        "listing all, s, store",
        "listing all, s, disk",
    ]
    return table(header, rows)


def _hosts(number: int) -> str:
    return "1 host" if number == 1 else f"{number} hosts"
