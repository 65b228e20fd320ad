"""`api` behaves the same in TypeScript, JavaScript and PHP: one table of calls, every one made in each language."""

import re
from dataclasses import dataclass
from typing import Any

import pytest

from appliance.core.database import db
from appliance.tenants import service as tenants
from tests.llm.provider import Provider

from .world import GRANTS, SEALER, World, rule

JAVASCRIPT = """export default async function (input, api) {
  const out = [];
  for (const [method, args] of input.calls) {
    const [space, name] = method.split(".");
    try { out.push({value: (name ? await api[space][name](...args) : await api[space](...args)) ?? null}); }
    catch (e) { out.push({name: e.name, code: e.code, message: e.message, retryable: e.retryable}); }
  }
  return out;
}"""
TYPESCRIPT = JAVASCRIPT.replace("(input, api)", "(input: {calls: [string, unknown[]][]}, api: any): Promise<unknown>").replace(
    "const out = []", "const out: object[] = []"
).replace("catch (e)", "catch (e: any)")
PHP = """<?php return function (array $input, $api) {
  $out = [];
  foreach ($input['calls'] as [$method, $args]) {
    [$space, $name] = explode('.', $method) + [1 => null];
    try { $out[] = ['value' => $name ? $api->$space->$name(...$args) : $api->$space(...$args)]; }
    catch (ApiError $e) {
      $out[] = ['name' => 'ApiError', 'code' => $e->code, 'message' => $e->getMessage(), 'retryable' => $e->retryable];
    }
  }
  return $out;
};"""
SOURCES = {"typescript": TYPESCRIPT, "javascript": JAVASCRIPT, "php": PHP}


@dataclass(frozen=True)
class Row:
    """Calls one after another, and the last one's value, or the code of its error with words of the message.

    `in_php`: the value where PHP cannot tell an empty object from an empty list.
    """

    name: str
    calls: list[tuple[str, list[Any]]]
    value: Any = None
    code: str | None = None
    words: str = ""
    retryable: bool = False
    in_php: Any = None


def row(name: str, *calls: Any, **expected: Any) -> Row:
    return Row(name, [(call[0], list(call[1:])) for call in calls], **expected)


CREATE = ("datapool.create", "marks", {"what": "a", "note": "ä €"})
ROWS = [
    row("create", CREATE, value={"what": "a", "note": "ä €", "_version": 1}),
    row("find nothing", ("datapool.find", "marks", "ent_none"), value=None),
    row("query", CREATE, ("datapool.query", "marks", {"filter": {"what": {"_eq": "a"}}, "fields": ["what"]}),
        value={"items": [{"what": "a"}], "next_cursor": None}),
    row("query everything", ("datapool.query", "marks"), value={"items": [], "next_cursor": None}),
    row("aggregate", CREATE, CREATE, ("datapool.query", "marks", {"aggregate": {"n": {"fn": "count"}}}),
        value={"items": [{"n": 2}], "next_cursor": None}),
    row("upsert", CREATE, ("datapool.upsert", "marks", {"key": ["what"], "values": {"what": "a", "note": "b"}}),
        value={"what": "a", "note": "b", "_version": 2}),
    row("batch", ("datapool.batch", {"operations": [{"op": "create", "collection": "marks", "values": {"what": "x"}}]}),
        value=[{"event": "created", "collection": "marks", "entity": {"what": "x", "note": None, "_version": 1}}]),
    row("act", ("integrations.execute", "bell", "ring", {"n": 1, "deep": {"list": [1, "2", None, True]}}),
        value={"rung": {"n": 1, "deep": {"list": [1, "2", None, True]}}}),
    row("act without input", ("integrations.execute", "bell", "ring"), value={"rung": {}}, in_php={"rung": []}),
    row("secret", ("secrets.get", "token"), value="open sesame"),
    row("log", ("log.info", "hello", {"n": 1}), value=None),
    row("unknown field", ("datapool.create", "marks", {"nope": 1}), code="validation_failed", words="nope"),
    row("unknown collection", ("datapool.query", "others", {}), code="policy_denied", words="datapool: {others: [read]}"),
    row("read only", ("datapool.create", "readable", {}), code="policy_denied", words="datapool: {readable: [write]}"),
    row("collection that is not there", ("datapool.query", "readable", {}), code="not_found", words="readable"),
    row("unknown entity", ("datapool.update", "marks", "ent_none", {"what": "b"}), code="not_found"),
    row("no id", ("datapool.find", "marks"), code="validation_failed", words="id"),
    row("too many arguments", ("datapool.find", "marks", "a", "b"), code="validation_failed", words="takes 2"),
    row("unknown filter", ("datapool.query", "marks", {"filter": {"what": {"_is": 1}}}), code="invalid_filter", words="_is"),
    row("no grant for the action", ("integrations.execute", "other", "ring", {}), code="policy_denied", words="other: [ring]"),
    row("unknown action", ("integrations.execute", "bell", "sing", {}), code="validation_failed", words="sing"),
    row("refused", ("integrations.execute", "bell", "ring", {"reject": True}), code="connector_failed", words="Not at night"),
    row("foreign trouble", ("integrations.execute", "bell", "ring", {"fail": 9}), code="connector_failed", retryable=True),
    row("no action", ("integrations.execute",), code="validation_failed", words="integration, action, input"),
    row("no grant for the secret", ("secrets.get", "other"), code="policy_denied", words="secrets: [other]"),
    row("no secret's name", ("secrets.get",), code="validation_failed", words="secrets.get(name)"),
    row("no grant for the process", ("processes.execute", "other", {}), code="policy_denied", words="processes: [other]"),
    row("ask a model", ("llm.generate", {"profile": "default", "prompt": "Who?"}), value="hello"),
    row("ask a model for JSON", ("llm.generate", {"profile": "default", "prompt": "?", "output": {"type": "string"}, "repair": 0}),
        code="answer_invalid", words="not JSON", retryable=True),
    row("no grant for the model", ("llm.generate", {"profile": "other", "prompt": "?"}), code="policy_denied",
        words="llm: [other]"),
    row("no such model", ("llm.generate", {"profile": "missing", "prompt": "?"}), code="not_found", words="missing"),
    row("no question", ("llm.generate", {"profile": "default"}), code="validation_failed", words="prompt"),
    row("no model", ("llm.generate",), code="validation_failed", words="profile, prompt"),
    row("document", ("documents.create", {"name": "a.txt", "content": "ä €", "tags": ["b", "a"]}),
        value={"name": "a.txt", "folder": "", "tags": ["a", "b"], "media_type": "text/plain", "size": 6, "revision": 1,
               "sha256": "a02bc5ea0320f7d75a9c8529b910c39552013e2baf0922cf77a75e98c4791887"}),
    row("unknown document", ("documents.get", "doc_1"), code="not_found", words="document"),
    row("read an unknown document", ("documents.read", "doc_1", {"encoding": "base64"}), code="not_found", words="document"),
    row("document without content", ("documents.create", {"name": "a"}), code="validation_failed", words="content"),
    row("content that is no base64", ("documents.create", {"name": "a", "content": "ä", "encoding": "base64"}),
        code="validation_failed", words="base64"),
    row("wrong encoding", ("documents.read", "doc_1", {"encoding": "hex"}), code="validation_failed", words="base64"),
    row("document with a path for a name", ("documents.create", {"name": "a/b", "content": ""}),
        code="validation_failed", words="cannot be the name"),
]  # fmt: skip


def without_generated(value: Any) -> Any:
    """Without what differs between any two runs."""
    if isinstance(value, dict):
        return {name: without_generated(each) for name, each in value.items() if name not in ("id", "created_at", "updated_at")}
    return [without_generated(each) for each in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def process_of(flow_world: World, model_server: Provider) -> dict[str, str]:
    """A process for each language."""
    flow_world.add_profile(model_server)
    tenants.set_secret(flow_world.scope, SEALER, "token", "open sesame")
    readable = {"marks": ["read", "write"], "readable": ["read"]}
    grants = {**GRANTS, "secrets": ["token"], "datapool": readable, "llm": ["default", "missing"], "documents": ["read", "write"]}
    return {
        language: flow_world.publish([{"id": "call", "code": {"language": language, "source": source}}], grants=grants)
        for language, source in SOURCES.items()
    }


@pytest.mark.parametrize("language", SOURCES)
@pytest.mark.parametrize("expected_row", ROWS, ids=lambda each: each.name)
def test_a_call_answers_the_same_in_every_language(
    world: World, process_of: dict[str, str], language: str, expected_row: Row
) -> None:
    done = world.finish(world.start(process_of[language], {"calls": [[method, args] for method, args in expected_row.calls]}))
    assert done.status == "succeeded", done.error
    last = done.output[-1]
    if expected_row.code is None:
        value = expected_row.in_php if language == "php" and expected_row.in_php is not None else expected_row.value
        assert {"value": without_generated(last["value"])} == {"value": value}, last
        return
    assert (last["name"], last["code"], last["retryable"]) == ("ApiError", expected_row.code, expected_row.retryable), last
    assert expected_row.words in last["message"]


@pytest.mark.parametrize("language", SOURCES)
def test_the_journal_lists_the_same_calls_in_every_language(world: World, process_of: dict[str, str], language: str) -> None:
    calls = [list(CREATE), ["datapool.query", "marks", {}], ["integrations.execute", "bell", "ring", {"n": 1}]]
    calls.append(["secrets.get", "token"])
    execution = world.start(process_of[language], {"calls": [[method, args] for method, *args in calls]})
    assert world.finish(execution).status == "succeeded"
    rows = db.rows("SELECT method FROM journal WHERE execution_id = ? AND call > 0 ORDER BY call", (execution,))
    assert [method for (method,) in rows] == [method for method, *_ in calls]


@pytest.mark.parametrize("language", SOURCES)
def test_a_child_is_started_in_every_language(world: World, language: str) -> None:
    child = world.publish([rule("double", "= input.n * 2")])
    step = {"id": "call", "code": {"language": language, "source": SOURCES[language]}}
    process = world.publish([step], grants={"processes": [child]})
    done = world.finish(world.start(process, {"calls": [["processes.execute", [child, {"n": 4}]]]}))
    started = done.output[0]["value"]
    assert started["process_id"] == child
    assert world.finish(started["execution_id"]).output == 8


@pytest.mark.parametrize("language", SOURCES)
def test_a_step_knows_the_time_and_its_execution_in_every_language(world: World, language: str) -> None:
    read = {
        "php": "<?php return fn (array $input, $api) => [$api->now(), $api->execution];",
    }.get(language, "export default (input, api) => [api.now(), api.execution]")
    read = read.replace("(input, api)", "(input: unknown, api: any)") if language == "typescript" else read
    execution = world.start(world.publish([{"id": "call", "code": {"language": language, "source": read}}]))
    now, facts = world.finish(execution).output
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", now)
    assert facts == {
        "id": execution, "process_id": world.get(execution).process_id, "version": 1, "label": None, "tenant": "acme",
        "step": "call", "attempt": 1, "created_at": facts["created_at"], "started_at": facts["started_at"],
    }  # fmt: skip


@pytest.mark.parametrize("language", SOURCES)
def test_what_was_logged_is_the_same_in_every_language(world: World, process_of: dict[str, str], language: str) -> None:
    calls = [[f"log.{level}", [f"of {level}", {"n": [1, None]}]] for level in ("info", "warn", "error")]
    execution = world.start(process_of[language], {"calls": calls})
    assert world.finish(execution).status == "succeeded"
    rows = db.rows("SELECT level, message FROM log_line WHERE execution_id = ? AND source = 'step' ORDER BY id", (execution,))
    assert [tuple(each) for each in rows] == [(20, "of info"), (30, "of warn"), (40, "of error")]


WAITING = ["human.request", "wait.for", "wait.until", "events.wait", "processes.execute"]


@pytest.mark.parametrize("method", WAITING)
def test_php_says_that_it_does_not_wait(world: World, method: str) -> None:
    args: list[Any] = ["other", {}, {"wait": True}] if method == "processes.execute" else [{"kind": "approval", "title": "?"}]
    step = {"id": "call", "code": {"language": "php", "source": PHP}}
    process = world.publish([step], grants={"human": True, "processes": ["other"]})
    done = world.finish(world.start(process, {"calls": [[method, args]]}))
    answer = done.output[0]
    assert (answer["code"], answer["retryable"]) == ("not_in_php", False)
    assert "TypeScript" in answer["message"]
