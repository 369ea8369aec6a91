"""How requests travel to an object store: how long one may take, and how often it is repeated.

A request may be repeated whether or not it was carried out: reads, deletions and puts over whatever
is there come to the same, and after a put "if absent" the storage looks whose object it finds.
"""

from __future__ import annotations

import logging
import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from trailmark.errors import SettingError
from trailmark.log.storage.providers import Provider
from trailmark.settings import parse_duration

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_log = logging.getLogger("trailmark")

#: Long enough for a segment of hundreds of megabytes on a slow line: it is one request.
_DEFAULTS = {"timeout": "5 minutes", "connect_timeout": "10 seconds"}

#: What the client of obstore can be told; each is read from ``AWS_<NAME>`` and its like, as obstore
#: itself does where it is told nothing.
_OPTIONS = (
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "default_content_type",
    "http1_only",
    "http2_keep_alive_interval",
    "http2_keep_alive_timeout",
    "http2_keep_alive_while_idle",
    "http2_only",
    "pool_idle_timeout",
    "pool_max_idle_per_host",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
    "randomize_addresses",
    "read_timeout",
    "root_certificate",
    "timeout",
    "user_agent",
)

#: For errors of the server, throttling and connections that break. Credentials are not renewed
#: between two attempts, so that they must last for all of them.
_RETRIES: dict[str, Any] = {
    "max_retries": 10,
    "retry_timeout": timedelta(minutes=3),
    "backoff": {
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(seconds=15),
        "base": 2,
    },
}


#: Between two attempts an impatient client waits for so much of its patience at most.
_SHORT_PAUSES = 8

_warned: set[str] = set()


def connect(url: str, provider: Provider, patience_us: int | None = None) -> ObjectStore:
    """The store that a URL and the environment variables of its provider name.

    With ``patience_us`` no request takes longer, and none is repeated after that.
    """
    api = import_obstore()
    found = {name: os.environ.get(f"{provider.variables}{name.upper()}") for name in _OPTIONS}
    options: dict[str, Any] = _DEFAULTS | {k: v for k, v in found.items() if v is not None}
    retries = _asked_retries(provider)
    if patience_us is not None:
        patience = timedelta(microseconds=patience_us)
        options["timeout"] = patience
        pauses = {**_RETRIES["backoff"], "max_backoff": patience / _SHORT_PAUSES}
        retries = {**retries, "retry_timeout": patience, "backoff": pauses}
    try:
        store: ObjectStore = api.store.from_url(url, client_options=options, retry_config=retries)
    except api.exceptions.BaseError as error:
        raise SettingError(
            f"The object store cannot be used: {first_line(error)}",
            where="path",
            fix=f"Check the URL and the {provider.variables}... environment variables.",
        ) from error
    _warn(provider)
    return store


def _asked_retries(provider: Provider) -> dict[str, Any]:
    """How often and for how long a request is repeated, as ``AWS_MAX_RETRIES`` and
    ``AWS_RETRY_TIMEOUT`` or their like say."""
    retries = dict(_RETRIES)
    name = f"{provider.variables}MAX_RETRIES"
    most = os.environ.get(name)
    if most is not None:
        if not (most.isascii() and most.isdigit()):
            raise SettingError(
                f"{most!r} is not a number of retries.",
                where=name,
                fix="Write a number, 0 or more.",
            )
        retries["max_retries"] = int(most)
    name = f"{provider.variables}RETRY_TIMEOUT"
    longest = os.environ.get(name)
    if longest is not None:
        retries["retry_timeout"] = timedelta(microseconds=parse_duration(longest, name))
    return retries


def _warn(provider: Provider) -> None:
    """Once in a process."""
    if not provider.is_tried and provider.scheme not in _warned:
        _warned.add(provider.scheme)
        _log.warning(
            "%s:// is experimental: Trailmark has never been tested against such a store, only "
            "against others through the same client. Try a crash before you rely on it.",
            provider.scheme,
        )


def import_obstore() -> Any:
    """The package, which only who uses an object store has to install, and waits for."""
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ImportError:
        raise SettingError(
            "Object stores need the package obstore, which is not installed.",
            where="path",
            fix="pip install 'trailmark[object-store]'",
        ) from None
    return obstore


def first_line(error: Exception) -> str:
    """What an error of obstore says to people."""
    return str(error).partition("\n")[0][:300]
