"""The model that crashes, and how far it is off afterwards."""

from __future__ import annotations

import math
from itertools import islice

import numpy as np
import pytest

from bench.experiment import Raw
from bench.experiments.crash_quality import _VARIANTS, overall
from bench.quality.crashes import Crash, errors_after, rmse, run_after, run_through
from bench.quality.model import SENSORS, TOOLS, WAFERS, YieldModel, sensor_batches

_EXACT, _WITH, _WITHOUT = (_VARIANTS[name] for name in ("exact", "with the policy", "without"))
_BATCHES = list(islice(sensor_batches(np.random.default_rng(1), 40), 40))
_CRASHES = (Crash(after=1, down=4), Crash(after=21, down=6))


def _one_wafer_at_a_time(count: int) -> list[float]:
    """Recursive least squares as textbooks have it, for one tool after another."""
    size = SENSORS + 1
    predicted: dict[tuple[int, int], float] = {}
    for tool in range(TOOLS):
        weights, spread = (
            [0.0] * size,
            [[100.0 * (i == j) for j in range(size)] for i in range(size)],
        )
        wafers = [row for batch in _BATCHES[:count] for row in batch.to_pylist()]
        for number, row in enumerate([row for row in wafers if row["tool"] == tool]):
            x = [1.0, *[row[f"x{sensor}"] for sensor in range(SENSORS)]]
            found = sum(w * each for w, each in zip(weights, x, strict=True))
            along = [sum(p * each for p, each in zip(line, x, strict=True)) for line in spread]
            total = 0.995 + sum(a * each for a, each in zip(along, x, strict=True))
            weights = [
                w + a / total * (row["y"] - found) for w, a in zip(weights, along, strict=True)
            ]
            spread = [
                [(spread[i][j] - along[i] * along[j] / total) / 0.995 for j in range(size)]
                for i in range(size)
            ]
            predicted[number, tool] = found
    return [predicted[place] for place in sorted(predicted)]


def test_the_model_predicts_what_least_squares_do_one_wafer_at_a_time() -> None:
    model, found = YieldModel(), []
    for rows in _BATCHES[:6]:
        found += model.process(rows).column("predicted").to_pylist()
    assert found == pytest.approx(_one_wafer_at_a_time(6), rel=1e-6, abs=1e-6)
    late = [row["y"] for row in _BATCHES[5].to_pylist()]
    assert np.std(np.array(found[-len(late) :]) - late) < 8, "it has learnt something"


def test_a_model_that_is_restored_goes_on_where_it_was() -> None:
    model, other = YieldModel(), YieldModel()
    for rows in _BATCHES[:5]:
        model.process(rows)
    other.restore_checkpoint(model.get_checkpoint())
    assert model.process(_BATCHES[5]).equals(other.process(_BATCHES[5]))


@pytest.mark.parametrize("crash", _CRASHES, ids=str)
def test_what_is_delivered_later_and_replayed_leaves_no_error(crash: Crash) -> None:
    golden, left = run_through(_EXACT, _BATCHES, [crash])
    run = run_after(_EXACT, _BATCHES, crash, left[crash])
    assert (run.first, run.lost_tuples) == (crash.after, 0)
    assert not errors_after(run, golden).any()


def test_a_checkpoint_leaves_smaller_errors_than_none() -> None:
    crash = _CRASHES[1]
    found = {}
    for variant in (_WITH, _WITHOUT):
        golden, left = run_through(variant, _BATCHES, [crash])
        run = run_after(variant, _BATCHES, crash, left[crash])
        assert run.first == crash.after + crash.down
        assert run.predicted.shape == (len(_BATCHES) - run.first, TOOLS * WAFERS)
        found[variant] = (rmse(errors_after(run, golden)), run.lost_tuples)
    assert 0 < found[_WITH][0] < found[_WITHOUT][0] / 3
    assert found[_WITH][1] == 0, "batch 20 was written"
    assert found[_WITHOUT][1] == crash.after * TOOLS * WAFERS


def test_an_empty_model_predicts_what_it_would_have_at_the_beginning() -> None:
    crash = _CRASHES[1]
    _, left = run_through(_WITHOUT, _BATCHES, [crash])
    run = run_after(_WITHOUT, _BATCHES, crash, left[crash])
    model = YieldModel()
    for place, rows in enumerate(_BATCHES[run.first :]):
        expected = model.process(rows).column("predicted").to_numpy()
        assert run.predicted[place].tolist() == expected.tolist()


def test_the_error_over_all_runs_weighs_predictions_alike() -> None:
    errors = {"a": np.array([3.0, -4.0]), "b": np.array([0.0, 0.0, 6.0])}
    runs = [
        {"variant": "x", "rmse": rmse(each), "predictions": each.size} for each in errors.values()
    ]
    raw = Raw("", "", "", 0.0, {}, {}, {}, 0, runs, {})
    assert overall(raw, "x") == pytest.approx(math.sqrt((9 + 16 + 36) / 5))
