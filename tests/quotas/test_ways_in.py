"""Each quota is reached by every way into the appliance, and each refusal says which it is."""

import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import httpx
import pytest

from appliance.app.quotas import give_warnings
from appliance.core import clock
from appliance.core.database import caches, db
from appliance.quotas import KINDS, daily, notices
from appliance.solutions import write_zip
from appliance.tenants import quota_settings
from appliance.testing.running import Running
from tests.api.resources import Resources, fresh
from tests.console.browser import Browser
from tests.mcp.client import PASSWORD, call_tool

TENANT = "crowded"
OWNER = "owner@crowded.test"
WRITING = """
export default async function (input, api) {
  try { return {id: (await api.datapool.create(input.collection, {number: input.number, total: 1})).id}; }
  catch (error) { return {code: error.code, message: error.message}; }
}
"""
Limit = Callable[[str, int], None]


@pytest.fixture(scope="session")
def crowded(running: Running) -> Iterator[Resources]:
    """A tenant of this module's own, whose quotas the tests set."""
    running.user(OWNER, PASSWORD, running.tenant(TENANT).tenant_id)
    with running.api(TENANT) as client:
        yield Resources(running, TENANT, client)


@pytest.fixture
def room(running: Running, crowded: Resources) -> Iterator[Limit]:
    """Gives the tenant a quota of what it uses now and some more."""

    def give(name: str, more: int) -> None:
        caches.empty_all()  # what is shown may be a second old
        used = running.services.limits.quotas.read_state(crowded.scope, name).used
        text = f"{used + more}{'B' if name == 'storage' else ''}"
        quota_settings.change_quotas(crowded.scope, {name: text})
        caches.empty_all()

    yield give
    quota_settings.change_quotas(crowded.scope, dict.fromkeys(KINDS, "default"))


def send(crowded: Resources, method: str, path: str, **more: Any) -> httpx.Response:
    return crowded.client.request(method, f"/api/v1{path}", **more)


def check(answer: httpx.Response, status: int, code: str, quota: str) -> dict[str, Any]:
    """The error of an answer that names its quota, what is used of it, and whom to ask."""
    error: dict[str, Any] = answer.json()["error"]
    assert (answer.status_code, error["code"], error["quota"]) == (status, code, quota), answer.text
    assert isinstance(error["used"], int)
    assert isinstance(error["limit"], int)
    assert "ask the operator" in error["message"]
    return error


# -- entities


def test_entities_are_limited_over_rest_and_deleting_gives_room(crowded: Resources, room: Limit) -> None:
    collection = crowded.collection()
    first = crowded.entity(collection)
    room("entities", 2)
    path = f"/datapool/{collection}/entities"
    answers = [send(crowded, "POST", path, json={"number": f"{n}", "total": 1}) for n in range(3)]
    assert [answer.status_code for answer in answers] == [201, 201, 507]
    error = check(answers[2], 507, "storage_full", "entities")
    assert error["used"] == error["limit"]
    assert send(crowded, "PATCH", f"{path}/{first}", json={"total": 2}).status_code == 200, "changing is no adding"
    upsert = {"op": "upsert", "collection": collection, "key": ["number"], "values": {"number": "1", "total": 5}}
    assert send(crowded, "POST", "/datapool/batch", json={"operations": [upsert]}).status_code == 200
    assert send(crowded, "DELETE", f"{path}/{first}").is_success
    assert send(crowded, "POST", path, json={"number": "again", "total": 1}).status_code == 201
    check(send(crowded, "POST", path, json={"number": "over", "total": 1}), 507, "storage_full", "entities")


def test_a_batch_and_an_import_are_limited_as_a_whole_and_a_deleted_collection_gives_room(crowded: Resources, room: Limit) -> None:
    collection, other = crowded.collection(), crowded.collection()
    for _ in range(3):
        crowded.entity(other)
    room("entities", 2)
    create = [{"op": "create", "collection": collection, "values": {"number": f"b{n}", "total": 1}} for n in range(3)]
    check(send(crowded, "POST", "/datapool/batch", json={"operations": create}), 507, "storage_full", "entities")
    assert crowded.ask("POST", f"/datapool/{collection}/query", {}) == []
    lines = "number,total\n" + "".join(f"i{n},1\n" for n in range(3))
    headers = {"Content-Type": "text/csv"}
    answer = send(crowded, "POST", f"/datapool/{collection}/import", content=lines, headers=headers)
    check(answer, 507, "storage_full", "entities")
    assert send(crowded, "DELETE", f"/datapool/{other}", params={"allow_loss": "true"}).is_success
    assert send(crowded, "POST", f"/datapool/{collection}/import", content=lines, headers=headers).is_success
    assert send(crowded, "POST", "/datapool/batch", json={"operations": create[:2]}).is_success
    check(send(crowded, "POST", "/datapool/batch", json={"operations": create[2:]}), 507, "storage_full", "entities")


def test_the_code_of_a_step_is_limited(crowded: Resources, room: Limit) -> None:
    collection = crowded.collection()
    process = crowded.process(
        steps=[{"id": "add", "code": {"language": "javascript", "source": WRITING}}],
        grants={"datapool": {collection: ["read", "write"]}},
    )
    room("entities", 1)
    execute = partial(crowded.ask, "POST", f"/processes/{process}/execute", params={"wait": 30})
    outputs = [execute({"collection": collection, "number": number})["output"] for number in ("1", "2")]
    assert outputs[0]["id"].startswith("ent_")
    assert outputs[1]["code"] == "storage_full"
    assert "raise the quota entities" in outputs[1]["message"]


# -- storage


def test_documents_webapps_and_the_console_share_the_storage(running: Running, crowded: Resources, room: Limit) -> None:
    app = fresh("app")[:20]
    crowded.ask("POST", "/webapps", {"id": app})
    room("storage", 3_000)
    stored = send(crowded, "POST", "/documents", params={"name": "a.txt"}, content=b"a" * 2_000)
    assert stored.status_code == 201
    refused = send(crowded, "POST", "/documents", params={"name": "b.txt"}, content=b"b" * 2_000)
    check(refused, 507, "storage_full", "storage")
    archive = write_zip({"index.html": bytes(range(256)) * 20})
    deployed = send(
        crowded, "POST", f"/webapps/{app}/versions", content=archive, headers={"Content-Type": "application/zip"}
    )
    check(deployed, 507, "storage_full", "storage")
    browser = Browser(running)
    assert browser.sign_in(OWNER, PASSWORD, TENANT).status_code == 200
    page = browser.upload(browser.at(TENANT, "/console/documents/-/upload"), ("c.txt", b"c" * 2_000), {"folder": "", "tags": ""})
    assert page.status_code == 422
    assert "raise the quota storage" in page.text
    document = stored.json()["data"]["id"]
    assert send(crowded, "DELETE", f"/documents/{document}").is_success, "deleting still works"


# -- executions of a day


def test_executions_are_limited_over_rest(crowded: Resources, room: Limit) -> None:
    process = crowded.process()
    room("executions_per_day", 3)
    path = f"/processes/{process}/execute"
    answers = [send(crowded, "POST", path, json={}, params={"wait": wait}) for wait in (0, 30, 30, 30, 0)]
    assert [answer.status_code for answer in answers] == [202, 200, 200, 429, 429]
    error = check(answers[-1], 429, "rate_limited", "executions_per_day")
    assert error["resets_at"].endswith("T00:00:00.000Z")
    assert 0 < int(answers[-1].headers["Retry-After"]) <= 86_400


def test_webhooks_and_schedules_and_mcp_are_limited_and_lose_no_event_unseen(
    running: Running, crowded: Resources, room: Limit
) -> None:
    name = fresh("hooked")
    triggers = [{"webhook": {"path": name, "verify": {"kind": "none"}}}, {"id": "often", "schedule": {"cron": "* * * * *"}}]
    steps = [{"id": "seen", "rule": {"expression": "= 1"}}]
    crowded.ask("PUT", f"/processes/{name}", {"id": name, "steps": steps, "triggers": triggers})
    crowded.ask("POST", f"/processes/{name}/publish", {})
    room("executions_per_day", 1)
    with running.client(f"{TENANT}.localhost") as sender:
        assert sender.post(f"/hooks/{name}", json={}).status_code == 202
        refused = sender.post(f"/hooks/{name}", json={})
    assert refused.status_code == 429
    firings = crowded.ask("GET", f"/processes/{name}/triggers/webhook/firings")
    assert sorted(each["status"] for each in firings) == ["failed", "started"]
    assert any("executions_per_day" in str(each.get("error")) for each in firings)
    db.write(lambda: db.execute("UPDATE trigger_state SET next_due = ? WHERE trigger_id = 'often'", (clock.now_ms(),)))
    pause = threading.Event()
    while not (fired := crowded.ask("GET", f"/processes/{name}/triggers/often/firings")) or fired[0]["status"] == "pending":
        pause.wait(0.1)
    scheduled = fired[-1]
    assert (scheduled["status"], "executions_per_day" in str(scheduled["error"])) == ("failed", True)


def test_a_child_is_refused_as_a_failure_of_its_step(crowded: Resources, room: Limit) -> None:
    child = crowded.process()
    parent = crowded.process(steps=[{"id": "call", "process": {"use": child}}])
    room("executions_per_day", 1)
    execution = crowded.ask("POST", f"/processes/{parent}/execute", {}, params={"wait": 30})
    assert execution["status"] == "failed"
    assert execution["error"]["code"] == "rate_limited"
    assert "executions_per_day" in execution["error"]["message"]


# -- executions at once


def test_executions_beyond_those_at_once_wait_in_the_queue(crowded: Resources, room: Limit) -> None:
    slow = "export default async (input, api) => { const until = Date.now() + 1500; while (Date.now() < until); return 1; }"
    process = crowded.process(steps=[{"id": "slow", "code": {"language": "javascript", "source": slow}}])
    quota_settings.change_quotas(crowded.scope, {"concurrent_executions": "1"})
    ids = [crowded.ask("POST", f"/processes/{process}/execute", {}, params={"wait": 0})["execution_id"] for _ in range(3)]
    most, pause = 0, threading.Event()
    sql = "SELECT count(*) FROM execution WHERE tenant_id = ? AND status = 'running'"
    while True:
        most = max(most, db.rows(sql, (TENANT,))[0][0])
        rows = [crowded.ask("GET", f"/processes/{process}/executions/{each}")["status"] for each in ids]
        if set(rows) == {"succeeded"}:
            break
        assert set(rows) <= {"queued", "running", "succeeded"}
        pause.wait(0.02)
    assert most == 1


# -- requests


def test_requests_of_all_keys_count(running: Running, crowded: Resources, room: Limit) -> None:
    quota_settings.change_quotas(crowded.scope, {"requests_per_day": "3"})
    with running.api(TENANT) as other:
        answers = [client.get("/api/v1/tenant") for client in (crowded.client, other, crowded.client, other)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        error = check(answers[-1], 429, "rate_limited", "requests_per_day")
        assert (error["used"], error["limit"]) == (3, 3)
        assert int(answers[-1].headers["Retry-After"]) > 0
    key = running.key(TENANT, kind="agent")
    refused = crowded.client.post("/mcp", json={}, headers={"X-API-Key": key})
    assert refused.status_code == 429
    assert "requests_per_day" in refused.text


# -- MCP


def test_an_mcp_tool_is_limited(running: Running) -> None:
    scope = running.tenant("acme")
    key = running.key("acme", kind="agent")
    with running.api("acme") as client:
        acme = Resources(running, "acme", client)
        process = acme.process()
        used = daily.read_used("acme", "executions_per_day")
        quota_settings.change_quotas(scope, {"executions_per_day": str(used)})
        try:
            arguments = {"process_id": process, "idempotency_key": fresh("once")}
            action = {"tool": "execute_process", "arguments": arguments}
            request = call_tool(
                running, key, "request_human_input", kind="approval", title="May I?", reason="a test", action=action
            )
            _approve(running, request["request_id"])
            refused = call_tool(running, key, "execute_process", **arguments, approval_id=request["request_id"])
            assert (refused["error"]["code"], refused["error"]["quota"]) == ("rate_limited", "executions_per_day")
        finally:
            quota_settings.change_quotas(scope, {"executions_per_day": "default"})


def _approve(running: Running, request_id: str) -> None:
    from appliance.governance.approvals import Decision, approvals
    from appliance.tenants import SignedIn

    user = running.user(f"{fresh('approver')}@acme.test", PASSWORD, "acme")
    scope = running.tenant("acme").with_actor(f"user:{user}")
    approvals.decide_approval(scope, SignedIn(user, "approver", "owner", scope), request_id, Decision("approve"))


# -- warnings


def test_the_warning_at_eighty_percent_is_given_once(running: Running, crowded: Resources, room: Limit) -> None:
    give_warnings()  # those of the tests before
    webhook = crowded.ask("POST", "/webhooks", {"url": "https://hooks.test/in", "events": ["quota.warning"]})["id"]
    collection = crowded.collection()
    caches.empty_all()
    used = running.services.limits.quotas.read_state(crowded.scope, "entities").used
    quota_settings.change_quotas(crowded.scope, {"entities": str(5 * used + 50)})
    missing = int((5 * used + 50) * 0.8) - used
    before = len(_warnings(crowded))
    lines = "number,total\n" + "".join(f"w{n},1\n" for n in range(missing - 1))
    send(crowded, "POST", f"/datapool/{collection}/import", content=lines, headers={"Content-Type": "text/csv"})
    give_warnings()
    assert len(_warnings(crowded)) == before
    for number in range(5):
        notices._noted.clear()
        crowded.ask("POST", f"/datapool/{collection}/entities", {"number": f"x{number}", "total": 1})
        give_warnings()
    entry, *others = _warnings(crowded)
    assert len(others) == before
    fields = json.loads(entry["fields"])
    assert fields["quota"] == "entities"
    assert fields["used"] >= 0.8 * fields["limit"]
    deliveries = crowded.ask("GET", f"/webhooks/{webhook}/deliveries")
    assert [each["event"] for each in deliveries] == ["quota.warning"]
    browser = Browser(running)
    browser.sign_in(OWNER, PASSWORD, TENANT)
    assert 'data-testid="quota-notice"' in browser.get(browser.at(TENANT, "/console/keys")).text
    crowded.ask("DELETE", f"/webhooks/{webhook}")


def _warnings(crowded: Resources) -> list[dict[str, Any]]:
    return [each for each in crowded.ask("GET", "/logs/audit", params={"action": "quota.warning"}) if each["subject"] == "entities"]
