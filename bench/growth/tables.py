"""The words and tables of the experiment."""

from __future__ import annotations

from bench.experiment import Raw, table
from bench.growth.curves import Curve, batch_line, cost_ns, loading_ms, recovery_ms
from bench.growth.points import UNITS

_HOW = """\
The engine without Spark, one process on one core, synced logs. Windows of ten orders; every id has
an open window before anything is counted. What does not grow is 100,000 ids, an average (24 bytes
of state of its own), batches of 100,000 tuples, one bucket; for state per window 10,000 ids; for
buckets batches of 1,000,000 tuples.

- **Cost per tuple** is under `{policy}`: the time of all batches of a turn, footprints and syncs
  included, over their tuples. Where loading all windows alone takes longer than that, the policy
  says so and goes by twice the time of loading them.
- **Recovery time** is not taken under an objective, which would hold it below two seconds whatever
  grows. It is taken at a fixed distance instead: all windows were written at the end of one batch
  (by `FullSnapshot`, as a round of `Continuous.within` does), one more batch came, then the process
  died. So a recovery loads every window and processes one batch anew. The logs are still in the
  memory of the operating system.
- **State per window** is a user-defined function: a histogram of prices whose bins, eight bytes
  each, are one field of `fixed_size_binary`. Every batch merges it as a whole.
- **Buckets** all work in the one process, one after another, each with logs of its own. On Spark
  they would be spread over the cores: what is shown is the price of having more of them.

The exponent e is that of size ** e, fitted to all medians by least squares of logarithms; beside it
the one between the two largest sizes only, where what is fixed counts least. A cost per tuple with
e = 0 does not grow."""


def describe(raw: Raw) -> str:
    parts = [_HOW.format(policy=raw.settings["policy"]), _exponents(raw), _fixed(raw)]
    parts += [_sizes(raw, axis) for axis in UNITS]
    return "\n\n".join(parts)


def _exponents(raw: Raw) -> str:
    rows = []
    for axis, unit in UNITS.items():
        curves = {
            "cost per tuple": cost_ns(raw, axis),
            "recovery time": recovery_ms(raw, axis),
            "of it, opening and loading": loading_ms(raw, axis),
        }
        rows += [[f"{unit}: {name}", *_growth(curve)] for name, curve in curves.items()]
    header = ["", "from", "to", "times as much", "exponent", "between the last two"]
    return table(header, rows)


def _growth(curve: Curve) -> list[str]:
    first, last = curve.middles[0], curve.middles[-1]
    return [
        f"{curve.sizes[0]:,}",
        f"{curve.sizes[-1]:,}",
        f"{last / first:,.2f}",
        f"{curve.power().exponent:+.2f}",
        f"{curve.last_exponent():+.2f}",
    ]


def _fixed(raw: Raw) -> str:
    line = batch_line(raw)
    fixed, slope = 1e3 * line.fixed, 1e9 * line.slope
    return (
        f"A batch of n tuples takes about {fixed:.2f} ms + n x {slope:.0f} ns, fitted by least "
        "squares of relative errors."
    )


def _sizes(raw: Raw, axis: str) -> str:
    cost, recovery, loading = cost_ns(raw, axis), recovery_ms(raw, axis), loading_ms(raw, axis)
    rows = [
        [f"{size:,}", a.show(",.0f"), b.show(",.1f"), c.show(",.1f")]
        for size, a, b, c in zip(
            cost.sizes, cost.values, recovery.values, loading.values, strict=True
        )
    ]
    header = [UNITS[axis], "ns per tuple", "recovery, ms", "of it, opening and loading, ms"]
    return table(header, rows)
