"""Types of step code: what a process's grants, integrations, collections and input make of them, and what publishing refuses."""

from collections.abc import Callable, Mapping
from typing import Any

import httpx
import pytest

from appliance.connectors.contract import Action
from appliance.core.errors import DefinitionInvalid
from appliance.processes.definitions.definition import Definition, parse_definition
from appliance.processes.definitions.dependencies import Dependencies
from appliance.processes.definitions.nodes import Problem
from appliance.processes.definitions.type_checking import Checkable, type_problems
from appliance.processes.definitions.typings import declare_process
from appliance.processes.definitions.versions import PublishRequest
from appliance.sandbox import Pool
from tests.processes.world import World

ORDER = {
    "type": "object", "required": ["number"], "additionalProperties": False,
    "properties": {"number": {"type": "string"}, "lines": {"type": "array", "items": {"type": "object"}}},
}  # fmt: skip
ACTIONS = {
    "create_order": Action("create_order", "Create an order", ORDER, {"properties": {"id": {"type": "string"}}}, "write"),
    "ping": Action("ping", "Ask whether it lives", {"type": "object"}, {}, "read"),
}  # fmt: skip
FIELDS = (
    {"name": "number", "type": "text", "required": True},
    {"name": "total", "type": "decimal"},
    {"name": "state", "type": "select", "options": ["open", "paid"], "required": True, "default": "open"},
    {"name": "customer", "type": "relation", "collection": "customers"},
    {"name": "extra", "type": "json"},
)
AROUND = Dependencies({"erp": ACTIONS}, {"orders": FIELDS})
GRANTS = {
    "integrations": {"erp": ["create_order"], "crm": "*", "old": ["move"]},
    "datapool": {"orders": ["read", "write"], "log": ["write"]},
    "secrets": ["token"], "processes": ["sub"], "human": True, "llm": ["default"],
}  # fmt: skip
INPUT = {
    "type": "object", "required": ["order"], "additionalProperties": False,
    "properties": {"order": ORDER, "note": {"type": "string"}},
}  # fmt: skip


def typescript(step_id: str, body: str, **more: Any) -> dict[str, Any]:
    source = f"export default async function (input, api) {{\n{body}\n}}"
    return {"id": step_id, "code": {"language": "typescript", "source": source}, **more}


def define(*steps: Mapping[str, Any], files: Mapping[str, str] | None = None, **more: Any) -> Definition:
    return parse_definition({"id": "p", "input": INPUT, "grants": GRANTS, "steps": list(steps), **more}, files or {})


@pytest.fixture
def problems(sandbox: Pool) -> Callable[..., list[Problem]]:
    def find(*steps: Mapping[str, Any], files: Mapping[str, str] | None = None, **more: Any) -> list[Problem]:
        return type_problems(sandbox, "acme", Checkable(define(*steps, files=files, **more), files or {}, AROUND))

    return find


def places(problems_: list[Problem]) -> list[tuple[str, int | None, int | None]]:
    return [(each.code, each.line, each.column) for each in problems_]


def test_code_that_uses_existing_members_has_no_problem(problems: Callable[..., list[Problem]]) -> None:
    body = """
  const made = await api.integrations.execute("erp", "create_order", { number: input.order.number, lines: [{ sku: 1 }] });
  const id: string | undefined = made.id;
  const old = await api.integrations.execute("old", "move", 7);
  await api.integrations.execute("crm", "whatever");
  const found = await api.datapool.find("orders", id ?? "");
  const total: string | null | undefined = found?.total;
  const filter = { total: { _gt: "10" }, _or: [{ state: "open" }, { customer: { name: { _eq: "x" } } }], _and: [] };
  const page = await api.datapool.query("orders", { filter, sort: "-total", fields: ["number"], limit: 5 });
  const states: ("open" | "paid")[] = page.items.map((each) => each.state);
  const sums = await api.datapool.query("orders", { group: ["state"], aggregate: { sum: { fn: "sum", field: "total" } } });
  const sum = sums.items[0].sum;
  await api.datapool.create("orders", { number: "1", total: 5, extra: { a: [1] } });
  await api.datapool.update("orders", id!, { state: "paid", total: null });
  await api.datapool.upsert("orders", { key: ["number"], values: { number: "1" } });
  await api.datapool.batch({ operations: [{ op: "create", collection: "log", values: { any: 1 } },
    { op: "delete", collection: "orders", id: "ent_1" }] });
  const secret: string = await api.secrets.get("token");
  await api.processes.execute("sub", { a: 1 }, { wait: true });
  const text: string = await api.llm.generate({ profile: "default", prompt: "?" });
  const { total: sure } = await api.llm.generate({ profile: "default", messages: [{ role: "user", content: text }], output: {} });
  const answer = await api.human.request({ kind: "approval", title: "May I?" });
  api.log.info("done", { total, states, sum, old, secret, answer, sure });
  console.log(api.now(), api.execution.id, atob("eA=="));
  try { await api.wait.for("10m"); } catch (error) { throw (error as ApiError).retryable ? error : new Error("no"); }
  return await api.events.wait("paid");"""
    assert problems(typescript("a", body)) == []


@pytest.mark.parametrize(
    ("line", "column", "words"),
    [
        ('await api.integrations.execute("erp", "create_order", { nunber: "1" });', 57, "nunber"),
        ('await api.integrations.execute("erp", "create_order", {});', 55, "'number' is missing"),
        ('await api.integrations.execute("erp", "create_order");', 24, "Expected 3 arguments"),
        ('const a = await api.integrations.execute("erp", "create_order", { number: "1" }); a.idd;', 85, "idd"),
        ('await api.datapool.create("orders", { number: 5 });', 39, "not assignable"),
        ('await api.datapool.create("orders", { number: "5", state: "lost" });', 52, '"lost"'),
        ('await api.datapool.update("orders", "x", { totl: 5 });', 44, "totl"),
        ('await api.datapool.query("orders", { filter: { totl: 5 } });', 48, "totl"),
        ('await api.datapool.query("orders", { filter: { total: { _gr: 5 } } });', 57, "_gr"),
        ('(await api.datapool.query("orders", {})).items[0].nummer;', 51, "nummer"),
        ("return input.ordr;", 14, "ordr"),
        ("return input.note.length;", 8, "possibly 'undefined'"),
        ("api.nothing.get();", 5, "nothing"),
        ('await api.llm.generate({ profile: "other", prompt: "?" });', 26, "not assignable"),
        ('const n: number = await api.llm.generate({ profile: "default", prompt: "?" });', 7, "not assignable"),
        ("await fetch('x');", 7, "'fetch' does not exist in a step; call a foreign system by api.integrations.execute"),
    ],
)
def test_a_type_error_has_its_position(problems: Callable[..., list[Problem]], line: str, column: int, words: str) -> None:
    (problem,) = problems(typescript("a", line))
    assert (problem.code, problem.pointer, problem.file) == ("type_error", "/steps/0/code", "steps/a.ts")
    assert (problem.line, problem.column) == (2, column)
    assert words in problem.message


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('await api.integrations.execute("hr", "x", {});', "no grant for x of hr: add grants: integrations: {hr: [x]}"),
        ('await api.integrations.execute("erp", "ping");', "no grant for ping of erp: add grants: integrations: {erp: [ping]}"),
        ('await api.datapool.find("log", "1");', "no grant to read log: add grants: datapool: {log: [read]}"),
        ('await api.datapool.create("bills", {});', "no grant to write bills: add grants: datapool: {bills: [write]}"),
        ('await api.secrets.get("other");', "no grant for other: add grants: secrets: [other]"),
        ('await api.documents.get("doc_1");', "no grant to read documents: add grants: documents: [read]"),
        ('await api.documents.create({name: "a", content: "b"});', "no grant to write documents: add grants: documents: [write]"),
        ('await api.processes.execute("other");', "no grant for other: add grants: processes: [other]"),
    ],
)
def test_a_call_beyond_the_grants_says_what_to_add(problems: Callable[..., list[Problem]], line: str, sentence: str) -> None:
    (problem,) = problems(typescript("a", line))
    assert (problem.code, problem.message, problem.severity, problem.line) == ("grant_missing", sentence, "error", 2)


def test_the_grants_of_a_step_are_its_own_and_its_modules_know_all(problems: Callable[..., list[Problem]]) -> None:
    files = {"lib/keep.ts": 'export async function keep(api: Api) { await api.datapool.create("orders", { number: "1" }); }'}
    head = 'import { keep } from "../lib/keep";\nexport default async (input, api) => '
    keep = head + "{ await keep(api); await api.human.request({} as any); };"
    narrow = {"id": "a", "code": {"language": "typescript", "source": keep}, "grants": {"datapool": {"orders": ["read"]}}}
    (problem,) = problems(narrow, typescript("b", "await api.human.request({ kind: 'input', title: 'x' });"), files=files)
    assert (problem.pointer, problem.message) == ("/steps/0/code", "no grant to ask people: add grants: human: true")


def test_a_step_has_the_type_of_the_input_it_is_given(problems: Callable[..., list[Problem]]) -> None:
    input_data = {"first": "= input.order", "text": "{{ input.note }}", "steps": "= steps.b", "n": 5, "list": [1, "x"]}
    body = "const n: number = input.n; input.steps.any; const s: string = input.text; return input.first.nummer;"
    actual = problems(typescript("b", "return 1"), typescript("a", body, input=input_data))
    assert places(actual) == [("type_error", 2, 94)]
    assert problems(typescript("a", "return input.number.length;", input="= input.order")) == []


def test_expressions_are_checked_with_the_names_around_them(problems: Callable[..., list[Problem]]) -> None:
    inner = {"id": "c", "rule": {"expression": "= lin.sku + line.x + index + steps.a.any.thing"}}
    steps = [
        typescript("a", "return 1", when="= input.ordr.number != ''"),
        {"id": "loop", "for_each": {"items": "= input.order.lines", "as": "line", "steps": [inner], "collect": "= line.sku"}},
    ]
    actual = problems(*steps, output="= stps.a + execution.id + tenant.id")
    expected = {"/output": 1, "/steps/0/when": 7, "/steps/1/for_each/steps/0/rule/expression": 1}
    assert {each.pointer: each.column for each in actual} == expected
    assert {each.code for each in actual} == {"type_error"}


def test_without_typescript_findings_are_warnings(problems: Callable[..., list[Problem]]) -> None:
    source = 'export default (input, api) => api.datapool.find("bills", input.ordr);'
    actual = problems({"id": "a", "code": {"language": "javascript", "source": source}, "when": "= inputt"})
    assert [(each.code, each.severity) for each in actual] == [("grant_missing", "warning"), ("type_error", "warning")]


def test_the_declarations_are_for_editors_too() -> None:
    text = declare_process(define(typescript("a", "return 1"), typescript("delete", "return 1", grants={})), AROUND)
    assert "create_order: { input: { number: string;" in text
    assert "ping" not in text
    assert "/** Create an order */" in text
    assert "delete: { input: ProcessInput; api: GosApi<{ integrations: {  }; read: never; write: never;" in text
    assert text.count("interface GosApi<") == 1


# -- over the API


def test_a_step_says_itself_what_an_input_without_properties_has(sandbox: Pool) -> None:
    source = "export default async function (i: { a: number }) { return i.a; }"
    step = {"id": "a", "code": {"language": "typescript", "source": source}}
    definition = parse_definition({"id": "p", "input": {"type": "object"}, "steps": [step]}, {})
    assert type_problems(sandbox, "acme", Checkable(definition, {}, AROUND)) == []


def test_validate_lists_the_problems_that_publish_refuses(world: World) -> None:
    steps = [typescript("a", 'const rows = await api.datapool.query("marks", { filter: { nme: 1 } });\nreturn rows;')]
    world.save("typed", steps, grants={"datapool": {"marks": ["read"]}})
    with pytest.raises(DefinitionInvalid) as caught:
        world.flow.publish_process(world.scope, "typed", PublishRequest())
    (detail,) = caught.value.details
    assert (detail.pointer, detail.code) == ("/steps/0/code", "type_error")
    assert detail.message.startswith("steps/a.ts:2:")
    assert "nme" in detail.message


def test_a_warning_does_not_block_publishing(acme: httpx.Client) -> None:
    source = 'export default (input, api) => api.secrets.get("none");'
    body = {"id": "lax", "steps": [{"id": "a", "code": {"language": "javascript", "source": source}}]}
    assert acme.put("/api/v1/processes/lax", json=body).status_code == 201
    data = acme.post("/api/v1/processes/lax/validate").json()["data"]
    assert data["valid"] is True
    assert [(each["code"], each["severity"], each["line"]) for each in data["problems"]] == [("grant_missing", "warning", 1)]
    assert acme.post("/api/v1/processes/lax/publish", json={}).status_code == 200
