from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tests.support.logs import footer_of, rows_of
from tests.support.reseal import Opened, arrow_stream, open_segment
from trailmark.errors import DamagedSegment
from trailmark.kernel.columns import contiguous
from trailmark.log import Codecs, Origin, Segment, decode_segment, encode_segment
from trailmark.log.meta import LoggedPort, one_port
from trailmark.log.ports import PortRows, port_frames, read_ports
from trailmark.records import MOST_PORTS, PORT, FrameKind

LEFT = LoggedPort("left", rows_of(0).schema)
RIGHT = LoggedPort("right", pa.schema([("text", pa.string())]))
TEXTS = pa.table({"text": ["a", None]}, schema=RIGHT.schema)
ORDER = np.array([0, 1, 0, 0, 1], np.uint8)


def given(rows: Sequence[pa.Table], order: np.ndarray) -> PortRows:
    return PortRows(tuple(map(contiguous, rows)), order)


def sealed(rows: Sequence[pa.Table], order: np.ndarray) -> bytes:
    frames = port_frames(given(rows, order))
    return b"".join(encode_segment(footer_of(), frames, Codecs("lz4")).parts)


def decoded(data: bytes) -> Segment:
    return decode_segment(memoryview(data), Origin("in/00003/x.seg"))


def test_every_port_and_the_order_come_back_as_they_were() -> None:
    segment = decoded(sealed([rows_of(1), TEXTS], ORDER))
    assert {kind.label: count for kind, count in segment.footer.rows.items()} == {
        "input": 3,
        "input1": 2,
        "order": 5,
    }
    read = read_ports(segment, [LEFT, RIGHT])
    assert read.tables == (contiguous(rows_of(1)), contiguous(TEXTS))
    assert read.order is not None
    assert read.order.tolist() == ORDER.tolist()


@pytest.mark.parametrize("ports", [2, 3, MOST_PORTS])
def test_any_order_of_any_number_of_ports_comes_back(ports: int) -> None:
    random = np.random.default_rng(ports)
    order = random.integers(0, ports, 1000, dtype=np.uint8)
    rows = [rows_of(port, int((order == port).sum())) for port in range(ports)]
    segment = decoded(sealed(rows, order))
    read = read_ports(segment, [LoggedPort(f"p{port}", LEFT.schema) for port in range(ports)])
    assert read.order is not None
    assert (list(read.tables), read.order.tolist()) == (list(map(contiguous, rows)), order.tolist())


def test_a_port_without_rows_has_a_frame_too() -> None:
    rows = [rows_of(1, 0), TEXTS]
    segment = decoded(sealed(rows, np.ones(2, np.uint8)))
    assert segment.footer.rows[FrameKind.INPUT] == 0
    assert read_ports(segment, [LEFT, RIGHT]).tables == tuple(map(contiguous, rows))


def test_one_port_is_written_as_it_was_before_there_were_several() -> None:
    segment = sealed([rows_of(1)], np.zeros(3, np.uint8))
    plain = encode_segment(footer_of(), [(FrameKind.INPUT, rows_of(1))], Codecs("lz4"))
    assert segment == b"".join(plain.parts)
    read = read_ports(decoded(segment), one_port(LEFT.schema))
    assert (read.tables, read.order) == ((contiguous(rows_of(1)),), None)


@pytest.mark.parametrize("order", [[0, 1, 0], [0, 1, 0, 1, 1], [0, 1, 0, 0, 2]])
def test_an_order_that_does_not_name_every_tuple_once_is_never_written(order: list[int]) -> None:
    with pytest.raises(AssertionError):
        port_frames(given([rows_of(1), TEXTS], np.array(order, np.uint8)))


def without(kind: FrameKind) -> Callable[[Opened], Opened]:
    def change(opened: Opened) -> Opened:
        fields = opened.fields
        del fields["rows"][kind.label]
        frames = tuple(each for each in opened.frames if each[0] != kind)
        return replace(opened, frames=frames).with_fields(fields)

    return change


def with_frame(kind: FrameKind, rows: pa.Table) -> Callable[[Opened], Opened]:
    def change(opened: Opened) -> Opened:
        frames = (*opened.frames, (int(kind), arrow_stream(rows)))
        return replace(opened, frames=frames).with_rows(kind, rows)

    return change


def with_order(values: list[int | None], kind: pa.DataType | None = None) -> object:
    table = pa.table({PORT: pa.array(values, kind or pa.uint8())})
    return lambda opened: opened.with_rows(FrameKind.ORDER, table)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without(FrameKind.INPUT), "the input frame is missing"),
        (without(FrameKind.of_port(1)), "the input1 frame is missing"),
        (without(FrameKind.ORDER), "the order frame is missing"),
        (
            with_frame(FrameKind.of_port(2), rows_of(1)),
            "the input2 frame is none of an operator with 2 inputs",
        ),
        (
            with_frame(FrameKind.RESULTS, rows_of(1)),
            "the results frame is none of an operator with 2 inputs",
        ),
        (
            with_order([0, 1, 0, 0]),
            "the order frame names port 1 1 times, and it has 2 rows",
        ),
        (
            with_order([0, 1, 0, 1, 1]),
            "the order frame names port 0 2 times, and it has 3 rows",
        ),
        (with_order([0, 1, 0, 0, 1, 7]), "the order frame names port 7, and the last is 1"),
        (with_order([0, 1, 0, 0, None, 1]), "the order frame has nulls"),
        (
            with_order([0, 1, 0, 0, 1], pa.int64()),
            r"the order frame has other columns than \$port",
        ),
        (
            lambda opened: opened.with_rows(FrameKind.of_port(1), rows_of(1)),
            "the input1 frame has other columns than text",
        ),
    ],
)
def test_ports_and_order_that_do_not_fit_one_another_are_damage(
    change: Callable[[Opened], Opened], said: str
) -> None:
    data = change(open_segment(sealed([rows_of(1), TEXTS], ORDER))).sealed()
    with pytest.raises(DamagedSegment, match=said):
        read_ports(decoded(data), [LEFT, RIGHT])


def test_an_order_in_the_log_of_one_input_is_damage() -> None:
    with pytest.raises(DamagedSegment, match="frame is none of an operator with 1 input"):
        read_ports(decoded(sealed([rows_of(1), TEXTS], ORDER)), one_port(LEFT.schema))
