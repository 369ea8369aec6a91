"""``trailmark page``."""

from __future__ import annotations

import argparse
import os
import re
import secrets
import threading
from typing import NamedTuple

from trailmark.cli.codes import OK
from trailmark.dashboard import page_routes
from trailmark.errors import SettingError
from trailmark.watch import Places, Sampler
from trailmark.watch.serving import Serving, is_loopback

#: Where a token can be given without being in the list of processes.
TOKEN = "TRAILMARK_TOKEN"
_TOKEN = re.compile("[A-Za-z0-9_-]{16,200}", re.ASCII)


class Token(NamedTuple):
    """What is asked for, if anything, and whether it was made here: then somebody has to see it."""

    text: str | None
    is_made: bool = False


def run(options: argparse.Namespace) -> int:
    """Serves the page until Ctrl-C."""
    sampler = Sampler(Places(options.paths), options.interval)
    token = chosen_token(options.token, options.host)
    serving = Serving(page_routes(sampler), options.host, options.port, token.text)
    sampler.start()
    shown = f"{serving.url}#token={token.text}" if token.is_made else serving.url
    print(f"Trailmark's page: {shown}\nCtrl-C ends it.", flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        print()
    finally:
        serving.close()
        sampler.stop()
    return OK


def chosen_token(given: str | None, host: str) -> Token:
    """The token that is asked for; where others can reach the server, there always is one."""
    token = given or os.environ.get(TOKEN) or None
    if token is not None and _TOKEN.fullmatch(token) is None:
        raise SettingError(
            "The token cannot be used.",
            where="--token",
            fix="Use 16 to 200 letters, digits, '-' and '_', or leave it out: one is made.",
        )
    if token is None and not is_loopback(host):
        return Token(secrets.token_urlsafe(24), is_made=True)
    return Token(token)
