"""What can be asked for on the command line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

#: Kinds of rows that `log` can be asked for; footprints are of kind open or check.
KINDS = ("results", "footprints", "open", "check", "closed", "late", "input")
STREAMS = ("input", "output", "snapshot")

_PATH = "path of an operator, stream or lease: a directory, file:///directory or s3://bucket/prefix"

_DESCRIPTION = """\
Look after the logs of a Trailmark operator, or after a written stream.

PATH is what the operator or the stream was given as `path`. status, page, metrics, log, verify,
compare, readers, writers and recover --dry-run change nothing and may run beside the query; so may
trim and merge."""

_EXIT_CODES = "exit codes: 0 all is well, 1 something is wrong with the logs, 2 could not run"


def make_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="trailmark",
        description=_DESCRIPTION,
        epilog=f"{_EXIT_CODES}\n\nexample:\n  trailmark status /data/orders-average",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and end")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add in _COMMANDS:
        add(commands)
    return parser


class _Version(argparse.Action):
    """Prints the version. It is looked up only here: that takes as long as all other parsing."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"trailmark {version('trailmark')}")
        parser.exit()


_Commands = argparse._SubParsersAction


def _bare_command(
    commands: _Commands[argparse.ArgumentParser], name: str, does: str, more: str, example: str
) -> argparse.ArgumentParser:
    """One without any arguments yet."""
    return commands.add_parser(
        name,
        help=does,
        description=f"{does[0].upper()}{does[1:]}.\n\n{more}".strip(),
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def _command(
    commands: _Commands[argparse.ArgumentParser], name: str, does: str, more: str, example: str
) -> argparse.ArgumentParser:
    """One that is about one path."""
    parser = _bare_command(commands, name, does, more, example)
    parser.add_argument("path", metavar="PATH", help=_PATH)
    parser.add_argument("--json", action="store_true", help="print JSON: exact numbers, all of it")
    return parser


def _status(commands: _Commands[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "status",
        "show where each bucket stands and what a recovery would cost",
        "Of a written stream: what it holds and who reads and writes it. Reads the newest footers\n"
        "only and changes nothing.",
        "trailmark status /data/orders-average --watch",
    )
    parser.add_argument(
        "--watch",
        nargs="?",
        const=2.0,
        type=_seconds,
        metavar="SECONDS",
        help="draw it anew every so many seconds (2) until Ctrl-C",
    )
    parser.add_argument(
        "--look-back",
        type=whole(1),
        default=100,
        metavar="N",
        help="newest batches to look at, for sums and the last recovery (100)",
    )


def _page(commands: _Commands[argparse.ArgumentParser]) -> None:
    _serving_command(
        commands,
        "page",
        "show operators, streams and unions on a live page in the browser",
        "Who reads whom, what a recovery would take over the last hour, every bucket,\n"
        "recoveries and warnings. Only this machine reaches it, unless --host says otherwise:\n"
        "then a token is asked for. Reads files only and changes nothing.",
        "trailmark page /data/streams /data/orders-average",
        port=8765,
        interval=2.0,
        token="ask for this token (or $TRAILMARK_TOKEN); made and printed where --host is not this "
        "machine",
    )


def _metrics(commands: _Commands[argparse.ArgumentParser]) -> None:
    _serving_command(
        commands,
        "metrics",
        "serve figures for Prometheus under /metrics",
        "Needs prometheus_client: pip install 'trailmark[metrics]'. Only this machine reaches it,\n"
        "unless --host says otherwise. Reads files only and changes nothing.",
        "trailmark metrics /data/streams /data/orders-average --port 9090",
        port=9090,
        interval=5.0,
        token="ask for this bearer token (or $TRAILMARK_TOKEN)",
    )


def _serving_command(
    commands: _Commands[argparse.ArgumentParser],
    name: str,
    does: str,
    more: str,
    example: str,
    *,
    port: int,
    interval: float,
    token: str,
) -> None:
    """One that serves what it sees of many paths, and asks for a token where others reach it."""
    parser = _bare_command(commands, name, does, more, example)
    parser.add_argument(
        "paths", metavar="PATH", nargs="+", help=f"{_PATH}; or a directory of such paths"
    )
    parser.add_argument(
        "--port", type=_port, default=port, metavar="N", help=f"where to listen ({port}); 0: any"
    )
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="who may reach it (127.0.0.1)"
    )
    parser.add_argument(
        "--interval",
        type=_seconds,
        default=interval,
        metavar="SECONDS",
        help=f"look at the files every so many seconds ({interval:g})",
    )
    parser.add_argument("--token", metavar="TOKEN", help=token)


def _log(commands: _Commands[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "log",
        "list the segments of the logs, or their rows",
        "Every filter that is given has to hold. Rows are as they are logged: footprints hold the\n"
        "state of a window at the end of the batch. Of a written stream: its batches, or their\n"
        "rows; --stream and --kind mean nothing there.",
        "trailmark log /data/orders-average --batch 40:41 --kind check --key item_id=7 --records",
    )
    parser.add_argument("--stream", choices=STREAMS, help="only this log")
    parser.add_argument("--bucket", type=whole(0), metavar="N", help="only this bucket")
    parser.add_argument(
        "--batch", type=batch_range, metavar="N|A:B", help="only this batch, or these, B included"
    )
    parser.add_argument("--kind", choices=KINDS, help="only rows of this kind")
    parser.add_argument(
        "--key",
        action="append",
        default=[],
        type=_column_value,
        metavar="COLUMN=VALUE",
        help='only rows with this key; null for none, "null" in double quotes for the text; '
        "may be repeated",
    )
    parser.add_argument("--records", action="store_true", help="print the rows")
    parser.add_argument("--limit", type=whole(1), metavar="N", help="end after so many lines")


def _verify(commands: _Commands[argparse.ArgumentParser]) -> None:
    _command(
        commands,
        "verify",
        "read every byte and check every checksum and link",
        "Of a written stream: of its manifests, and of every data file that they name.\n"
        "Changes nothing. Exit code 0: all is whole. 1: something is damaged or missing; each\n"
        "problem is printed with its file and with what to do next. 2: could not run.",
        "trailmark verify s3://streams/orders-average",
    )


def _compare(commands: _Commands[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "compare",
        "say whether two replicas have given the same results, number by number",
        "Of operators with numbered=True. Reads footers, and around the first difference a few\n"
        "batches; changes nothing. Exit code 0: nothing differs. 1: something does; where it\n"
        "begins is printed with both results. 2: could not run.",
        "trailmark compare /data/a/counts /data/b/counts",
    )
    parser.add_argument("other", metavar="PATH", help="the path of the other replica")


def _readers(commands: _Commands[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "readers",
        "list the named readers, or forget one",
        "What a named reader has not read is never trimmed. One that will not come back has to be\n"
        "forgotten, or the logs grow for ever.",
        "trailmark readers /data/orders --forget billing",
    )
    parser.add_argument("--forget", metavar="NAME", help="remove this reader")
    parser.add_argument("--yes", action="store_true", help="do not ask; for scripts")


def _writers(commands: _Commands[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "writers",
        "list who writes to a stream, and up to which time it is complete; or let one go",
        "A stream is complete up to the least time that any of its writers promises. One that\n"
        "will not come back holds that time where it is until it is forgotten.",
        "trailmark writers /data/orders --forget eu-1",
    )
    parser.add_argument("--forget", metavar="NAME", help="wait no longer for this writer")
    parser.add_argument("--yes", action="store_true", help="do not ask; for scripts")


def _recover(commands: _Commands[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "recover",
        "show what a recovery would read, load and replay",
        "Recovery itself happens when the query starts; this shows its plan and changes nothing.",
        "trailmark recover /data/orders-average --dry-run",
    )
    parser.add_argument("--dry-run", action="store_true", help="show the plan; has to be given")
    parser.add_argument("--bucket", type=whole(0), metavar="N", help="only this bucket")
    parser.add_argument(
        "--to-batch", type=whole(0), metavar="N", help="to the end of this batch (the newest)"
    )


def _trim(commands: _Commands[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "trim",
        "remove old batches that no recovery and no named reader needs",
        "Removes input and output of batches before N, but never what the newest footer says a\n"
        "recovery needs. Of a written stream: batches before N, and data files older than a week\n"
        "that killed tasks have left. What a named reader needs stays. The query may go on\n"
        "meanwhile.",
        "trailmark trim /data/orders-average --before-batch 1000 --dry-run",
    )
    parser.add_argument(
        "--before-batch", type=whole(0), required=True, metavar="N", help="keep this one and later"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would go, remove nothing")


def _merge(commands: _Commands[argparse.ArgumentParser]) -> None:
    _command(
        commands,
        "merge",
        "merge small files that no recovery reads into large ones",
        "Of an operator, output; of a written stream, manifests. Nothing is lost: segments are\n"
        "copied byte for byte. The query may go on meanwhile.",
        "trailmark merge /data/orders-average",
    )


def _truncate(commands: _Commands[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "truncate",
        "cut off all batches after one, so that the query does them again",
        "STOP THE QUERY FIRST: there is no lock that would keep it from writing meanwhile. What\n"
        "is cut off is moved below aside/, not deleted. The query's Spark checkpoint has to be\n"
        "rolled back to the same batch before it starts again: see docs/operations.md.",
        "trailmark truncate /data/orders-average --to-batch 40",
    )
    parser.add_argument(
        "--to-batch", type=whole(0), required=True, metavar="N", help="the last batch that stays"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask; for scripts")


def _standby(commands: _Commands[argparse.ArgumentParser]) -> None:
    parser = _bare_command(
        commands,
        "standby",
        "run a command while this process has a lease; wait for it before",
        "Start the same on two hosts, or twice on one: the first runs the command. Others wait,\n"
        "and one runs it once the first has ended, was stopped or was silent for a term. Who has\n"
        "lost the lease stops its command and waits again. Signals are passed on; the exit code\n"
        "is the command's. For Spark and Python, tm.standby is quicker: docs/high-availability.md.",
        "trailmark standby --lease /shared/orders.lease -- python orders.py",
    )
    parser.add_argument(
        "--lease", required=True, metavar="PATH", help="a directory or s3:// URL all can reach"
    )
    parser.add_argument(
        "--term",
        default="1 second",
        metavar="TIME",
        help='how long it may be silent before it is replaced ("1 second")',
    )
    parser.add_argument(
        "--grace",
        default="5 seconds",
        metavar="TIME",
        help='from SIGTERM to SIGKILL when the lease is lost ("5 seconds")',
    )
    parser.add_argument("--name", help="what this one is called (host and process)")
    parser.add_argument(
        "command_line", nargs=argparse.REMAINDER, metavar="-- COMMAND ...", help="what to run"
    )


_COMMANDS = (
    _status,
    _page,
    _metrics,
    _log,
    _verify,
    _compare,
    _readers,
    _writers,
    _recover,
    _trim,
    _merge,
    _truncate,
    _standby,
)


def whole(least: int) -> Callable[[str], int]:
    """Reads a whole number from ``least`` up."""

    def number(given: str) -> int:
        if re.fullmatch("[0-9]{1,18}", given, re.ASCII) is None or int(given) < least:
            raise argparse.ArgumentTypeError(f"{given!r} is not a whole number from {least} up")
        return int(given)

    return number


def _port(given: str) -> int:
    number = whole(0)(given)
    if number > 65_535:
        raise argparse.ArgumentTypeError(f"{given} is no port: they end at 65535")
    return number


def batch_range(given: str) -> tuple[int | None, int | None]:
    """Reads a batch or a range of batches, both ends included; None is an open end.

    >>> batch_range("3:5"), batch_range("7"), batch_range("7:")
    ((3, 5), (7, 7), (7, None))
    """
    found = re.fullmatch("([0-9]{0,18})(:?)([0-9]{0,18})", given, re.ASCII)
    if found is None or not (found[1] or found[3]):
        raise argparse.ArgumentTypeError(f"{given!r} is neither a batch (7) nor a range (3:5)")
    first = int(found[1]) if found[1] else None
    last = int(found[3]) if found[3] else None
    return (first, last) if found[2] else (first, first)


def _seconds(given: str) -> float:
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1.0
    if not 0.05 <= seconds <= 86_400:
        raise argparse.ArgumentTypeError(
            f"{given!r} is not a number of seconds; the path comes before --watch"
        )
    return seconds


def _column_value(given: str) -> tuple[str, str]:
    column, sign, value = given.partition("=")
    if not column or not sign:
        raise argparse.ArgumentTypeError(f"{given!r} is not COLUMN=VALUE, such as item_id=7")
    return column, value
