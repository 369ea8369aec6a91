"""What Python says of the kernel is what the C says: functions, their arguments, and structures.

ctypes believes what it is told: a wrong letter or a field too many is no error, but wrong memory.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trailmark.kernel import library

_KERNEL = Path(__file__).parents[3] / "src/trailmark/kernel"
_SOURCES = sorted(_KERNEL.glob("*.c"))
_DEFINITION = re.compile(r"^(void|int64_t|uint64_t)\s+(tm_\w+)\(([^)]*)\)\s*{", re.MULTILINE)
_LETTERS = {ctypes.c_void_p: "p", ctypes.c_int64: "q", ctypes.c_int32: "i"}
_STRUCTURES: dict[str, type[ctypes.Structure]] = {
    "tm_header": library.Header,
    "tm_table": library.Table,
    "tm_keys": library.Keys,
    "tm_local": library.Local,
    "tm_pairs": library.Pairs,
    "tm_count_windows": library.CountWindows,
    "tm_time_windows": library.TimeWindows,
    "tm_join": library.Join,
    "tm_arrivals": library.Arrivals,
    "tm_states": library.States,
    "tm_column": library.Column,
    "tm_updates": library.Updates,
    "tm_bytes": library.Bytes,
}


@pytest.fixture(scope="module")
def compiler() -> str:
    found = shutil.which("cc")
    if found is None:
        pytest.skip("no cc")
    return found


@pytest.fixture(scope="module")
def definitions(compiler: str) -> dict[str, tuple[str, str]]:
    """What each function returns and takes, in the letters of `library`."""
    found = {}
    for source in _SOURCES:
        command = [compiler, "-std=gnu11", "-E", "-P", str(source)]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        for returns, name, parameters in _DEFINITION.findall(text):
            found[name] = (returns, "".join(map(_letter, parameters.split(","))))
    return found


def _letter(parameter: str) -> str:
    if "*" in parameter:
        return "p"
    kind = parameter.split()[-2]
    return {"int64_t": "q", "uint64_t": "q", "int32_t": "i"}[kind]


def test_every_function_is_described_with_the_arguments_it_takes(
    definitions: dict[str, tuple[str, str]],
) -> None:
    described = {
        name: "".join(_LETTERS[kind] for kind in getattr(library.kernel, name).argtypes)
        for name in library.functions()
    }
    assert described == {name: letters for name, (_, letters) in definitions.items()}


def test_unsigned_results_are_described_as_such(
    definitions: dict[str, tuple[str, str]],
) -> None:
    for name, (returns, _) in definitions.items():
        is_unsigned = getattr(library.kernel, name).restype is ctypes.c_uint64
        assert is_unsigned == (returns == "uint64_t"), name


def test_structures_are_laid_out_as_the_compiler_does(compiler: str, tmp_path: Path) -> None:
    checked = set()
    for source in [_KERNEL / "kernel.h", *_SOURCES]:
        defined = re.findall(r"^(?:typedef struct.*)?} (tm_\w+);", source.read_text(), re.MULTILINE)
        checks = [line for name in defined if name in _STRUCTURES for line in _checks(name)]
        checked.update(defined)
        file = tmp_path / f"{source.stem}_layout.c"
        file.write_text("\n".join([f'#include "{source}"', "#include <stddef.h>", *checks]))
        subprocess.run([compiler, "-std=gnu11", "-fsyntax-only", str(file)], check=True)
    assert checked >= _STRUCTURES.keys()


def _checks(name: str) -> list[str]:
    structure = _STRUCTURES[name]
    fields = [field[0] for field in structure._fields_]
    offsets = {field: getattr(structure, field).offset for field in fields}
    return [
        f'_Static_assert(sizeof({name}) == {ctypes.sizeof(structure)}, "{name}");',
        *(
            f'_Static_assert(offsetof({name}, {field}) == {at}, "{name}.{field}");'
            for field, at in offsets.items()
        ),
    ]


@pytest.mark.parametrize(
    ("name", "source", "described"),
    [("tm_slot", "kernel.h", library.SLOT_HEADER), ("tm_tuple", "join.c", library.TUPLE)],
)
def test_records_are_laid_out_as_the_compiler_does(
    name: str, source: str, described: np.dtype[Any], compiler: str, tmp_path: Path
) -> None:
    assert described.fields is not None
    checks = [
        f'_Static_assert(offsetof({name}, {field}) == {place[1]}, "{name}.{field}");'
        for field, place in described.fields.items()
    ]
    checks.append(f'_Static_assert(sizeof({name}) == {described.itemsize}, "{name}");')
    file = tmp_path / "record.c"
    file.write_text("\n".join([f'#include "{_KERNEL / source}"', *checks]))
    subprocess.run([compiler, "-std=gnu11", "-fsyntax-only", str(file)], check=True)
