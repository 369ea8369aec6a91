"""The one exception tree.

Every failure a user can meet has its own class and says what happened, where, and what to do next::

    TrailmarkError
    ├── SettingError              a wrong argument, option or combination
    ├── SchemaError
    │   ├── UnsupportedType       a column type this operator cannot take
    │   ├── SchemaChanged         the log was written with other columns, windows or functions
    │   └── ValueOverflow         a sum or average does not fit the result type
    ├── OperatorError             the code of a user-defined operator failed, or broke its promise
    ├── RecoveryDiffers           in a test, a crash changed what an operator does
    ├── LeaseLost                 another process goes on in place of this one
    ├── StorageError              the storage refused or failed
    │   ├── CacheLost             the host's cache of operator state was deleted while in use
    │   ├── DiskFull
    │   │   └── CacheFull         the host's cache of operator state has no room
    │   ├── NoPermission
    │   └── Unreachable           the storage does not answer now; it may later
    └── LogError
        ├── UnknownFormat         written by a newer Trailmark, or not a log at all
        ├── OtherQuery            the log belongs to another query or operator
        ├── DamagedSegment        bytes are cut short or do not match their checksum
        ├── MissingSegment        a batch that must be there is not
        │   ├── MissingInput      the input that a recovery has to read is gone
        │   └── DataLoss          what a reader asks for has been removed before it read it
        ├── BatchOrderError
        │   ├── BatchGoesBackward the batch is older than what the log still holds
        │   └── BatchSkipped      the batch does not follow the newest one of the log
        └── InputDiffers          the same batch arrives again with other rows
"""

from __future__ import annotations


class TrailmarkError(Exception):
    """Base of all errors raised on purpose.

    Parameters
    ----------
    what
        What happened, one sentence.
    where
        The file, batch, column or argument it happened at.
    fix
        What the reader can do next.
    """

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        self.what = what
        self.where = where
        self.fix = fix
        lines = [what]
        if where:
            lines.append(f"  where: {where}")
        if fix:
            lines.append(f"  next:  {fix}")
        super().__init__("\n".join(lines))

    @property
    def line(self) -> str:
        """All of it on one line, for logs and tables."""
        where = f" ({self.where})" if self.where else ""
        text = f"{type(self).__name__}: {self.what}{where} {self.fix}"
        return " ".join(text.split())

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process boundaries (Spark workers); the default would lose the keywords.
        return (_rebuild, (type(self), self.what, self.where, self.fix))


def _rebuild(cls: type[TrailmarkError], what: str, where: str, fix: str) -> TrailmarkError:
    return cls(what, where=where, fix=fix)


class SettingError(TrailmarkError, ValueError):
    """A wrong argument, option or combination of them."""


class SchemaError(TrailmarkError):
    """The data does not fit what was declared."""


class UnsupportedType(SchemaError, TypeError):
    """A column type this operator cannot take."""


class SchemaChanged(SchemaError):
    """The log was written with other columns, windows or functions."""


class ValueOverflow(SchemaError, ArithmeticError):
    """A sum or average does not fit the result type."""


class OperatorError(TrailmarkError):
    """The code of a user-defined operator failed, or broke its promise."""


class RecoveryDiffers(TrailmarkError, AssertionError):
    """In a test, an operator did not do the same after a crash as without one."""


class LeaseLost(TrailmarkError):
    """Another process has the lease and goes on; this one publishes nothing more."""


class StorageError(TrailmarkError):
    """The storage refused or failed an operation."""


class DiskFull(StorageError):
    """There is no room left to write a segment."""


class CacheLost(StorageError):
    """The host's cache of operator state was deleted while in use; the logs are not touched."""


class CacheFull(DiskFull):
    """The host's cache of operator state has no room; the logs are not touched."""


class NoPermission(StorageError):
    """The storage does not allow this operation."""


class Unreachable(StorageError):
    """The storage does not answer now, or not in time; it may later."""


class LogError(TrailmarkError):
    """A log is not what it has to be."""


class UnknownFormat(LogError):
    """Written by a newer Trailmark, or not a log at all."""


class OtherQuery(LogError):
    """The log belongs to another query or operator."""


class DamagedSegment(LogError):
    """Bytes are cut short or do not match their checksum."""


class MissingSegment(LogError):
    """A batch that must be in the log is not there."""


class MissingInput(MissingSegment):
    """The input that a recovery has to read is gone."""


class DataLoss(MissingSegment):
    """What a reader asks for has been removed before it read it."""


class BatchOrderError(LogError):
    """Batches have to follow one another."""


class BatchGoesBackward(BatchOrderError):
    """The batch is older than what the log still holds."""


class BatchSkipped(BatchOrderError):
    """The batch does not follow the newest one of the log."""


class InputDiffers(LogError):
    """The same batch arrives again with other rows."""
