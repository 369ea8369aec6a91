"""What is done with changed files: everything that reads them. Only errors of our tree may come."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Callable
from pathlib import Path

from tests.fuzz.choices import Choices
from tests.fuzz.files import in_directory, write_files
from tests.fuzz.mutations import mutate, renew
from tests.fuzz.tokens import try_token
from tests.fuzz.worlds import World, worlds
from trailmark.cli import main
from trailmark.errors import LogError, TrailmarkError
from trailmark.inspection.logs import OperatorFiles
from trailmark.inspection.verify import Verification, verify_operator
from trailmark.log import LocalStorage
from trailmark.settings import Durability
from trailmark.streams.stored import StreamFiles
from trailmark.streams.table import read_table
from trailmark.streams.verify import verify_stream

logging.getLogger("trailmark").setLevel(logging.CRITICAL)


#: One part in so many of the inputs is for tokens, the others are for the files of logs.
_PARTS = 4


class Disagreement(AssertionError):
    """Verification found nothing and a reader was refused, or a file of a later format was lost."""


def try_input(data: bytes) -> None:
    """Changes the files as the data says, and reads them. Whatever it raises is a finding."""
    choices = Choices(data)
    if choices.below(_PARTS) == _PARTS - 1:
        try_token(choices)
    else:
        _try_files(choices)


def _try_files(choices: Choices) -> None:
    world = choices.one_of(worlds())
    targets = _STREAM_TARGETS if world.case is None else _OPERATOR_TARGETS
    target = choices.one_of(targets)
    files = dict(world.files)
    is_news = choices.below(8) == 7
    renewed = renew(files, choices) if is_news else ""
    if not is_news:
        mutate(files, choices)
    with in_directory() as path:
        write_files(path, files)
        with contextlib.suppress(TrailmarkError):
            target(world, path)
        if is_news:
            _check_news(world, path, renewed, files[renewed])


def _check_news(world: World, path: Path, name: str, content: bytes) -> None:
    """What is whole and of a later format is where it was, and nobody calls it whole."""
    found = path / name
    if not found.exists():
        left = sorted(str(each.relative_to(path)) for each in path.rglob("*"))
        raise Disagreement(f"{name} is of a later format, and was removed; left are {left}")
    if found.read_bytes() != content:
        raise Disagreement(f"{name} is of a later format, and was changed")
    if _verify(world, path).is_whole:
        raise Disagreement(f"{name} is of a later format, and verify says whole")


def _verify(world: World, path: Path) -> Verification:
    verify = verify_stream if world.case is None else verify_operator
    return verify(LocalStorage(path, Durability.UNSYNCED))


def _run(*arguments: object) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        main([str(each) for each in arguments])


def _recover(world: World, path: Path) -> None:
    """The next batch, in a new process."""
    assert world.case is not None
    bucket = world.place(path).bucket()
    try:
        bucket.run(len(world.case.batches) - 1, world.case.batches[-1])
    finally:
        bucket.close()


def _read_all(world: World, path: Path) -> None:
    """Every row of every segment. What is refused, verification reports, too."""
    storage = LocalStorage(path, Durability.UNSYNCED)
    try:
        if world.case is None:
            _ = read_table(path)
        else:
            for log in OperatorFiles(storage).logs():
                for segment in log.read_from():
                    for kind in segment.frames:
                        segment.table(kind)
    except LogError as error:
        if _verify(world, path).is_whole:
            raise Disagreement(f"verify says whole, a reader says {error.what}") from error


def _upkeep(world: World, path: Path) -> None:
    storage = LocalStorage(path, Durability.UNSYNCED)
    logs = [StreamFiles(storage).log] if world.case is None else OperatorFiles(storage).logs()
    for log in logs:
        with contextlib.suppress(TrailmarkError):
            log.merge(3)
        with contextlib.suppress(TrailmarkError):
            log.repair()
        with contextlib.suppress(TrailmarkError):
            log.time_index().find(10)
        with contextlib.suppress(TrailmarkError):
            log.trim(3)


def _view(records: str | None) -> Callable[[World, Path], None]:
    def read(world: World, path: Path) -> None:
        with contextlib.suppress(TrailmarkError):
            read_table(path, records=records, starting_timestamp="1970-01-01 00:00:20")
        read_table(path, records=records)

    return read


def _state(world: World, path: Path) -> None:
    """What is open after the newest batch, and after one before."""
    assert world.case is not None
    code = world.case.code()
    with contextlib.suppress(TrailmarkError):
        read_table(path, records="state", ending_batch=2, operator=code)
    read_table(path, records="state", operator=code)


def _command(*arguments: object) -> Callable[[World, Path], None]:
    def run(world: World, path: Path) -> None:
        _run(arguments[0], path, *arguments[1:])

    return run


_STREAM_TARGETS: tuple[Callable[[World, Path], None], ...] = (
    _read_all,
    _upkeep,
    _view(None),
    _command("log", "--records"),
    _command("status"),
    _command("status", "--json"),
    _command("verify"),
    _command("readers"),
    _command("trim", "--before-batch", 3),
    _command("merge"),
)
_OPERATOR_TARGETS = (
    *(_recover, _recover, _recover, _recover),
    *_STREAM_TARGETS,
    _view("all"),
    _view("input"),
    _view("late"),
    *(_state, _state),
    _command("log", "--json", "--records"),
    _command("recover", "--dry-run"),
    _command("truncate", "--to-batch", 3, "--yes"),
)
