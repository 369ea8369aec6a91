"""The command line as a whole: help, versions, pipes, and what it does not import."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.support.stored import StoredAt
from tests.support.written import Written
from trailmark.cli import main
from trailmark.cli.parser import make_parser

_COMMANDS = (
    *("status", "log", "verify", "readers", "writers", "recover", "trim", "merge", "truncate"),
    *("standby", "compare"),
)


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"trailmark {version('trailmark')}\n"


@pytest.mark.parametrize("command", _COMMANDS)
def test_every_command_explains_itself_with_an_example(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert f"example:\n  trailmark {command} " in said
    assert "PATH" in said
    assert max(map(len, said.splitlines())) <= 100


def test_every_command_of_the_documents_is_one() -> None:
    text = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()
    lines = re.findall(r"^\$ (trailmark .*)$", text, re.MULTILINE)
    assert {line.split()[1] for line in lines} == set(_COMMANDS)
    for line in lines:
        make_parser().parse_args(shlex.split(line)[1:])


def test_the_help_names_every_command_and_the_exit_codes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    said = capsys.readouterr().out
    assert all(f"\n    {command} " in said for command in _COMMANDS)
    assert "exit codes: 0" in said


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["fly"],
        ["status"],
        ["status", "x", "--watch", "soon"],
        ["status", "--watch", "x"],
        ["log", "x", "--batch", "b"],
        ["log", "x", "--batch", ":"],
        ["log", "x", "--limit", "0"],
        ["log", "x", "--key", "item"],
        ["log", "x", "--kind", "nothing"],
        ["trim", "x"],
        ["trim", "x", "--before-batch", "-1"],
        ["truncate", "x", "--to-batch", "ten"],
    ],
)
def test_wrong_arguments_end_with_code_2_and_say_why(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "error: " in capsys.readouterr().err


_IMPORTS = """
import sys
from trailmark.cli import main
code = main(sys.argv[1:])
print(sorted({"pyspark", "pandas"} & set(sys.modules)), file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["log", "--records", "--batch", "8:11", "--key", "item=3"],
        ["verify"],
        ["readers"],
        ["recover", "--dry-run"],
        ["trim", "--before-batch", "3"],
        ["merge"],
        ["truncate", "--to-batch", "10", "--yes"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_no_command_imports_pyspark_or_pandas(arguments: list[str], counted: Written) -> None:
    _check_imports(arguments, counted.path)


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["log", "--records", "--batch", "2:3", "--key", "item=3"],
        ["verify"],
        ["readers"],
        ["writers"],
        ["trim", "--before-batch", "3"],
        ["merge"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_nor_does_any_on_a_written_stream(arguments: list[str], stream: StoredAt) -> None:
    _check_imports(arguments, stream.path)


def _check_imports(arguments: list[str], path: Path) -> None:
    command, *rest = arguments
    done = subprocess.run(
        [sys.executable, "-c", _IMPORTS, command, str(path), *rest],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stderr.splitlines()[-1] == "[]"


def test_help_is_there_before_anything_slow_is_imported() -> None:
    code = (
        "import sys, trailmark; before = set(sys.modules)\n"
        "from trailmark.cli.parser import make_parser; make_parser()\n"
        "print(sorted(m for m in set(sys.modules) - before if m.startswith('trailmark')))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "trailmark.engine" not in done.stdout
    assert "trailmark.inspection" not in done.stdout


def test_a_reader_that_has_seen_enough_ends_it_quietly(counted: Written) -> None:
    command = [sys.executable, "-m", "trailmark.cli", "log", str(counted.path), "--records"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(60) == 141


def test_letters_that_the_terminal_does_not_have_are_spelled_out(
    counted: Written, tmp_path: Path
) -> None:
    renamed = counted.path.rename(tmp_path / "größe")
    done = subprocess.run(
        [sys.executable, "-m", "trailmark.cli", "status", str(renamed)],
        check=True,
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert rb"gr\xf6\xdfe: aggregate" in done.stdout


def test_modules_that_print_are_run_by_python_as_well(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trailmark.cli", "status", str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
