"""What a union is: its streams, its columns, and how their order is made."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from trailmark.log import OperatorMeta, Origin
from trailmark.log.json_text import object_of, text_of, whole
from trailmark.log.meta import META_PATH, LoggedPort
from trailmark.streams.times import LATEST
from trailmark.values import dataclass

#: What ``meta.json`` says instead of the name of an operator.
UNION = "union"
#: The column of the result that names the stream of a row.
SOURCE = "source"


def is_union(meta: OperatorMeta) -> bool:
    """Whether these are the files of a union, not of an operator."""
    return meta.operator.get("operator") == UNION


@dataclass(frozen=True, slots=True)
class UnionDescription:
    """What is stored in ``meta.json`` when a union first runs.

    Parameters
    ----------
    paths
        Where the streams are, by name, in the order that counts among rows with equal times. They
        may be moved: what has to stay is the names.
    schemas
        The columns that are read of each.
    schema
        The columns of the result.
    time
        The column with the event time.
    interval_us
        How long a slice is.
    delay_us
        How much older than the newest row a later one may be, of streams whose writers promise
        nothing.
    """

    paths: Mapping[str, str]
    schemas: Mapping[str, pa.Schema]
    schema: pa.Schema
    time: str
    interval_us: int
    delay_us: int

    def to_meta(self) -> OperatorMeta:
        """The description as it is stored."""
        return OperatorMeta(
            operator={
                "operator": UNION,
                "about": {"paths": dict(self.paths)},
                "delay_us": self.delay_us,
                "interval_us": self.interval_us,
                "time": self.time,
            },
            ports=tuple(LoggedPort(name, schema) for name, schema in self.schemas.items()),
            result_schema=self.schema,
            buckets=1,
        )

    @classmethod
    def of(cls, meta: OperatorMeta) -> UnionDescription:
        """The description of a union that is there."""
        stored = meta.operator
        try:
            paths = object_of(object_of(stored["about"])["paths"])
            return cls(
                {port.name: text_of(paths[port.name]) for port in meta.ports},
                {port.name: port.schema for port in meta.ports},
                meta.result_schema,
                text_of(stored["time"]),
                whole(stored["interval_us"], 1, LATEST),
                whole(stored["delay_us"], 0, LATEST),
            )
        except (KeyError, ValueError) as error:
            what = f"the description of a union cannot be understood ({error!r})"
            raise Origin(META_PATH).mismatch(0, what) from error
