"""What an order adds to the delay of a tuple without any failure, after table 3 of the paper."""

from __future__ import annotations

import random
from statistics import mean, pstdev

from bench.experiment import Effort, Note, Raw, Repetition, Section, table
from bench.stalls.life import STREAMS, Life, Rhythm
from bench.stalls.part import FAST, RATE

_WHAT = "boundaries"
#: The interval of the boundaries, and the slices of the union, in milliseconds.
_INTERVALS_MS = (50, 100, 150, 200, 250, 300)
#: How many runs, and how long each is, in seconds.
_RUNS = ((3, 5), (9, 20))
_LOOK_MS = 10
_SEED = 3
#: As printed in the paper: average delay, and standard deviation of the averages.
_PAPER = {
    50: (69, 0.5),
    100: (120, 4),
    150: (174, 10),
    200: (234, 28),
    250: (298, 55),
    300: (327, 70),
}


def measure(effort: Effort, note: Note) -> list[Repetition]:
    runs, seconds = effort.pick(*_RUNS)
    found = []
    for rate in (RATE, RATE * FAST):
        for interval_ms in _INTERVALS_MS:
            note(f"boundaries every {interval_ms} ms at {rate:,} tuples a second, {runs} runs")
            rng = random.Random(_SEED + interval_ms)
            for turn in range(runs):
                phases_us = tuple(rng.randrange(interval_ms * 1000) for _ in range(STREAMS))
                interval_us = interval_ms * 1000
                rhythm = Rhythm(interval_us, phases_us, interval_us, _LOOK_MS * 1000)
                found.append(
                    {
                        "what": _WHAT,
                        "rate": rate,
                        "interval_ms": interval_ms,
                        "turn": turn,
                        "seconds": seconds,
                        "delay_ms": round(1000 * Life(rate, None, rhythm).calm(seconds), 2),
                    }
                )
    return found


def show(raw: Raw) -> Section | None:
    measured = raw.of(what=_WHAT)
    if not measured:
        return None
    rows = []
    for interval_ms in _INTERVALS_MS:
        average, deviation = _PAPER[interval_ms]
        ours = [
            raw.values("delay_ms", what=_WHAT, rate=rate, interval_ms=interval_ms)
            for rate in (RATE, RATE * FAST)
        ]
        cells = [f"{mean(each):.0f} ({pstdev(each):.1f})" for each in ours]
        rows.append([f"{interval_ms} ms", *cells, f"{average} ({deviation})"])
    header = ["boundaries every", f"{RATE:,}/s", f"{RATE * FAST:,}/s", "paper"]
    text = f"""\
### What the order costs

After table 3: no failure, and streams that say up to when they are complete every 50 to 300 ms,
which is the union's `interval`, too. The time from when a tuple was there until it was processed,
in milliseconds: the average of {len(measured) // (2 * len(_INTERVALS_MS))} runs of
{measured[0]["seconds"]} s, and in brackets the standard deviation of their averages. In each run
the three streams begin at other moments within the interval; the union looks every {_LOOK_MS} ms.

{table(header, rows)}

As there the delay grows with the interval: a tuple waits for the end of its slice, and for the last
stream that says so.
"""
    return Section(text)
