"""The small picture beside a drawing in a notebook: bars, as SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trailmark import units
from trailmark.drawing.html import text_in_html
from trailmark.inspection import BucketStatus, OperatorStatus, ReaderStatus
from trailmark.streams.status import StreamStatus
from trailmark.streams.union.status import InputStatus, UnionStatus
from trailmark.values import dataclass
from trailmark.watch.pictures import Picture

#: More than these are too many for a small picture: the longest are shown.
_MOST = 16
_WIDTH, _LABELS, _VALUES, _ROW, _BAR = 640, 150, 90, 20, 12
_GOOD, _BAD = "#4c8bd6", "#d6453d"


@dataclass(frozen=True, slots=True)
class Bar:
    """A value with its name; ``is_bad`` if it should be smaller."""

    name: str
    value: int
    is_bad: bool = False


@dataclass(frozen=True, slots=True)
class Bars:
    """Values side by side, and the limit that they should keep, if there is one."""

    title: str
    bars: tuple[Bar, ...]
    in_words: Callable[[int], str]
    limit: int | None = None

    def svg(self) -> str:
        """The picture; what it shows is in it as text, too."""
        shown = sorted(self.bars, key=lambda bar: bar.value, reverse=True)[:_MOST]
        kept = [bar for bar in self.bars if bar in shown]
        most = max([1, self.limit or 0, *(bar.value for bar in kept)])
        scale = (_WIDTH - _LABELS - _VALUES) / most
        rows = "".join(self._row(bar, place, scale) for place, bar in enumerate(kept))
        height = _ROW * (len(kept) + 1)
        return (
            f'<svg role="img" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
            f'style="max-width:100%;font:12px sans-serif" aria-label="{text_in_html(self.title)}">'
            f'<text x="0" y="14" fill="currentColor" font-weight="600">{self._caption(kept)}</text>'
            f"{rows}{self._limit_line(scale, height)}</svg>"
        )

    def _caption(self, kept: Sequence[Bar]) -> str:
        left_out = len(self.bars) - len(kept)
        more = f", the longest {len(kept)} of {len(self.bars)}" if left_out else ""
        limit = "" if self.limit is None else f" (objective {self.in_words(self.limit)})"
        return text_in_html(f"{self.title}{limit}{more}")

    def _row(self, bar: Bar, place: int, scale: float) -> str:
        top = _ROW * (place + 1)
        length = max(1.0, bar.value * scale)
        words = text_in_html(self.in_words(bar.value))
        name = text_in_html(bar.name)
        return (
            f"<g><title>{name}: {words}</title>"
            f'<text x="0" y="{top + 13}" fill="currentColor">{_cut(bar.name)}</text>'
            f'<rect x="{_LABELS}" y="{top + 3}" width="{length:.1f}" height="{_BAR}" rx="2" '
            f'fill="{_BAD if bar.is_bad else _GOOD}"/>'
            f'<text x="{_LABELS + length + 6:.1f}" y="{top + 13}" fill="currentColor">{words}'
            "</text></g>"
        )

    def _limit_line(self, scale: float, height: int) -> str:
        if self.limit is None:
            return ""
        x = f"{_LABELS + self.limit * scale:.1f}"
        return (
            f'<line x1="{x}" x2="{x}" y1="{_ROW}" y2="{height}" stroke="currentColor" '
            'stroke-dasharray="4 3"/>'
        )


def bars_of(status: Picture) -> Bars | None:
    """What is worth a picture: recoveries, lagging readers, or streams that are behind."""
    if isinstance(status, OperatorStatus):
        return _recoveries(status.buckets)
    if isinstance(status, StreamStatus):
        return _lags(status.readers)
    return _behind(status.inputs) if isinstance(status, UnionStatus) else None


def _recoveries(buckets: Sequence[BucketStatus]) -> Bars | None:
    objectives = {each.objective_us for each in buckets} - {None}
    bars = [
        Bar(f"bucket {each.bucket}", each.account.predicted_us, each.is_within_objective is False)
        for each in buckets
        if each.account is not None
    ]
    limit = objectives.pop() if len(objectives) == 1 else None
    return _bars("a recovery now would take", bars, units.duration, limit)


def _lags(readers: Sequence[ReaderStatus]) -> Bars | None:
    bars = [Bar(each.name, each.lag) for each in readers if each.lag is not None]
    return _bars("readers are behind by", bars, lambda lag: units.some(lag, "batch"))


def _behind(inputs: Sequence[InputStatus]) -> Bars | None:
    reached = {each.name: each.boundary_us for each in inputs if each.boundary_us is not None}
    newest = max(reached.values(), default=0)
    bars = [Bar(name, newest - boundary_us) for name, boundary_us in reached.items()]
    return _bars("streams are behind the first by", bars, units.duration)


def _bars(
    title: str, bars: Sequence[Bar], in_words: Callable[[int], str], limit: int | None = None
) -> Bars | None:
    return Bars(title, tuple(bars), in_words, limit) if bars else None


def _cut(name: str) -> str:
    most = 22
    return text_in_html(name if len(name) <= most else f"{name[: most - 1]}…")
