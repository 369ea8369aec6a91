"""What `tm.explain` prints, from the values it is made of."""

from __future__ import annotations

from trailmark.records import NO_BATCH
from trailmark.spark.explained import ExplainedOperator, Explanation, LogsNow, Step

_FILES = Step("parquet: /in")
_LOGS = LogsNow(41, 20_318, 340_000)
_OPERATOR = ExplainedOperator(
    2,
    "continuous (objective 2 s)",
    "recovers within 2 seconds",
    objective_us=2_000_000,
    path="/logs",
    logs=_LOGS,
)


def _operator(**given: object) -> ExplainedOperator:
    values = {name: getattr(_OPERATOR, name) for name in _OPERATOR.__slots__}
    return ExplainedOperator(**{**values, **given})


def _text(*steps: Step) -> list[str]:
    return str(Explanation(steps)).splitlines()[1:]


def test_an_operator_is_told_with_what_it_reads() -> None:
    explained = Explanation((Step("aggregate by item", (_FILES,), _OPERATOR),))
    assert str(explained).splitlines() == [
        "== Trailmark Operators ==",
        "aggregate by item",
        ":    policy    continuous (objective 2 s): recovers within 2 seconds",
        ":    path      /logs, 2 buckets",
        ":    logs      batch 41, 20,318 pieces of state open",
        ":    recovery  would take about 340 ms (objective 2 s)",
        "+- parquet: /in",
    ]
    assert explained.operators == (_OPERATOR,)


def test_branches_are_drawn_as_spark_draws_them() -> None:
    once = ExplainedOperator(1, "none", "")
    chain = Step("second", (Step("first", (_FILES,), once),), once)
    both = Step("Spark: Union", (chain, Step("third", (_FILES, Step("rate")), once)))
    assert _text(both) == [
        "Spark: Union",
        ":- second",
        ":  :    runs      as one batch, in memory, in 1 bucket",
        ":  +- first",
        ":     :    runs      as one batch, in memory, in 1 bucket",
        ":     +- parquet: /in",
        "+- third",
        "   :    runs      as one batch, in memory, in 1 bucket",
        "   :- parquet: /in",
        "   +- rate",
    ]
    assert len(Explanation((both,)).operators) == 3


def test_nothing_is_said_of_a_recovery_before_the_first_batch() -> None:
    for logs in (None, LogsNow(NO_BATCH, 0, None)):
        lines = list(_operator(logs=logs).lines())
        assert lines[2:] == ["logs      no batch yet"]


def test_a_prediction_without_an_objective_stands_for_itself() -> None:
    lines = list(_operator(objective_us=None).lines())
    assert lines[-1] == "recovery  would take about 340 ms"
    lines = list(_operator(logs=LogsNow(41, 1, None)).lines())
    assert lines[-1] == "logs      batch 41, 1 piece of state open"


def test_a_policy_that_promises_nothing_is_told_by_its_title() -> None:
    assert next(_operator(policy="mine", promise="").lines()) == "policy    mine"


def test_logs_of_another_policy_say_which() -> None:
    logs = LogsNow(41, 20_318, 340_000, other_policy="none")
    assert "so far    under none" in list(_operator(logs=logs).lines())


def test_cautions_and_warnings_come_last() -> None:
    logs = LogsNow(41, 20_318, 340_000, warnings=("bucket 0: too slow", "bucket 1: damaged"))
    operator = _operator(caution="no certain order", logs=logs)
    assert list(operator.lines())[-3:] == [
        "note      no certain order",
        "! bucket 0: too slow",
        "! bucket 1: damaged",
    ]
    assert operator.warnings == logs.warnings


def test_logs_that_cannot_be_read_are_told_and_nothing_else_of_them() -> None:
    operator = _operator(logs=None, trouble="the logs cannot be read: gone")
    assert list(operator.lines())[2:] == ["! the logs cannot be read: gone"]
    assert operator.warnings == ("the logs cannot be read: gone",)


def test_a_plan_without_operators_says_so_and_what_is_read() -> None:
    assert _text(_FILES) == ["There are none in this plan.", "parquet: /in"]


def test_names_play_no_tricks_on_a_terminal() -> None:
    assert _text(Step("parquet: /in\x1b[2J"))[-1] == "parquet: /in\\x1b[2J"
