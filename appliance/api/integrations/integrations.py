"""/api/v1/integrations: the catalogue of connectors, integrations and their actions."""

import asyncio
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field

from appliance.api.frame.routing import GOVERNED, Acts, Answer, Body, Call, Query, View, route
from appliance.api.tenants.tenants import DeletedView, NoQuery
from appliance.connectors.registry import Installed, Problem
from appliance.core import clock
from appliance.core.errors import VersionConflict
from appliance.core.pages import Page
from appliance.governance import told_of
from appliance.governance.executor import DEFAULT_SECONDS, MOST_SECONDS, ActionRequest, ActionResult
from appliance.integrations import (
    MOST_AT_ONCE,
    USUAL_AT_ONCE,
    CallRecord,
    Check,
    Health,
    Integration,
    Spec,
    connecting,
    history,
    merged_spec,
)

from .actions import ActionView, Effect, action_view
from .calls import CallView, call_links, call_view
from .oauth import ConnectionView, connection_view

Name = Annotated[str, Field(min_length=1, max_length=200)]
Concurrency = Annotated[int, Field(ge=1, le=MOST_AT_ONCE)]
"""How many calls of an integration run at once in each process of the appliance."""


class ConnectorTriggerView(View):
    """What a connector can be asked for again and again; `query` and `item` are JSON Schemas."""

    name: str
    summary: str
    query: dict[str, Any]
    item: dict[str, Any]
    sample: dict[str, Any]


class ConnectorView(View):
    """A connector, or `problem`: why an installed one cannot be used."""

    name: str
    distribution: str
    title: str | None = None
    version: str | None = None
    problem: str | None = None
    settings_schema: dict[str, Any] | None = None
    actions: list[ActionView] | None = None
    triggers: list[ConnectorTriggerView] | None = None


class CheckView(View):
    ok: bool
    message: str
    at: str
    error_class: str | None = None


class CircuitView(View):
    """How the foreign system fares: `open` is left alone until `retry_at`, `half_open` is tried with one call.

    `failures` are in a row, `reason` is the last; `held_until` is until when the foreign system asked for patience.
    """

    state: Literal["closed", "open", "half_open"]
    failures: int
    reason: str | None = None
    retry_at: str | None = None
    held_until: str | None = None


class IntegrationView(View):
    """An integration; a secret among its settings is `{"sealed": true, "updated_at"}`."""

    slug: str
    name: str
    connector: str
    settings: dict[str, Any]
    concurrency: int
    version: int
    created_at: str
    updated_at: str
    last_test: CheckView | None = None
    circuit: CircuitView | None = None
    connection: ConnectionView | None = None


class CreateIntegration(Body):
    slug: str
    connector: Name
    name: Name | None = None
    settings: dict[str, Any] = Field(default_factory=dict)
    concurrency: Concurrency = USUAL_AT_ONCE


class ChangeIntegration(Body):
    """RFC 7396 merge: what is absent stays, null inside `settings` removes."""

    connector: Name | None = None
    name: Name | None = None
    settings: dict[str, Any] | None = None
    concurrency: Concurrency | None = None


class ExecuteAction(Body):
    action: Name
    input: dict[str, Any] = Field(default_factory=dict)
    mode: Literal["execute", "preview"] = "execute"
    approval_id: Annotated[str, Field(min_length=1, max_length=80)] | None = None
    timeout_s: Annotated[float, Field(gt=0, le=MOST_SECONDS, strict=False)] = DEFAULT_SECONDS


class ExecuteActionQuery(Query):
    async_: Annotated[bool, Field(alias="async")] = False


class SentRequestView(View):
    """An HTTP request that would be sent, credentials blotted out; `body` is cut after 64 KiB of its `body_bytes`."""

    method: str
    url: str
    # Generators of clients want `items` beside `prefixItems`.
    headers: list[Annotated[tuple[str, str], Field(json_schema_extra={"items": {"type": "string"}})]]
    body: str
    encoding: Literal["text", "base64"]
    body_bytes: int


class PreviewView(View):
    """What would be done; `requests` is what would be sent first, absent where the connector cannot tell."""

    integration: str
    action: str
    input: Any
    requests: list[SentRequestView] | None = None


class RulingView(View):
    """What the policies say of a previewed action; `action_digest` is what an approval would be about."""

    verdict: Literal["allow", "require_approval"]
    rules: list[str]
    reasons: list[str]
    policy_version: str
    action_digest: str


class ResultView(View):
    """What an action came to; `recorded` is the answer of an earlier, equal request, `preview` what would be done, `policy`
    whether somebody would have to approve it."""

    status: Literal["succeeded", "previewed"]
    effect: Effect
    recorded: bool = False
    output: Any = None
    preview: PreviewView | None = None
    policy: RulingView | None = None
    execution_id: str | None = None
    links: dict[str, str] | None = None


def connector_view(found: Installed, *, whole: bool = False) -> ConnectorView:
    connector = found.connector
    actions = [action_view(each) for each in connector.actions]
    triggers = [
        ConnectorTriggerView(name=t.name, summary=t.summary, query=dict(t.query), item=dict(t.item), sample=dict(t.sample))
        for t in connector.triggers
    ]
    return ConnectorView(
        name=connector.name, distribution=found.distribution, title=connector.title, version=connector.version,
        settings_schema=dict(connector.settings_schema) if whole else None, actions=actions if whole else None,
        triggers=triggers if whole else None,
    )  # fmt: skip


def problem_view(problem: Problem) -> ConnectorView:
    return ConnectorView(name=problem.name, distribution=problem.distribution, problem=problem.message)


def check_view(check: Check) -> CheckView:
    return CheckView(ok=check.ok, message=check.message, at=clock.rfc3339(check.at), error_class=check.error_class)


def integration_view(found: Integration) -> IntegrationView:
    return IntegrationView(
        slug=found.slug, name=found.name, connector=found.connector, settings=found.settings, version=found.version,
        concurrency=found.concurrency,
        created_at=clock.rfc3339(found.created_at), updated_at=clock.rfc3339(found.updated_at),
        last_test=check_view(found.check) if found.check else None,
    )  # fmt: skip


def circuit_view(found: Health) -> CircuitView:
    return CircuitView(
        state=found.state, failures=found.failures, reason=found.reason or None,
        retry_at=clock.optional_rfc3339(found.open_until), held_until=clock.optional_rfc3339(found.held_until),
    )  # fmt: skip


def preview_view(slug: str, result: ActionResult) -> PreviewView | None:
    shown = result.preview
    if shown is None:
        return None
    requests = [
        SentRequestView(
            method=r.method, url=r.url, headers=list(r.headers), body=r.body, encoding=r.encoding, body_bytes=r.body_bytes
        )
        for r in shown.requests
    ]  # fmt: skip
    return PreviewView(integration=slug, action=shown.action, input=shown.input, requests=requests or None)


def ruling_view(result: ActionResult) -> RulingView | None:
    if result.ruling is None:
        return None
    return RulingView(action_digest=result.ruling.action_digest, **told_of(result.ruling.decision))


@route("GET", "/integrations/connectors", scope="integrations.read", returns=ConnectorView, listed=True, query=NoQuery)
def list_connectors(call: Call) -> Page[ConnectorView]:
    """List the installed connectors, with the reason for each that cannot be used."""
    registry = call.services.integrations.registry
    usable = [connector_view(found) for _, found in sorted(registry.installed.items())]
    return Page([*usable, *map(problem_view, registry.problems)])


@route("GET", "/integrations/connectors/{connector}", scope="integrations.read", returns=ConnectorView)
def get_connector(call: Call, connector: str) -> ConnectorView:
    """Show a connector: the schema of its settings, its actions with their inputs, outputs and effects."""
    return connector_view(call.services.integrations.get_connector(connector), whole=True)


@route(
    "GET", "/integrations", scope="integrations.read", returns=IntegrationView, listed=True,
    acts=Acts("list_tenant_integrations"),
)  # fmt: skip
def list_integrations(call: Call) -> Page[IntegrationView]:
    """List the tenant's integrations."""
    return call.services.integrations.list_integrations(call.scope, call.query.page).map(integration_view)


def _answer(found: Integration, **more: Any) -> Answer:
    return Answer(integration_view(found), etag=str(found.version), **more)


@route("POST", "/integrations", scope="integrations.write", body=CreateIntegration, returns=IntegrationView, status=201)
def create_integration(call: Call) -> Answer:
    """Configure a connector as an integration.

    Settings that the connector's schema marks `secret` are sealed and never read back. A text `= secrets.<name>`
    stands for a secret of the tenant.
    """
    body: CreateIntegration = call.body
    spec = Spec(body.connector, body.settings, body.name or "", body.concurrency)
    found = call.services.integrations.create_integration(call.scope, body.slug, spec)
    return _answer(found, headers={"Location": f"/api/v1/integrations/{found.slug}"})


@route("GET", "/integrations/{slug}", scope="integrations.read", returns=IntegrationView)
def get_integration(call: Call, slug: str) -> Answer:
    """Show an integration, with how its foreign system fares (`circuit`) and whether it is connected (`connection`)."""
    integrations = call.services.integrations
    found = integrations.get_integration(call.scope, slug)
    more = {
        "circuit": circuit_view(integrations.health(call.scope, slug)),
        "connection": connection_view(connecting.connection(integrations, call.scope, slug)),
    }
    view = integration_view(found).model_copy(update=more)
    return Answer(view, etag=str(found.version))


@route("PATCH", "/integrations/{slug}", scope="integrations.write", body=ChangeIntegration, returns=IntegrationView)
def change_integration(call: Call, slug: str) -> Answer:
    """Change an integration (RFC 7396).

    Secrets that are left out, or sent back as they were read, stay; when a change decides whom they are sent to (the
    base address), they must be given again.
    """
    integrations = call.services.integrations
    current = integrations.get_integration(call.scope, slug)
    body: ChangeIntegration = call.body
    changes = body.model_dump(exclude_unset=True)
    version = _version(call.if_match) if call.if_match is not None else None
    spec = merged_spec(current, changes)
    return _answer(integrations.replace_integration(call.scope, slug, spec, if_version=version))


def _version(etag: str) -> int:
    if not etag.isascii() or not etag.isdigit() or len(etag) > 9:
        raise VersionConflict("If-Match is not an ETag of this integration; read it and decide again")
    return int(etag)


@route("DELETE", "/integrations/{slug}", scope="integrations.write", returns=DeletedView)
def delete_integration(call: Call, slug: str) -> DeletedView:
    """Delete an integration with the record of its calls; refused while one of them is of unknown outcome."""
    call.services.integrations.delete_integration(call.scope, slug)
    return DeletedView(deleted=slug)


@route("POST", "/integrations/{slug}/test", scope="integrations.write", returns=CheckView, atomic=False)
async def test_integration(call: Call, slug: str) -> CheckView:
    """Ask the foreign system whether the settings work; a negative finding is an answer, not an error."""
    test = partial(call.services.executor.test_integration, call.scope, slug)
    return check_view(await asyncio.wrap_future(call.services.executor.submit(call.scope, test)))


@route("POST", "/integrations/{slug}/circuit/close", scope="integrations.write", returns=CircuitView)
def close_circuit(call: Call, slug: str) -> CircuitView:
    """Have a foreign system that is left alone after failures asked again at once."""
    integrations = call.services.integrations
    integrations.close_circuit(call.scope, slug)
    return circuit_view(integrations.health(call.scope, slug))


class TrySettings(Body):
    """Settings of a connector; of the `integration`, secrets may be sent as they were read back."""

    settings: dict[str, Any] = Field(default_factory=dict)
    integration: str | None = None


@route(
    "POST", "/integrations/connectors/{connector}/test", scope="integrations.write", body=TrySettings, returns=CheckView,
    atomic=False,
)  # fmt: skip
async def try_settings(call: Call, connector: str) -> CheckView:
    """Ask the foreign system whether settings would work, before they are saved; nothing of it is kept."""
    body: TrySettings = call.body
    executor = call.services.executor
    call.services.integrations.get_connector(connector)
    call.end_turn()
    ask = partial(executor.try_settings, call.scope, Spec(connector, body.settings), body.integration)
    return check_view(await asyncio.wrap_future(executor.submit(call.scope, ask)))


@route(
    "POST", "/integrations/{slug}/execute", scope="integrations.execute", body=ExecuteAction, query=ExecuteActionQuery,
    returns=ResultView | CallView, also={202: CallView}, atomic=False,
    acts=GOVERNED,
)  # fmt: skip
async def execute_action(call: Call, slug: str) -> Answer:
    """Execute an action of an integration, through every policy.

    `mode: preview` judges like a call and sends nothing: it answers what would be done, and of HTTP what would be sent.
    With `async=true` the answer is 202 and the call is made soon. A repeated Idempotency-Key is passed
    on to the foreign system; a write whose outcome is unknown is not sent again. What a policy wants approved answers 403
    `approval_required` with the `action_digest` and, for a key that has approvals.request as well, the `approval_id` of the
    request that the call has made; sent again with that id once it is approved, it is done, once. Repeated before, the call
    names the same request; without that scope it names the `scope` that is missing. 429 while too much waits for people.
    """
    body: ExecuteAction = call.body
    may = frozenset(access for access in ("read", "write") if f"documents.{access}" in call.scope.scopes)
    request = ActionRequest(
        slug, body.action, body.input, body.mode, idempotency_key=call.token or None, seconds=body.timeout_s, documents=may,
        approval_id=body.approval_id,
    )  # fmt: skip
    executor = call.services.executor
    call.end_turn()
    if call.query.async_ and body.mode == "execute":
        enqueue = partial(_enqueue, call, request)
        record = await asyncio.wrap_future(executor.submit(call.scope, enqueue))
        view = call_view(record)
        return Answer(view, status=202, headers={"Location": view.links["self"]})
    result: ActionResult = await asyncio.wrap_future(executor.submit(call.scope, partial(executor.execute, call.scope, request)))
    return Answer(
        ResultView(
            status="previewed" if result.status == "previewed" else "succeeded", effect=result.effect, output=result.output,
            recorded=result.status == "recorded", execution_id=result.call_id, preview=preview_view(slug, result),
            policy=ruling_view(result),
            links=call_links(slug, result.call_id) if result.call_id else None,
        )
    )  # fmt: skip


def _enqueue(call: Call, request: ActionRequest) -> CallRecord:
    call_id = call.services.executor.enqueue(call.scope, request)
    return history.get_call(call.scope, request.integration, call_id)
