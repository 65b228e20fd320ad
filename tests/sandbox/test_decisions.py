"""Decision tables: results, and the refusal of everything the engine would quietly misunderstand."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from appliance.sandbox import Pool
from tests.timing import timed


def table(rules: list[dict[str, str]], **content: Any) -> dict[str, Any]:
    """A model with one table: `total` and `tier` in, `discount` and `class` out."""
    columns = {
        "hitPolicy": "first",
        "inputs": [{"id": "t", "name": "Total", "field": "total"}, {"id": "r", "name": "Tier", "field": "tier"}],
        "outputs": [{"id": "d", "name": "Discount", "field": "discount"}, {"id": "c", "name": "Class", "field": "approval.class"}],
        "rules": [{"_id": str(number), "t": "", "r": "", "d": "", "c": "", **rule} for number, rule in enumerate(rules)],
    }
    return model("decisionTableNode", columns | content)


def model(kind: str, content: dict[str, Any]) -> dict[str, Any]:
    return {
        "nodes": [
            {"id": "in", "type": "inputNode", "name": "Input"},
            {"id": "node", "type": kind, "name": "Node", "content": content},
            {"id": "out", "type": "outputNode", "name": "Output"},
        ],
        "edges": [{"id": "a", "sourceId": "in", "targetId": "node"}, {"id": "b", "sourceId": "node", "targetId": "out"}],
    }


ORDERS = table(
    [
        {"t": "> 1000", "r": '"gold", "silver"', "d": "0.1", "c": '"manual"'},
        {"t": "[500..1000]", "d": "0.05", "c": '"auto"'},
        {"d": "0", "c": '"auto"'},
    ]
)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"total": 2000, "tier": "gold"}, {"discount": 0.1, "approval": {"class": "manual"}}),
        ({"total": 2000, "tier": None}, {"discount": 0, "approval": {"class": "auto"}}),
        ({"total": 500, "tier": "x"}, {"discount": 0.05, "approval": {"class": "auto"}}),
    ],
)
def test_the_first_matching_rule_decides(pool: Pool, data: dict[str, Any], expected: dict[str, Any]) -> None:
    decision = pool.decide(ORDERS, data)
    assert decision.failure is None
    assert decision.value == expected


def test_a_good_model_has_no_problems(pool: Pool) -> None:
    assert pool.check_decision(ORDERS) == []


def test_a_missing_input_is_not_read_as_null(pool: Pool) -> None:
    decision = pool.decide(ORDERS, {"total": 1})
    assert decision.failure is not None
    assert decision.failure.message.startswith("the decision reads 'tier', which its input does not have")


def test_invalid_cells_are_reported(pool: Pool) -> None:
    problems = pool.check_decision(table([{"t": ">> 3", "d": "1 +"}, {"c": "free text"}]))
    assert [each.pointer for each in problems] == [
        "/nodes/1/content/rules/0/t",
        "/nodes/1/content/rules/0/d",
        "/nodes/1/content/rules/1/c",
    ]


def test_a_broken_model_decides_nothing(pool: Pool) -> None:
    decision = pool.decide(table([{"t": ">> 3"}]), {"total": 1, "tier": ""})
    assert decision.failure is not None
    assert decision.failure.code == "definition_invalid"


@pytest.mark.parametrize("kind", ["functionNode", "decisionNode", "customNode", "unknownNode"])
def test_nodes_that_do_more_than_compute_are_refused(pool: Pool, kind: str) -> None:
    broken_model = model(kind, {"source": "export const handler = async () => ({a: 1})", "key": "x"})
    assert [each.pointer for each in pool.check_decision(broken_model)] == ["/nodes/1/type"]
    assert pool.decide(broken_model, {}).failure is not None


@pytest.mark.parametrize(
    "invalid", [None, [], {}, {"nodes": 1, "edges": []}, {"nodes": [1], "edges": [2]}, {"nodes": [], "edges": []}]
)
def test_an_invalid_model_is_refused(pool: Pool, invalid: Any) -> None:
    assert pool.check_decision(invalid)


def test_a_node_that_nothing_leads_to_is_reported(pool: Pool) -> None:
    broken_model = copy.deepcopy(ORDERS)
    broken_model["edges"].pop(0)
    assert [each.pointer for each in pool.check_decision(broken_model)] == ["/nodes/1"]


def test_messages_carry_no_native_backtrace(pool: Pool) -> None:
    decision = pool.decide(model("expressionNode", {"expressions": [{"id": "1", "key": "a", "value": '"x" + 1'}]}), {})
    assert decision.failure is not None
    assert "backtrace" not in decision.failure.message
    assert "Failed to evaluate expression" in decision.failure.message


def test_a_decision_that_never_ends_is_ended(pool: Pool) -> None:
    endless = model("expressionNode", {"expressions": [{"id": "1", "key": "a", "value": "sum(map([1..20000000], # * 2))"}]})
    decision, took = timed(0.3 + 0.5, lambda: pool.decide(endless, {}, seconds=0.3))
    assert decision.failure is not None
    assert decision.failure.failure_class in ("timeout", "memory")
    assert took < 0.3 + 1.5
    assert pool.decide(ORDERS, {"total": 1, "tier": ""}).failure is None
    assert pool.health()["restarts"] == 0
