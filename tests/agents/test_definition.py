"""Parsing an agent's definition, and everything that can be wrong with one."""

from typing import Any

import pytest

from appliance.agents.definition import Budget, parse_definition
from appliance.core.errors import DefinitionInvalid

WHOLE: dict[str, Any] = {
    "id": "triage", "name": "Triage", "description": "Sorts what comes in.", "model": "large", "instructions": "Sort it.",
    "tools": ["query_entities", "erp:create_order", "crm:*"], "skills": ["orders"], "policy": "desk",
    "budget": {"turns": 5, "tool_calls": 9, "tokens": 1000, "cost": 0.25, "seconds": "2m"},
    "output": {"type": "object", "required": ["kind"], "properties": {"kind": {"type": "string"}}},
}  # fmt: skip


def problems(**changes: Any) -> dict[str, str]:
    with pytest.raises(DefinitionInvalid) as refused:
        parse_definition("triage", {**WHOLE, **changes})
    return {detail.pointer: detail.message for detail in refused.value.details}


def test_a_definition_is_read_written_and_read_again_as_the_same() -> None:
    definition = parse_definition("triage", WHOLE)
    assert definition.tools == ("query_entities",)
    assert definition.actions == (("erp", "create_order"), ("crm", "*"))
    assert definition.policies == ("desk",)
    assert definition.budget == Budget(5, 9, 1000, 0.25, 120)
    again = parse_definition("triage", definition.document())
    assert (again, again.digest()) == (definition, definition.digest())


def test_every_member_changes_the_digest() -> None:
    digest = parse_definition("triage", WHOLE).digest()
    for member, other in {"instructions": "Else.", "tools": [], "skills": [], "policy": [], "model": "small"}.items():
        assert parse_definition("triage", {**WHOLE, member: other}).digest() != digest, member


def test_an_operation_is_allowed_by_its_name_or_by_all_of_its_integration() -> None:
    definition = parse_definition("triage", WHOLE)
    assert definition.may_call("erp", "create_order")
    assert definition.may_call("crm", "delete_everything")
    assert not definition.may_call("erp", "delete_order")
    assert not definition.may_call("other", "create_order")


def test_all_problems_are_reported_at_once_with_pointers() -> None:
    problems_found = problems(
        colour="red", instructions=" ", model="No Slug", skills=["Bad Name"], policy={"a": 1},
        tools=["rm_rf", "erp:", "*:*", "load_tenant_skill", "execute_tenant_integration", "get_human_input"],
        budget={"turns": 0, "tool_calls": True, "cost": 0, "seconds": "9d", "hours": 1}, output={"type": "string"},
    )  # fmt: skip
    assert problems_found.keys() == {
        "/colour", "/instructions", "/model", "/skills/0", "/policy", "/tools/0", "/tools/1", "/tools/2", "/tools/3", "/tools/4",
        "/tools/5", "/budget/turns", "/budget/tool_calls", "/budget/cost", "/budget/seconds", "/budget/hours", "/output",
    }  # fmt: skip
    assert "it is added automatically" in problems_found["/tools/3"]


def test_an_agent_of_another_name_is_refused() -> None:
    assert problems(id="other").keys() == {"/id"}


@pytest.mark.parametrize("output", [{"type": "object", "$ref": "http://x/y"}, {"type": "object", "properties": 3}])
def test_an_output_that_is_no_schema_is_refused(output: dict[str, Any]) -> None:
    assert problems(output=output).keys() == {"/output"}
