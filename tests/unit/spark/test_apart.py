"""Where an operator's logs may be, beside the files that its query reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from trailmark.spark.apart import _meet, _names


def _are_apart(source: str, logs: str, directory: str = "/data") -> bool:
    return not _meet(_names(source, directory), _names(logs, directory))


@pytest.mark.parametrize(
    ("source", "logs"),
    [
        ("/data/in", "/data/in"),
        ("/data/in/", "/data/in/log"),
        ("/data/in", "/data"),
        ("/data/in/..", "/data/log"),
        ("in", "/data/in/log"),
        ("./in", "/data/in"),
        ("file:/data/in", "/data/in/log"),
        ("file:///data/in", "file:/data/in/log"),
        ("/data/*", "/data/log"),
        ("/data/*/in", "/data/log"),  # whose own input log is data/log/in
        ("/data/{a,b}/in", "/data/a/in/log"),
        ("/data/in/*.json", "/data/in"),
        ("/", "/data"),
        ("s3a://bucket/in", "s3://bucket/in/log"),
        ("s3://bucket/", "s3://bucket/log"),
        ("s3a://bucket/{in,old}", "s3://bucket/in/log"),
        ("/data/orders{,-old}", "/data/orders/log"),
        ("/data/[^i]*", "/data/log"),
    ],
)
def test_neither_may_be_in_the_other(source: str, logs: str) -> None:
    assert not _are_apart(source, logs)


@pytest.mark.parametrize(
    ("source", "logs"),
    [
        ("/data/in", "/data/log"),
        ("/data/in", "/data/in2"),
        ("/data/in", "/in"),
        ("/data/in/*.json", "/data/in/log"),
        ("/data/2026-*/in", "/data/log"),
        ("/data/in", "/data/in/_log"),  # Spark passes over such names
        ("/data/in", "/data/in/.log/x"),
        ("/data/in", "s3://data/in"),
        ("s3://bucket/in", "s3://other/in/log"),
        ("/data/{orders,returns}", "/data/orders-average"),
        ("/data/[^l]*", "/data/log"),
    ],
)
def test_beside_each_other_they_are_fine(source: str, logs: str) -> None:
    assert _are_apart(source, logs)


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "in")
    assert not _are_apart(f"{tmp_path}/in", f"{tmp_path}/link/log")
    assert not _are_apart(f"{tmp_path}/link/*", f"{tmp_path}/in/log")
