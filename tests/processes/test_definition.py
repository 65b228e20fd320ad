"""Definitions: what is accepted, and every problem at once with its place."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.core.json_schema import compile_schema
from appliance.processes.definitions.definition import DefinitionProblems, parse_definition
from appliance.processes.definitions.nodes import Grants, Retry
from appliance.processes.definitions.schema import process_schema
from appliance.processes.definitions.template import TemplateInvalid, compile_template, resolve_path

RULE = {"id": "a", "rule": {"expression": "= 1"}}
INNER = [{**RULE, "id": "b"}]
FILES = {"steps/a.ts": "export default () => 1", "rules/r.json": "{}"}


def problems(data: Any) -> dict[str, str]:
    try:
        parse_definition(data, FILES)
    except DefinitionProblems as error:
        return {problem.pointer: problem.message for problem in error.problems}
    return {}


def of_step(step: Any, **more: Any) -> dict[str, str]:
    return problems({"id": "p", "steps": [step], **more})


def test_every_problem_is_reported_at_once() -> None:
    actual = problems(
        {
            "id": "Not A Slug", "nmae": "x", "timeout": "soon", "grants": {"datapool": {"orders": ["red"]}},
            "steps": [
                {"id": "1a", "rule": {"expression": "1"}},
                {"id": "b", "code": {"language": "cobol", "file": "steps/none.ts"}},
                {"id": "b", "wait": {"for": "1 day"}},
                {"id": "c"},
                7,
            ],
        }
    )  # fmt: skip
    assert {
        "/id", "/nmae", "/timeout", "/grants/datapool/orders", "/steps/0/id", "/steps/0/rule/expression", "/steps/1/code/language",
        "/steps/1/code/file", "/steps/2/id", "/steps/2/wait/for", "/steps/3", "/steps/4",
    } == set(actual)  # fmt: skip
    assert "/steps/1" in actual["/steps/2/id"], "a duplicate says where the first one is"


@pytest.mark.parametrize(
    ("concurrency", "pointer"),
    [
        ({}, "/concurrency/limit"),
        ({"limit": 0}, "/concurrency/limit"),
        ({"limit": 1, "behaviour": "wait"}, "/concurrency/behaviour"),
        ({"limit": 1, "key": "fixed"}, "/concurrency/key"),
        ({"limit": 1, "key": "= input.a + input.b"}, "/concurrency/key"),
        ({"limit": 1, "key": "= steps.a.b"}, "/concurrency/key"),
        ({"limit": 1, "keys": "= input.a"}, "/concurrency/keys"),
    ],
)
def test_a_concurrency_names_how_many_and_by_which_member_of_the_input(concurrency: dict[str, Any], pointer: str) -> None:
    assert set(of_step(RULE, concurrency=concurrency)) == {pointer}
    assert of_step(RULE, concurrency={"limit": 2, "key": "{{ input.a }}/{{ input.b }}"}, expires="10m") == {}
    assert set(of_step(RULE, expires="soon")) == {"/expires"}


QUESTION = {"profile": "default", "prompt": "?"}


@pytest.mark.parametrize(
    ("question", "pointer"),
    [
        ({"prompt": "?"}, "/profile"),
        ({"profile": "Not A Slug", "prompt": "?"}, "/profile"),
        ({"profile": "default"}, ""),
        ({**QUESTION, "messages": []}, ""),
        ({**QUESTION, "prompt": ""}, "/prompt"),
        ({**QUESTION, "modle": "x"}, "/modle"),
        ({**QUESTION, "output": {"type": "nothing"}}, "/output"),
        ({**QUESTION, "output": "= input.schema"}, "/output"),
        ({**QUESTION, "repair": 9}, "/repair"),
        ({**QUESTION, "restore": "yes"}, "/restore"),
        ({**QUESTION, "temperature": 9}, "/temperature"),
        ({**QUESTION, "max_tokens": 0}, "/max_tokens"),
        ({**QUESTION, "documents": "doc_1"}, "/documents"),
        ({"profile": "default", "messages": [{"role": "robot", "content": "x"}]}, "/messages/0"),
    ],
)
def test_a_wrong_question_to_a_model_is_pointed_at(question: dict[str, Any], pointer: str) -> None:
    assert set(of_step({"id": "ask", "llm": question})) == {f"/steps/0/llm{pointer}"}


def test_a_question_with_expressions_is_judged_when_it_has_values() -> None:
    dynamic = {"prompt": "= input.p", "temperature": "= input.t", "documents": "= input.d", "images": ["= input.i"]}
    assert of_step({"id": "ask", "llm": {"profile": "default", "max_tokens": "= 3", **dynamic}}) == {}
    assert of_step({"id": "ask", "llm": {"profile": "default", "messages": "= input.m", "system": "{{ input.s }}"}}) == {}
    message = {"role": "= input.role", "content": "{{ input.text }}"}
    assert of_step({"id": "ask", "llm": {"profile": "default", "messages": [message]}}) == {}


def test_a_grant_of_documents_is_to_read_or_to_write() -> None:
    assert of_step(RULE, grants={"documents": ["read", "write"]}) == {}
    assert "/grants/documents" in of_step(RULE, grants={"documents": ["delete"]})
    assert "/grants/documents" in of_step(RULE, grants={"documents": {"a": ["read"]}})


@pytest.mark.parametrize(
    ("step", "pointer"),
    [
        ({"id": "a", "code": {"language": "typescript", "file": {}}}, "/steps/0/code/file"),
        ({"id": "a", "code": {"language": {}, "source": "x"}}, "/steps/0/code/language"),
        ({"id": "a", "code": {"language": "typescript"}}, "/steps/0/code"),
        ({"id": "a", "code": "x"}, "/steps/0/code"),
        ({"id": "a", "rule": {"decision": 5}}, "/steps/0/rule/decision"),
        ({"id": "a", "rule": {"decision": "rules/none.json"}}, "/steps/0/rule/decision"),
        ({"id": "a", "rule": {}}, "/steps/0/rule"),
        ({"id": "a", "integration": {"use": "x"}}, "/steps/0/integration/action"),
        ({"id": "a", "datapool": {"collection": "c", "create": {"values": {}}, "find": {"id": "x"}}}, "/steps/0/datapool"),
        ({"id": "a", "datapool": {"collection": "c", "create": {}}}, "/steps/0/datapool/create/values"),
        ({"id": "a", "datapool": {"collection": "c", "update": 5}}, "/steps/0/datapool/update"),
        ({"id": "a", "wait": {}}, "/steps/0/wait"),
        ({"id": "a", "wait": {"until": 5}}, "/steps/0/wait/until"),
        ({"id": "a", "wait": {"for": "999999999999999d"}}, "/steps/0/wait/for"),
        ({"id": "a", "branch": []}, "/steps/0/branch"),
        ({"id": "a", "branch": [{"steps": [{**RULE, "id": "c"}]}, {"when": "= 1", "steps": INNER}]}, "/steps/0/branch/0"),
        ({"id": "a", "wait": {"event": "x", "for": "1s"}}, "/steps/0/wait"),
        ({"id": "a", "wait": {"event": ""}}, "/steps/0/wait/event"),
        ({"id": "a", "wait": {"event": "x" * 201}}, "/steps/0/wait/event"),
        ({"id": "a", "wait": {"event": "x", "timeout": "soon"}}, "/steps/0/wait/timeout"),
        ({"id": "a", "wait": {"for": "1s", "timeout": "1s"}}, "/steps/0/wait/timeout"),
        ({"id": "a", "process": {}}, "/steps/0/process/use"),
        ({"id": "a", "process": {"use": "= input.which"}}, "/steps/0/process/use"),
        ({"id": "a", "process": {"use": "x", "wait": "yes"}}, "/steps/0/process/wait"),
        ({"id": "a", "process": {"use": "x", "input": [1]}}, "/steps/0/process/input"),
        ({"id": "a", "human": {"kind": "approval"}}, "/steps/0/human/title"),
        ({"id": "a", "human": {"kind": "vote", "title": "x"}}, "/steps/0/human/kind"),
        ({"id": "a", "human": {"kind": "approval", "title": "x", "on_timeout": "shrug"}}, "/steps/0/human/on_timeout"),
        ({"id": "a", "human": {"kind": "approval", "title": "= input.t", "approvers": ["ann"]}}, "/steps/0/human/approvers/0"),
        ({"id": "a", "human": {"kind": "approval", "title": "x", "expires": "1 day"}}, "/steps/0/human/expires"),
        ({"id": "a", "human": {"kind": "choice", "title": "= input.t"}}, "/steps/0/human/choices"),
        ({"id": "a", "human": {"kind": "input", "title": "x", "schema": {"type": "zzz"}}}, "/steps/0/human/schema"),
        ({"id": "a", "wait": {"event": "x"}, "timeout": "5m"}, "/steps/0/timeout"),
        ({"id": "a", "process": {"use": "x"}, "limits": {"time": "5m"}}, "/steps/0/limits"),
        ({"id": "a", "human": {"kind": "approval", "title": "x"}, "timeout": "2d"}, "/steps/0/timeout"),
        ({"id": "a", "parallel": []}, "/steps/0/parallel"),
        ({"id": "a", "parallel": {}}, "/steps/0/parallel"),
        ({"id": "a", "parallel": {"b": []}}, "/steps/0/parallel/b"),
        ({"id": "a", "parallel": {"my branch": INNER}}, "/steps/0/parallel/my branch"),
        ({"id": "a", "parallel": {"x": INNER}, "retry": {"max_attempts": 2}}, "/steps/0/retry"),
        ({"id": "a", "parallel": {"x": INNER, "y": [{**RULE, "id": "b"}]}}, "/steps/0/parallel/y/0/id"),
        ({"id": "a", "stop": {"outptu": 1}}, "/steps/0/stop/outptu"),
        ({"id": "a", "stop": {"output": "= "}}, "/steps/0/stop/output"),
        ({"id": "a", "for_each": {"items": 5, "steps": INNER}}, "/steps/0/for_each/items"),
        ({"id": "a", "for_each": {"items": [], "as": "class", "steps": INNER}}, "/steps/0/for_each/as"),
        ({"id": "a", "for_each": {"items": [], "as": "input", "steps": INNER}}, "/steps/0/for_each/as"),
        ({"id": "a", "for_each": {"items": [], "concurrency": True, "steps": INNER}}, "/steps/0/for_each/concurrency"),
        ({"id": "a", "for_each": {"items": [], "steps": []}}, "/steps/0/for_each/steps"),
        ({**RULE, "retry": {"max_attempts": 0}}, "/steps/0/retry/max_attempts"),
        ({**RULE, "retry": {"max_attempts": 2, "classes": ["bad luck"]}}, "/steps/0/retry/classes/0"),
        ({**RULE, "retry": {}}, "/steps/0/retry/max_attempts"),
        ({**RULE, "timeout": "16m"}, "/steps/0/timeout"),
        ({**RULE, "timeout": "0s"}, "/steps/0/timeout"),
        ({**RULE, "timeout": "1s", "limits": {"time": "1s"}}, "/steps/0/timeout"),
        ({**RULE, "limits": {"memory_mb": 4096}}, "/steps/0/limits/memory_mb"),
        ({**RULE, "when": "true"}, "/steps/0/when"),
        ({**RULE, "when": "="}, "/steps/0/when"),
        ({**RULE, "input": {"a": ["= "]}}, "/steps/0/input/a/0"),
        ({"id": "a", "for_each": {"items": [], "steps": INNER}, "retry": {"max_attempts": 2}}, "/steps/0/retry"),
    ],
)  # fmt: skip
def test_an_invalid_member_is_reported_with_its_pointer(step: Any, pointer: str) -> None:
    assert list(of_step(step)) == [pointer]


@pytest.mark.parametrize("data", [None, [], "x", 5, {}, {"id": "p"}, {"id": "p", "steps": []}, {"id": 5, "steps": [RULE]}])
def test_what_is_no_definition_at_all_is_refused(data: Any) -> None:
    assert problems(data)


def test_depth_and_number_of_steps_are_bounded() -> None:
    step: dict[str, Any] = RULE
    for depth in range(9):
        step = {"id": f"d{depth}", "branch": [{"steps": [step]}]}
    assert any("nested at most 8" in message for message in of_step(step).values())
    many = problems({"id": "p", "steps": [{**RULE, "id": f"s{i}"} for i in range(1001)]})
    assert many == {"/steps": "a process has at most 1000 steps, this one has 1001"}


def test_paths_join_the_ids_and_grants_are_read() -> None:
    inner = {"id": "in", "branch": [{"steps": [RULE]}]}
    data = {
        "id": "p", "steps": [{"id": "out", "for_each": {"items": "= input.x", "steps": [inner]}}], "timeout": "10m",
        "grants": {"integrations": {"erp": "*", "crm": ["read"]}, "datapool": {"orders": ["read"]}},
    }  # fmt: skip
    definition = parse_definition(data, FILES)
    assert [step.path for step in definition.all_steps()] == ["out", "out/in", "out/in/a"]
    assert definition.timeout_ms == 600_000
    grants = definition.grants
    assert grants.allows_action("erp", "anything")
    assert [grants.allows_action("crm", action) for action in ("read", "write")] == [True, False]
    assert [grants.allows_data("orders", access) for access in ("read", "write")] == [True, False]
    assert not grants.allows_action("other", "read")


def test_delays_grow_to_their_most_and_are_spread_over_the_upper_half() -> None:
    plain = Retry(max_attempts=9, initial_ms=1000, max_ms=5000, jitter=False)
    assert [plain.delay_ms(attempt, 0.5) for attempt in range(1, 6)] == [1000, 2000, 4000, 5000, 5000]
    assert Retry(backoff="constant", jitter=False).delay_ms(7, 0) == 1000
    assert [Retry(initial_ms=1000).delay_ms(1, fraction) for fraction in (0.0, 0.999)] == [500, 999]
    assert Retry(max_ms=10).delay_ms(100, 0.9) <= 10


TEXTS = ["= input.x", "a", "", "typescript", "1s", "steps/a.ts", "= ", "\\="]
WORDS = (
    "id steps rule code wait branch for_each datapool integration when retry items as expression decision language file source use "
    "action create limits grants for until timeout input collect max_attempts classes integrations x"
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(TEXTS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS.split()), inner, max_size=5),
    max_leaves=25,
)
SCHEMA = compile_schema(process_schema())


@settings(max_examples=400, deadline=None)
@given(data=JSON, steps=st.lists(JSON, max_size=3))
def test_no_document_breaks_the_parser_and_what_it_takes_suits_the_published_schema(data: Any, steps: list[Any]) -> None:
    for document in (data, {"id": "p", "steps": steps}):
        if not problems(document):
            assert SCHEMA.problems(document) == []


# -- templates


def test_texts_with_expressions_are_found_and_literals_kept() -> None:
    template = compile_template({"a": "= input.x", "b": ["x {{ input.y }} z", "\\= x", "{{ input.z }}", "plain"]}, "/t")
    assert [(e.text, e.pointer) for e in template.expressions] == [
        ("input.x", "/t/a"),
        ("input.y", "/t/b/0"),
        ("input.z", "/t/b/2"),
    ]
    filled = template.fill({e: e.text.upper() for e in template.expressions})
    assert filled == {"a": "INPUT.X", "b": ["x INPUT.Y z", "= x", "INPUT.Z", "plain"]}


def test_values_in_texts_are_written_as_javascript_would() -> None:
    template = compile_template("{{ a }}|{{ b }}|{{ c }}|{{ d }}|{{ e }}", "")
    values = dict(zip(template.expressions, [None, True, 2.0, [1, "x"], "t"], strict=True))
    assert template.fill(values) == '|true|2|[1,"x"]|t'


def test_filling_does_not_touch_the_template() -> None:
    template = compile_template({"a": {"b": "= x", "c": []}}, "")
    first = template.fill({template.expressions[0]: {"n": 1}})
    first["a"]["c"].append(1)
    assert template.fill({template.expressions[0]: 2}) == {"a": {"b": 2, "c": []}}


def test_an_overlong_or_too_deep_value_is_refused() -> None:
    value: Any = "= x"
    for _ in range(70):
        value = [value]
    for bad in (value, "= " + "x" * 10_001):
        with pytest.raises(TemplateInvalid):
            compile_template(bad, "/x")


@pytest.mark.parametrize(
    ("text", "is_present", "value"),
    [
        ("input.a[1].b", True, 7), ("input.a.length", False, None), ("input.a[5]", False, None), ("input.missing", False, None),
        ("input.constructor", False, None), ("input.text.length", False, None), ("input", True, {"a": [0, {"b": 7}], "text": "x"}),
        ("input.a['x']", None, None), ("true", False, None),
    ],
)  # fmt: skip
def test_a_plain_path_is_resolved_where_json_can_tell(text: str, is_present: bool | None, value: Any) -> None:
    expression = compile_template(f"= {text}", "").expressions[0]
    if is_present is None:
        assert expression.path is None
        return
    assert expression.path is not None
    assert resolve_path(expression.path, {"input": {"a": [0, {"b": 7}], "text": "x"}}) == (is_present, value)


def test_grants_name_secrets_processes_and_asking_people() -> None:
    definition = parse_definition({"id": "p", "steps": [RULE], "grants": {"secrets": ["a"], "processes": ["b"], "human": True}}, {})
    assert definition.grants == Grants(processes=frozenset({"b"}), secrets=frozenset({"a"}), human=True)
    assert "/grants/human" in of_step(RULE, grants={"human": "yes"})


@pytest.mark.parametrize(
    "step",
    [
        {"wait": {"event": "paid-{{ input.n }}", "timeout": "= input.within"}},
        {"process": {"use": "other", "input": "= input", "wait": False}},
        {"wait": {"for": "1s"}, "timeout": "5m"},
        {"human": {"kind": "choice", "title": "{{ input.n }}?", "choices": "= input.choices", "expires": "= input.within"}},
        {"human": {"kind": "input", "title": "x", "schema": {"type": "object"}, "details": ["= input.n"], "on_timeout": "fail"}},
    ],
)
def test_waits_may_contain_expressions_and_have_a_timeout(step: dict[str, Any]) -> None:
    assert of_step({"id": "a", **step}) == {}


@pytest.mark.parametrize(
    ("trigger", "pointer"),
    [
        ({"schedule": {"cron": "* * * *"}}, "/schedule/cron"),
        ({"schedule": {"cron": "0 0 31 2 *"}}, "/schedule/cron"),
        ({"schedule": {"cron": "0 6 * * *", "timezone": "Europe/Bern"}}, "/schedule/timezone"),
        ({"schedule": {"cron": "0 6 * * *", "max_missed": 5}}, "/schedule/max_missed"),
        ({"schedule": {"cron": "0 6 * * *", "input": "x"}}, "/schedule/input"),
        ({"schedule": {"cron": "0 6 * * *"}, "process": {"id": "p"}}, ""),
        ({"webhook": {"path": "/orders", "verify": {"kind": "none"}}}, "/webhook/path"),
        ({"webhook": {"path": "orders"}}, "/webhook/verify"),
        ({"webhook": {"path": "orders", "verify": {"kind": "github", "secret": "plain"}}}, "/webhook/verify/secret"),
        ({"webhook": {"path": "o", "verify": {"kind": "hmac", "secret": "= secrets.a"}}}, "/webhook/verify/header"),
        ({"integration": {"use": "a", "trigger": "b", "every": "1s"}}, "/integration/every"),
        ({"integration": {"use": "a", "trigger": "b", "query": {"x": "= 1"}}}, "/integration/query"),
        ({"datapool": {"collection": "c", "filter": {"a": {"_near": 1}}}}, "/datapool/filter/a/_near"),
        ({"process": {"id": "p", "on": ["done"]}}, "/process/on/0"),
        ({"id": "Nightly", "document": {}}, "/id"),
    ],
)
def test_an_invalid_trigger_is_reported_with_its_pointer(trigger: Any, pointer: str) -> None:
    assert list(of_step(RULE, triggers=[trigger])) == [f"/triggers/0{pointer}"]


def test_triggers_have_ids_and_paths_of_their_own() -> None:
    hook = {"webhook": {"path": "same", "verify": {"kind": "none"}}}
    result = of_step(RULE, triggers=[{"id": "a", **hook}, {"id": "b", **hook}, {"id": "a", "document": {}}])
    assert set(result) == {"/triggers/1/webhook/path", "/triggers/2/id"}
