"""Serves metrics to Prometheus, from a thread of any process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from trailmark.errors import SettingError
from trailmark.metrics.families import METRICS, samples_of
from trailmark.watch import Sampler
from trailmark.watch.serving import Answer, Route, Serving, text


class MetricsServer:
    """Looks at paths and serves what it sees under ``/metrics``, until it is closed.

    Attributes
    ----------
    sampler
        Who looks.
    """

    def __init__(self, sampler: Sampler, host: str, port: int, token: str | None = None) -> None:
        self.sampler = sampler
        routes = {
            "/": Route(_index, is_open=True),
            "/metrics": Route(exposition(sampler)),
        }
        #: Whether it has ended.
        self.is_closed = False
        self._serving = Serving(routes, host, port, token)
        sampler.start()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._serving.port

    @property
    def url(self) -> str:
        """Where Prometheus asks."""
        return f"{self._serving.url}metrics"

    def close(self) -> None:
        """Ends looking and serving."""
        self.is_closed = True
        self._serving.close()
        self.sampler.stop()


def serve_metrics(
    paths: Callable[[], Sequence[str]],
    *,
    host: str = "127.0.0.1",
    port: int = 9090,
    interval_s: float = 5.0,
    token: str | None = None,
) -> MetricsServer:
    """Serve what is seen at paths, which are asked for with every look."""
    return MetricsServer(Sampler(paths, interval_s), host, port, token)


def exposition(sampler: Sampler) -> Callable[[Mapping[str, str]], Answer]:
    """Answers with everything that the last look has shown, as Prometheus reads it."""
    library = _library()
    registry = library.CollectorRegistry()
    registry.register(_Collector(sampler, library))

    def give(_: Mapping[str, str]) -> Answer:
        return Answer(library.generate_latest(registry), library.CONTENT_TYPE_LATEST)

    return give


class _Collector:
    """What the library asks for families of samples."""

    def __init__(self, sampler: Sampler, library: Any) -> None:
        self._sampler = sampler
        self._library = library

    def collect(self) -> Iterator[Any]:
        made = self._library.metrics_core
        families = {
            metric: (made.CounterMetricFamily if metric.is_counter else made.GaugeMetricFamily)(
                metric.name, metric.says, labels=metric.labels
            )
            for metric in METRICS
        }
        for seen in self._sampler.snapshot.seen:
            for metric, (labels, value) in samples_of(seen):
                if value is not None:
                    families[metric].add_metric(labels, value)
        yield from families.values()


def _index(_: Mapping[str, str]) -> Answer:
    return text("Trailmark's metrics are at /metrics.")


def _library() -> Any:
    try:
        import prometheus_client.metrics_core
    except ImportError as error:
        raise SettingError(
            "Metrics need the package prometheus_client, which is not installed.",
            where="metrics",
            fix="Install it: pip install 'trailmark[metrics]'.",
        ) from error
    return prometheus_client
