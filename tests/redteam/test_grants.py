"""A process never has more access than its publisher, unless an owner has granted exactly that."""

import io
import json
import zipfile
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from appliance.app.findings.checks import authority_findings
from appliance.core import clock
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.processes.host import version_grants
from appliance.tenants import ALL_SCOPES, service
from appliance.testing.running import Running
from tests.console.browser import Browser
from tests.redteam.granting import (
    CANARY,
    FLOW,
    GRANTS,
    PASSWORD,
    REACHING,
    TENANT,
    audit_actions,
    code,
    execute,
    only_grant,
    open_confirmations,
    publish,
    put_process,
)


@pytest.fixture(scope="module")
def owner(running: Running) -> TenantScope:
    """A tenant with a collection and a secret, as its signed-in owner sees it."""
    scope = running.tenant(TENANT)
    service.set_secret(scope, running.services.sealer, "topsecret", CANARY)
    with running.api(TENANT) as client:
        client.post("/api/v1/datapool", json={"name": "customers", "fields": [{"name": "name", "type": "text"}]}).raise_for_status()
        client.post("/api/v1/datapool/customers/entities", json={"name": "Ada"}).raise_for_status()
    user = running.user("owner@granting.test", PASSWORD, TENANT)
    return TenantScope(TENANT, f"user:{user}", ALL_SCOPES)


@pytest.fixture
def flow(running: Running, owner: TenantScope) -> Iterator[httpx.Client]:
    """A key with `processflow.*` alone."""
    with running.api(TENANT, FLOW) as client:
        yield client


@pytest.mark.parametrize("verb", ["publish", "rollback"])
def test_the_same_request_works_once_an_owner_has_allowed_it(
    running: Running, flow: httpx.Client, owner: TenantScope, verb: str
) -> None:
    name, key = f"again-{verb}", {"Idempotency-Key": f"again-{verb}"}
    put_process(flow, name, {"grants": GRANTS, "steps": [code()]})
    path, body = f"/api/v1/processes/{name}/{verb}", {}
    if verb == "rollback":
        with running.api(TENANT) as wide:
            publish(wide, name).raise_for_status()
        put_process(flow, name, {"steps": [code("export default () => 1")]})
        publish(flow, name).raise_for_status()
        version_grants.withdraw(owner, name, only_grant(owner, name))
        body = {"version": 1}
    refused = flow.post(path, json=body, headers=key)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "grant_required"), refused.text
    (confirmation,) = open_confirmations(owner, name)
    running.services.governance.confirmations.decide(owner, confirmation.id, True)
    again = flow.post(path, json=body, headers=key)
    assert again.is_success, again.text


def test_a_key_without_the_scopes_cannot_publish_a_process_that_needs_them(flow: httpx.Client, owner: TenantScope) -> None:
    put_process(flow, "grabber", {"grants": GRANTS, "steps": [code()]})
    answer = publish(flow, "grabber")
    assert answer.status_code == 403, answer.text
    error = answer.json()["error"]
    assert error["code"] == "grant_required"
    assert error["scopes"] == ["entities.read", "secrets.write"]
    assert {each["pointer"] for each in error["details"]} == {"/grants/datapool/customers", "/grants/secrets/topsecret"}
    assert "read the secret topsecret" in error["message"]
    assert "owner" in error["message"]
    assert execute(flow, "grabber").json()["error"]["code"] == "not_published"


def test_an_owner_decides_on_the_page_and_nobody_else_can(running: Running, flow: httpx.Client, owner: TenantScope) -> None:
    put_process(flow, "paged", {"name": "Nightly export", "grants": GRANTS, "steps": [code("export default () => 1")]})
    publish(flow, "paged")
    running.user("viewer@granting.test", PASSWORD, TENANT, "viewer")
    pages = {}
    for login in ("viewer", "owner"):
        pages[login] = Browser(running)
        pages[login].sign_in(f"{login}@granting.test", PASSWORD, TENANT)
    at, confirmation_id = pages["owner"].at(TENANT, "/console/confirmations"), open_confirmations(owner, "paged")[0].id
    seen = pages["viewer"].get(at).text
    assert "Access for the process paged" in seen
    assert "owner@granting.test" in seen
    assert 'value="allow"' not in seen
    assert pages["viewer"].post(f"{at}/{confirmation_id}", {"answer": "allow"}).status_code == 403
    assert flow.post(f"/console/confirmations/{confirmation_id}", data={"answer": "allow"}).status_code != 200
    assert "Access for the process paged" in pages["owner"].get(pages["owner"].at(TENANT, "/console/")).text
    assert pages["owner"].post(f"{at}/{confirmation_id}", {"answer": "allow"}).status_code == 200
    assert publish(flow, "paged").status_code == 200

    process = pages["owner"].at(TENANT, "/console/processes/paged")
    assert "read the secret topsecret" in pages["viewer"].get(process).text
    digest = only_grant(owner, "paged")
    assert pages["viewer"].post(f"{process}/withdraw", {"digest": digest}).status_code == 403
    assert "Withdrawn by" in pages["owner"].post(f"{process}/withdraw", {"digest": digest}).text
    assert execute(flow, "paged").json()["error"]["code"] == "policy_denied"


def test_once_an_owner_allows_it_the_same_publish_succeeds_and_other_grants_do_not(
    running: Running, flow: httpx.Client, owner: TenantScope
) -> None:
    put_process(flow, "allowed", {"grants": GRANTS, "steps": [code()]})
    assert publish(flow, "allowed").status_code == 403
    assert publish(flow, "allowed").status_code == 403  # asked once
    (confirmation,) = open_confirmations(owner, "allowed")
    assert confirmation.details["scopes"] == ["entities.read", "secrets.write"]
    running.services.governance.confirmations.decide(owner, confirmation.id, True)

    assert publish(flow, "allowed").json()["data"]["version"] == 1
    assert execute(flow, "allowed").json()["data"]["output"]["names"] == ["Ada"]

    put_process(flow, "allowed", {"grants": GRANTS, "steps": [code("export default async () => 'other code'")]})
    assert publish(flow, "allowed").json()["data"]["version"] == 2  # the digest is of grants, not of code
    put_process(flow, "allowed", {"grants": {**GRANTS, "documents": ["write"]}, "steps": [code()]})
    assert publish(flow, "allowed").status_code == 403
    assert execute(flow, "allowed").json()["data"]["output"] == "other code"
    put_process(flow, "sibling", {"grants": GRANTS, "steps": [code()]})
    assert publish(flow, "sibling").status_code == 403
    assert audit_actions(owner, "allowed")[:2] == ["grant.confirmation_requested", "grant.confirmed"]


def test_a_refused_grant_stays_refused_and_the_error_says_so(running: Running, flow: httpx.Client, owner: TenantScope) -> None:
    put_process(flow, "refused", {"grants": GRANTS, "steps": [code()]})
    publish(flow, "refused")
    running.services.governance.confirmations.decide(owner, open_confirmations(owner, "refused")[0].id, False)
    answer = publish(flow, "refused")
    assert answer.status_code == 403
    assert "an owner has refused it" in answer.json()["error"]["message"]
    assert open_confirmations(owner, "refused") == []


def test_a_key_that_holds_the_scopes_publishes_without_asking(running: Running, owner: TenantScope) -> None:
    with running.api(TENANT, [*FLOW, "entities.read", "secrets.write"]) as client:
        put_process(client, "covered", {"grants": GRANTS, "steps": [code()]})
        assert publish(client, "covered").status_code == 200
    assert open_confirmations(owner, "covered") == []
    assert audit_actions(owner, "covered") == ["grant.given"]


@pytest.mark.parametrize("name", REACHING)
def test_what_steps_and_triggers_access_needs_a_grant(name: str, flow: httpx.Client) -> None:
    definition, scopes = REACHING[name]
    put_process(flow, f"by-{name}", definition)
    error = publish(flow, f"by-{name}").json().get("error", {})
    assert (error.get("code"), error.get("scopes")) == ("grant_required", scopes), error


def test_processes_that_access_nothing_need_no_grant(flow: httpx.Client, owner: TenantScope) -> None:
    put_process(flow, "plain", {"steps": [{"id": "a", "rule": {"expression": "= 1"}}]})
    put_process(flow, "caller", {"steps": [{"id": "a", "process": {"use": "plain"}}], "on_failure": {"process": "plain"}})
    assert publish(flow, "plain").status_code == publish(flow, "caller").status_code == 200
    assert execute(flow, "caller").json()["data"]["status"] == "succeeded"
    assert audit_actions(owner, "plain") == []


def test_a_rollback_needs_the_grant_of_its_version(
    running: Running, flow: httpx.Client, owner: TenantScope
) -> None:
    with running.api(TENANT) as builder:
        put_process(builder, "back", {"grants": GRANTS, "steps": [code()]})
        publish(builder, "back").raise_for_status()
        put_process(builder, "back", {"steps": [code("export default () => 'tame'")]})
        publish(builder, "back").raise_for_status()
    version_grants.withdraw(owner, "back", only_grant(owner, "back"))
    answer = flow.post("/api/v1/processes/back/rollback", json={"version": 1})
    assert answer.json()["error"]["code"] == "grant_required"
    assert execute(flow, "back").json()["data"]["output"] == "tame"
    assert execute(flow, "back", version=1).json()["error"]["code"] == "policy_denied"


def test_withdrawing_a_grant_stops_new_and_waiting_executions(
    running: Running, flow: httpx.Client, owner: TenantScope
) -> None:
    steps = [code(), {"id": "go", "wait": {"event": "go"}}]
    with running.api(TENANT) as builder:
        put_process(builder, "stopped", {"grants": GRANTS, "steps": steps})
        publish(builder, "stopped").raise_for_status()
        waiting = wait_until(flow, "stopped", "waiting", execute(flow, "stopped", wait=0).json()["data"]["execution_id"])
        version_grants.withdraw(owner, "stopped", only_grant(owner, "stopped"))
        refusal = execute(flow, "stopped")
        assert (refusal.status_code, refusal.json()["error"]["code"]) == (403, "policy_denied")
        assert "ask an owner" in refusal.json()["error"]["message"]
        again = publish(builder, "stopped")  # it holds every scope, and yet an owner has said no
        assert again.json()["error"]["code"] == "grant_required"
    token = waiting["waiting_for"]["waits"][0]["token"]
    flow.post(f"/api/v1/processes/stopped/executions/{waiting['execution_id']}/resume", json={"token": token}).raise_for_status()
    failed = wait_until(flow, "stopped", "failed", waiting["execution_id"])
    assert (failed["error"]["code"], failed["error"]["failure_class"]) == ("policy_denied", "policy")
    running.services.governance.confirmations.decide(owner, open_confirmations(owner, "stopped")[0].id, True)
    assert execute(flow, "stopped", wait=0).status_code == 202
    assert audit_actions(owner, "stopped") == [
        "grant.given", "grant.withdrawn", "grant.confirmation_requested", "grant.confirmed",
    ]  # fmt: skip


def larger(*collections: str) -> dict[str, Any]:
    """A definition that reaches what `GRANTS` says, and these collections."""
    read = {"customers": ["read"], **{name: ["read"] for name in collections}}
    return {"grants": {**GRANTS, "datapool": read}, "steps": [code("export default () => 1")]}


def test_a_withdrawn_grant_blocks_every_grant_that_contains_it(running: Running, owner: TenantScope) -> None:
    with running.api(TENANT) as builder:
        put_process(builder, "held", larger())
        publish(builder, "held").raise_for_status()
        small = only_grant(owner, "held")
        put_process(builder, "held", larger("harmless"))
        publish(builder, "held").raise_for_status()
        version_grants.withdraw(owner, "held", small)
        assert execute(builder, "held").json()["error"]["code"] == "policy_denied", "what runs contains what was withdrawn"
        put_process(builder, "held", larger("harmless", "other"))
        refused = publish(builder, "held")
        assert refused.json()["error"]["code"] == "grant_required", refused.text
        assert "an owner withdrew" in refused.json()["error"]["message"]
        builder.delete("/api/v1/processes/held", params={"force": True}).raise_for_status()
        put_process(builder, "held", larger("harmless"))
        assert publish(builder, "held").json()["error"]["code"] == "grant_required", "the same name made anew is the same"
        put_process(builder, "held", {**larger(), "grants": {"datapool": {"customers": ["read"]}}})
        publish(builder, "held").raise_for_status()  # it leaves a part of it out
        put_process(builder, "held", larger("harmless"))
        running.services.governance.confirmations.decide(owner, open_confirmations(owner, "held")[-1].id, True)
        publish(builder, "held").raise_for_status()


def test_a_refused_grant_blocks_callers_who_hold_the_scopes(
    running: Running, flow: httpx.Client, owner: TenantScope
) -> None:
    put_process(flow, "no", larger())
    publish(flow, "no")
    running.services.governance.confirmations.decide(owner, open_confirmations(owner, "no")[0].id, False)
    with running.api(TENANT) as builder:
        for collections in ((), ("harmless",)):
            put_process(builder, "no", larger(*collections))
            answer = publish(builder, "no")
            assert answer.json()["error"]["code"] == "grant_required", answer.text


def wait_until(client: httpx.Client, process_id: str, status: str, execution_id: str) -> dict[str, Any]:
    """The execution once it has this status; the stream of its events says when to look."""
    address = f"/api/v1/processes/{process_id}/executions/{execution_id}"
    execution: dict[str, Any] = client.get(address).json()["data"]
    with client.stream("GET", f"{address}/events") as events:
        for _line in events.iter_lines():
            if execution["status"] == status:
                break
            execution = client.get(address).json()["data"]
    assert execution["status"] == status, execution
    return execution


def dry_run(client: httpx.Client, process_id: str, **body: Any) -> dict[str, Any]:
    answer = client.post(f"/api/v1/processes/{process_id}/test", json={"input": {}, **body})
    answer.raise_for_status()
    result: dict[str, Any] = answer.json()["data"]
    return result


def test_a_dry_run_of_a_draft_has_no_more_access_than_its_caller(
    running: Running, flow: httpx.Client, owner: TenantScope
) -> None:
    with running.api(TENANT) as builder:
        document = builder.post("/api/v1/documents", params={"name": "plan.txt"}, content=CANARY.encode()).json()["data"]["id"]
    reading = {"documents": ["read"], **GRANTS}
    source = "export default async (input, api) => (await api.documents.read(input.id)).content"
    put_process(flow, "tried", {"grants": reading, "steps": [code()]})
    put_process(flow, "tried-document", {"grants": reading, "steps": [code(source)]})
    parsing = {"operation": "parse", "document": "= input.id", "format": "text"}
    put_process(flow, "tried-file", {"steps": [{"id": "a", "file": parsing}]})
    put_process(flow, "tried-query", {"steps": [{"id": "a", "datapool": {"collection": "customers", "query": {}}}]})
    creating = {"collection": "customers", "create": {"values": {"name": "X"}}}
    put_process(flow, "tried-create", {"steps": [{"id": "a", "datapool": creating}]})
    for process_id in ("tried", "tried-document", "tried-file", "tried-query", "tried-create"):
        result = dry_run(flow, process_id, input={"id": document})
        assert result["status"] == "failed", result
        assert result["error"]["code"] == "policy_denied"
        assert "Ada" not in str(result)
        assert CANARY not in str(result)
    mocked = dry_run(flow, "tried-query", mocks={"a": {"output": {"items": []}}})
    assert mocked["status"] == "succeeded"
    with running.api(TENANT, [*FLOW, "entities.read", "documents.read"]) as reader:
        assert dry_run(reader, "tried-query")["output"]["items"][0]["name"] == "Ada"
        assert CANARY in str(dry_run(reader, "tried-file", input={"id": document}))
    with running.api(TENANT) as builder:
        publish(builder, "tried-query").raise_for_status()
    assert dry_run(flow, "tried-query")["output"]["items"][0]["name"] == "Ada"  # granted to this process


def test_a_replay_with_a_draft_reads_no_secret_that_its_caller_may_not(
    running: Running, flow: httpx.Client, owner: TenantScope
) -> None:
    quiet = "export default async (input, api) => { await api.secrets.get('topsecret'); return 'quiet' }"
    with running.api(TENANT) as builder:
        put_process(builder, "replayed", {"grants": {"secrets": ["topsecret"]}, "steps": [code(quiet)]})
        publish(builder, "replayed").raise_for_status()
    execution = execute(flow, "replayed").json()["data"]["execution_id"]
    leaking = "export default async (input, api) => [...await api.secrets.get('topsecret')].reverse()"
    put_process(flow, "replayed", {"grants": {"secrets": ["topsecret"], "documents": ["read"]}, "steps": [code(leaking)]})
    answer = flow.post(f"/api/v1/processes/replayed/executions/{execution}/replay", json={"version": "draft"})
    answer.raise_for_status()
    step = answer.json()["data"]["steps"][0]
    assert step["result"] == "output_differs", step
    assert step["replayed_output"] != list(reversed(CANARY))


def test_an_apply_lists_every_process_that_needs_a_grant(running: Running, owner: TenantScope) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("solution.yaml", "name: reaching\n")
        for name, needed in (("apply-a", {"secrets": ["topsecret"]}), ("apply-b", {"datapool": {"customers": ["write"]}})):
            definition = {"id": name, "grants": needed, "steps": [code("export default () => 1")]}
            file.writestr(f"processes/{name}/process.yaml", json.dumps(definition))

    def apply(client: httpx.Client) -> httpx.Response:
        return client.post("/api/v1/solutions/apply", content=archive.getvalue(), headers={"Content-Type": "application/zip"})

    with running.api(TENANT, [*FLOW, "solutions.apply"]) as ci:
        answer = apply(ci)
        error = answer.json()["error"]
        assert error["code"] == "grant_required", answer.text
        assert {each["pointer"] for each in error["details"]} == {"/grants/secrets/topsecret", "/grants/datapool/customers"}
        assert ci.get("/api/v1/processes/apply-a").status_code == 404
        for name in ("apply-a", "apply-b"):
            running.services.governance.confirmations.decide(owner, open_confirmations(owner, name)[0].id, True)
        assert apply(ci).status_code == 200


def before_the_upgrade(owner: TenantScope, process_id: str, author: str) -> None:
    """The process is as one that was published by `author` before grants were recorded."""
    mine = (owner.tenant_id, process_id)
    db.write(lambda: [
        db.execute("UPDATE process_version SET grant_digest = NULL, allowed_until = NULL, created_by = ? "
                   "WHERE tenant_id = ? AND process_id = ?", (author, *mine)),
        db.execute("DELETE FROM authority_grant WHERE tenant_id = ? AND subject = ?", (mine[0], f"process:{process_id}")),
    ])  # fmt: skip


def test_older_versions_are_assessed_once_by_their_author(running: Running, owner: TenantScope, flow: httpx.Client) -> None:
    with running.api(TENANT) as builder:
        for name in ("old-covered", "old-wider", "old-departed"):
            put_process(builder, name, {"grants": GRANTS, "steps": [code("export default () => 1")]})
            publish(builder, name).raise_for_status()
        revoked = builder.get("/api/v1/keys").json()["data"]
        wide = next(each["id"] for each in revoked if "secrets.write" in each["scopes"])
        narrow = next(each["id"] for each in revoked if each["scopes"] == sorted(FLOW))
    before_the_upgrade(owner, "old-covered", f"key:{wide}")
    before_the_upgrade(owner, "old-wider", f"key:{narrow}")
    before_the_upgrade(owner, "old-departed", "user:usr_gone")
    assert execute(flow, "old-covered").json()["data"]["output"] == 1
    assert open_confirmations(owner, "old-covered") == []
    assert execute(flow, "old-wider").json()["error"]["code"] == "policy_denied"
    assert execute(flow, "old-departed").json()["data"]["output"] == 1
    (wider,), (departed,) = open_confirmations(owner, "old-wider"), open_confirmations(owner, "old-departed")
    assert (wider.details["why"], departed.details["why"]) == ("wider", "departed")
    assert departed.deadline is not None
    assert departed.deadline - clock.now_ms() > 29 * 86_400_000
    running.services.governance.confirmations.decide(owner, wider.id, True)
    assert execute(flow, "old-wider").json()["data"]["output"] == 1
    running.services.governance.confirmations.decide(owner, departed.id, False)
    assert execute(flow, "old-departed").json()["error"]["code"] == "policy_denied"


def test_versions_not_assessed_yet_are_assessed_before_they_run(running: Running, owner: TenantScope, flow: httpx.Client) -> None:
    with running.api(TENANT) as builder:
        put_process(builder, "unseen", {"grants": GRANTS, "steps": [code("export default () => 1")]})
        publish(builder, "unseen").raise_for_status()
        narrow = next(each["id"] for each in builder.get("/api/v1/keys").json()["data"] if each["scopes"] == sorted(FLOW))
    before_the_upgrade(owner, "unseen", f"key:{narrow}")
    assert execute(flow, "unseen").json()["error"]["code"] == "policy_denied"
    assert [each.details["why"] for each in open_confirmations(owner, "unseen")] == ["wider"]


def test_doctor_lists_open_grants_by_tenant(flow: httpx.Client, owner: TenantScope) -> None:
    put_process(flow, "listed", {"grants": GRANTS, "steps": [code()]})
    publish(flow, "listed")
    notes = [text for level, text in authority_findings() if level == "note"]
    assert any(f"tenant {TENANT} has a grant that waits for an owner" in text for text in notes)
