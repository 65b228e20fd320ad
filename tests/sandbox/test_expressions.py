"""Expressions: several over the same names, each with its own value or failure."""

from __future__ import annotations

from typing import Any

import pytest

from appliance.sandbox import Failure, Limits, Pool, Position
from tests.timing import timed

NAMES: dict[str, Any] = {
    "input": {"order": {"total": 40, "lines": [{"sku": "a", "n": 2}, {"sku": "b", "n": 3}]}},
    "steps": {"check": None},
}


def value(pool: Pool, text: str, **names: Any) -> Any:
    evaluated = pool.evaluate({"it": text}, NAMES | names)["it"]
    assert evaluated.failure is None, evaluated.failure
    return evaluated.value


def failure(pool: Pool, text: str, **names: Any) -> Failure:
    evaluated = pool.evaluate({"it": text}, NAMES | names)["it"]
    assert evaluated.failure is not None, evaluated.value
    return evaluated.failure


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("input.order.total * 2", 80),
        ("input.order.lines.map((line) => line.n).reduce((a, b) => a + b)", 5),
        ("steps.check?.total ?? null", None),
        ("{a: 1, b: [input.order.total > 10]}", {"a": 1, "b": [True]}),
        ("`${input.order.lines.length} lines`", "2 lines"),
        ("input.order.total > 10 // a comment", True),
        ("input.order\n  .total", 40),
        ("(() => { let n = 0; for (const l of input.order.lines) n += l.n; return n })()", 5),
        ("new Date(0)", "1970-01-01T00:00:00.000Z"),
        ("typeof console.log", "function"),
        ("input.order.lines.toSorted((a, b) => b.n - a.n)[0].sku", "b"),
    ],
)
def test_an_expression_has_a_value(pool: Pool, text: str, expected: Any) -> None:
    assert value(pool, text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("input.order.nothing", "the value is undefined"),
        ("input.order.total / 0", "the value is Infinity"),
        ("Number('x')", "the value is NaN"),
        ("() => 1", "the value is a function"),
        ("{a: {b: [1, undefined]}}", "the value.a.b[1] is undefined"),
        ("new Map()", "the value is a Map, not plain data"),
        ("Promise.resolve(1)", "the value is a Promise, not plain data"),
        ("Symbol.iterator", "the value is a symbol"),
        ("10n", "the value is a bigint"),
    ],
)
def test_a_value_that_is_not_data_is_a_failure(pool: Pool, text: str, message: str) -> None:
    problem = failure(pool, text)
    assert (problem.failure_class, problem.message) == ("validation", message)


@pytest.mark.parametrize(
    ("text", "message", "position"),
    [
        ("orders.length", "orders is not defined", Position("", 1, 1)),
        ("input.order.total +\n  steps.missing.x", "cannot read property 'x' of undefined", Position("", 2, 3)),
        ("1 + ", "the expression ends too early", Position("", 1, 5)),
        ("(", "the expression ends too early", Position("", 1, 2)),
        ("1), (2", "Unexpected token ')'", Position("", 1, 2)),
        ("while (true) {}", "unexpected token in expression: 'while'", Position("", 1, 1)),
        ("input.order.total = 5", "'total' is read-only", Position("", 1, 1)),
    ],
)
def test_mistakes_have_a_position_in_the_expression(pool: Pool, text: str, message: str, position: Position) -> None:
    problem = failure(pool, text)
    assert problem.message == message
    assert problem.position == position


def test_failures_stay_apart(pool: Pool) -> None:
    results = pool.evaluate({"a": "input.n + 1", "b": "input.x.y", "c": "input.n * 2"}, {"input": {"n": 1}})
    assert (results["a"].value, results["c"].value) == (2, 2)
    assert results["b"].failure is not None


def test_no_expression_changes_what_another_sees(pool: Pool) -> None:
    results = pool.evaluate(
        {"a": "input.list.push(9)", "b": "input.list.sort().length", "c": "input.list"}, {"input": {"list": [2, 1]}}
    )
    assert results["a"].failure is not None
    assert results["b"].failure is not None
    assert results["c"].value == [2, 1]


@pytest.mark.parametrize(
    "text",
    [
        "input.n = 2",
        "input.n += 1",
        "input.n++",
        "--input.n",
        "delete input.n",
        "input.list.fill(0)",
        "Object.assign(input, {n: 2})",
        "input['list']['pop']()",
        "[].reverse.call(input.list)",
    ],
)
def test_changing_a_name_fails(pool: Pool, text: str) -> None:
    results = pool.evaluate({"a": text, "b": "[input.n, input.list]"}, {"input": {"n": 1, "list": [1, 2]}})
    assert results["a"].failure is not None
    assert results["b"].value == [1, [1, 2]]


def test_an_endless_expression_does_not_lose_earlier_values(pool: Pool) -> None:
    texts, limits = {"a": "1 + 1", "b": "(() => { for (;;); })()", "c": "3"}, Limits(wall_ms=300)
    results, took = timed(0.55, lambda: pool.evaluate(texts, {}, limits=limits))
    assert took < 0.55
    assert results["a"].value == 2
    assert results["b"].failure is not None
    assert results["b"].failure.failure_class == "timeout"
    assert results["c"].failure is not None


def test_time_is_what_the_caller_says(pool: Pool) -> None:
    assert pool.evaluate({"it": "new Date().toISOString()"}, {}, now=1_700_000_000_000)["it"].value == "2023-11-14T22:13:20.000Z"


@pytest.mark.parametrize("text", ["Math.random()", "api.datapool", "import('fs')", "globalThis.process.env"])
def test_an_expression_reaches_nothing(pool: Pool, text: str) -> None:
    assert failure(pool, text).failure_class == "validation"


def test_names_may_be_json_already_and_unused_ones_are_not_sent(pool: Pool) -> None:
    assert value(pool, "line.n + index", line=b'{"n": 4}', index=1, unused=object()) == 5


def test_memory_is_limited(pool: Pool) -> None:
    limits = Limits(wall_ms=5000, memory_mb=16)
    evaluated = pool.evaluate({"it": "Array.from({length: 1e7}, (_, k) => ({k}))"}, {}, limits=limits)["it"]
    assert evaluated.failure is not None
    assert evaluated.failure.failure_class == "memory"


def test_an_expression_can_be_checked_without_running(pool: Pool) -> None:
    assert pool.check_expression("steps.whatever.it.reads > 3") is None
    problem = pool.check_expression("a b")
    assert problem is not None
    assert problem.position == Position("", 1, 3)
    assert pool.check_expression("(() => { for (;;); })()") is None
