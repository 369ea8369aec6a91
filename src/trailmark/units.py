"""Numbers and texts as people read them. JSON has the exact ones."""

from __future__ import annotations

from datetime import datetime, timezone

from trailmark.records import NO_BATCH

_SIZES = ("kB", "MB", "GB", "TB", "PB")


def size(count: int) -> str:
    """Bytes.

    >>> size(812), size(1_240_000), size(99_960)
    ('812 B', '1.2 MB', '100 kB')
    """
    if count < 1000:
        return f"{count} B"
    scaled = float(count)
    for unit in _SIZES:
        scaled /= 1000
        if scaled < 999.5 or unit == _SIZES[-1]:
            break
    return f"{scaled:.1f} {unit}" if scaled < 99.95 else f"{scaled:,.0f} {unit}"


def duration(us: float) -> str:
    """A time span.

    >>> duration(340_000), duration(1_240_000), duration(200_000_000)
    ('340 ms', '1.2 s', '3 min 20 s')
    """
    if us < 999.5:
        return f"{us:.0f} us"
    if us < 9_950:
        return f"{us / 1000:.1f} ms".replace(".0 ", " ")
    if us < 999_500:
        return f"{us / 1000:.0f} ms"
    seconds = us / 1_000_000
    if seconds < 59.95:
        return f"{seconds:.1f} s".replace(".0 ", " ")
    if round(seconds) < 3_600:
        return "{} min {} s".format(*divmod(round(seconds), 60))
    if round(seconds / 60) < 24 * 60:
        return "{} h {} min".format(*divmod(round(seconds / 60), 60))
    return "{} d {} h".format(*divmod(round(seconds / 3_600), 24))


def moment(us: int) -> str:
    """A time, in UTC.

    >>> moment(0)
    '1970-01-01 00:00:00Z'
    """
    try:
        return f"{datetime.fromtimestamp(us // 1_000_000, timezone.utc):%Y-%m-%d %H:%M:%S}Z"
    except (OverflowError, ValueError, OSError):
        return f"{us} us"


def batch(number: int | None) -> str:
    """A batch, or a dash for none."""
    return "-" if number is None or number == NO_BATCH else str(number)


def some(count: int, what: str) -> str:
    """So many of something.

    >>> some(1, "file"), some(1200, "batch")
    ('1 file', '1,200 batches')
    """
    plural = "es" if what.endswith(("ch", "s")) else "s"
    return f"{count:,} {what}" + ("" if count == 1 else plural)


def printable(text: str) -> str:
    """The text with all that could play tricks on a terminal written out; lines stay lines."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(
        each if each == "\n" or each.isprintable() else each.encode("unicode_escape").decode()
        for each in text
    )
