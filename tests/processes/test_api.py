"""Processes and executions over HTTP."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.testing.running import Running

from .world import code, rule, wait_until

BASE = "/api/v1/processes"
Make = Callable[..., str]


def data(answer: httpx.Response, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()["data"]


def error(answer: httpx.Response, status: int) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()["error"]


@pytest.fixture
def make(acme: httpx.Client, request: pytest.FixtureRequest) -> Make:
    """Publish a process of these steps; answers its address."""

    def publish(steps: list[dict[str, Any]], name: str = "", **more: Any) -> str:
        slug = request.node.name.partition("[")[0].removeprefix("test_").replace("_", "-")[:50] + name
        address = f"{BASE}/{slug.rstrip('-')}"
        data(acme.put(address, json={"steps": steps, **more}), 201)
        data(acme.post(f"{address}/publish", json={}))
        return address

    return publish


WAIT = {"id": "pause", "wait": {"for": "1h"}}


def test_execute_answers_the_result_or_the_place_in_the_queue(acme: httpx.Client, make: Make) -> None:
    address = make([rule("a", "= input.n * 2")])
    done = acme.post(f"{address}/execute?wait=10&label=L", json={"n": 4})
    view = data(done)
    assert (view["status"], view["output"], view["label"], view["version"]) == ("succeeded", 8, "L", 1)
    assert done.headers["location"] == view["links"]["self"]
    assert view["duration_ms"] >= 0
    accepted = data(acme.post(f"{address}/execute", json={"n": 1}), 202)
    assert accepted["status"] in ("queued", "running", "succeeded")
    if accepted["status"] == "queued":
        assert accepted["queue"]["position"] == accepted["queue"]["ahead"] + 1


def test_an_execution_that_failed_in_time_is_200_with_the_error(acme: httpx.Client, make: Make) -> None:
    head = ("type T = {a: string}", "export default async (input: any) => {", "  const t: T = {a: 'x'}")
    lines = (*head, "  throw new TypeError(`bad ${t.a}`)", "}")
    source = "\n".join(lines)
    address = make([{"id": "boom", "code": {"language": "typescript", "source": source}}])
    view = data(acme.post(f"{address}/execute?wait=10", json={}))
    assert view["status"] == "failed"
    result = view["error"]
    assert result["step"] == "boom"
    assert result["message"] == "TypeError: bad x"
    assert result["position"] == {"file": "steps/boom.ts", "line": 4, "column": result["position"]["column"]}
    assert result["failure_class"] == "user_code"
    assert result["next"]
    logged = data(acme.get(f"{view['links']['self']}/logs"))
    assert any(line["step"] == "boom" and line["level"] == "error" for line in logged)


def test_steps_journal_and_logs_are_read_and_belong_to_their_tenant(acme: httpx.Client, globex: httpx.Client, make: Make) -> None:
    body = """
      api.log.info('hello', {n: 1});
      console.warn('careful');
      return api.datapool.query('none-such', {}).catch((e: any) => e.code);
    """
    address = make([code("a", body), rule("b", "= steps.a")], grants={"datapool": {"none-such": ["read"]}})
    view = data(acme.post(f"{address}/execute?wait=10", json={}))
    assert view["output"] == "not_found"
    address_of_view = view["links"]["self"]
    steps = data(acme.get(f"{address_of_view}/steps"))
    assert [(s["step"], s["kind"], s["status"], s["result_source"]) for s in steps] == [
        ("a", "code", "succeeded", "executed"), ("b", "rule", "succeeded", "executed"),
    ]  # fmt: skip
    journal = data(acme.get(f"{address_of_view}/journal"))
    assert [(entry["method"], entry["ok"], entry["answer"].get("code")) for entry in journal] == [
        ("datapool.query", False, "not_found"), ("end", True, None),
    ]  # fmt: skip
    assert {line["message"] for line in data(acme.get(f"{address_of_view}/logs"))} >= {"hello", "careful"}
    for tail in ("", "/steps", "/journal", "/logs", "/events"):
        foreign, unknown = globex.get(f"{address_of_view}{tail}"), globex.get(f"{address_of_view[:-3]}abc{tail}")
        assert error(foreign, 404)["code"] == error(unknown, 404)["code"]


def test_the_journal_shows_clock_and_seed_and_the_beginning_of_what_is_long(acme: httpx.Client, make: Make) -> None:
    body = """
      const first = api.now();
      await api.datapool.query('none-such', {filter: 'x'.repeat(70_000)}).catch(() => null);
      const times = Array.from({length: 150}, () => api.now());
      return {first, last: times.slice(0, 100), dice: Math.random()};
    """
    address = make([code("a", body)])
    view = data(acme.post(f"{address}/execute?wait=10", json={}))
    call, end = data(acme.get(f"{view['links']['self']}/journal"))
    assert (call["call"], call["clock"]) == (1, [view["output"]["first"]])
    assert call["shortened"] == {"args": len('["none-such",{"filter":""}]') + 70_000}
    assert call["args"].startswith('["none-such",{"filter":"xxx')
    assert len(call["args"]) < 2_000
    assert (end["call"], end["method"], end["clock"], end["shortened"]) == (0, "end", view["output"]["last"], {"clock": 150})
    assert end["answer"]["random"] is True
    assert end["answer"]["seed"].isdigit()


def test_steps_of_a_long_for_each_come_in_pages(acme: httpx.Client, make: Make) -> None:
    address = make([{"id": "each", "for_each": {"items": "= input.items", "concurrency": 8, "steps": [rule("a", "= item")]}}])
    view = data(acme.post(f"{address}/execute?wait=20", json={"items": list(range(70))}))
    results: list[Any] = []
    cursor = ""
    while True:
        page = acme.get(f"{view['links']['steps']}?limit=30{cursor}").json()
        results += page["data"]
        if "next_cursor" not in page["meta"]:
            break
        cursor = f"&cursor={page['meta']['next_cursor']}"
    assert [run["step"] for run in results] == ["each"] + ["a"] * 70
    assert {run.get("iteration") for run in results} == {None, *map(str, range(70))}


def test_calls_without_a_grant_and_wrong_calls_are_refused_with_a_sentence(acme: httpx.Client, make: Make) -> None:
    body = """
      const told = async (call: () => Promise<unknown>) => {
        try { await call(); return 'done'; } catch (e: any) { return [e.code, e.message]; }
      };
      return [
        await told(() => api.datapool.create('secret-things', {})),
        await told(() => api.integrations.execute('erp', 'post', {})),
        await told(() => api.documents.get("doc_1")),
        await told(() => api.datapool.query()),
        await told(() => api.datapool.batch({operations: [{op: 'create', collection: 'secret-things', values: {}}]})),
      ];
    """
    view = data(acme.post(f"{make([code('a', body)])}/execute?wait=10", json={}))
    denied, action, document, wrong, batch = view["output"]
    assert denied[0] == action[0] == document[0] == batch[0] == "policy_denied"
    assert "grants: datapool: {secret-things: [write]}" in denied[1]
    assert "grants: integrations: {erp: [post]}" in action[1]
    assert "grants: documents: [read]" in document[1]
    assert wrong[0] == "validation_failed"


def test_events_are_followed_to_the_end_and_go_on_where_they_broke(acme: httpx.Client, make: Make) -> None:
    address = make([rule("a", "= 1"), rule("b", "= 2")])
    view = data(acme.post(f"{address}/execute?wait=10", json={}))

    def follow(after: str = "") -> list[tuple[str, str]]:
        headers = {"Last-Event-ID": after} if after else {}
        results: list[tuple[str, str]] = []
        with acme.stream("GET", view["links"]["events"], headers=headers) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            number = ""
            for line in answer.iter_lines():
                name, _, value = line.partition(": ")
                number = value if name == "id" else number
                if name == "event":
                    results.append((number, value))
        return results

    everything = follow()
    assert [kind for _, kind in everything] == ["running", "step", "step", "succeeded"]
    assert follow(everything[1][0]) == everything[2:]
    assert follow(everything[-1][0]) == []
    assert error(acme.get(view["links"]["events"], headers={"Last-Event-ID": "x"}), 422)["code"] == "validation_failed"


def test_lists_are_filtered_by_state_label_class_and_time(acme: httpx.Client, make: Make) -> None:
    address = make([rule("a", "= input.n.x")])
    for label, input_data in (("good", {"n": {"x": 1}}), ("bad", {}), ("bad", {})):
        data(acme.post(f"{address}/execute?wait=10&label={label}", json=input_data))
    listed = f"{address}/executions"
    assert len(data(acme.get(listed))) == 3
    assert [
        len(data(acme.get(f"{listed}?{q}"))) for q in ("status=failed", "label=good", "failure_class=validation&label=bad")
    ] == [2, 1, 2]
    assert data(acme.get(f"{listed}?until=2020-01-01T00:00:00Z")) == []
    assert acme.get(f"{listed}?status=odd").status_code in (400, 422)
    page = acme.get(f"{listed}?limit=2").json()
    rest = acme.get(f"{listed}?limit=2&cursor={page['meta']['next_cursor']}").json()
    assert len({e["execution_id"] for e in page["data"] + rest["data"]}) == 3
    slug = address.rpartition("/")[2]
    assert len(data(acme.get(f"/api/v1/executions?process_id={slug}&status=succeeded"))) == 1


def test_cancel_retry_and_forced_delete(acme: httpx.Client, make: Make) -> None:
    address = make([rule("a", "= 1"), WAIT])
    view = data(acme.post(f"{address}/execute?wait=0.3", json={}), 202)
    address_of_view = view["links"]["self"]
    waiting = wait_until(lambda: row if (row := data(acme.get(address_of_view)))["status"] == "waiting" else None)
    assert (waiting["wait_reason"], waiting["waiting_for"]["step"]) == ("timer", "pause")
    assert error(acme.post(f"{address_of_view}/retry", json={}), 409)["code"] == "conflict"
    assert data(acme.post(f"{address_of_view}/cancel", json={}))["status"] == "cancelled"
    assert error(acme.post(f"{address_of_view}/cancel", json={}), 409)["code"] == "execution_finished"
    retried = acme.post(f"{address_of_view}/retry", json={"from": "failed"})
    again = data(retried, 202)
    assert again["retry_of"] == view["execution_id"]
    assert retried.headers["location"] == again["links"]["self"]
    wait_until(lambda: data(acme.get(again["links"]["self"]))["status"] == "waiting")
    sources = {s["step"]: s["result_source"] for s in data(acme.get(again["links"]["steps"]))}
    assert sources == {"a": "reused", "pause": "executed"}
    assert error(acme.delete(address), 409)["code"] == "conflict"
    data(acme.delete(f"{address}?force=true"))
    assert error(acme.get(address_of_view), 404)["code"] == "not_found"


def test_the_same_idempotency_key_is_the_same_execution(acme: httpx.Client, make: Make) -> None:
    address = make([rule("a", "= 1")])
    answers = [acme.post(f"{address}/execute?wait=10", json={"x": 1}, headers={"Idempotency-Key": "k-1"}) for _ in range(2)]
    assert len({data(answer)["execution_id"] for answer in answers}) == 1
    assert len(data(acme.get(f"{address}/executions"))) == 1
    other = acme.post(f"{address}/execute?wait=10", json={"x": 2}, headers={"Idempotency-Key": "k-1"})
    assert error(other, 422)["code"] == "idempotency_mismatch"


def test_after_a_day_an_idempotency_key_is_new_again(acme: httpx.Client, make: Make) -> None:
    path = f"{make([rule('a', '= 1')])}/execute?wait=10"
    once = {"Idempotency-Key": "every-day"}
    first = data(acme.post(path, json={"n": 1}, headers=once))

    def age() -> None:
        db.execute("UPDATE idempotency SET created_at = created_at - 86400001 WHERE key = 'every-day'")
        db.execute("UPDATE execution SET created_at = created_at - 86400001 WHERE id = ?", (first["execution_id"],))

    db.write(age)
    second = data(acme.post(path, json={"n": 2}, headers=once))
    assert second["execution_id"] != first["execution_id"]
    assert second["input"] == {"n": 2}


def test_a_key_whose_record_was_deleted_still_refuses_another_input(acme: httpx.Client, make: Make) -> None:
    path = f"{make([rule('a', '= 1')])}/execute?wait=10"
    once = {"Idempotency-Key": "caller-left"}
    first = data(acme.post(path, json={"n": 1}, headers=once))
    db.write(lambda: db.execute("DELETE FROM idempotency WHERE key = 'caller-left'"))
    assert error(acme.post(path, json={"n": 2}, headers=once), 422)["code"] == "idempotency_mismatch"
    assert data(acme.post(path, json={"n": 1}, headers=once))["execution_id"] == first["execution_id"]


def test_versions_are_published_pinned_executed_and_rolled_back(acme: httpx.Client, make: Make) -> None:
    address = make([rule("a", "= 'one'")])
    assert data(acme.post(f"{address}/publish", json={"message": "again"}))["version"] == 1, "an unchanged draft"
    data(acme.put(address, json={"steps": [rule("a", "= 'two'")]}))
    assert error(acme.post(f"{address}/publish", json={"if_current": 7}), 412)["code"] == "version_conflict"
    assert data(acme.post(f"{address}/publish", json={"if_current": 1}))["version"] == 2
    execute = f"{address}/execute?wait=10"
    assert data(acme.post(execute, json={}))["output"] == "two"
    assert data(acme.post(f"{execute}&version=1", json={}))["output"] == "one"
    assert error(acme.post(f"{execute}&version=9", json={}), 404)["code"] == "not_found"
    assert data(acme.post(f"{address}/rollback", json={"version": 1}))["version"] == 1
    assert data(acme.post(execute, json={}))["output"] == "one"
    assert [v["version"] for v in data(acme.get(f"{address}/versions"))] == [2, 1]
    assert data(acme.get(f"{address}/versions/2"))["definition"]["steps"][0]["rule"] == {"expression": "= 'two'"}


def test_an_unfinished_draft_is_saved_and_refused_at_publish_with_every_problem(acme: httpx.Client) -> None:
    address = f"{BASE}/unfinished"
    draft = {"definition": {"steps": [{"id": "a", "rule": {"expression": "= 1 +"}}, code("b", "return 1 +")]}, "files": {}}
    created = acme.put(address, json=draft)
    assert (created.status_code, created.headers["Location"]) == (201, address)
    assert error(acme.post(f"{address}/execute", json={}), 409)["code"] == "not_published"
    refused = error(acme.post(f"{address}/publish", json={}), 422)
    assert refused["code"] == "definition_invalid"
    assert {d["pointer"] for d in refused["details"]} == {"/steps/0/rule/expression", "/steps/1/code"}
    assert any("steps/b.ts:" in d["message"] for d in refused["details"])


def test_an_output_of_null_is_returned(acme: httpx.Client, make: Make) -> None:
    address = make([code("nothing", "return"), rule("never", "= 1") | {"when": "= false"}])
    done = data(acme.post(f"{address}/execute?wait=20", json={}))
    assert (done["status"], done["output"]) == ("succeeded", None)
    assert [step["output"] for step in data(acme.get(done["links"]["steps"]))] == [None, None]


def test_problems_of_structure_and_of_code_are_reported_together(acme: httpx.Client) -> None:
    steps = [{"id": "a", "rule": {"expression": "= 1 +"}}, code("b", "return 1 +"), {"id": "c", "wait": {"for": "soon"}}]
    data(acme.put(f"{BASE}/two-kinds", json={"steps": steps}), 201)
    problems = data(acme.post(f"{BASE}/two-kinds/validate"))["problems"]
    assert {p["pointer"] for p in problems} == {"/steps/0/rule/expression", "/steps/1/code", "/steps/2/wait/for"}


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_problems_of_a_yaml_draft_carry_lines(acme: httpx.Client, is_wrapped: bool) -> None:
    text = "id: in-yaml\nsteps:\n  - id: a\n    rule:\n      expression: '= 1'\n  - id: a\n    wait: {for: soon}\n"
    if is_wrapped:
        text = "definition:\n" + "".join(f"  {line}\n" for line in text.splitlines())
    data(acme.put(f"{BASE}/in-yaml", content=text, headers={"Content-Type": "application/yaml"}), 200 if is_wrapped else 201)
    answer = acme.post(f"{BASE}/in-yaml/validate", content=text, headers={"Content-Type": "application/yaml"})
    problems = {p["pointer"]: p["line"] for p in data(answer)["problems"]}
    shift = 1 if is_wrapped else 0
    assert problems == {"/steps/1/id": 6 + shift, "/steps/1/wait/for": 7 + shift}


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        ("{", "application/json", 400), ("[]", "application/json", 422), ("a: [", "application/yaml", 400),
        ("a: &a [*a]", "application/yaml", 400), ("x", "text/plain", 415), ('{"definition": 5}', "application/json", 422),
        ('{"definition": {"steps": []}, "filez": {}}', "application/json", 422),
        ('{"id": "other", "steps": []}', "application/json", 422),
        ('{"definition": {"steps": []}, "files": {"../x": ""}}', "application/json", 422),
    ],
)  # fmt: skip
def test_bad_drafts_are_refused_and_leave_nothing(acme: httpx.Client, body: str, kind: str, status: int) -> None:
    address = f"{BASE}/never-made"
    error(acme.put(address, content=body, headers={"Content-Type": kind}), status)
    assert error(acme.get(address), 404)["code"] == "not_found"


@pytest.mark.parametrize(
    "query", ["wait=61", "wait=x", "priority=11", "label=", "run_at=tomorrow", "run_at=2999-01-01T00:00:00Z", "odd=1"]
)
def test_bad_parameters_of_execute_are_refused(acme: httpx.Client, query: str) -> None:
    address = f"{BASE}/bad-parameters"
    acme.put(address, json={"steps": [rule("a", "= 1")]})
    acme.post(f"{address}/publish", json={})
    assert acme.post(f"{address}/execute?{query}", json={}).status_code in (400, 422)
    assert data(acme.get(f"{address}/executions")) == []


def test_scheduled_executions_are_listed_and_cancelled(acme: httpx.Client, make: Make) -> None:
    address = make([rule("a", "= 1")])
    run_at = clock.rfc3339(clock.now_ms() + 3_600_000)
    view = data(acme.post(f"{address}/execute?run_at={run_at}", json={}), 202)
    assert (view["status"], view["run_at"]) == ("scheduled", run_at)
    assert data(acme.post(f"{view['links']['self']}/cancel", json={}))["status"] == "cancelled"


def test_a_flood_of_calls_or_logs_and_a_loop_end_in_coded_failures(acme: httpx.Client, make: Make) -> None:
    bodies = {
        "calls": "for (let i = 0; i < 2000; i++) await api.datapool.query('x', {}).catch(() => 0)",
        "logs": "for (;;) console.log('x'.repeat(1000))",
        "loop": "for (;;) {}",
        "memory": "const a = []; for (;;) a.push(new Array(100000).fill(1))",
    }
    classes = {}
    for name, body in bodies.items():
        step = code("a", body, limits={"time": "3s", "memory_mb": 16})
        failure = data(acme.post(f"{make([step], name)}/execute?wait=20", json={}))["error"]
        classes[name] = failure["failure_class"]
        assert failure["next"]
        assert json.dumps(failure).count("Traceback") == 0
    assert classes["loop"] == "timeout"
    assert classes["memory"] == "memory"
    assert set(classes.values()) <= {"timeout", "memory", "user_code", "validation"}


def test_a_draining_appliance_takes_nothing_new(running: Running, acme: httpx.Client, make: Make) -> None:
    address = make([rule("a", "= 1")])
    flow = running.services.processes
    flow._draining.set()
    try:
        refused = acme.post(f"{address}/execute", json={})
        assert error(refused, 503)["code"] == "draining"
        assert refused.headers["retry-after"]
    finally:
        flow._draining.clear()
    data(acme.post(f"{address}/execute?wait=5", json={}))


def test_the_list_says_which_processes_are_paused(acme: httpx.Client, make: Make) -> None:
    address = make([rule("a", "= 1")])
    paused_at = data(acme.post(f"{address}/pause"))["paused_at"]
    listed = {each["id"]: each for each in data(acme.get(f"{BASE}?limit=500"))}
    assert listed[address.rpartition("/")[2]]["paused_at"] == paused_at
    assert data(acme.post(f"{address}/resume-triggers")).get("paused_at") is None
