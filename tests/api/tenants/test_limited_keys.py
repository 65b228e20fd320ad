"""A key that is limited to some resources, walked through every route: nothing of another process, collection or integration."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from appliance.api import limited_keys, load_routes
from appliance.api.frame.routing import Route
from appliance.tenants import SCOPES
from appliance.testing.running import Running
from tests.api.example import Example
from tests.api.examples import EXAMPLES
from tests.api.resources import Resources, fresh
from tests.api.sending import send, unknown_id
from tests.api.test_bodies import error
from tests.mcp.client import call_tool, talk


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


REFUSED = names("""
    change_service_account create_service_account delete_service_account get_service_account issue_service_account_key
    list_service_account_keys list_service_accounts
    act_on_executions activate_policy add_member add_secret_binding adopt_key append_upload apply_solution cancel_request
    cancel_run change_alert change_collection change_failure change_integration change_webapp change_webapp_domain change_webhook
    claim_webapp_domain create_agent create_alert create_collection create_integration create_llm_profile create_process
    create_webapp create_webapp_version create_webhook deactivate_policy delete_agent delete_alert delete_collection
    delete_domain_certificate delete_integration delete_llm_profile delete_policy delete_process delete_sample delete_secret
    delete_skill delete_upload delete_webapp delete_webhook disconnect_oauth evaluate_policies export_solution
    finalize_webapp_version follow_run get_agent get_agent_version get_alert get_analytics get_approval get_connector get_delivery
    get_domain_certificate get_failure get_invitation get_llm_profile get_llm_usage get_member_authority get_policy
    get_policy_diff get_policy_version get_queues get_run get_upload get_webapp get_webapp_analytics get_webapp_diff
    get_webapp_domain get_webapp_publication get_webapp_version get_webhook list_agent_versions list_agents list_alert_events
    list_alerts list_approvals list_audit list_connectors list_deliveries list_failures list_invitations list_keys
    list_kill_switches list_llm_profiles list_logs list_members list_policies list_policy_versions list_runs list_secrets
    list_trace list_visits list_webapp_domains list_webapp_requests list_webapp_versions list_webapps list_webhooks
    make_invitation open_upload plan_solution preview_webapp publish_process publish_webapp put_agent put_domain_certificate
    put_kill_switch put_llm_profile put_policy put_process put_sample put_skill put_webapp_content put_webapp_contents redeliver
    release_webapp_domain remove_member remove_secret_binding rename_tenant replay_execution replay_policy request_human_input
    retry_failures revoke_invitation revoke_visit roll_back_process roll_back_webapp rotate_webhook set_secret start_oauth
    start_run test_alert test_llm_profile test_process test_webhook try_settings unpublish_webapp validate_process verify_audit
    verify_webapp_domain
""")
"""Routes that a limited key cannot use, because they could reach beyond its limits or list what is outside."""
GROUPS = (
    limited_keys.OF_PROCESS, limited_keys.OF_COLLECTION, limited_keys.OF_INTEGRATION, limited_keys.NARROWED, limited_keys.OWN_KEYS,
    limited_keys.UNRELATED, REFUSED,
)  # fmt: skip
ROUTES = {route.name: route for route in load_routes()}
BY_PATH = {name: (kind, parameter) for kind, parameter, names in limited_keys.PATH_PARAMETERS for name in names}
PLURALS = {"process": "processes", "collection": "collections", "integration": "integrations"}


def of(names: Any) -> list[Any]:
    return [pytest.param(ROUTES[name], id=name) for name in sorted(names)]


def key(tenant: Resources, **limits: list[str]) -> str:
    """The text of a key with every scope that is limited so."""
    return str(tenant.ask("POST", "/keys", {"name": fresh("limited"), "scopes": sorted(SCOPES), "limits": limits})["key"])


@pytest.fixture(scope="module")
def elsewhere(ours: Resources) -> str:
    """A key that is limited to other resources than those of the examples."""
    return key(ours, processes=[ours.process()], collections=[ours.collection()], integrations=[ours.integration()])


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[httpx.Client]:
    with running.client("acme.localhost") as client:
        yield client


def test_every_route_is_classified_once() -> None:
    """A new route belongs into one of the groups of `limited_keys`, or into `REFUSED` here."""
    classified = sorted(name for group in GROUPS for name in group)
    assert classified == sorted(ROUTES)


@pytest.mark.parametrize("route", of(REFUSED))
def test_what_could_reach_beyond_is_refused(ours: Resources, client: httpx.Client, elsewhere: str, route: Route) -> None:
    answer = send(client, route, EXAMPLES[route.name](ours), **{"X-API-Key": elsewhere})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "key_limited")


@pytest.mark.parametrize("route", of(BY_PATH))
def test_resources_outside_are_answered_like_unknown_ones(
    ours: Resources, client: httpx.Client, elsewhere: str, route: Route
) -> None:
    example, (_, parameter) = EXAMPLES[route.name](ours), BY_PATH[route.name]
    unknown = example.path | {parameter: unknown_id(parameter, example.path[parameter])}
    texts = []
    for path in (example.path, unknown):
        request = Example(path, example.body, example.query, example.media, example.headers)
        answer = send(client, route, request, **{"X-API-Key": elsewhere, "X-Request-Id": "same"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
        texts.append(answer.text.replace(path[parameter], "NAME"))
    assert texts[0] == texts[1]
    assert send(ours.client, route, example).is_success, "the refused call must have changed nothing"


@pytest.mark.parametrize("route", of(BY_PATH))
def test_resources_inside_are_reached(ours: Resources, client: httpx.Client, route: Route) -> None:
    example, (kind, parameter) = EXAMPLES[route.name](ours), BY_PATH[route.name]
    inside = key(ours, **{PLURALS[kind]: [example.path[parameter]]})
    assert send(client, route, example, **{"X-API-Key": inside}).is_success


@pytest.mark.parametrize("route", of(name for name in BY_PATH if len(ROUTES[name].parameters) > 1))
def test_the_path_of_one_resource_leads_to_nothing_of_another(ours: Resources, client: httpx.Client, route: Route) -> None:
    """The last id of the example's path with the name of a resource inside: an execution, entity or call of another."""
    example, (kind, parameter) = EXAMPLES[route.name](ours), BY_PATH[route.name]
    make = {"process": ours.process, "collection": ours.collection, "integration": ours.integration}[kind]
    inside, last = make(), route.parameters[-1]
    if last in ("version", "action"):
        return  # numbers and names of the resource itself
    request = Example(example.path | {parameter: inside}, example.body, example.query, example.media, example.headers)
    answer = send(client, route, request, **{"X-API-Key": key(ours, **{PLURALS[kind]: [inside]})})
    assert answer.status_code == 404, answer.text


@pytest.mark.parametrize("route", of(limited_keys.OWN_KEYS))
def test_other_keys_are_answered_like_unknown_ones(ours: Resources, client: httpx.Client, elsewhere: str, route: Route) -> None:
    example = EXAMPLES[route.name](ours)
    answer = send(client, route, example, **{"X-API-Key": elsewhere})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize("route", of(limited_keys.UNRELATED))
def test_answers_about_something_else_name_no_resource(ours: Resources, client: httpx.Client, route: Route) -> None:
    """Of a key that may reach nothing: what it may still do works, and tells the name of no process, collection or integration."""
    example = EXAMPLES[route.name](ours)
    for kind in ("process", "collection", "integration"):
        ours.once(f"outside {kind}", getattr(ours, kind))
    answer = send(client, route, example, **{"X-API-Key": ours.once("reaches nothing", lambda: key(ours))})
    assert answer.is_success, answer.text
    outside = [ours.created[f"outside {kind}"] for kind in ("process", "collection", "integration")]
    assert [name for name in outside if f'"{name}"'.encode() in answer.content] == []


def test_lists_have_only_what_is_inside(ours: Resources, client: httpx.Client) -> None:
    process, collection, integration = ours.process(), ours.collection(), ours.integration()
    for other in (ours.process(), process):
        ours.execution(other)
    ours.call(ours.integration())
    ours.call(integration)
    headers = {"X-API-Key": key(ours, processes=[process], collections=[collection], integrations=[integration])}

    def read(path: str, member: str, **query: str) -> set[str]:
        answer = client.get(f"/api/v1{path}", params={"limit": "500", **query}, headers=headers)
        assert answer.is_success, answer.text
        return {each[member] for each in answer.json()["data"]}

    assert read("/processes", "id") == {process}
    assert read("/executions", "process_id") == {process}
    assert read("/datapool", "name") == {collection}
    assert read("/integrations", "slug") == {integration}
    assert read("/logs/calls", "integration") == {integration}
    counted = client.get("/api/v1/executions", params={"count": "exact"}, headers=headers).json()
    assert counted["meta"]["total"] == 1
    nothing = {"X-API-Key": key(ours)}
    for path in ("/processes", "/executions", "/datapool", "/integrations", "/logs/calls"):
        assert client.get(f"/api/v1{path}", headers=nothing).json()["data"] == []


def test_a_batch_reaches_only_collections_inside(ours: Resources, client: httpx.Client) -> None:
    inside, outside = ours.collection(), ours.collection()
    headers = {"X-API-Key": key(ours, collections=[inside])}

    def write(collection: str) -> httpx.Response:
        operation = {"op": "create", "collection": collection, "values": {"number": fresh("n")}}
        return client.post("/api/v1/datapool/batch", json={"operations": [operation]}, headers=headers)

    assert write(inside).is_success
    refused, unknown = write(outside), write("things-unknown")
    assert (refused.status_code, unknown.status_code) == (422, 422)
    assert refused.text.replace(outside, "X").partition('"request_id"')[0] == unknown.text.replace("things-unknown", "X").partition(
        '"request_id"'
    )[0]
    assert ours.ask("GET", f"/datapool/{outside}/entities") == []


def test_relations_lead_to_no_collection_outside(ours: Resources, client: httpx.Client) -> None:
    outside, orders = ours.collection(), fresh("orders")
    relation = {"name": "customer", "type": "relation", "collection": outside}
    ours.ask("POST", "/datapool", {"name": orders, "fields": [{"name": "number", "type": "text"}, relation]})
    customer = ours.ask("POST", f"/datapool/{outside}/entities", {"number": "secret-customer"})["id"]
    entity = ours.ask("POST", f"/datapool/{orders}/entities", {"number": "1", "customer": customer})["id"]
    limited, both = key(ours, collections=[orders]), key(ours, collections=[orders, outside])
    by_name = {"filter": {"customer": {"number": {"_eq": "secret-customer"}}}}
    path = f"/api/v1/datapool/{orders}"

    def send_all(text: str) -> list[httpx.Response]:
        headers = {"X-API-Key": text}
        return [
            client.post(f"{path}/query", json={"expand": ["customer"]}, headers=headers),
            client.get(f"{path}/entities/{entity}", params={"expand": "customer"}, headers=headers),
            client.post(f"{path}/query", json=by_name, headers=headers),
            client.post(f"{path}/query", json={**by_name, "aggregate": {"n": {"fn": "count"}}}, headers=headers),
            client.get(f"{path}/entities", params={"filter": json.dumps(by_name["filter"])}, headers=headers),
            client.get(f"{path}/export", params={"format": "ndjson", "filter": json.dumps(by_name["filter"])}, headers=headers),
        ]

    expanded = send_all(limited)
    assert [answer.status_code for answer in expanded] == [200, 200, 400, 400, 400, 400]
    assert all("secret-customer" not in answer.text for answer in expanded[:2])
    assert expanded[1].json()["data"]["customer"] == customer
    assert all(answer.is_success for answer in send_all(both))
    assert "secret-customer" in send_all(both)[0].text


def test_a_changed_limit_holds_at_once_and_no_key_changes_its_own(ours: Resources, client: httpx.Client) -> None:
    first, second = ours.process(), ours.process()
    created = ours.ask("POST", "/keys", {"name": "mine", "scopes": sorted(SCOPES), "limits": {"processes": [first]}})
    headers = {"X-API-Key": created["key"]}
    assert created["limits"] == {"processes": [first], "collections": [], "integrations": []}
    assert client.get(f"/api/v1/processes/{second}", headers=headers).status_code == 404
    own = client.patch(f"/api/v1/keys/{created['id']}", json={"limits": None}, headers=headers)
    error(own, 403, "policy_denied")
    changed = ours.ask("PATCH", f"/keys/{created['id']}", {"limits": {"processes": [second]}})
    assert changed["limits"]["processes"] == [second]
    assert client.get(f"/api/v1/processes/{second}", headers=headers).is_success
    assert client.get(f"/api/v1/processes/{first}", headers=headers).status_code == 404
    assert "limits" not in ours.ask("PATCH", f"/keys/{created['id']}", {"limits": None})
    assert client.get("/api/v1/logs", headers=headers).is_success
    entry = ours.ask("GET", f"/logs/audit?action=key.change&subject={created['id']}")[0]
    assert json.loads(entry["fields"]) == {"limits": [{"processes": [second]}, None]}
    error(ours.client.patch(f"/api/v1/keys/{created['id']}", json={"limits": {"processes": ["\n"]}}), 422, "validation_failed")


def test_a_key_issued_by_a_limited_one_reaches_no_more(ours: Resources, client: httpx.Client) -> None:
    process, other = ours.process(), ours.process()
    headers = {"X-API-Key": key(ours, processes=[process])}
    body = {"name": "child", "scopes": ["processflow.read", "keys.write", "keys.read"]}
    child = client.post("/api/v1/keys", json=body, headers=headers).json()["data"]
    assert child["limits"]["processes"] == [process]
    assert client.get(f"/api/v1/processes/{other}", headers={"X-API-Key": child["key"]}).status_code == 404
    wider = client.post("/api/v1/keys", json={**body, "limits": {"processes": [process, other]}}, headers=headers)
    assert error(wider, 422, "validation_failed")["details"][0]["pointer"] == "/limits/processes/1"
    assert client.patch(f"/api/v1/keys/{child['id']}", json={"limits": None}, headers=headers).status_code == 422
    ours.ask("PATCH", f"/keys/{child['id']}", {"limits": None})  # the key above still limits it
    assert client.get(f"/api/v1/processes/{other}", headers={"X-API-Key": child["key"]}).status_code == 404
    rotated = client.post(f"/api/v1/keys/{child['id']}/rotate", json={}, headers=headers).json()["data"]
    assert client.get(f"/api/v1/processes/{other}", headers={"X-API-Key": rotated["key"]}).status_code == 404


def test_tools_keep_to_the_limits(running: Running, ours: Resources) -> None:
    collection, outside, process, other = ours.collection(), ours.collection(), ours.process(), ours.process()
    integration, foreign = ours.integration(), ours.integration()
    limits = {"processes": [process], "collections": [collection], "integrations": [integration]}
    body = {"name": "assistant", "scopes": sorted(SCOPES), "kind": "agent", "limits": limits}
    text = ours.ask("POST", "/keys", body)["key"]

    async def listed(client: Any) -> list[str]:
        return [tool.name for tool in (await client.list_tools()).tools]

    assert set(talk(running, text, listed)) == {
        "list_tenant_skills", "load_tenant_skill", "list_tenant_integrations", "execute_tenant_integration", "execute_process",
        "get_execution", "query_entities", "write_entities", "search_documents", "read_document",
    }  # fmt: skip

    def refusal(tool: str, /, **arguments: Any) -> str:
        return str(call_tool(running, text, tool, **arguments)["error"]["code"])

    assert "items" in call_tool(running, text, "query_entities", collection=collection)
    assert refusal("query_entities", collection=outside) == "not_found"
    operations = [{"op": "create", "collection": outside, "values": {"number": "1"}}]
    assert refusal("write_entities", operations=operations) == "not_found"
    assert refusal("execute_process", process_id=other) == "not_found"
    assert refusal("get_execution", execution_id=ours.execution(other)) == "not_found"
    assert call_tool(running, text, "get_execution", execution_id=ours.execution(process))["process_id"] == process
    items = call_tool(running, text, "list_tenant_integrations")["items"]
    assert [item["integration"] for item in items] == [integration]
    assert refusal("list_tenant_integrations", integration=foreign) == "not_found"
    assert refusal("execute_tenant_integration", integration=foreign, operation="get") == "not_found"
    assert refusal("read_logs") == "key_limited"
    assert refusal("request_human_input", kind="approval", title="May I?", reason="x") in ("key_limited", "validation_failed")
