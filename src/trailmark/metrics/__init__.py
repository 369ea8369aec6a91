"""What was seen, in the format of Prometheus, by its own client library.

What it promises: few metrics, named as Prometheus advises, with labels that do not grow: a path, a
bucket, the name of a union's input, one of three phases. Nothing is read when somebody asks:
answers come from the last look.

What it leaves to others: looking and serving (:mod:`trailmark.watch`). The library is optional
(``pip install 'trailmark[metrics]'``).
"""

from trailmark.metrics.serving import MetricsServer, serve_metrics

__all__ = ["MetricsServer", "serve_metrics"]
