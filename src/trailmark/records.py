"""The vocabulary of the logs: kinds, positions, and the values that describe a batch. No I/O.

A *position* in a log is a batch number: footprints describe the state at the end of a batch, and
replay starts at a batch boundary.
"""

from __future__ import annotations

import enum

from trailmark.values import dataclass

#: "No batch": the position before the first batch, or the footprint of a window that has none.
NO_BATCH = -1

#: Columns that the logs add to those of an operator.
START, KIND, OPENED, FILL, FOOTPRINT = "$start", "$kind", "$opened", "$fill", "$footprint"
PORT = "$port"

#: The column that says which rows are tentative, wherever users see it.
MARK = "tentative"

#: Attributes of footers: the time of a batch by the clock, of its input, and the time at which an
#: operator wants another batch, of its output.
CLOCK, ALARM = "clock_us", "alarm_us"

#: How many inputs an operator can have.
MOST_PORTS = 32

#: What the input of an operator that has only one is called.
INPUT_PORT = "input"


class Stream(enum.IntEnum):
    """Which log a segment belongs to: one of an operator's, or one of a written stream's."""

    INPUT = 1
    OUTPUT = 2
    SNAPSHOT = 3
    #: The rows of a written stream.
    DATA = 4
    #: What its batches consist of.
    BATCHES = 5


#: The logs that every bucket of an operator has.
OPERATOR_STREAMS = (Stream.INPUT, Stream.OUTPUT, Stream.SNAPSHOT)


class FrameKind(enum.IntEnum):
    """What a frame's payload holds."""

    INPUT = 1
    RESULTS = 2
    FOOTPRINTS = 3
    CLOSED = 4
    LATE = 5
    #: Of several ports: in which order their rows count.
    ORDER = 6
    #: Results that stand until those of complete input are there.
    TENTATIVE = 7
    #: In which order the tentative rows of several ports count.
    TENTATIVE_ORDER = 8
    FOOTER = 255

    # The tuples of ports 1 to 31 are INPUT1 to INPUT31; those of port 0 are INPUT. The tentative
    # tuples of ports are TENTATIVE_INPUT0 to TENTATIVE_INPUT31.
    _ignore_ = "members port"
    members = vars()
    for port in range(MOST_PORTS):
        if port:
            members[f"INPUT{port}"] = 32 + port
        members[f"TENTATIVE_INPUT{port}"] = 64 + port

    @classmethod
    def of_port(cls, port: int) -> FrameKind:
        """The kind of the frame with the tuples of a port."""
        assert 0 <= port < MOST_PORTS
        return cls.INPUT if port == 0 else cls(32 + port)

    @classmethod
    def tentative_of_port(cls, port: int) -> FrameKind:
        """The kind of the frame with the tentative tuples of a port."""
        assert 0 <= port < MOST_PORTS
        return cls(64 + port)

    @property
    def label(self) -> str:
        """Its name in footers and messages."""
        return self.name.lower()


class FootprintKind(enum.IntEnum):
    """Why a footprint was written: the window had none yet, or a policy asked for a newer one."""

    OPEN = 0
    CHECK = 1


class Foundation(str, enum.Enum):
    """What a recovery builds the state on, at the end of the batch it begins with."""

    #: The footprints of the open windows, in the output log.
    FOOTPRINTS = "footprints"
    #: A snapshot of all of them, in a file of its own.
    SNAPSHOT = "snapshot"
    #: Nothing: no window that is open now was open then.
    NOTHING = "nothing"


class Loss(str, enum.Enum):
    """What the author of a query lets a recovery lose."""

    #: Nothing: the state is rebuilt as it was, from footprints and from the input since.
    NONE = "none"
    #: What came after the newest footprint of each window: no input is kept, and none replayed.
    BOUNDED = "bounded"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """An order-independent digest of a batch's rows: equal multisets of rows have equal ones."""

    rows: int
    digest: int


#: The checksum in a link to a segment that could not be read when its successor was written.
UNKNOWN_CHECKSUM = 0


@dataclass(frozen=True, slots=True)
class SegmentLink:
    """Names a published segment by batch and checksum; ``batch`` is NO_BATCH before the first."""

    batch: int
    checksum: int

    def names(self, other: SegmentLink) -> bool:
        """Whether this link is to that segment."""
        return self.batch == other.batch and self.checksum in (other.checksum, UNKNOWN_CHECKSUM)


START_OF_LOG = SegmentLink(NO_BATCH, 0)
