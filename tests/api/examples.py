"""One valid request for every route; a route without one fails the route matrix."""

from collections.abc import Callable
from typing import Any

from appliance.solutions import write_zip
from tests.api.agent_examples import AGENTS
from tests.api.delivery_examples import DELIVERY
from tests.api.document_examples import DOCUMENTS
from tests.api.domain_examples import DOMAINS
from tests.api.example import Example
from tests.api.policy_examples import POLICIES
from tests.api.resources import FIELDS, Resources, fresh
from tests.api.secret_examples import SECRETS
from tests.api.skill_examples import SKILLS
from tests.api.tenants.service_account_examples import SERVICE_ACCOUNTS
from tests.api.webapp_examples import WEBAPPS

__all__ = ["EXAMPLES", "Example", "solution"]
EXAMPLES: dict[str, Callable[[Resources], Example]] = {
    **WEBAPPS, **DELIVERY, **DOCUMENTS, **DOMAINS, **AGENTS, **SKILLS, **POLICIES, **SECRETS, **SERVICE_ACCOUNTS,
}  # fmt: skip
Make = Callable[[Resources], Example]


def example(name: str) -> Callable[[Make], Make]:
    """Register the example of the handler `name`."""

    def register(make: Make) -> Make:
        EXAMPLES[name] = make
        return make

    return register


def _plain(*names: str) -> None:
    """Routes that need nothing."""
    for name in names:
        EXAMPLES[name] = lambda tenant: Example()


def _about(names: str, **parameters: Callable[[Resources], str]) -> None:
    """Routes that read or delete one thing and take no body."""
    for name in names.split():
        EXAMPLES[name] = lambda tenant: Example({key: make(tenant) for key, make in parameters.items()})


def _process(tenant: Resources) -> str:
    return tenant.once("process", tenant.process)


def _execution(tenant: Resources) -> str:
    return tenant.once("execution", lambda: tenant.execution(_process(tenant)))


def _collection(tenant: Resources) -> str:
    return tenant.once("collection", tenant.collection)


def _integration(tenant: Resources) -> str:
    return tenant.once("integration", tenant.integration)


def _llm_profile(tenant: Resources) -> str:
    return tenant.once("llm_profile", tenant.llm_profile)


def _webhook(tenant: Resources) -> str:
    return tenant.once("webhook", tenant.webhook)


def _alert(tenant: Resources) -> str:
    return tenant.once("alert", tenant.alert)


def _delivery(tenant: Resources) -> str:
    return tenant.once("delivery", lambda: tenant.delivery(_webhook(tenant)))


_plain(
    "get_tenant", "list_members", "list_secrets", "list_keys", "list_processes", "search_executions", "list_collections",
    "list_llm_profiles", "list_connectors", "list_integrations", "search_calls", "list_webhooks", "list_kill_switches",
    "list_logs", "get_analytics", "get_queues", "list_failures", "list_audit", "list_alerts",
    "verify_audit", "export_solution", "list_approvals", "list_invitations", "list_quotas",
)  # fmt: skip

_about("remove_member get_member_authority", user_id=Resources.member)
_about("get_invitation revoke_invitation", invitation_id=Resources.invitation)
_about("get_key list_key_addresses list_key_requests revoke_key", key_id=Resources.key)
_about("get_process list_versions list_executions", process_id=_process)
_about("pause_process resume_triggers", process_id=Resources.process)
_about("delete_process", process_id=Resources.process)
_about("get_version get_version_diff", process_id=_process, version=lambda _: "1")
_about("get_execution list_steps list_execution_logs list_journal follow_execution", process_id=_process, execution_id=_execution)
_about("list_samples", process_id=_process)
_about("get_sample", process_id=_process, name=lambda tenant: tenant.once("sample", lambda: tenant.sample(_process(tenant))))
_about("delete_sample", process_id=_process, name=lambda tenant: tenant.sample(_process(tenant)))
_about("get_collection list_entities export_entities", collection=_collection)
_about("delete_collection", collection=Resources.collection)
_about("get_integration test_integration close_circuit list_calls list_actions", slug=_integration)
_about("get_action", slug=_integration, action=lambda tenant: "get")
_about("delete_integration disconnect_oauth", slug=Resources.integration)
_about("start_oauth", slug=Resources.consented_integration)
_about("get_llm_profile get_llm_usage", slug=_llm_profile)
_about("delete_llm_profile test_llm_profile", slug=Resources.llm_profile)
_about("get_connector", connector=lambda _: "http")
_about("get_approval", approval_id=Resources.approval)
_about("get_failure retry_failures", failure_id=Resources.failure)
_about("list_triggers", process_id=Resources.triggered_process)
_about("list_firings", process_id=Resources.triggered_process, trigger_id=Resources.trigger)


_about("get_webhook list_deliveries", webhook_id=_webhook)
_about("delete_webhook test_webhook", webhook_id=Resources.webhook)
_about("get_alert list_alert_events", alert_id=_alert)
_about("delete_alert test_alert", alert_id=Resources.alert)
_about("get_delivery redeliver", webhook_id=_webhook, delivery_id=_delivery)


@example("adopt_key")
def _(tenant: Resources) -> Example:
    return Example({"key_id": tenant.key()}, {})


@example("request_human_input")
def _(tenant: Resources) -> Example:
    return Example(body={"kind": "input", "title": fresh("How many"), "schema": {"type": "integer"}, "ttl_seconds": 60})


_about("cancel_request", approval_id=Resources.request)


@example("create_webhook")
def _(tenant: Resources) -> Example:
    return Example(body={"url": "http://127.0.0.1:9/hook", "events": ["approval.requested"], "description": "an example"})


@example("create_alert")
def _(tenant: Resources) -> Example:
    condition = {"kind": "failure_rate", "above": 99, "window": "1h", "at_least": 1000}
    return Example(body={"name": "An example", "condition": condition, "for": "5m", "repeat": "1h"})


@example("change_alert")
def _(tenant: Resources) -> Example:
    return Example({"alert_id": _alert(tenant)}, {"silenced_until": "2090-01-01T00:00:00Z"})


@example("change_webhook")
def _(tenant: Resources) -> Example:
    return Example({"webhook_id": _webhook(tenant)}, {"description": "changed"})


@example("rotate_webhook")
def _(tenant: Resources) -> Example:
    return Example({"webhook_id": _webhook(tenant)}, {"overlap_seconds": 60})


@example("replay_execution")
def _(tenant: Resources) -> Example:
    return Example({"process_id": _process(tenant), "execution_id": _execution(tenant)}, {"version": 1})


@example("test_process")
def _(tenant: Resources) -> Example:
    body = {"mocks": {"datapool.create": {"output": 1}}, "context": {"steps": {"b": 2}}}
    return Example({"process_id": _process(tenant)}, {"version": 1, "input": {"a": 1}, "step": "answer", **body})


@example("put_sample")
def _(tenant: Resources) -> Example:
    return Example({"process_id": _process(tenant), "name": fresh("sample")}, {"input": {"a": 1}, "steps": {"answer": None}})


@example("get_retry_plan")
def _(tenant: Resources) -> Example:
    return Example({"process_id": _process(tenant), "execution_id": _execution(tenant)}, query={"from": "start"})


@example("make_invitation")
def _(tenant: Resources) -> Example:
    login = f"{fresh('guest')}@example.com"
    return Example(body={"login": login, "role": "viewer", "approver": False, "days": 3, "by_email": False})


@example("add_member")
def _(tenant: Resources) -> Example:
    return Example(body={"login": tenant.login(), "role": "operator", "approver": True})


@example("rename_tenant")
def _(tenant: Resources) -> Example:
    return Example(body={"name": "Acme & daughters"})


@example("put_kill_switch")
def _(tenant: Resources) -> Example:
    alone = tenant.integration(f"https://{fresh('erp')}.example")  # those that lead to the same place would be off as well
    return Example(body={"integration": alone, "off": True, "reason": "it books twice"})


@example("issue_key")
def _(tenant: Resources) -> Example:
    limits = {"rate_limit": {"requests": 5, "window_s": 10}, "allowed_ips": ["192.0.2.0/24"]}
    return Example(body={"name": "example", "scopes": ["logs.read", "keys.read"], "environment": "test", **limits})


@example("change_key")
def _change_key(tenant: Resources) -> Example:
    return Example({"key_id": tenant.key()}, {"kind": "agent"})


@example("rotate_key")
def _(tenant: Resources) -> Example:
    return Example({"key_id": tenant.key()}, {"overlap_seconds": 60})


@example("act_on_executions")
def _(tenant: Resources) -> Example:
    return Example({}, {"filter": {"process_id": _process(tenant), "status": "scheduled"}, "action": "cancel"})


@example("create_process")
def _(tenant: Resources) -> Example:
    return Example(body={"definition": {"id": fresh("made"), "steps": []}, "files": {"steps/a.js": "export default () => 1"}})


@example("put_process")
def _(tenant: Resources) -> Example:
    return Example({"process_id": (name := fresh("put"))}, f"id: {name}\nsteps: []\n", media="application/yaml")


@example("validate_process")
def _(tenant: Resources) -> Example:
    return Example({"process_id": _process(tenant)}, {"definition": {"steps": [{"id": "x"}]}})


@example("publish_process")
def _(tenant: Resources) -> Example:
    return Example({"process_id": tenant.process()}, {"message": "again", "if_current": 2})


@example("roll_back_process")
def _(tenant: Resources) -> Example:
    return Example({"process_id": tenant.process()}, {"version": 1})


@example("execute_process")
def _(tenant: Resources) -> Example:
    return Example({"process_id": _process(tenant)}, {"a": [1, {"b": None}]}, {"label": "example", "priority": 3})


@example("change_execution")
def _(tenant: Resources) -> Example:
    return Example({"process_id": _process(tenant), "execution_id": _execution(tenant)}, {"label": "renamed"})


@example("cancel_execution")
def _(tenant: Resources) -> Example:
    process, execution = tenant.waiting_execution()
    return Example({"process_id": process, "execution_id": execution})


@example("retry_execution")
def _(tenant: Resources) -> Example:
    return Example({"process_id": _process(tenant), "execution_id": _execution(tenant)}, {"from": "start", "version": "published"})


@example("resume_execution")
def _(tenant: Resources) -> Example:
    process, execution, token = tenant.execution_that_waits_for_an_event()
    return Example({"process_id": process, "execution_id": execution}, {"token": token, "input": {"sum": 12}})


@example("create_collection")
def _(tenant: Resources) -> Example:
    return Example(body={"name": fresh("made"), "fields": FIELDS})


@example("change_collection")
def _(tenant: Resources) -> Example:
    return Example({"collection": tenant.collection()}, {"description": "changed"}, {"dry_run": "true"})


@example("create_entity")
def _(tenant: Resources) -> Example:
    return Example({"collection": _collection(tenant)}, {"number": fresh("n"), "total": 5})


def _entity(tenant: Resources, body: Any = None) -> Example:
    collection = _collection(tenant)
    return Example({"collection": collection, "entity_id": tenant.entity(collection)}, body)


EXAMPLES["get_entity"] = EXAMPLES["delete_entity"] = EXAMPLES["list_entity_history"] = _entity
EXAMPLES["update_entity"] = lambda tenant: _entity(tenant, {"total": 7})
EXAMPLES["replace_entity"] = lambda tenant: _entity(tenant, {"number": fresh("n")})


@example("query_entities")
def _(tenant: Resources) -> Example:
    return Example({"collection": _collection(tenant)}, {"filter": {"total": {"_gt": 0}}, "sort": "-total", "limit": 5})


@example("import_entities")
def _(tenant: Resources) -> Example:
    return Example({"collection": _collection(tenant)}, f"number,total\n{fresh('n')},3\n,4\n", media="text/csv")


@example("run_batch")
def _(tenant: Resources) -> Example:
    operation = {"op": "create", "collection": _collection(tenant), "values": {"number": fresh("n")}}
    return Example(body={"operations": [operation], "dry_run": True})


@example("follow_collection")
def _(tenant: Resources) -> Example:
    return Example({"collection": _collection(tenant)}, stream=True)


@example("try_settings")
def _(tenant: Resources) -> Example:
    settings = {"base_url": f"http://127.0.0.1:{tenant.running.config.server.port}/demo"}
    return Example({"connector": "http"}, {"settings": settings})


@example("create_integration")
def _(tenant: Resources) -> Example:
    return Example(body={"slug": fresh("made"), "connector": "http", "settings": {"base_url": "https://example.com"}})


@example("change_integration")
def _(tenant: Resources) -> Example:
    return Example({"slug": tenant.integration()}, {"name": "Renamed", "settings": {"timeout_s": 5}})


@example("execute_action")
def _(tenant: Resources) -> Example:
    return Example({"slug": _integration(tenant)}, {"action": "get", "input": {"url": "/orders"}, "timeout_s": 5})


@example("get_call")
def _(tenant: Resources) -> Example:
    slug = _integration(tenant)
    return Example({"slug": slug, "call_id": tenant.once("call", lambda: tenant.call(slug))})


@example("settle_call")
def _(tenant: Resources) -> Example:
    slug = _integration(tenant)
    return Example({"slug": slug, "call_id": tenant.unknown_call(slug)}, {"outcome": "done", "output": {"status": 200}})


@example("retry_call")
def _(tenant: Resources) -> Example:
    slug = _integration(tenant)
    return Example({"slug": slug, "call_id": tenant.failed_call(slug)}, {})


PROFILE = {"kind": "openai", "model": "small", "base_url": "http://127.0.0.1:11434/v1", "api_key": "a key"}


@example("create_llm_profile")
def _(tenant: Resources) -> Example:
    price = {"currency": "EUR", "input": 0.5, "output": 2}
    budgets = {"day": {"tokens": 1000, "cost": 5}, "execution": {"cost": 0.5}}
    redaction = {"patterns": [{"use": "email"}, {"name": "ORDER", "pattern": "[0-9]{5}"}], "restore": True}
    more = {"price": price, "budgets": budgets, "redaction": redaction, "parameters": {"temperature": 0.2, "extra": {"seed": 1}}}
    return Example(body={"slug": fresh("made"), **PROFILE, **more})


@example("put_llm_profile")
def _(tenant: Resources) -> Example:
    return Example({"slug": fresh("put")}, PROFILE)


@example("change_failure")
def _(tenant: Resources) -> Example:
    return Example({"failure_id": tenant.failure()}, {"state": "acknowledged"})


def solution(name: str) -> bytes:
    """A solution with one process, as an archive."""
    process = f"id: {name}\nsteps: [{{id: answer, rule: {{expression: '= 1'}}}}]\n"
    return write_zip({"solution.yaml": f"name: {name}\n".encode(), f"processes/{name}/process.yaml": process.encode()})


@example("plan_solution")
def _(tenant: Resources) -> Example:
    return Example(body=solution(fresh("planned")), media="application/zip")


@example("apply_solution")
def _(tenant: Resources) -> Example:
    return Example(body=solution(fresh("applied")), query={"message": "by a test"}, media="application/zip")
