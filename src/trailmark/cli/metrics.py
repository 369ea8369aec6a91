"""``trailmark metrics``."""

from __future__ import annotations

import argparse
import threading

from trailmark.cli.codes import OK
from trailmark.cli.page import chosen_token
from trailmark.metrics import serve_metrics
from trailmark.watch import Places


def run(options: argparse.Namespace) -> int:
    """Serves metrics until Ctrl-C."""
    token = chosen_token(options.token, options.host)
    server = serve_metrics(
        Places(options.paths),
        host=options.host,
        port=options.port,
        interval_s=options.interval,
        token=token.text,
    )
    print(f"Trailmark's metrics: {server.url}\nCtrl-C ends it.", flush=True)
    if token.is_made:
        print(f"Prometheus has to send this bearer token: {token.text}", flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        print()
    finally:
        server.close()
    return OK
