"""Asking before something is done that cannot be taken back."""

from __future__ import annotations

import argparse
import sys

from trailmark.errors import SettingError


def check_can_ask(options: argparse.Namespace, what: str) -> None:
    """Refuses to go on where there is nobody to ask. ``what`` says what this does."""
    if options.json or not sys.stdin.isatty():
        why = "a script wants JSON" if options.json else "standard input is no terminal"
        raise SettingError(
            f"This {what} and nobody can be asked: {why}.",
            where="--yes",
            fix="Give --yes if it is to be done without asking. Nothing was changed.",
        )


def says_yes() -> bool:
    """Whether the answer is yes, and nothing else than that."""
    try:
        return input('Type "yes" to go on: ').strip() == "yes"
    except EOFError:
        return False
