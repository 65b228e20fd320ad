"""A tree of keys, processes and integrations three levels deep, and what happens to it when the person at its root leaves."""

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.processes.definitions import publications
from appliance.tenants import ALL_SCOPES, people
from appliance.tenants.grants import grants
from appliance.tenants.keys import KeySpec, keys, lineage
from appliance.testing.running import Running
from tests.api.resources import Resources, fresh
from tests.console.browser import Browser

KEYS, MEMBERS = "/api/v1/keys", "/api/v1/members"
PASSWORD = "correct horse battery"
TREE = 3


@dataclass
class Tree:
    """An owner who has issued a key that issued a key that issued a key; each has published a process and made an integration."""

    user_id: str
    login: str
    browser: Browser
    ids: list[str] = field(default_factory=list)
    clients: list[httpx.Client] = field(default_factory=list)
    processes: list[str] = field(default_factory=list)
    integrations: list[str] = field(default_factory=list)
    hooks: list[str] = field(default_factory=list)
    collection: str = ""
    waiting: str = ""


@pytest.fixture
def tree(running: Running, acme: httpx.Client) -> Iterator[Tree]:
    login = f"{fresh('root')}@acme.test"
    if not any(member.role == "owner" for member in people.list_members(running.tenant("acme"))):
        running.user(f"{fresh('stays')}@acme.test", PASSWORD, "acme", "owner")
    user_id = running.user(login, PASSWORD, "acme", "owner")
    browser = Browser(running)
    assert browser.sign_in(login, PASSWORD, "acme").status_code == 200
    key_tree = Tree(user_id, login, browser)
    root = TenantScope("acme", f"user:{user_id}", ALL_SCOPES)
    row, text = keys.issue_key(root, running.services.sealer, KeySpec("one", sorted(ALL_SCOPES), "test", rate_requests=100_000))
    with ExitStack() as stack:
        for depth in range(TREE):
            client = stack.enter_context(running.client("acme.localhost", {"X-API-Key": text}))
            key_tree.ids.append(row.id)
            key_tree.clients.append(client)
            build(running, key_tree, client)
            if depth < TREE - 1:
                body = {"name": f"below {depth}", "scopes": sorted(ALL_SCOPES), "environment": "test"}
                issued = client.post(KEYS, json=body).json()["data"]
                row, text = keys.get_key(root, issued["id"]), issued["key"]
        yield key_tree


def build(running: Running, tree: Tree, client: httpx.Client) -> None:
    """What one key of the tree leaves: a published process with a trigger and grants, an integration, and a waiting execution."""
    mine = Resources(running, "acme", client)
    tree.collection = tree.collection or mine.collection()
    tree.hooks.append(fresh("hook"))
    create = {"collection": tree.collection, "create": {"values": {"number": "= execution.id"}}}
    steps: list[Any] = [{"id": "pause", "wait": {"event": "go"}}, {"id": "save", "datapool": create}]
    trigger = {"id": "order", "webhook": {"path": tree.hooks[-1], "verify": {"kind": "none"}}}
    schedule = {"id": "nightly", "schedule": {"cron": "0 6 * * *"}}
    tree.processes.append(mine.process(steps=steps, triggers=[trigger, schedule]))
    slug = fresh("mail")
    tree.integrations.append(slug)
    response = client.post(
        "/api/v1/integrations", json={"slug": slug, "connector": "http", "settings": {"base_url": "http://127.0.0.1:9"}}
    )
    assert response.status_code == 201, response.text
    started = mine.ask("POST", f"/processes/{tree.processes[-1]}/execute", {}, params={"wait": 0})
    tree.waiting = str(started["execution_id"])


def resume(acme: httpx.Client, process: str, execution: str) -> dict[str, Any]:
    """Resume the waiting execution and return it once it has ended."""
    path = f"/api/v1/processes/{process}/executions/{execution}"
    waits = follow(acme, path, "waiting")["waiting_for"]["waits"]
    acme.post(f"{path}/resume", json={"token": waits[0]["token"], "input": None}).raise_for_status()
    return follow(acme, path, "succeeded", "failed")


def follow(acme: httpx.Client, path: str, *statuses: str) -> dict[str, Any]:
    """The execution once it has one of these statuses; its event stream says when to look."""
    with acme.stream("GET", f"{path}/events") as events:
        for _line in events.iter_lines():
            execution: dict[str, Any] = acme.get(path).json()["data"]
            if execution["status"] in statuses:
                return execution
    last: dict[str, Any] = acme.get(path).json()["data"]
    assert last["status"] in statuses, last
    return last


def test_removal_lists_what_depends_on_the_member(acme: httpx.Client, tree: Tree) -> None:
    resting = acme.get(f"{MEMBERS}/{tree.user_id}/authority").json()["data"]
    assert [(key["id"], key["depth"]) for key in resting["keys"]] == [(tree.ids[depth], depth) for depth in range(TREE)]
    assert all(set(key["loses"]) == ALL_SCOPES for key in resting["keys"])
    assert len(resting["sessions"]) == 1
    listed = {each["process_id"]: each for each in resting["processes"]}
    assert set(listed) == set(tree.processes)
    assert all(each["triggers"] == ["schedule nightly", "webhook order"] and each["unfinished"] == 1 for each in listed.values())
    lower = acme.get(f"{MEMBERS}/{tree.user_id}/authority", params={"role": "builder"}).json()["data"]
    assert all(set(key["loses"]) == {"keys.write", "policies.write"} for key in lower["keys"])


def test_removing_the_root_ends_its_keys_and_published_processes_go_on(
    running: Running, acme: httpx.Client, tree: Tree
) -> None:
    removed = acme.delete(f"{MEMBERS}/{tree.user_id}").json()["data"]
    assert (removed["ended_keys"], removed["adopted_keys"], removed["stopped_processes"]) == (tree.ids, [], [])
    for client, process in zip(tree.clients, tree.processes, strict=True):
        for answer in (client.get("/api/v1/tenant"), client.post(f"/api/v1/processes/{process}/publish", json={})):
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "revoked_api_key")
    assert tree.browser.get(tree.browser.at("acme", "/console/processes")).status_code == 404
    assert db.rows("SELECT count(*) FROM session WHERE user_id = ? AND tenant_id = 'acme'", (tree.user_id,)) == [(0,)]

    ended = resume(acme, tree.processes[-1], tree.waiting)
    assert ended["status"] == "succeeded", "what the ended key has started runs under the tenant's recorded grant"
    with running.client("acme.localhost") as outside:
        assert outside.post(f"/hooks/{tree.hooks[-1]}", json={"n": "hooked"}).status_code == 202, "its triggers go on"
    started = acme.post(f"/api/v1/processes/{tree.processes[0]}/execute", json={}).json()["data"]
    assert resume(acme, tree.processes[0], started["execution_id"])["status"] == "succeeded", "published versions go on"
    due = acme.get(f"/api/v1/processes/{tree.processes[1]}/triggers").json()["data"]
    assert any(each["kind"] == "schedule" and each["due"] for each in due), "its schedules go on"
    assert all(acme.get(f"/api/v1/integrations/{slug}").status_code == 200 for slug in tree.integrations)


def test_each_is_adopted_or_stopped(acme: httpx.Client, tree: Tree) -> None:
    chosen = {"adopt_keys": tree.ids[1], "adopt_processes": tree.processes[0], "stop_processes": ",".join(tree.processes[1:])}
    removed = acme.delete(f"{MEMBERS}/{tree.user_id}", params=chosen).json()["data"]
    assert removed == {
        "deleted": tree.user_id, "adopted_keys": tree.ids[1:], "ended_keys": tree.ids[:1],
        "adopted_processes": tree.processes[:1], "stopped_processes": tree.processes[1:],
    }  # fmt: skip
    assert [client.get("/api/v1/tenant").status_code for client in tree.clients] == [401, 200, 200]
    paused = [acme.get(f"/api/v1/processes/{process}").json()["data"].get("paused_at") for process in tree.processes]
    assert [moment is not None for moment in paused] == [False, True, True]
    trail = acme.get("/api/v1/logs/audit", params={"subject": tree.user_id}).json()["data"]
    assert trail[0]["action"] == "member.handover"
    assert json.loads(trail[0]["fields"])["adopted_keys"] == tree.ids[1:]


@pytest.mark.parametrize("name", ["adopt_keys", "adopt_processes", "stop_processes"])
def test_a_removal_adopts_only_what_depends_on_the_member(running: Running, acme: httpx.Client, tree: Tree, name: str) -> None:
    other = Resources(running, "acme", acme)
    foreign = other.key() if name == "adopt_keys" else other.process()
    refused = acme.delete(f"{MEMBERS}/{tree.user_id}", params={name: foreign})
    assert (refused.status_code, refused.json()["error"]["details"][0]["pointer"]) == (422, f"/{name}")
    assert tree.clients[0].get("/api/v1/tenant").status_code == 200, "nothing of it was done"


def test_the_console_asks_for_each_before_it_removes_somebody(running: Running, acme: httpx.Client, tree: Tree) -> None:
    boss = Browser(running)
    login = f"{fresh('boss')}@acme.test"
    running.user(login, PASSWORD, "acme", "owner")
    assert boss.sign_in(login, PASSWORD, "acme").status_code == 200
    page = boss.get(boss.at("acme", f"/console/people/{tree.user_id}/remove")).text
    assert page.count('data-testid="resting-key"') == TREE
    assert page.count('data-testid="resting-process"') == TREE
    form: dict[str, str | list[str]] = {f"key-{tree.ids[0]}": "adopt", f"process-{tree.processes[2]}": "stop"}
    boss.post(boss.at("acme", f"/console/people/{tree.user_id}/remove"), form)
    assert boss.url == boss.at("acme", "/console/people")
    assert [client.get("/api/v1/tenant").status_code for client in tree.clients] == [200, 200, 200], "the whole tree goes on"
    assert tree.user_id not in {each["user_id"] for each in acme.get(MEMBERS).json()["data"]}


def test_pages_load_keys_and_processes_in_bulk(
    running: Running, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def count_calls(module: Any, name: str) -> None:
        original = getattr(module, name)

        def counting(*args: Any) -> Any:
            if sys._getframe(1).f_code.co_name != "people_behind":  # who may decide what waits, which every page counts
                calls.append(name)
            return original(*args)

        monkeypatch.setattr(module, name, counting)

    count_calls(lineage, "_find_issuer")
    count_calls(lineage, "_find_key")
    count_calls(grants, "find_grant")
    count_calls(publications, "_count_unfinished")
    page = tree.browser.get(tree.browser.at("acme", "/console/keys")).text
    row_count = page.count('data-testid="row"')
    assert row_count >= TREE
    assert "_find_key" not in calls, "the chains are read at once"
    assert calls.count("_find_issuer") <= (TREE + 1) * row_count, "each is walked once"
    calls.clear()
    assert len(publications.list_publications(running.tenant("acme"))) >= TREE
    assert calls == ["_count_unfinished"]


def test_the_console_lists_what_a_lower_role_takes_away(running: Running, acme: httpx.Client, tree: Tree) -> None:
    boss = Browser(running)
    login = f"{fresh('boss')}@acme.test"
    running.user(login, PASSWORD, "acme", "owner")
    assert boss.sign_in(login, PASSWORD, "acme").status_code == 200
    page = boss.post(boss.at("acme", "/console/people"), {"login": tree.login, "role": "viewer"})
    assert page.text.count('data-testid="resting-key"') == TREE
    assert tree.clients[0].get(KEYS).status_code == 200, "nothing has changed yet"
    boss.post(boss.at("acme", "/console/people"), {"login": tree.login, "role": "viewer", "sure": "yes"})
    assert tree.clients[0].post(KEYS, json={"name": "next", "scopes": ["logs.read"]}).status_code == 403
