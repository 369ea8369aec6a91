"""Names in logs are anybody's: no escape sequence in them reaches the terminal of who looks."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.cases import Case
from tests.support.written import write_logs
from tests.unit.cli.conftest import Run
from trailmark.cli import main
from trailmark.log import LocalStorage
from trailmark.streams.description import open_stream
from trailmark.streams.writer import StreamWriter
from trailmark.windows import functions as f
from trailmark.windows.spec import TimeWindow

#: Clears the screen, turns the text around, and does it all again in other ways.
EVIL = "\x1b[2J\u202e\x9b2J\x07"
_TRICKS = set(EVIL) - set("[2J")
#: What is printed on purpose: colours, and a line that is drawn over, without the cursor.
_MEANT = re.compile(r"\x1b\[(\d+(;\d+)*m|\?25[lh]|1A|2K)|\r")

_COMMANDS = (
    ["status"],
    ["log"],
    ["log", "--records"],
    ["log", "--key", "no=1"],
    ["verify"],
    ["readers"],
    ["readers", "--forget", "nobody"],
    ["writers"],
    ["writers", "--forget", "nobody"],
    ["trim", "--before-batch", "1", "--dry-run"],
    ["merge"],
    ["recover", "--dry-run"],
    ["truncate", "--to-batch", "0", "--yes"],
)


def _operator(path: Path) -> Path:
    key, when = f"k{EVIL}", f"t{EVIL}"
    case = Case.of(
        pa.schema([(key, pa.string()), (when, pa.timestamp("us"))]),
        by=[key],
        window=TimeWindow(when, 10, 10, 0),
        values={f"n{EVIL}": f.count()},
        batches=[(n, [(EVIL, n * 20)]) for n in range(4)],
    )
    written = write_logs(path, case, buckets=1)
    _meddle(written.path)
    (path / "rolled-back").write_text(EVIL)
    return path


def _stream(path: Path) -> Path:
    storage = LocalStorage(path)
    meta = open_stream(storage, pa.schema([(f"k{EVIL}", pa.string())]), keys=[f"k{EVIL}"])
    writer = StreamWriter(storage, meta)
    for batch in range(3):
        rows = pa.table({f"k{EVIL}": [EVIL]}).to_batches()
        writer.commit(writer.write(rows), f"query{EVIL}", batch)
    _meddle(path)
    return path


def _meddle(path: Path) -> None:
    """Readers that nobody named so, and files that are nobody's."""
    readers = path / "readers"
    readers.mkdir(exist_ok=True)
    (readers / f"r{EVIL}.json").write_text(EVIL)
    for directory in [path, *(each for each in path.rglob("*") if each.is_dir())]:
        (directory / f"x{EVIL}.seg").write_text(EVIL)
    newest = max(path.rglob("*.seg"), key=lambda each: (each.name[0] == "0", each.name))
    newest.write_bytes(newest.read_bytes()[:-9] + EVIL.encode()[:9])


@pytest.mark.parametrize("command", _COMMANDS, ids=" ".join)
@pytest.mark.parametrize("make", [_operator, _stream], ids=["operator", "stream"])
def test_no_trick_in_a_name_is_played_on_who_looks(
    make: object, command: list[str], tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path / "logs")  # type: ignore[operator]
    name, *more = command
    said = run(name, path, *more)
    assert not set(said.out + said.err) & _TRICKS
    in_json = run(name, path, *more, "--json")
    assert not set(in_json.out + in_json.err) & _TRICKS

    terminal = _Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    main([name, str(path), *more])
    assert not set(_MEANT.sub("", terminal.getvalue())) & _TRICKS
    assert "\x1b[2J" not in terminal.getvalue()


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_names_can_still_be_told_in_full(tmp_path: Path, run: Run) -> None:
    path = _operator(tmp_path / "logs")
    escaped = r"\x1b[2J\u202e\x9b2J\x07"
    title = f"aggregate by k{escaped}, windows of 10 microseconds of t{escaped}"
    assert title in run("status", path).out
    described = json.loads(run("status", path, "--json").out)["operator"]
    assert described["by"] == [[f"k{EVIL}", "string"]]
