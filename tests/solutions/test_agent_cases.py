"""Test cases of agents: the format of their files, and how a run is evaluated."""

import re
from dataclasses import replace
from typing import Any

import pytest

from appliance.agents import MockedTools, NoMatchingMock, RehearsalResult, ToolMock, ToolUse
from appliance.agents.tools import Tool
from appliance.core import yaml12
from appliance.core.errors import Conflict, ValidationFailed
from appliance.solutions.testing.agent_cases import AgentCase
from appliance.solutions.testing.agent_evaluation import evaluate_run
from appliance.solutions.testing.cases import Case, read_cases
from tests.architecture.source_tree import ROOT

GET_ORDER, PUT_ORDER = ToolUse("erp:get", {"id": 1}), ToolUse("erp:put", {"id": 1, "total": 9})
QUERY = ToolUse("query_entities", {"collection": "a"})
TOOL = Tool(
    "say", "Say", "Says it.", {"type": "object", "properties": {"text": {"type": "string"}}},
    {"type": "object", "properties": {"n": {"type": "integer"}}}, "read", frozenset(), lambda caller, arguments: {},
)  # fmt: skip


def read(data: Any) -> tuple[list[Case | AgentCase], list[str]]:
    cases, problems = read_cases({"tests/t.yaml": yaml12.dump(data).encode()})
    return cases, [problem.message for problem in problems]


def case_of(expect: dict[str, Any], mocks: dict[str, Any] | None = None) -> AgentCase:
    cases, problems = read({"agent": "triage", "cases": [{"input": "go", "mocks": mocks or {}, "expect": expect}]})
    assert problems == []
    assert isinstance(cases[0], AgentCase)
    return cases[0]


def evaluate(
    expect: dict[str, Any], *created: ToolUse, output: Any = None, status: str = "succeeded", error: Any = None, turns: int = 1
) -> list[str]:
    answering = MockedTools(())
    answering.calls.extend(created)
    return list(evaluate_run(case_of(expect), RehearsalResult(status, output, error, turns, {}), answering))


def test_a_file_is_read_with_answers_of_its_own_and_shared_ones() -> None:
    cases, problems = read({
        "agent": "triage", "mocks": {"query_entities": {"output": {"items": []}}},
        "cases": [{
            "name": "one", "input": {"n": 1},
            "mocks": {"erp:get": [{"when": {"id": 1}, "output": 5}, {"error": {"code": "not_found", "message": "gone"}}]},
            "expect": {"calls": [{"tool": "erp:get", "input": {"id": 1}}], "order": "any", "never": [{"tool": "erp:put"}]},
        }],
    })  # fmt: skip
    assert problems == []
    [case] = cases
    assert isinstance(case, AgentCase)
    assert case.own_answers == (
        ToolMock("erp:get", {"id": 1}, (5,)), ToolMock("erp:get", {}, (), {"code": "not_found", "message": "gone"}),
    )  # fmt: skip
    assert case.shared_answers == (ToolMock("query_entities", {}, ({"items": []},)),)
    assert (case.agent, case.input, case.expect.order) == ("triage", {"n": 1}, "any")


@pytest.mark.parametrize(
    ("case", "problem"),
    [
        ({"expect": {"order": "sorted"}}, "/cases/0/expect/order this must be one of"),
        ({"expect": {"status": "done"}}, "/cases/0/expect/status this must be one of"),
        ({"expect": {"status": "failed", "output": 1}}, "/cases/0/expect only a successful run has an output"),
        ({"expect": {"output_schema": {"type": 5}}}, "/cases/0/expect/output_schema this is not a valid JSON Schema"),
        ({"expect": {"output_where": {"a": {"_like": 1}}}}, "/cases/0/expect/output_where"),
        ({"expect": {"calls": [{"tool": 1}]}}, "/cases/0/expect/calls/0/tool this must be the name of a tool"),
        ({"expect": {"calls": {}}}, "/cases/0/expect/calls this must be a list"),
        ({"expect": {"most_turns": 0}}, "/cases/0/expect/most_turns this must be a whole number"),
        ({"expect": {"steps": {}}}, "'steps' is not known here"),
        ({"mocks": {"erp:get": {}}}, "/cases/0/mocks/erp:get an answer has exactly one of"),
        ({"mocks": {"erp:get": {"outputs": []}}}, "/cases/0/mocks/erp:get/outputs this must be a list"),
        ({"mocks": {"erp:get": {"error": {"code": "magic"}}}}, "/cases/0/mocks/erp:get/error/code this must be one of"),
        ({"mocks": {"query_entities": {"output": 5}}}, "/cases/0/mocks/query_entities/output this must be an object"),
        ({"process": "x"}, "'process' is not known here"),
    ],
)
def test_a_problem_of_a_case_is_reported_with_its_pointer(case: dict[str, Any], problem: str) -> None:
    cases, problems = read({"agent": "triage", "cases": [{"input": "go", **case}]})
    assert cases == []
    assert any(problem in each for each in problems), problems


def test_calls_are_as_written_or_in_any_order_or_among_others() -> None:
    expected = {"calls": [{"tool": "erp:get", "input": {"id": 1}}, {"tool": "erp:put"}]}
    assert evaluate(expected, GET_ORDER, PUT_ORDER) == []
    assert evaluate(expected, PUT_ORDER, GET_ORDER) != []
    assert evaluate(expected, GET_ORDER) == ['calls/1: expected {"tool": "erp:put", "input": {}}, found nothing']
    assert evaluate({**expected, "order": "any"}, PUT_ORDER, GET_ORDER) == []
    assert evaluate({**expected, "order": "any"}, PUT_ORDER, GET_ORDER, QUERY) == [
        "calls: query_entities was called with {'collection': 'a'}, which is not expected"
    ]
    assert evaluate({**expected, "order": "among_others"}, PUT_ORDER, QUERY, GET_ORDER) == []
    assert evaluate({**expected, "order": "among_others"}, PUT_ORDER, QUERY) == ["calls/0: erp:get was not called with {'id': 1}"]


def test_calls_that_fit_several_expected_ones_are_shared_out_so_that_most_fit() -> None:
    expected = [{"tool": "erp:get"}, {"tool": "erp:get", "input": {"id": 1}}]
    other = ToolUse("erp:get", {"id": 2})
    assert evaluate({"calls": expected, "order": "any"}, GET_ORDER, other) == []
    assert evaluate({"calls": expected, "order": "any"}, other, other) == [
        "calls/1: erp:get was not called with {'id': 1}", "calls: erp:get was called with {'id': 2}, which is not expected",
    ]  # fmt: skip


def test_a_forbidden_call_fails_its_case_only_with_such_arguments() -> None:
    assert evaluate({"never": [{"tool": "erp:put", "input": {"total": 9}}]}, PUT_ORDER) == [
        "never: erp:put was called with {'id': 1, 'total': 9}"
    ]
    assert evaluate({"never": [{"tool": "erp:put", "input": {"total": 8}}]}, PUT_ORDER) == []


def test_outputs_are_judged_exactly_by_schema_and_by_conditions() -> None:
    assert evaluate({"output": {"a": 1}}, output={"a": 1, "b": 2}) == []
    assert evaluate({"output": {"a": 1}}, output={"a": 2}) == ["output/a: expected 1, found 2"]
    schema = {"output_schema": {"type": "object", "required": ["a"]}}
    assert evaluate(schema, output={"a": 1}) == []
    assert len(evaluate(schema, output={})) == 1
    where = {"output_where": {"text": {"_icontains": "approved"}}}
    assert evaluate(where, output="It was Approved.") == []
    assert evaluate(where, output="No.") == ["output_where: it does not hold for {'text': 'No.'}"]


def test_status_error_and_turns_are_judged() -> None:
    error = {"code": "budget_exceeded", "message": "the budget is used up"}
    assert evaluate({"error": {"code": "budget_exceeded", "message": "used up"}}, status="failed", error=error) == []
    assert evaluate({"error": {"code": "conflict"}}, status="failed", error=error) == [
        "error/code: expected 'conflict', found 'budget_exceeded'"
    ]
    assert evaluate({}, status="failed", error=error) == [
        "status: expected succeeded, found failed: budget_exceeded: the budget is used up"
    ]
    assert evaluate({"most_turns": 2}, turns=3) == ["most_turns: expected at most 2, found 3"]


def test_an_answer_that_nothing_asked_for_fails_its_case_and_so_does_a_call_without_one() -> None:
    case = case_of({}, {"erp:get": {"output": 5}})
    answering = MockedTools(case.own_answers + case.shared_answers)
    assert list(evaluate_run(case, RehearsalResult("succeeded", None, None, 1, {}), answering)) == [
        "mocks: nothing asked for erp:get"
    ]
    with pytest.raises(NoMatchingMock):
        answering.answer(TOOL, {"text": "hello"})
    problems = list(evaluate_run(case, RehearsalResult("succeeded", None, None, 1, {}), answering))
    assert problems == ["mocks: no answer matches say with {'text': 'hello'}"]


def test_answers_fit_the_tool_and_come_one_after_the_other_to_the_calls_they_are_for() -> None:
    answers = [{"when": {"text": "a"}, "outputs": [{"n": 1}, {"n": 2}]}, {"when": {"text": "b"}, "error": {"code": "conflict"}}]
    answering = MockedTools((*case_of({}, {"say": answers}).own_answers, ToolMock("say", {}, ({"n": "x"},))))
    assert [answering.answer(TOOL, {"text": "a"}) for _ in range(3)] == [{"n": 1}, {"n": 2}, {"n": 2}]
    with pytest.raises(Conflict):
        answering.answer(TOOL, {"text": "b"})
    with pytest.raises(ValidationFailed):
        answering.answer(TOOL, {"text": 5})
    assert [use.input["text"] for use in answering.calls] == ["a", "a", "a", "b"]
    with pytest.raises(NoMatchingMock):
        answering.answer(TOOL, {"text": "c"})
    assert answering.problems == ['mocks: the answer does not match the output of say: /n: The value is not of type "integer".']


def test_an_action_answers_as_its_tool_does() -> None:
    mocks = {"erp:get": [{"when": {"id": 1}, "output": [5]}, {"error": {"code": "policy_denied", "message": "no"}}]}
    answering = MockedTools(case_of({}, mocks).own_answers)
    about = {"integration": "erp", "operation": "get"}
    tool = replace(TOOL, name="execute_tenant_integration", input_schema={}, output_schema={})
    assert answering.answer(tool, {**about, "params": {"id": 1}}) == {**about, "status": "succeeded", "result": [5]}
    refused = answering.answer(tool, about)
    assert (refused["status"], refused["error"]) == ("denied", {"code": "policy_denied", "message": "no"})
    assert answering.calls == [ToolUse("erp:get", {"id": 1}), ToolUse("erp:get", {})]


def test_the_cases_that_the_manual_shows_can_be_read() -> None:
    page = (ROOT / "docs/agents.md").read_text()
    [block] = [each for each in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "\ncases:" in each]
    cases, problems = read_cases({"tests/t.yaml": block.encode()})
    assert (len(cases), problems) == (1, [])
