"""Surface: ids and names of another tenant inside bodies; which members there are is read from the routes' examples."""

import copy
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from appliance.api import load_routes
from appliance.api.frame.routing import PREFIX, Route
from appliance.core.database import db
from tests.api.examples import EXAMPLES, Example
from tests.api.resources import Resources, fresh
from tests.redteam.attempts import Attempts, attempts

BODIES = [route for route in load_routes() if route.body is not None and route.method != "GET"]
NOISE = {
    "quota_use",
    "quota_notice",
    "log_line",
    "tally",
    "tally_late",
    "tally_mark",
    "tally_wide",
    "audit_entry",
    "audit_chain",
    "idempotency",
    "document_text",
    "document_preview",
    "webhook_delivery",
    "webapp_request",
    "webapp_traffic",
    "execution_event",
    "alert_event",
    "entity_change",
}
"""What changes by itself, or with every request."""
NO_REFERENCE = {
    ("add_member", "login"),  # people belong to the appliance: whoever has an account may be made a member
    ("put_agent", "id"),  # the name in the address again
    ("replace_entity", "number"),  # what is stored
    ("move_folder", "to"),  # what is made
    ("claim_webapp_domain", "host"),  # what is claimed, and proven by the DNS
    ("put_domain_certificate", "certificate"),
    ("put_domain_certificate", "private_key"),  # what is brought
    ("request_review", "due"),  # a time
}
Pointer = tuple[str | int, ...]


def leaves(body: Any, at: Pointer = ()) -> Iterator[tuple[Pointer, str]]:
    """Every text in a body."""
    if isinstance(body, dict):
        for name, value in body.items():
            yield from leaves(value, (*at, name))
    elif isinstance(body, list):
        for index, value in enumerate(body):
            yield from leaves(value, (*at, index))
    elif isinstance(body, str):
        yield at, body


def replace_at(body: Any, at: Pointer, value: str) -> Any:
    changed = copy.deepcopy(body)
    inner = changed
    for step in at[:-1]:
        inner = inner[step]
    inner[at[-1]] = value
    return changed


def unknown_id(value: str) -> str:
    """A name of the same form that nobody has."""
    stem, mark, rest = value.rpartition("_")
    return f"{stem}{mark}{'9' * len(rest)}" if stem else fresh("nobody")


def send(client: httpx.Client, route: Route, path: dict[str, str], body: Any, query: Any) -> httpx.Response:
    return client.request(
        route.method, PREFIX + route.path.format(**path), json=body, params=query, headers={"X-Request-Id": "same"}
    )


# When something was used or looked at last, and how the deliveries of a webhook went that were on their way.
BY_ITSELF = {"last_used_at", "checked_at", "touched_at", "failed_in_row", "failing_since", "last_success_at"}
BY_A_JOB = {
    # the periodic DNS check; `verified_at`, which a verification writes, is compared
    "domain": {"state", "checks", "tries", "next_check_at", "records", "error", "leads_here"},
    # the assessment of what the published version needs access to, and the compression of its files
    "webapp": {"grant_digest", "allowed_until", "forms"},
}
"""What a periodic job may write at any moment, by table."""


def state_of_theirs() -> dict[str, Any]:
    """Row counts and digests of the other tenant's tables, without columns that change by themselves."""
    state = {}
    for (name,) in db.rows("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"):
        columns = {row[1] for row in db.rows(f'PRAGMA table_info("{name}")')}
        if "tenant_id" in columns and name not in NOISE:
            selected = ", ".join(f'"{column}"' for column in sorted(columns - BY_ITSELF - BY_A_JOB.get(name, set())))
            rows = db.rows(f"SELECT {selected} FROM \"{name}\" WHERE tenant_id = 'globex' ORDER BY {selected}")  # noqa: S608
            state[name] = (len(rows), hashlib.sha256(repr(rows).encode()).hexdigest()[:12])
    return state


def describe_answer(answer: httpx.Response, value: str) -> tuple[int, str]:
    """The status of an answer, and of an error also its text without the value that was sent."""
    return (answer.status_code, "" if answer.is_success else answer.text.replace(value, "ID"))


def test_a_foreign_name_in_a_body_is_answered_like_an_unknown_one(ours: Resources, theirs: Resources) -> None:
    examples = {route.name: (EXAMPLES[route.name](theirs), EXAMPLES[route.name](ours)) for route in BODIES}
    with attempts(least=20) as table:
        before = state_of_theirs()
        for route in BODIES:
            foreign, own = examples[route.name]
            if own.media or not isinstance(own.body, dict) or not isinstance(foreign.body, dict):
                continue
            mine = dict(leaves(own.body))
            for at, value in leaves(foreign.body):
                if mine.get(at, value) != value and (route.name, at[-1]) not in NO_REFERENCE:
                    _compare(table, ours, route, (own, at, value))
        after = state_of_theirs()
        table.check(
            "the other tenant is as it was", after == before, {n: (before[n], after[n]) for n in after if before[n] != after[n]}
        )


def _compare(table: Attempts, ours: Resources, route: Route, attempt: tuple[Example, Pointer, str]) -> None:
    own, at, value = attempt
    answers = []
    for each in (value, unknown_id(value)):
        example = EXAMPLES[route.name](ours)
        answers.append(describe_answer(send(ours.client, route, example.path, replace_at(own.body, at, each), example.query), each))
    table.check(f"{route.method} {route.path} {'/'.join(map(str, at))}", answers[0] == answers[1], answers)


def test_references_that_no_example_holds(ours: Resources, theirs: Resources) -> None:
    """Ids that lead from one record to another, with the control that the own one is taken."""
    with attempts() as table:
        for name, attempt in REFERENCES.items():
            before = state_of_theirs()
            foreign, own = attempt(ours, theirs), attempt(ours, ours)
            table.check(f"{name}: the own one is taken", own, "the control failed")
            table.check(f"{name}: the foreign one is not", not foreign, "it was taken")
            changed = {each for each, state in state_of_theirs().items() if before.get(each) != state}
            table.check(f"{name}: nothing of theirs has changed", not (changed - SETUP_TABLES), changed - SETUP_TABLES)


SETUP_TABLES = {
    "collection",
    "entity",
    "process",
    "process_version",
    "approval",
    "approval_told",
    "document",
    "document_revision",
    "blob",
    "webapp",
    "webapp_version",
    "webapp_file",
    "webapp_form",
    "integration",
    "integration_action",
    "integration_discovery",
    "webhook",
    "membership",
    "step_run",
    "execution",
    "execution_input",
    "journal",
    "llm_profile",
    "document_scan",
    "document_keeping",
    "api_key",
    "skill",
    "skill_version",
    "skill_file",
    "agent",
    "agent_version",
}
"""Tables in which an attempt creates its setup at the other tenant."""


def _collection(tenant: Resources) -> str:
    return tenant.once("referred", tenant.collection)


def _relation(ours: Resources, other: Resources) -> bool:
    name = fresh("linked")
    relation = {"name": "order", "type": "relation", "collection": _collection(ours)}
    ours.ask("POST", "/datapool", {"name": name, "fields": [relation]})
    order = other.entity(_collection(other))
    return ours.client.post(f"{PREFIX}/datapool/{name}/entities", json={"order": order}).is_success


def _batch(operation: str) -> Callable[[Resources, Resources], bool]:
    def attempt(ours: Resources, other: Resources) -> bool:
        about = {"op": operation, "collection": _collection(ours), "id": other.entity(_collection(other))}
        values = {} if operation == "delete" else {"values": {"total": 7}}
        return ours.client.post(f"{PREFIX}/datapool/batch", json={"operations": [about | values]}).is_success

    return attempt


def _approval(ours: Resources, other: Resources) -> bool:
    slug = ours.once("called", ours.integration)
    approval_id = other.request() if other is not ours else None
    body = {"action": "get", "input": {"url": "/orders"}} | ({"approval_id": approval_id} if approval_id else {})
    return ours.client.post(f"{PREFIX}/integrations/{slug}/execute", json=body).is_success


def _switch(ours: Resources, other: Resources) -> bool:
    body = {"integration": other.integration(f"https://{fresh('erp')}.example"), "off": True, "reason": "stop"}
    return ours.client.put(f"{PREFIX}/kill-switches", json=body).is_success


def _bulk(ours: Resources, other: Resources) -> bool:
    process, execution = other.waiting_execution()
    ours.client.post(f"{PREFIX}/executions/bulk", json={"filter": {"process_id": process}, "action": "cancel"})
    return str(other.ask("GET", f"/processes/{process}/executions/{execution}")["status"]) in ("cancelled", "cancelling")


def _audience(ours: Resources, other: Resources) -> bool:
    document = ours.document()
    body = {"audience": {"integration": other.mailbox(), "allow": ["ann@firma.example"]}}
    return ours.client.post(f"{PREFIX}/documents/{document}/shares", json=body).is_success


def _alert(ours: Resources, other: Resources) -> bool:
    actions = [{"kind": "webhook", "webhook": other.webhook()}]
    body = {"name": fresh("alert"), "condition": {"kind": "queue_age", "longer_than": "30d"}, "actions": actions}
    return ours.client.post(f"{PREFIX}/logs/alerts", json=body).is_success


def _reviewer(ours: Resources, other: Resources) -> bool:
    login = f"{fresh('judge')}@{other.tenant}.test"
    other.running.user(login, "a long enough password", other.tenant)
    return ours.client.post(f"{PREFIX}/documents/{ours.document()}/reviews", json={"reviewers": [login], "needed": 1}).is_success


def _read_in_a_step(ours: Resources, other: Resources) -> bool:
    source = "export default async (input, api) => await api.documents.get(input.id)"
    code = [{"id": "read", "code": {"language": "javascript", "source": source}}]
    reading = ours.once("reading", lambda: ours.process(steps=code, grants={"documents": ["read"]}))
    done = ours.ask("POST", f"/processes/{reading}/execute", {"id": other.document()}, params={"wait": 30})
    return bool(done["status"] == "succeeded" and done.get("output"))


def _child(ours: Resources, other: Resources) -> bool:
    name, child = fresh("parent"), other.process()
    steps = [{"id": "sub", "process": {"use": child, "input": {}}}]
    response = ours.client.put(f"{PREFIX}/processes/{name}", json={"definition": {"id": name, "steps": steps}})
    if not response.is_success or not ours.client.post(f"{PREFIX}/processes/{name}/publish", json={}).is_success:
        return False
    return bool(ours.ask("POST", f"/processes/{name}/execute", {}, params={"wait": 30})["status"] == "succeeded")


def _content(ours: Resources, other: Resources) -> bool:
    """A WebApp that names the digest of contents it does not send: taken as known only where the tenant has them."""
    content = fresh("digest").encode() * 100
    app = other.uploading_webapp(content)
    digest = hashlib.sha256(content).hexdigest()
    sent = other.client.put(f"{PREFIX}/webapps/{app}/versions/1/blobs/{digest}", content=content)
    assert sent.is_success, sent.text
    mine = fresh("app").replace("-", "")
    ours.ask("POST", "/webapps", {"id": mine})
    version = ours.ask("POST", f"/webapps/{mine}/versions", {"files": {"index.html": {"sha256": digest, "size": len(content)}}})
    return digest not in version.get("required", [])


REFERENCES: dict[str, Callable[[Resources, Resources], bool]] = {
    "a relation to an entity": _relation,
    "a batch that updates": _batch("update"),
    "a batch that deletes": _batch("delete"),
    "an approval for a call": _approval,
    "a kill switch": _switch,
    "a bulk cancellation": _bulk,
    "the mailbox of a share": _audience,
    "the webhook of an alert": _alert,
    "a reviewer": _reviewer,
    "a document read in a step": _read_in_a_step,
    "a child process": _child,
    "a content by its digest": _content,
}


@pytest.fixture(autouse=True)
def quiet(ours: Resources, theirs: Resources) -> None:
    """Send one request to each tenant, so that whatever the first request creates exists."""
    ours.ask("GET", "/tenant")
    theirs.ask("GET", "/tenant")
