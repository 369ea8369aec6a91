"""An online model as users write one, and the sensors that it learns from.

After the application of Jacques-Silva and others: tools of a factory report what their sensors
measure for a wafer, and later its yield. The model predicts the yield from the sensors, and learns
from the error it made.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.operators.whole import Whole

TOOLS, SENSORS = 32, 6
#: Wafers of each tool in a batch.
WAFERS = 5
#: What is forgotten of the past with every wafer.
_MEMORY = 0.995
#: How little a tool is sure of before its first wafer.
_UNSURE = 100.0

_X = [f"x{number}" for number in range(SENSORS)]
SCHEMA = pa.schema(
    [("tool", pa.int32()), *[(name, pa.float64()) for name in _X], ("y", pa.float64())]
)
OUTPUT = pa.schema([("tool", pa.int32()), ("predicted", pa.float64())])

Floats = npt.NDArray[np.float64]


class YieldModel:
    """Recursive least squares with forgetting, for all tools at once.

    Rows come wafer by wafer: the first wafer of every tool, then the second of every tool.
    """

    def __init__(self) -> None:
        self.weights = np.zeros((TOOLS, SENSORS + 1))
        self.spread = np.tile(_UNSURE * np.eye(SENSORS + 1), (TOOLS, 1, 1))

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        sensors = np.column_stack([batch.column(name).to_numpy() for name in _X])
        x = np.concatenate([np.ones((len(sensors), 1)), sensors], axis=1)
        y = batch.column("y").to_numpy()
        wafers = range(0, len(y), TOOLS)
        predicted = [self._learn(x[at : at + TOOLS], y[at : at + TOOLS]) for at in wafers]
        return pa.RecordBatch.from_arrays(
            [batch.column("tool"), pa.array(np.concatenate(predicted))], schema=OUTPUT
        )

    def _learn(self, x: Floats, y: Floats) -> Floats:
        """Predicts the yield of a wafer of every tool, and learns from what it was."""
        predicted: Floats = np.einsum("ts,ts->t", self.weights, x)
        along = np.einsum("tij,tj->ti", self.spread, x)
        gain = along / (_MEMORY + np.einsum("ti,ti->t", x, along))[:, None]
        self.weights += gain * (y - predicted)[:, None]
        self.spread -= gain[:, :, None] * along[:, None, :]
        self.spread /= _MEMORY
        return predicted

    def get_checkpoint(self) -> pa.Table:
        return pa.table(
            {
                "weights": pa.array(list(self.weights)),
                "spread": pa.array(list(self.spread.reshape(TOOLS, -1))),
            }
        )

    def restore_checkpoint(self, state: pa.Table) -> None:
        size = SENSORS + 1
        self.weights = np.array(state["weights"].to_pylist())
        self.spread = np.array(state["spread"].to_pylist()).reshape(TOOLS, size, size)


def yield_operator() -> Whole:
    return Whole(SCHEMA, YieldModel, output=OUTPUT, by=["tool"])


def sensor_batches(rng: np.random.Generator, count: int) -> Iterator[pa.RecordBatch]:
    """Yields around 80 of 100 that depend on the sensors, in a way that drifts as tools wear."""
    true = rng.normal(0.0, 4.0, (TOOLS, SENSORS))
    level = rng.normal(80.0, 5.0, TOOLS)
    tools = pa.array(np.tile(np.arange(TOOLS, dtype=np.int32), WAFERS))
    for _ in range(count):
        true += rng.normal(0.0, 0.02, true.shape)
        x = rng.normal(0.0, 1.0, (WAFERS, TOOLS, SENSORS))
        noise = rng.normal(0.0, 3.0, (WAFERS, TOOLS))
        y = level + np.einsum("wts,ts->wt", x, true) + noise
        columns = [pa.array(x[:, :, number].ravel()) for number in range(SENSORS)]
        yield pa.RecordBatch.from_arrays([tools, *columns, pa.array(y.ravel())], schema=SCHEMA)
