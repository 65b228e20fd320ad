"""A draft is checked as a whole: what is wrong in one place hides nothing that is wrong in another."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from appliance.connectors.contract import Action
from appliance.processes.definitions.dependencies import Dependencies
from appliance.processes.definitions.nodes import Problem
from appliance.processes.definitions.versions import CheckContext, Draft, find_problems
from appliance.sandbox import Pool

POST = {
    "type": "object", "required": ["url"], "additionalProperties": False,
    "properties": {
        "url": {"type": "string"}, "json": {}, "headers": {"type": "object"}, "lines": {"type": "array", "maxItems": 1},
        "count": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
    },
}  # fmt: skip
EITHER = {"if": {"properties": {"kind": {"const": "a"}}}, "then": {"required": ["b"]}}
ACTIONS = {
    "post": Action("post", "Send", POST, {}, "write"), "get": Action("get", "Ask", {"type": "object"}, {}, "read"),
    "either": Action("either", "Depends", EITHER, {}, "read"),
}  # fmt: skip
AROUND = Dependencies({"shop": ACTIONS})
WRONG_TYPE = "export default async function () {\n  const n: number = 'text';\n  return n;\n}\n"
Check = Callable[..., list[Problem]]


@pytest.fixture
def check(sandbox: Pool) -> Check:
    def find(*steps: Mapping[str, Any], files: Mapping[str, str] | None = None, **more: Any) -> list[Problem]:
        draft = Draft({"id": "p", "steps": list(steps), **more}, files or {})
        return find_problems(CheckContext(sandbox, lambda slugs: AROUND), "acme", draft)

    return find


def call(payload: Any, action: str = "post", **more: Any) -> dict[str, Any]:
    return {"id": "call", "integration": {"use": "shop", "action": action, "input": payload}, **more}


def code(file: str, step_id: str = "run", **more: Any) -> dict[str, Any]:
    return {"id": step_id, "code": {"language": "typescript", "file": file}, **more}


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"url": "/orders", "json": {"a": 1}}, []),
        ({"url": "= input.url", "json": "= input"}, []),
        ("= input", []),
        ({"url": "/orders", "headers": {"X-Number": "= input.n"}}, []),
        ({"url": "/orders", "count": "{{ input.n }} of 3", "lines": ["= input.a"]}, []),
        ({"url": "/orders", "body": "= input"}, [("/body", "This member is not known here; known are count, headers, json")]),
        ({"url": "= input.url", "body": {"a": 1}}, [("/body", "not known here")]),
        ({"json": {}}, [("/url", "This member is required.")]),
        ({"url": 7}, [("/url", 'not of type "string"')]),
        ({"url": {"a": "= input.a"}}, [("/url", 'not of type "string"')]),
        ({"url": "/", "lines": ["= input.a", "= input.b"]}, []),
    ],
)
def test_literal_input_must_match_the_actions_schema(check: Check, payload: Any, expected: list[tuple[str, str]]) -> None:
    problems = check(call(payload))
    assert [(each.pointer, each.code, each.severity) for each in problems] == [
        (f"/steps/0/integration/input{pointer}", "input_invalid", "error") for pointer, _ in expected
    ]
    assert all(words in each.message and f"{at}: " in each.message for each, (at, words) in zip(problems, expected, strict=True))


def test_input_that_depends_on_an_expression_is_not_checked(check: Check) -> None:
    assert check(call({"kind": "= input.kind"}, "either")) == []
    assert [each.pointer for each in check(call({"kind": "a"}, "either"))] == ["/steps/0/integration/input/b"]


def test_the_input_option_of_a_step_is_checked_against_the_action_too(check: Check) -> None:
    (problem,) = check({"id": "call", "integration": {"use": "shop", "action": "post"}, "input": {"url": "/", "body": 1}})
    assert (problem.pointer, problem.code) == ("/steps/0/input/body", "input_invalid")


def test_an_action_that_an_integration_does_not_have_is_a_problem(check: Check) -> None:
    (problem,) = check(call({}, "psot"))
    assert (problem.pointer, problem.code) == ("/steps/0/integration/action", "action_unknown")
    assert problem.message == "shop has no action 'psot'; it has either, get, post"
    assert check({"id": "call", "integration": {"use": "other", "action": "psot", "input": {"x": 1}}}) == []


def test_a_wrong_decision_hides_no_type_error(check: Check) -> None:
    files = {"rules/price.json": '{"nodes": [], "edges": []}', "steps/run.ts": WRONG_TYPE}
    problems = check(
        {"id": "price", "rule": {"decision": "rules/price.json"}},
        code("steps/run.ts"),
        {"id": "last", "rule": {"expression": "= steps.rnu.total"}},
        files=files,
    )
    assert sorted({each.code for each in problems}) == ["decision_invalid", "type_error"]
    assert [(each.file, each.line) for each in problems if each.file == "steps/run.ts"] == [("steps/run.ts", 2)]
    assert [each.pointer for each in problems if "rnu" in each.message] == ["/steps/2/rule/expression"]


@pytest.mark.parametrize(
    ("broken", "where"),
    [
        ({"id": "first", "whenn": "= true", "rule": {"expression": "= 1"}}, "/steps/0/whenn"),
        ({"id": "first"}, "/steps/0"),
        ({"id": "first", "code": 7}, "/steps/0/code"),
        ({"id": "first", "code": {"language": "ruby", "source": "1"}}, "/steps/0/code/language"),
        ({"id": "first", "code": {"language": "typescript"}}, "/steps/0/code"),
        ({"id": "first", "agent": 7}, "/steps/0/agent"),
        (code("steps/none.ts", "first"), "/steps/0/code/file"),
    ],
)
def test_a_step_that_cannot_be_read_hides_no_type_error_of_another(check: Check, broken: dict[str, Any], where: str) -> None:
    last = {"id": "last", "rule": {"expression": "= steps.first.total"}}
    problems = check(broken, code("steps/run.ts"), last, files={"steps/run.ts": WRONG_TYPE})
    assert [(each.pointer, each.code) for each in problems] == [(where, "definition_invalid"), ("/steps/1/code", "type_error")]


def test_a_file_that_does_not_compile_is_reported_once_and_hides_no_other(check: Check) -> None:
    files = {"steps/a.ts": "import { f } from './lib.ts';\nexport default () => f();\n", "steps/lib.ts": "export const f = (;\n"}
    problems = check(code("steps/a.ts", "a"), code("steps/run.ts"), files=files | {"steps/run.ts": WRONG_TYPE})
    assert [(each.file, each.line, each.code) for each in problems] == [
        ("steps/lib.ts", 1, "syntax_error"), ("steps/run.ts", 2, "type_error"),
    ]  # fmt: skip


def test_a_wrong_schema_leaves_the_rest_checked_and_says_nothing_of_types_of_input(check: Check) -> None:
    source = "export default (input: { a: number }) => {\n  const s: string = input.a;\n  return s;\n};\n"
    problems = check(code("steps/run.ts"), files={"steps/run.ts": source}, input={"type": "nothing"})
    assert [(each.code, each.line) for each in problems] == [("schema_invalid", None), ("type_error", 2)]


def test_an_unused_file_is_checked_but_only_gives_warnings(check: Check) -> None:
    good = "import { n } from './lib/n';\nexport default async function () { return n; }\n"
    files = {"steps/run.ts": good, "steps/lib/n.ts": "export const n = 1;\n", "steps/new.ts": WRONG_TYPE}
    problems = check(code("steps/run.ts"), files=files)
    assert [(each.file, each.line, each.severity) for each in problems] == [("steps/new.ts", 2, "warning")]
    (alone,) = check({"id": "last", "rule": {"expression": "= 1"}}, files={"steps/new.ts": WRONG_TYPE})
    assert (alone.file, alone.line, alone.severity, alone.pointer) == ("steps/new.ts", 2, "warning", "/files")
    problems = check(code("steps/run.ts"), files=files | {"steps/new.ts": "let 1;\n"})
    assert {(each.file, each.line, each.severity) for each in problems} == {("steps/new.ts", 1, "warning")}


def test_an_error_in_an_imported_file_is_an_error(check: Check) -> None:
    files = {"steps/run.ts": "import '../lib/x.ts';\nexport default () => 1;\n", "lib/x.ts": "export const n: number = 'text';\n"}
    (problem,) = check(code("steps/run.ts"), files=files)
    assert (problem.file, problem.line, problem.severity) == ("lib/x.ts", 1, "error")
