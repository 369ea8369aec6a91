"""What a bucket says of a batch's input, port by port: its digest and its event times.

An operator with one input says it in the fields that every footer has. With several inputs, the
event times of each are among the attributes, for the watermark is that of the slowest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from trailmark.kernel.fingerprints import fingerprint
from trailmark.log import Footer, Origin, PortRows, TimeRange
from trailmark.log.footer import LARGEST_DIGEST
from trailmark.operators.protocol import Port
from trailmark.records import Fingerprint
from trailmark.values import dataclass
from trailmark.windows.spec import event_times

#: Attributes of footers where there are several ports.
PORT_TIMES, PORT_WATERMARKS = "port_times", "port_watermarks"
#: The event times of tentative tuples, by port, where there are some.
TENTATIVE_TIMES = "tentative_times"
#: Odd, so that no bit of a digest is lost: rows that change ports change the digest.
_MIX = 0x9E3779B97F4A7C15F39CC0605CEDC835


def fingerprint_of(rows: PortRows, tentative: PortRows | None = None) -> Fingerprint:
    """The digest of a batch, whatever the order of its rows within each port. Its number of rows is
    that of the stable ones."""
    held = rows.tables if tentative is None else (*rows.tables, *tentative.tables)
    first, *others = (fingerprint(table) for table in held)
    digest, mix = first.digest, 1
    for other in others:
        mix = mix * _MIX & LARGEST_DIGEST
        digest = (digest + other.digest * mix) & LARGEST_DIGEST
    return Fingerprint(rows.num_rows, digest)


@dataclass(frozen=True, slots=True)
class PortTimes:
    """The event times of a batch, port by port; None where a port has none."""

    ranges: tuple[TimeRange | None, ...]

    @classmethod
    def of(cls, rows: PortRows, ports: Sequence[Port]) -> PortTimes:
        """Those of these rows."""
        return cls(tuple(map(_range, rows.tables, ports)))

    @classmethod
    def logged(cls, footer: Footer, ports: int, origin: Origin) -> PortTimes:
        """Those that a footer tells of."""
        if ports == 1:
            return cls((footer.time_range,))
        stored = footer.attributes.get(PORT_TIMES)
        try:
            if not isinstance(stored, list) or len(stored) != ports:
                raise ValueError(f"no times of {ports} inputs")
            return cls(tuple(_from_json(each) for each in stored))
        except (TypeError, ValueError) as error:
            raise origin.mismatch(0, f"{PORT_TIMES!r} cannot be read ({error})") from error

    @property
    def whole(self) -> TimeRange | None:
        """The earliest and the latest of all."""
        known = [each for each in self.ranges if each is not None]
        if not known:
            return None
        return TimeRange(min(each.min_us for each in known), max(each.max_us for each in known))

    def to_attributes(self) -> dict[str, Any]:
        """What a footer does not have a field for."""
        if len(self.ranges) == 1:
            return {}
        return {PORT_TIMES: [each and [each.min_us, each.max_us] for each in self.ranges]}


def port_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """What the footer of an input segment says of several ports, and of tentative tuples, for that
    of the output."""
    names = (PORT_TIMES, PORT_WATERMARKS, TENTATIVE_TIMES)
    return {name: attributes[name] for name in names if name in attributes}


def _range(rows: pa.RecordBatch, port: Port) -> TimeRange | None:
    if port.event_time is None:
        return None
    column = rows.column(port.event_time)
    times = event_times(column.drop_null() if column.null_count else column)
    return TimeRange(int(times.min()), int(times.max())) if len(times) else None


def _from_json(stored: object) -> TimeRange | None:
    if stored is None:
        return None
    if not isinstance(stored, list) or len(stored) != 2:
        raise ValueError("no two ends of a range")
    return TimeRange.from_json(*stored)
