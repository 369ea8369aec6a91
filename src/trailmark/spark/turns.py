"""The arguments by which replicas of a union take turns."""

from __future__ import annotations

import os
from datetime import timedelta

from trailmark.errors import SettingError
from trailmark.leases import check_term, open_lease, pass_of_process
from trailmark.log.storage.urls import redacted
from trailmark.spark import paths
from trailmark.streams.union.answering import Answering
from trailmark.streams.union.turns import TurnsAt

_TERM = "1 second"


def check_turns(
    turns: str | os.PathLike[str] | None,
    term: str | timedelta | None,
    answering: Answering | None,
    path: str,
    directory: str | None,
) -> TurnsAt | None:
    """Where a union at a path takes turns with its replicas; the lease is begun if there is none.
    None if it takes none."""
    if turns is None:
        if term is not None:
            raise SettingError(
                "A term is how long whoever has the turn may be silent, and there are no turns.",
                where="term",
                fix="Say where they are agreed on, too: turns='/shared/orders.turns'.",
            )
        return None
    if answering is None or answering.on_correction != "suspend":
        raise SettingError(
            "Only replicas that hold new rows back while they correct take turns. This union "
            + ("gives out none before they stand." if answering is None else "answers meanwhile."),
            where="turns",
            fix="Leave it out, or give on_correction='suspend', and answer_within.",
        )
    term_us = check_term(_TERM if term is None else term)
    if isinstance(turns, str | os.PathLike) and os.fspath(turns):
        _check_apart(paths.absolute(turns, directory), path)
    found, _ = open_lease(turns, term_us, argument="turns")
    return TurnsAt(found, term_us)


def _check_apart(turns: str, path: str) -> None:
    """Refuses a lease that others have for good, or that is among the union's own files."""
    own = pass_of_process()
    if own is not None and own.path == turns:
        raise SettingError(
            f"{redacted(turns)} is the lease of tm.standby, which this application has for good: "
            "it would never be another replica's turn.",
            where="turns",
            fix="Give the turns a lease of their own.",
        )
    if f"{turns}/".startswith(f"{path.rstrip('/')}/"):
        raise SettingError(
            f"The lease would be among the files of the union at {redacted(path)}.",
            where="turns",
            fix="Give it a directory of its own that all replicas reach.",
        )
