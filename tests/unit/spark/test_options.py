"""Options are declared once: what is not is refused, and the documents have the same ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trailmark.errors import SettingError
from trailmark.spark.options import READING, WRITING, ReadOptions, WriteOptions

_PAGE = Path(__file__).parents[3] / "docs" / "streams.md"
_PLACE = {"path": "/data/orders"}


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("maxRowPerTrigger", "maxRowsPerTrigger"),
        ("starting_batch", "startingBatch"),
        ("startingTimestmp", "startingTimestamp"),
        ("readers", "reader"),
        ("failOnLoss", "failOnDataLoss"),
    ],
)
def test_a_misspelt_option_of_a_read_is_refused_with_the_right_name(name: str, meant: str) -> None:
    with pytest.raises(SettingError, match=f"no option '{name.lower()}' for reading") as refused:
        ReadOptions.parse({**_PLACE, name.lower(): "1"})
    assert refused.value.fix.startswith(f"Did you mean {meant}? ")


@pytest.mark.parametrize(
    ("name", "meant"),
    [("partition_by", "partitionBy"), ("time_column", "timeColumn"), ("bucket", "buckets")],
)
def test_a_misspelt_option_of_a_write_is_refused_with_the_right_name(name: str, meant: str) -> None:
    with pytest.raises(SettingError, match=f"no option '{name}' for writing") as refused:
        WriteOptions.parse({**_PLACE, name: "1"})
    assert refused.value.fix.startswith(f"Did you mean {meant}? ")


def test_an_option_like_no_other_is_refused_with_all_there_are() -> None:
    with pytest.raises(SettingError) as refused:
        ReadOptions.parse({**_PLACE, "mergeschema": "true"})
    assert refused.value.fix == f"The options are {', '.join(READING.names)}."


def test_an_option_of_the_other_side_is_told_apart_from_a_misspelt_one() -> None:
    with pytest.raises(SettingError, match="retention is an option for writing, not for reading"):
        ReadOptions.parse({**_PLACE, "retention": "7 days"})
    with pytest.raises(SettingError, match="reader is an option for reading, not for writing"):
        WriteOptions.parse({**_PLACE, "reader": "billing"})


def test_several_paths_are_refused() -> None:
    with pytest.raises(SettingError, match="from one path"):
        ReadOptions.parse({"paths": '["/a", "/b"]'})


def test_the_documents_explain_every_option_and_no_other() -> None:
    page = _PAGE.read_text()
    writing, reading = page.split("\n## Writing\n")[1].split("\n## Reading\n")
    assert _in_tables(writing) == set(WRITING.names)
    assert _in_tables(reading.split("\n## ")[0]) | {"path"} == set(READING.names)


def _in_tables(text: str) -> set[str]:
    """Names in the first column of tables of options."""
    rows = re.findall(r"^\|((?: ?`\w+`,?)+) \|", text, flags=re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}
