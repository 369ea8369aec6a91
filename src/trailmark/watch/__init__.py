"""Looks at operators, streams, unions and leases again and again, for a page or for metrics.

What it promises: files are only read, by one thread, one look after another: no look begins before
the last one has ended and as much time again has passed. An hour of figures is kept in memory.

What it leaves to others: pictures of single paths (:mod:`trailmark.inspection`,
:mod:`trailmark.streams`), and what is made of them (:mod:`trailmark.dashboard`,
:mod:`trailmark.metrics`).
"""

from trailmark.watch.graph import Edge
from trailmark.watch.history import History, Point
from trailmark.watch.pictures import LogPicture, Looker, Picture, kind_of_picture
from trailmark.watch.places import Places
from trailmark.watch.sampler import Sampler, Seen, Snapshot
from trailmark.watch.words import warnings_of

__all__ = [
    "Edge",
    "History",
    "LogPicture",
    "Looker",
    "Picture",
    "Places",
    "Point",
    "Sampler",
    "Seen",
    "Snapshot",
    "kind_of_picture",
    "warnings_of",
]
