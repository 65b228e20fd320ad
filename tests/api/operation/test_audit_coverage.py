"""Every change by the API is in the audit trail, or a record of its own says who made it."""

import hashlib
import json
from collections.abc import Callable

import pytest

from appliance.api import load_routes
from appliance.api.frame.routing import Route
from appliance.core.database import db
from appliance.testing.running import Running
from tests.agents.world import wait_until
from tests.api.examples import EXAMPLES, Example
from tests.api.resources import Resources, fresh
from tests.api.sending import send

CHANGES_NOTHING = {
    "query_entities", "evaluate_policies", "replay_policy", "validate_process", "plan_solution", "test_process", "replay_execution",
    "try_settings",
}  # fmt: skip


def _paused(tenant: Resources) -> Example:
    process = tenant.process()
    tenant.ask("POST", f"/processes/{process}/pause")
    return Example({"process_id": process})


def _uploaded(tenant: Resources) -> Example:
    content = fresh("content").encode()
    app = tenant.uploading_webapp(content)
    address = f"/webapps/{app}/versions/1/blobs/{hashlib.sha256(content).hexdigest()}"
    tenant.ask("PUT", address, content=content, headers={"Content-Type": "application/octet-stream"})
    return Example({"app": app, "version": "1"})


def _connected(tenant: Resources) -> Example:
    """An integration with tokens of a provider."""
    slug = tenant.integration()
    columns = "tenant_id, integration_id, audience, sealed, generation, problem, lease_owner, lease_until, connected_by"
    sql = f"INSERT INTO integration_token ({columns}) VALUES (?, ?, '', ?, 1, '', '', 0, '')"  # noqa: S608  our own names
    db.write(lambda: db.execute(sql, (tenant.tenant, slug, b"")))
    return Example({"slug": slug})


def _renamed(tenant: Resources) -> Example:
    """The usual name, after another one: an earlier test may have given the tenant this name."""
    example = EXAMPLES["rename_tenant"](tenant)
    tenant.ask("PATCH", "/tenant", {"name": fresh("another")})
    return example


CHANGING_EXAMPLES: dict[str, Callable[[Resources], Example]] = {
    "change_collection": lambda tenant: Example({"collection": tenant.collection()}, {"description": "changed"}),
    "disconnect_oauth": _connected,
    "finalize_webapp_version": _uploaded,
    "rename_tenant": _renamed,
    "resume_triggers": _paused,
    "act_on_executions": lambda tenant: Example(
        body={"filter": {"ids": [tenant.waiting_execution()[1]]}, "action": "cancel"}
    ),
}
"""Where the usual example of a route changes nothing."""
RECORDED_ELSEWHERE = {
    "create_entity": "the history of the entity",
    "update_entity": "the history of the entity",
    "replace_entity": "the history of the entity",
    "delete_entity": "the history of the entity",
    "run_batch": "the history of each entity",
    "import_entities": "the history of each entity",
    "create_document": "its creator, and that of its first revision",
    "add_revision": "the creator of the revision",
    "open_upload": "becomes a document, or nothing",
    "append_upload": "becomes a document, or nothing",
    "delete_upload": "becomes a document, or nothing",
    "start_oauth": "the consent that follows is recorded as integration.connect",
    "verify_webapp_domain": "the check that follows is recorded as domain.verify",
    "execute_process": "the actor of the execution",
    "execute_action": "the actor of the call",
    "test_integration": "the actor of the call",
    "test_llm_profile": "the usage of the profile",
    "put_webapp_content": "contents of a version, recorded as webapp.ready",
    "put_webapp_contents": "contents of a version, recorded as webapp.ready",
}
"""Where it is said who did what, instead of in the audit trail."""

CHANGING = [pytest.param(route, id=f"{route.method} {route.path}") for route in load_routes() if route.method != "GET"]
SINCE = "SELECT action FROM audit_entry WHERE tenant_id = ? AND seq > ? AND actor LIKE 'key:%'"


@pytest.mark.writes_once(reason="counts entries")
@pytest.mark.parametrize("route", CHANGING)
def test_a_change_is_in_the_audit_trail(running: Running, ours: Resources, route: Route) -> None:
    example = CHANGING_EXAMPLES.get(route.name, EXAMPLES[route.name])(ours)
    ((before,),) = db.rows("SELECT last_seq FROM audit_chain WHERE tenant_id = ?", (ours.tenant,))
    answer = send(ours.client, route, example)
    assert answer.is_success, answer.text
    is_recorded = bool(db.rows(SINCE, (ours.tenant, before)))
    assert is_recorded != (route.name in CHANGES_NOTHING | RECORDED_ELSEWHERE.keys()), route.name


def test_only_routes_are_left_out() -> None:
    assert CHANGES_NOTHING | RECORDED_ELSEWHERE.keys() <= {route.name for route in load_routes()}


def test_refused_requests_are_recorded_without_filling_the_trail(running: Running) -> None:
    name = fresh("strict")
    with running.api(name) as owner:
        issued = owner.post("/api/v1/keys", json={"name": "narrow", "scopes": ["logs.read"]}).json()["data"]
        narrow = {"X-API-Key": issued["key"]}
        for _ in range(12):
            refused = owner.post("/api/v1/datapool", json={"name": "pots"}, headers=narrow)
            assert refused.json()["error"]["code"] == "scope_missing"
        assert owner.get("/api/v1/processes", headers=narrow).status_code == 403
        sql = "SELECT actor, subject, fields FROM audit_entry WHERE tenant_id = ? AND action = 'request.refuse' ORDER BY seq"
        wait_until(lambda: len(db.rows(sql, (name,))) >= 3)
        entries = [(actor, subject, json.loads(fields)) for actor, subject, fields in db.rows(sql, (name,))]
    assert {actor for actor, *_ in entries} == {f"key:{issued['id']}"}
    counted = [(subject, fields["code"], fields["times_today"]) for _, subject, fields in entries]
    refusals = [("create_collection", "scope_missing", 1), ("create_collection", "scope_missing", 10)]
    assert counted == [*refusals, ("list_processes", "scope_missing", 1)]
