"""Persistent stream logs: one directory per stream and bucket, one immutable segment per batch.

What it promises:

- a segment is in the log whole or not at all, and exactly one segment per batch, whoever and
  however many try to write it;
- what `append` has returned survives as long as the chosen ``Durability`` says;
- every byte is covered by a checksum, and every segment names the one before it: damage and gaps
  are refused, never read over;
- what a newer Trailmark has written is told from damage, and left where it is;
- anything derived (the time index) is rebuilt from the log and never trusted over it.

What it leaves to others: what is in the tables, which batch comes next, what may be trimmed.

::

    meta.json                             which operator, ports, schemas, buckets meta
    in/<bucket>/<batch>.seg               a segment of the input log              segment
      48 bytes  header                    which log, which batch                  segment
      frames    16 bytes + Arrow stream   rows, by kind                           frame, ports
      footer    16 bytes + JSON           counts, link to the previous segment    footer
      24 bytes  trailer                   where the footer is, whole checksum     frame
    in/<bucket>/<first>-<last>.pack       whole segments, merged, with an index   pack
    in/<bucket>/<batch>.trim              empty: the log begins with this batch   trim
    in/<bucket>/index.json                which batch holds a time                index
    in/<bucket>/spare-<n>                 trimmed, to be written over             storage.spares
    out/...                               the same for the output log
    aside/...                             what repair has set aside

``docs/log-format.md`` has every byte. Upkeep (`index`, `merge`, `repair`, `verify`) and object
stores are imported from their own modules: a recovery in a new process needs none of them.
"""

from trailmark.log.appending import Appending, Published
from trailmark.log.clock import Clock, MonotonicClock, monotonic_us, wall_clock_us
from trailmark.log.damage import Origin
from trailmark.log.footer import Footer, LogIdentity, TimeRange
from trailmark.log.meta import OperatorMeta, check_same_operator, create_or_open, read_meta
from trailmark.log.ports import Order, PortRows, port_frames, read_ports, read_tentative
from trailmark.log.segment import (
    Codecs,
    EncodedSegment,
    Segment,
    decode_footer,
    decode_segment,
    encode_segment,
)
from trailmark.log.storage import (
    Entry,
    LocalStorage,
    Part,
    Storage,
    open_storage,
)
from trailmark.log.stream_log import StreamLog
from trailmark.log.traverse import Unreadable
from trailmark.log.trim import RepeatedTrim, TrimReport

__all__ = [
    "Appending",
    "Clock",
    "Codecs",
    "EncodedSegment",
    "Entry",
    "Footer",
    "LocalStorage",
    "LogIdentity",
    "MonotonicClock",
    "OperatorMeta",
    "Order",
    "Origin",
    "Part",
    "PortRows",
    "Published",
    "RepeatedTrim",
    "Segment",
    "Storage",
    "StreamLog",
    "TimeRange",
    "TrimReport",
    "Unreadable",
    "check_same_operator",
    "create_or_open",
    "decode_footer",
    "decode_segment",
    "encode_segment",
    "monotonic_us",
    "open_storage",
    "port_frames",
    "read_meta",
    "read_ports",
    "read_tentative",
    "wall_clock_us",
]
