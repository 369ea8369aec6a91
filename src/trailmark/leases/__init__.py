"""Leases: which of several processes is the active one.

A lease is a directory of small files, in the same kind of storage as the logs::

    terms/<number>.json       who has it, for how long; the newest number counts
    waiting/<process>.json    who would take it
    work/operators.json       what whoever has it works on

Whoever has the lease publishes the next number a few times in every term, *if absent*. Who waits
takes the next number when the newest has not changed for a whole term, as its own clock measures
it. So no clock is ever compared with another one. A term that is given back is taken at once.

What it promises: as long as clocks run at the same speed and do not stand still, no two hold a
lease at the same time. What it leaves to others: a process may sleep between any two
instructions, and wake when it is long replaced. What such a process writes is judged by the logs,
where every segment is published if absent; `Fenced` sees to it that it notices early.

The number of files is bounded. A number that was removed may be taken by somebody who slept since
before that: so whoever has published a number looks whether it is the newest, and only then has
the lease.
"""

from trailmark.leases.fence import Fenced, Pass, pass_of_process
from trailmark.leases.keeper import Keeper, Keeping
from trailmark.leases.lease import Lease, boot_us
from trailmark.leases.place import LEASE_PATH, check_term, is_lease, open_lease
from trailmark.leases.terms import Holder, Term, newest_term
from trailmark.leases.waiting import Waiting
from trailmark.leases.work import Work, read_work, say_work

__all__ = [
    "LEASE_PATH",
    "Fenced",
    "Holder",
    "Keeper",
    "Keeping",
    "Lease",
    "Pass",
    "Term",
    "Waiting",
    "Work",
    "boot_us",
    "check_term",
    "is_lease",
    "newest_term",
    "open_lease",
    "pass_of_process",
    "read_work",
    "say_work",
]
