"""Runs one command: picks it, and turns whatever goes wrong into one line and an exit code."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import TextIO, cast

from trailmark.cli.codes import BROKEN_PIPE, COULD_NOT_RUN, INTERRUPTED
from trailmark.cli.guarded import Guarded
from trailmark.cli.parser import make_parser
from trailmark.errors import TrailmarkError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code.

    Parameters
    ----------
    arguments
        What follows the name of the program; by default what it was called with.
    """
    options = make_parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A name or a key that the terminal has no letters for is no reason to end.
        sys.stdout.reconfigure(errors="backslashreplace")
    out, err = Guarded(sys.stdout), Guarded(sys.stderr)
    with redirect_stdout(cast(TextIO, out)), redirect_stderr(cast(TextIO, err)):
        return _run_and_tell(options)


def _run_and_tell(options: argparse.Namespace) -> int:
    try:
        code = _run(options)
        sys.stdout.flush()
    except TrailmarkError as error:
        print(f"trailmark {options.command}: {one_line(error)}", file=sys.stderr)
        return COULD_NOT_RUN
    except KeyboardInterrupt as interrupt:
        where = f" {interrupt}" if interrupt.args else ""
        print(f"trailmark {options.command}: interrupted{where}", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has seen enough. What Python would still flush when it ends must
        # not complain about that again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return code


def one_line(error: TrailmarkError) -> str:
    """What happened, where, and what to do next, in one line."""
    where = f" ({error.where})" if error.where else ""
    return " ".join(f"{error.what}{where} {error.fix}".split())


def _run(options: argparse.Namespace) -> int:
    # Each command waits only for its own imports.
    if options.command == "status":
        from trailmark.cli import status

        return status.run(options)
    if options.command == "page":
        from trailmark.cli import page

        return page.run(options)
    if options.command == "metrics":
        from trailmark.cli import metrics

        return metrics.run(options)
    if options.command == "log":
        from trailmark.cli import log

        return log.run(options)
    if options.command == "verify":
        from trailmark.cli import verify

        return verify.run(options)
    if options.command == "compare":
        from trailmark.cli import compare

        return compare.run(options)
    if options.command == "recover":
        from trailmark.cli import recover

        return recover.run(options)
    if options.command == "trim":
        from trailmark.cli import trim

        return trim.run(options)
    if options.command == "merge":
        from trailmark.cli import merge

        return merge.run(options)
    if options.command == "readers":
        from trailmark.cli import readers

        return readers.run(options)
    if options.command == "writers":
        from trailmark.cli import writers

        return writers.run(options)
    if options.command == "standby":
        from trailmark.cli import standby

        return standby.run(options)
    from trailmark.cli import truncate

    return truncate.run(options)
