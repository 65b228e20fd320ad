"""Decisions of rule steps: what is wrong is named with its place, and the test tables beside them are run on request."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from appliance.processes.definitions.dependencies import load_nothing
from appliance.processes.definitions.versions import CheckContext, Draft, Problem, find_problems
from appliance.processes.rehearsal.expectations import find_differences
from appliance.processes.rehearsal.rule_tests import parse_tables
from appliance.sandbox import Pool
from tests.sandbox.test_decisions import model, table

PRICE = table([{"t": "> 1000", "d": "0.1", "c": "'manual'"}, {"d": "0", "c": "'auto'"}])
INPUT = {"total": "= input.total", "tier": None}


def check(
    pool: Pool, decision: Any, files: dict[
        str, str
    ] | None = None, *, input_data: Any = INPUT, schema: Any = None, tests: bool = False
) -> list[Problem]:
    rule = {"decision": decision} | ({} if input_data is None else {"input": input_data})
    definition = {"id": "p", "steps": [{"id": "price", "rule": rule}]} | ({} if schema is None else {"input": schema})
    return find_problems(CheckContext(pool, load_nothing, run_tests=tests), "acme", Draft(definition, files or {}))


def of_file(pool: Pool, decision: Any, cases: str, *, tests: bool = True) -> list[Problem]:
    files = {"rules/price.json": json.dumps(decision, indent=1), "rules/price.tests.yaml": cases}
    return check(pool, "rules/price.json", files, tests=tests)


def test_a_valid_decision_has_no_problem(sandbox: Pool) -> None:
    assert check(sandbox, PRICE) == []


def test_the_decision_of_the_page_passes_its_table(sandbox: Pool) -> None:
    page = (Path(__file__).parents[2] / "docs" / "processes" / "decisions.md").read_text("utf-8")
    lines, cases = (page.split(f"```{language}\n", 1)[1].split("```", 1)[0] for language in ("json", "yaml"))
    input_data = {"total": "= input.total"}
    files = {"rules/price.json": lines, "rules/price.tests.yaml": cases}
    assert check(sandbox, "rules/price.json", files, input_data=input_data, tests=True) == []
    wrong = files | {"rules/price.tests.yaml": cases.replace("0.05", "0.06")}
    assert len(check(sandbox, "rules/price.json", wrong, input_data=input_data, tests=True)) == 1


def test_a_function_node_is_refused_with_its_pointer(sandbox: Pool) -> None:
    decision = model("functionNode", {"source": "export const handler = async () => fetch('http://x')"})
    (problem,) = check(sandbox, decision)
    assert (problem.pointer, problem.code) == ("/steps/0/rule/decision/nodes/1/type", "decision_invalid")
    assert "use a code step" in problem.message


@pytest.mark.parametrize("inner", ["functionNode", "customNode"])
def test_a_graph_inside_a_graph_is_refused_whatever_it_holds(sandbox: Pool, inner: str) -> None:
    decision = model("decisionNode", {"key": "inner", **model(inner, {"source": "x"})})
    assert [problems.pointer for problems in check(sandbox, decision)] == ["/steps/0/rule/decision/nodes/1/type"]


def test_a_problem_in_a_file_is_reported_with_its_line(sandbox: Pool) -> None:
    decision = table([{"t": ">> 3", "d": "0", "c": "'x'"}], hitPolicy="unique")
    text = json.dumps(decision, indent=1)
    problems = check(sandbox, "rules/r.json", {"rules/r.json": text})
    lines = text.splitlines()
    sentences = [(each.file, lines[(each.line or 0) - 1].strip()) for each in problems]
    assert sentences == [("rules/r.json", '"hitPolicy": "unique",'), ("rules/r.json", '"t": ">> 3",')]
    assert "first or collect" in problems[0].message


def test_a_rule_that_an_earlier_one_precedes_is_a_warning(sandbox: Pool) -> None:
    decision = table([{"t": "> 1", "d": "1", "c": "''"}, {"t": "> 1 ", "d": "2", "c": "''"}, {"d": "3"}, {"t": "< 0", "d": "4"}])
    problems = check(sandbox, decision)
    assert [(each.pointer[-8:], each.severity) for each in problems] == [("/rules/1", "warning"), ("/rules/3", "warning")]
    assert "rule 4 is never reached: rule 3 takes every input" in problems[1].message
    assert check(sandbox, table([{"d": "1"}, {"d": "2"}], hitPolicy="collect")) == []


CLOSED = {"type": "object", "additionalProperties": False, "properties": {"total": {"type": "number"}}}
OPEN = {"type": "object", "properties": {"total": {"type": "number"}, "order": CLOSED}}


@pytest.mark.parametrize(
    ("input_data", "schema", "severities"),
    [
        ({"total": "= input.total"}, None, ["error"]),
        (None, CLOSED, ["error"]),
        ("= input.order", OPEN, ["error"]),
        (None, OPEN, ["warning"]),
        (None, None, []),
        (None, {**CLOSED, "anyOf": [True]}, []),
        ("= [][0]", OPEN, []),
        ("= input.nothing", OPEN, []),
    ],
)
def test_a_name_that_the_input_cannot_have_is_found(sandbox: Pool, input_data: Any, schema: Any, severities: list[str]) -> None:
    problems = [each for each in check(sandbox, PRICE, input_data=input_data, schema=schema) if each.code == "name_unknown"]
    assert [each.severity for each in problems] == severities
    assert all("'tier'" in each.message for each in problems)


# -- test tables

CASES = """\
cases:
  - name: large
    input: {total: 2000, tier: gold}
    output: {discount: 0.1, approval: {class: manual}}
  - input: {total: 1, tier: null}
    output: {discount: 0}
  - name: no tier
    input: {total: 1}
    error: reads 'tier'
"""


def test_cases_that_hold_are_no_problem(sandbox: Pool) -> None:
    assert of_file(sandbox, PRICE, CASES) == []


def test_cases_are_run_on_request_only(sandbox: Pool) -> None:
    wrong = CASES.replace("discount: 0.1", "discount: 0.2").replace("reads 'tier'", "reads 'price'")
    assert of_file(sandbox, PRICE, wrong, tests=False) == []
    problems = of_file(sandbox, PRICE, wrong)
    assert [(each.code, each.file, each.line) for each in problems] == [
        ("case_failed", "rules/price.tests.yaml", 2),
        ("case_failed", "rules/price.tests.yaml", 7),
    ]
    assert problems[0].message == "large: /discount: expected 0.2, found 0.1"
    assert "the decision reads 'tier'" in problems[1].message


def test_a_case_that_expects_the_other_ending_fails(sandbox: Pool) -> None:
    wrong = "cases:\n  - {input: {total: 1}, output: {}}\n  - {input: {total: 1, tier: x}, error: reads}\n"
    assert [each.message.split(":")[0] for each in of_file(sandbox, PRICE, wrong)] == ["case 1", "case 2"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("cases: []", 1), ("case: []", 1), ("- x", 1), ("cases:\n  - 5", 2), ("cases:\n  - {input: {}, output: 1, error: x}", 2),
        ("cases:\n  - {input: {}}", 2), ("cases:\n  - input: 5\n    output: 1", 2), ("cases: [", 2),
        ("cases:\n  - input: {}\n    outptu: 1\n    output: 1", 3), ("cases:\n  - {input: {}, output: 1, name: 5}", 2),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_read_is_always_refused(sandbox: Pool, text: str, line: int) -> None:
    problems = of_file(sandbox, PRICE, text, tests=False)
    assert {(each.code, each.file) for each in problems} == {("table_invalid", "rules/price.tests.yaml")}
    assert problems[0].line == line


def test_a_table_without_a_decision_is_refused() -> None:
    tables, problems = parse_tables({"rules/prise.tests.json": '{"cases": [{"input": {}, "output": 1}]}'})
    assert (tables, len(problems), "no rules/prise.json" in problems[0].message) == ([], 1, True)


@pytest.mark.parametrize(
    ("expected", "actual", "pointers"),
    [
        ({"a": 1}, {"a": 1.0, "b": 2}, []), ({"a": 1}, {"a": True}, ["/a"]), ({"a": {"b": 1}}, {"a": {}}, ["/a/b"]),
        ([1, 2], [1], ["/1"]), ([1], [1, 2], ["/1"]), ([{}], [{"a": 1}], []), ("x", "y", [""]), (None, 0, [""]), ({}, [], [""]),
        ({"a/b": 1}, {"a/b": 2}, ["/a~1b"]), (False, 0, [""]),
    ],
)  # fmt: skip
def test_only_listed_members_are_compared(expected: Any, actual: Any, pointers: list[str]) -> None:
    assert [each.pointer for each in find_differences(expected, actual)] == pointers


def test_a_difference_is_described_in_words() -> None:
    sentences = [each.describe() for each in find_differences({"a": 1, "b": ["x"]}, {"b": ["x", "y" * 400]})]
    assert sentences[0] == "/a: expected 1, found nothing"
    assert sentences[1].startswith('/b/1: expected nothing, found "yyy')
    assert sentences[1].endswith("… (402 characters)")


# -- over the API


def test_validate_and_publish_run_the_tables_when_asked(acme: httpx.Client) -> None:
    body = {
        "definition": {"id": "priced", "steps": [{"id": "price", "rule": {"decision": "rules/price.json", "input": INPUT}}]},
        "files": {"rules/price.json": json.dumps(PRICE), "rules/price.tests.yaml": CASES.replace("discount: 0}", "discount: 1}")},
    }
    assert acme.put("/api/v1/processes/priced", json=body).status_code == 201
    unchecked = acme.post("/api/v1/processes/priced/validate").json()["data"]
    data = acme.post("/api/v1/processes/priced/validate?tests=true").json()["data"]
    assert (unchecked["valid"], data["valid"], [each["code"] for each in data["problems"]]) == (True, False, ["case_failed"])
    refused = acme.post("/api/v1/processes/priced/publish", json={"tests": True})
    assert (refused.status_code, refused.json()["error"]["details"][0]["code"]) == (422, "case_failed")
    assert acme.post("/api/v1/processes/priced/publish", json={}).status_code == 200
