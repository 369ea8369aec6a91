"""Operator state: a table of open windows in memory that the processes of a host share.

It is soft state. The log is the truth; the table only saves recovering it for every batch. `keys`
turns key columns into bytes, `table` finds windows and orders them by footprint, `batch` holds the
windows one batch meets, `memory` maps the files, `cache` says whether a table found there is whole
and which batch it belongs to.
"""
