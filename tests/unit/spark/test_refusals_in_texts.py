"""Finding an error of Trailmark in what Spark says."""

from __future__ import annotations

import pytest

from trailmark.errors import InputDiffers, SchemaChanged, SettingError, TrailmarkError
from trailmark.spark.sessions import refusal_in

_AROUND = """org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was \
thrown from the Python worker: Traceback (most recent call last):
  File "/somewhere/task.py", line 65, in run_micro_batch
    raise error.with_traceback(None) from None
{}
 SQLSTATE: 38000
\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1097)
\tat java.base/java.lang.Thread.run(Thread.java:840)"""


@pytest.mark.parametrize(
    "error",
    [
        InputDiffers("Batch 3 has other rows.", where="in/00000/3.seg", fix="Go back."),
        SchemaChanged(
            "Another:\n    a: 1 -> 2\n    b: 2 -> 3", where="meta.json", fix="Restore it."
        ),
        SettingError("Wrong."),
        SettingError("Wrong.", where="by"),
    ],
)
def test_it_is_found_and_is_the_line_of_the_error(error: TrailmarkError) -> None:
    shown = f"trailmark.errors.{type(error).__name__}: {error}"
    assert refusal_in(_AROUND.format(shown)) == error.line
    assert refusal_in(_AROUND.format(shown) + " SQLSTATE: XXKST") == error.line


@pytest.mark.parametrize("text", [None, "", _AROUND.format("ValueError: 3")])
def test_what_is_not_ours_is_passed_over(text: str | None) -> None:
    assert refusal_in(text) is None
