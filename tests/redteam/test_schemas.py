"""Surface: JSON Schemas and values made to cost: bombs that unfold, and values with a million errors, on every way in."""

import json
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from appliance.agents.tools import Caller
from appliance.connectors.registry import load_registry
from appliance.core.errors import Overloaded, ValidationFailed
from appliance.core.json_schema import OutOfBounds, Question, SchemaInvalid, compile_schema
from appliance.core.json_schema.checking import MOST_CHECKS
from appliance.core.json_schema.costs import MOST_COMPARED
from appliance.core.json_schema.schema import list_problems
from appliance.core.json_schema.values import as_json, exact_work
from appliance.governance import subject_of
from appliance.governance.approvals.human_requests import HumanRequest, check_answer
from appliance.sandbox import Pool, Settings
from appliance.sandbox.evaluation import schema_checks
from appliance.sandbox.evaluation.schema_checks import PLACES_EACH
from appliance.sandbox.pool.conversation import Conversation, Lost
from appliance.sandbox.wire import Header
from appliance.testing.running import Running
from tests.api.resources import Resources, fresh
from tests.sites.route_shop import SAME, deploy

PREFIX = "/api/v1"
# An error of the library takes about 2 KB: three times this many take more than the bound below.
ERRORS = 150_000
MOST_MEMORY_KB = 100 << 10
GENEROUS_SECONDS = 20.0
NO_STEPS = [{"id": "answer", "rule": {"expression": "= 1"}}]


def chain(kind: str, length: int, times: int = 2) -> dict[str, Any]:
    """Definitions d0, d1 … each of which leads to the next so many times: `times` to the power of `length` when written out."""
    links = {f"d{n}": {kind: [{"$ref": f"#/$defs/d{n + 1}"}] * times} for n in range(length)}
    return {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {**links, f"d{length}": {"type": "integer"}}}


def dynamic(length: int) -> dict[str, Any]:
    links = {
        f"d{n}": {"$dynamicAnchor": f"d{n}", "anyOf": [{"$dynamicRef": f"#d{n + 1}"}] * 2} for n in range(length)
    }  # fmt: skip
    return {"$dynamicRef": "#d0", "$defs": {**links, "end": {"$dynamicAnchor": f"d{length}", "type": "integer"}}}


def implied(length: int) -> dict[str, Any]:
    """As `chain`, by conditions and by what another member demands."""
    links = {
        f"d{n}": {"if": {"$ref": f"#/$defs/d{n + 1}"}, "else": {"$ref": f"#/$defs/d{n + 1}"}} for n in range(0, length, 2)
    } | {
        f"d{n}": {"not": {"$ref": f"#/$defs/d{n + 1}"}, "dependentSchemas": {"a": {"$ref": f"#/$defs/d{n + 1}"}}}
        for n in range(1, length, 2)
    }  # fmt: skip
    return {"$ref": "#/$defs/d0", "$defs": {**links, f"d{length}": {"type": "integer"}}}


UNFOLDING = {
    "anyOf": chain("anyOf", 28), "allOf": chain("allOf", 28), "oneOf": chain("oneOf", 28), "ten ways": chain("anyOf", 9, 10),
    "dynamic": dynamic(28), "conditions": implied(28),
}  # fmt: skip


@pytest.mark.parametrize("schema", UNFOLDING.values(), ids=UNFOLDING)
def test_a_schema_that_unfolds_without_end_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaInvalid, match=r"the part at #.* applies more than 100,000 subschemas to one value; refer to"):
        compile_schema(schema)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (chain("allOf", 600, 1), "more than 500 references"),
        ({"properties": {f"p{n}": {"items": {}} for n in range(6_000)}}, "more than 10,000 subschemas"),
        ({"enum": list(range(200_001))}, "more than 200,000 values"),
        ({"items": {"enum": [{"a": n} for n in range(15_000)]}}, "the enum at #/items has too many objects"),
        ({"enum": [n if n % 2 else str(n) for n in range(15_000)]}, "values of mixed types"),
    ],
)
def test_a_schema_that_is_too_large_or_too_deep_is_refused(schema: dict[str, Any], why: str) -> None:
    with pytest.raises(SchemaInvalid, match=why):
        compile_schema(schema)


def test_a_bomb_of_shared_parts_is_refused() -> None:
    """As YAML makes them by aliases: small in memory, without end when written out."""
    part: Any = {"type": "integer"}
    for _ in range(40):
        part = {"properties": {"a": part, "b": part}}
    with pytest.raises(SchemaInvalid, match="more than"):
        compile_schema(part)


# The longest enum that may be used: whatever is held against it is compared with each.
OBJECTS = [{"a": n} for n in range(MOST_COMPARED // 35)]
# Schemas that may be used, with a value that takes seconds or gigabytes: they must not be checked where all others wait.
SELF = {"anyOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}, {"type": "integer"}]}
UNEVALUATED: dict[str, Any] = {}
for _ in range(12):
    UNEVALUATED = {"unevaluatedProperties": False, "anyOf": [UNEVALUATED, {"properties": {"a": {"type": "integer"}}}]}


def nested(depth: int, end: Any) -> Any:
    for _ in range(depth):
        end = [end]
    return end


COSTLY: dict[str, tuple[dict[str, Any], Any]] = {
    "enum of objects": ({"items": {"enum": OBJECTS}}, [{"a": -1}] * 40_000),
    "enum of several types": ({"items": {"enum": [n if n % 2 else {"a": n} for n in range(3_800)]}}, [3_799] * 40_000),
    "200 allOf": ({"items": {"allOf": [{"type": "object", "required": ["a"]} for _ in range(200)]}}, [{"a": 1}] * 30_000),
    "itself in three places": (SELF, nested(40, "x")),
    "unevaluated within unevaluated": (UNEVALUATED, {"a": 1, "b": 2}),
    "patterns for every name": ({"patternProperties": {f"x{n}$": {} for n in range(200)}}, {f"n{n}": 1 for n in range(20_000)}),
    "a large pattern": ({"pattern": r"(?:\pL|\pN){1,200}!$"}, "éa" * 5_000),
    "unique in unique": ({"$ref": "#/$defs/u", "$defs": {"u": {"uniqueItems": True, "items": {"$ref": "#/$defs/u"}}}},
                         [nested(200, n) for n in range(300)]),
    "contains": ({"allOf": [{"contains": {"const": [n]}} for n in range(300)]}, list(range(40_000))),
    "a loop": ({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}},
               [1]),
    "a deep value": ({"items": {"$ref": "#"}}, nested(1_900, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", COSTLY)
def test_costly_checks_are_never_estimated_as_cheap(name: str) -> None:
    schema, value = COSTLY[name]
    compiled = compile_schema(schema)
    work = exact_work(value, compiled.costs)
    assert work.checks > MOST_CHECKS or not work.is_shallow


def test_a_value_nested_beyond_the_native_stack_is_refused() -> None:
    problems = compile_schema({"items": {"$ref": "#"}}).problems(nested(100_000, 1))
    assert [each.code for each in problems] == ["too_costly"]


@pytest.fixture(scope="module")
def checker() -> Iterator[Pool]:
    """A pool of which nothing runs but the checker of schemas."""
    pool = Pool(Settings(processes=1, slots=1))
    yield pool
    pool.stop()


def ask(pool: Pool, schema: Mapping[str, Any], value: Any, namespace: str = "acme") -> Any:
    text = as_json(value)
    assert text is not None
    return pool.schemas.check(Question(json.dumps(schema).encode(), text, namespace))


def test_the_worker_reports_the_same_problems_as_the_library(checker: Pool) -> None:
    schema = {
        "type": "object",
        "required": ["a", "b"],
        "properties": {"a": {"type": "integer"}, "b": {}},
        "additionalProperties": False,
    }
    value = {"a": "x", "c": 1}
    assert ask(checker, schema, value).problems == list_problems(compile_schema(schema).validator, value)
    assert ask(checker, schema, {"a": 1, "b": 2}).problems == []


def test_endless_errors_are_cut_to_the_first_and_marked_incomplete(checker: Pool) -> None:
    findings = ask(checker, {"items": {"type": "object"}}, [0] * ERRORS * 3)
    assert (findings.is_complete, len(findings.problems), findings.problems[0].pointer) == (False, 1, "/0")
    assert ask(checker, {"items": {"type": "object"}}, [0]).is_complete  # the next one is served by another process


def test_each_tenant_has_its_own_few_check_slots(checker: Pool) -> None:
    schema = chain("allOf", 24)
    ends: list[str] = []

    def attack() -> None:
        try:
            ends.append(f"{len(ask(checker, schema, {'a': 1}, 'globex').problems)} problems")
        except (Overloaded, OutOfBounds) as error:
            ends.append(type(error).__name__)

    threads = [threading.Thread(target=attack) for _ in range(PLACES_EACH + 4)]
    for each in threads:
        each.start()
    pause = threading.Event()
    while ends.count("Overloaded") < 3:  # refused at once: so all places of that tenant are taken
        assert len(ends) < len(threads), ends
        pause.wait(0.01)
    assert ask(checker, {"type": "integer"}, 1).problems == []
    served_later = sum(each.is_alive() for each in threads)
    for each in threads:
        each.join()
    assert served_later  # acme waited for a turn, not for all that globex had sent
    assert ends.count("Overloaded") >= 3  # more if a turn came too late, on a busy machine


def test_schemas_cached_for_one_tenant_break_no_check_of_another(checker: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_checks, "CHECK_SECONDS", 60.0)  # memory is tested here, however slow the machine is
    value = [{"a": n} for n in range(100_000)]
    for number in range(16):  # each is a schema that is kept, and takes six megabytes
        ask(checker, {"items": {"enum": [{"a": f"{number}-{n}"} for n in range(4_000)]}}, [{"a": 1}], "globex")
        assert ask(checker, {"items": {"type": "object"}}, value).problems == []


def test_a_check_lost_with_its_process_is_repeated(checker: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    operations: list[str] = []
    ask_once = Conversation.ask

    def lose(conversation: Conversation, header: Header, *parts: bytes) -> tuple[Header, list[bytes]]:
        operations.append(str(header["op"]))
        if len(operations) in lost:
            raise Lost
        return ask_once(conversation, header, *parts)

    assert ask(checker, {"type": "integer"}, 1, "globex").problems == []
    monkeypatch.setattr(Conversation, "ask", lose)
    lost = {1}
    assert ask(checker, {"type": "integer"}, 1).problems == []
    assert len(operations) == 2
    operations.clear()
    lost = {1, 2}
    with pytest.raises(OutOfBounds, match="takes more than 64 MB"):
        ask(checker, {"type": "integer"}, 1)
    assert len(operations) == 2, "nothing but this question was in the second process"


# -- over the ways by which data comes in, of a running appliance


def peak_kb() -> int:
    """The most memory that this process held since `forget_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


@pytest.fixture
def within_memory(running: Running) -> Iterator[None]:
    """Whatever a test sends, the appliance needs little memory for it."""
    forget_peak()
    before = peak_kb()
    yield
    assert peak_kb() - before < MOST_MEMORY_KB


def refusal(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 422, answer.text[:500]
    return dict(answer.json()["error"])


def publish(client: httpx.Client, schema: Mapping[str, Any]) -> str:
    name = fresh("bomb")
    client.put(f"{PREFIX}/processes/{name}", json={"id": name, "input": schema, "steps": NO_STEPS}).raise_for_status()
    client.post(f"{PREFIX}/processes/{name}/publish", json={}).raise_for_status()
    return name


def execute(client: httpx.Client, process: str, data: Any) -> httpx.Response:
    return client.post(f"{PREFIX}/processes/{process}/execute", json=data, params={"wait": 30})


@pytest.mark.parametrize("kind", ["anyOf", "allOf"])
def test_a_bomb_is_not_published(acme: httpx.Client, kind: str) -> None:
    name = fresh("bomb")
    draft = {"id": name, "input": chain(kind, 28), "steps": NO_STEPS}
    acme.put(f"{PREFIX}/processes/{name}", json=draft).raise_for_status()
    error = refusal(acme.post(f"{PREFIX}/processes/{name}/publish", json={}))
    assert error["code"] == "definition_invalid"
    assert [each["pointer"] for each in error["details"]] == ["/input"]
    assert "applies more than 100,000 subschemas to one value" in error["details"][0]["message"]


def test_a_check_that_takes_too_long_is_refused_while_others_are_served(
    running: Running, acme: httpx.Client, globex: httpx.Client, within_memory: None
) -> None:
    schema = {"type": "object", "properties": {"a": {"items": {"enum": OBJECTS}}}}
    process, quick = publish(globex, schema), publish(acme, {"type": "object"})
    answers: list[httpx.Response] = []
    value = {"a": [OBJECTS[-1]] * 80_000}  # each is compared with all of them
    attack = threading.Thread(target=lambda: answers.append(execute(globex, process, value)))
    attack.start()
    longest, served = 0.0, 0
    while attack.is_alive():
        began = time.monotonic()
        execute(acme, quick, {}).raise_for_status()
        longest, served = max(longest, time.monotonic() - began), served + 1
    attack.join()
    (detail,) = refusal(answers[0])["details"]
    assert detail["code"] == "too_costly"
    assert "takes longer than 2 s" in detail["message"]
    assert served > 3
    assert longest < GENEROUS_SECONDS / 10


BAD_LIST = {"type": "object", "properties": {"orders": {"type": "string"}, "products": {"items": {"type": "object"}}}}
BOMB = {"orders": 1, "products": [0] * ERRORS}


def test_errors_without_end_through_an_execution(acme: httpx.Client, within_memory: None) -> None:
    error = refusal(execute(acme, publish(acme, BAD_LIST), BOMB))
    assert {each["code"] for each in error["details"]} <= {"type", "problems_not_listed"}
    assert len(error["details"]) <= 101


def test_errors_without_end_through_a_public_route(running: Running, acme: httpx.Client, within_memory: None) -> None:
    app = fresh("shop")
    route = {"path": "/api/orders", "method": "POST", "process": publish(acme, BAD_LIST), "wait": 30, "access": "public"}
    deploy(acme, app, [route]).raise_for_status()
    with running.client(f"{app}--acme.content.localhost", SAME) as stranger:
        answer = stranger.post("/api/orders", json=BOMB)
    assert len(refusal(answer)["details"]) <= 101


def test_errors_without_end_through_an_answer_of_a_person(running: Running, within_memory: None) -> None:
    """Many alternatives for many items: every branch that does not fit is an error."""
    branches = [{"type": "object", "required": [f"m{n}"]} for n in range(300)]
    request = HumanRequest("input", "?", None, schema={"items": {"anyOf": branches}})  # type: ignore[arg-type]
    with pytest.raises(ValidationFailed) as caught:
        check_answer(request, [0] * 20_000, namespace="acme")
    assert 1 <= len(caught.value.details) <= 101


def test_errors_without_end_through_the_arguments_of_a_tool(running: Running, within_memory: None) -> None:
    scope = running.tenant("acme")
    arguments = {"integration": "x", "operation": "y", "params": {}, **{f"m{n}": 0 for n in range(ERRORS)}}
    with pytest.raises(ValidationFailed) as caught:
        running.services.agents.tools.call(Caller(scope, subject_of(scope)), "execute_tenant_integration", arguments)
    assert 1 <= len(caught.value.details) <= 101


def test_errors_without_end_through_the_input_of_an_action(ours: Resources, within_memory: None) -> None:
    params = {"url": "/orders", "headers": {f"h{n}": 0 for n in range(ERRORS // 2)}}
    answer = ours.client.post(f"{PREFIX}/integrations/{ours.integration()}/execute", json={"action": "get", "input": params})
    assert 1 <= len(refusal(answer)["details"]) <= 101


# -- ordinary schemas are accepted


def every_schema() -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, plugin in load_registry().installed.items():
        yield f"{name}: settings", plugin.connector.settings_schema
        for action in plugin.connector.actions:
            yield f"{name}.{action.name}: input", action.input
            yield f"{name}.{action.name}: output", action.output
        for trigger in plugin.connector.triggers:
            yield f"{name}.{trigger.name}: query", trigger.query
            yield f"{name}.{trigger.name}: item", trigger.item
    for path in Path("appliance/starter").rglob("process.yaml"):
        yield str(path), yaml.safe_load(path.read_text())["input"]


def test_every_schema_of_the_plugins_and_the_starter_is_accepted_and_cheap_for_a_page_of_values() -> None:
    page = 4_096
    schemas = dict(every_schema())
    assert len(schemas) > 200
    for name, schema in schemas.items():
        assert compile_schema(schema).costs.most_checks * page / 5 < MOST_CHECKS, name


def test_the_sample_of_the_starter_is_checked_at_once() -> None:
    process = yaml.safe_load(Path("appliance/starter/processes/order-intake/process.yaml").read_text())
    compiled = compile_schema(process["input"])
    sample = json.loads(Path("appliance/starter/sample/input.json").read_text())
    assert exact_work(sample, compiled.costs).checks < MOST_CHECKS / 10
    assert compiled.problems(sample) == []
