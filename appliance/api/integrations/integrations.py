"""/api/v1/integrations: the connector catalogue, integrations, and executing their actions."""

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
from appliance.governance import decision_view
from appliance.governance.executor import DEFAULT_SECONDS, MOST_SECONDS, ActionRequest, ActionResult
from appliance.integrations import (
    DEFAULT_CONCURRENCY,
    MAX_CONCURRENCY,
    CallRecord,
    Check,
    Health,
    Integration,
    IntegrationSpec,
    connecting,
    history,
    merged_spec,
)

from .actions import ActionView, Effect, action_view
from .calls import ApprovalId, CallView, call_links, call_view
from .oauth import ConnectionView, connection_view

Name = Annotated[str, Field(min_length=1, max_length=200)]
Concurrency = Annotated[int, Field(ge=1, le=MAX_CONCURRENCY)]
"""How many calls of an integration run at once in each process of the appliance."""


class ConnectorTriggerView(View):
    """A trigger, which polls the foreign system; `query` and `item` are JSON Schemas."""

    name: str
    summary: str
    query: dict[str, Any]
    item: dict[str, Any]
    sample: dict[str, Any]


class ConnectorView(View):
    """An installed connector; `problem` says why it cannot be used."""

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
    """The circuit breaker of an integration: `open` sends no calls until `retry_at`, `half_open` tries a single call.

    `failures` counts consecutive failures and `reason` is the last one; until `held_until` the foreign system asked to wait.
    """

    state: Literal["closed", "open", "half_open"]
    failures: int
    reason: str | None = None
    retry_at: str | None = None
    held_until: str | None = None


class IntegrationView(View):
    """An integration; secret settings are shown as `{"sealed": true, "updated_at"}`."""

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
    concurrency: Concurrency = DEFAULT_CONCURRENCY


class ChangeIntegration(Body):
    """A JSON merge patch (RFC 7396): absent members stay, null within `settings` removes a setting."""

    connector: Name | None = None
    name: Name | None = None
    settings: dict[str, Any] | None = None
    concurrency: Concurrency | None = None


class ExecuteAction(Body):
    action: Name
    input: dict[str, Any] = Field(default_factory=dict)
    mode: Literal["execute", "preview"] = "execute"
    approval_id: ApprovalId | None = None
    timeout_s: Annotated[float, Field(gt=0, le=MOST_SECONDS, strict=False)] = DEFAULT_SECONDS


class ExecuteActionQuery(Query):
    async_: Annotated[bool, Field(alias="async")] = False


class SentRequestView(View):
    """An HTTP request that would be sent, with credentials masked; `body` has the first 64 KiB of `body_bytes`."""

    method: str
    url: str
    # Client generators need `items` beside `prefixItems`.
    headers: list[Annotated[tuple[str, str], Field(json_schema_extra={"items": {"type": "string"}})]]
    body: str
    encoding: Literal["text", "base64"]
    body_bytes: int


class PreviewView(View):
    """What the action would do; `requests` lists the first requests it would send, where the connector can tell."""

    integration: str
    action: str
    input: Any
    requests: list[SentRequestView] | None = None


class RulingView(View):
    """How policies decide a previewed action; `action_digest` identifies the action an approval would cover."""

    verdict: Literal["allow", "require_approval"]
    rules: list[str]
    reasons: list[str]
    policy_version: str
    action_digest: str


class ResultView(View):
    """The result of an action: `recorded` marks the answer of an earlier, equal request, `preview` says what the action would do
    and `policy` whether it would need an approval."""

    status: Literal["succeeded", "previewed"]
    effect: Effect
    recorded: bool = False
    output: Any = None
    preview: PreviewView | None = None
    policy: RulingView | None = None
    execution_id: str | None = None
    links: dict[str, str] | None = None


def connector_view(installed: Installed, *, with_schemas: bool = False) -> ConnectorView:
    connector = installed.connector
    actions = [action_view(each) for each in connector.actions]
    triggers = [
        ConnectorTriggerView(name=t.name, summary=t.summary, query=dict(t.query), item=dict(t.item), sample=dict(t.sample))
        for t in connector.triggers
    ]
    return ConnectorView(
        name=connector.name, distribution=installed.distribution, title=connector.title, version=connector.version,
        settings_schema=dict(connector.settings_schema) if with_schemas else None, actions=actions if with_schemas else None,
        triggers=triggers if with_schemas else None,
    )  # fmt: skip


def problem_view(problem: Problem) -> ConnectorView:
    return ConnectorView(name=problem.name, distribution=problem.distribution, problem=problem.message)


def check_view(check: Check) -> CheckView:
    return CheckView(ok=check.ok, message=check.message, at=clock.rfc3339(check.at), error_class=check.error_class)


def integration_view(integration: Integration) -> IntegrationView:
    return IntegrationView(
        slug=integration.slug, name=integration.name, connector=integration.connector, settings=integration.settings,
        version=integration.version, concurrency=integration.concurrency,
        created_at=clock.rfc3339(integration.created_at), updated_at=clock.rfc3339(integration.updated_at),
        last_test=check_view(integration.check) if integration.check else None,
    )  # fmt: skip


def circuit_view(health: Health) -> CircuitView:
    return CircuitView(
        state=health.state, failures=health.failures, reason=health.reason or None,
        retry_at=clock.optional_rfc3339(health.open_until), held_until=clock.optional_rfc3339(health.held_until),
    )  # fmt: skip


def preview_view(slug: str, result: ActionResult) -> PreviewView | None:
    preview = result.preview
    if preview is None:
        return None
    requests = [
        SentRequestView(
            method=r.method, url=r.url, headers=list(r.headers), body=r.body, encoding=r.encoding, body_bytes=r.body_bytes
        )
        for r in preview.requests
    ]  # fmt: skip
    return PreviewView(integration=slug, action=preview.action, input=preview.input, requests=requests or None)


def ruling_view(result: ActionResult) -> RulingView | None:
    if result.ruling is None:
        return None
    return RulingView(action_digest=result.ruling.action_digest, **decision_view(result.ruling.decision))


@route("GET", "/integrations/connectors", scope="integrations.read", returns=ConnectorView, listed=True, query=NoQuery)
def list_connectors(call: Call) -> Page[ConnectorView]:
    """List the installed connectors; one that cannot be used has a `problem`."""
    registry = call.services.integrations.registry
    usable = [connector_view(installed) for _, installed in sorted(registry.installed.items())]
    return Page([*usable, *map(problem_view, registry.problems)])


@route("GET", "/integrations/connectors/{connector}", scope="integrations.read", returns=ConnectorView)
def get_connector(call: Call, connector: str) -> ConnectorView:
    """Show a connector: the schema of its settings, and its actions with their inputs, outputs and effects."""
    return connector_view(call.services.integrations.get_connector(connector), with_schemas=True)


@route(
    "GET", "/integrations", scope="integrations.read", returns=IntegrationView, listed=True,
    acts=Acts("list_tenant_integrations"),
)  # fmt: skip
def list_integrations(call: Call) -> Page[IntegrationView]:
    """List the tenant's integrations."""
    return call.services.integrations.list_integrations(call.scope, call.query.page).map(integration_view)


def _answer(integration: Integration, **more: Any) -> Answer:
    return Answer(integration_view(integration), etag=str(integration.version), **more)


@route("POST", "/integrations", scope="integrations.write", body=CreateIntegration, returns=IntegrationView, status=201)
def create_integration(call: Call) -> Answer:
    """Configure a connector as an integration.

    Settings that the connector's schema marks `secret` are sealed and never read back. The value `= secrets.<name>` refers
    to a secret of the tenant.
    """
    body: CreateIntegration = call.body
    spec = IntegrationSpec(body.connector, body.settings, body.name or "", body.concurrency)
    integration = call.services.integrations.create_integration(call.scope, body.slug, spec)
    return _answer(integration, headers={"Location": f"/api/v1/integrations/{integration.slug}"})


@route("GET", "/integrations/{slug}", scope="integrations.read", returns=IntegrationView)
def get_integration(call: Call, slug: str) -> Answer:
    """Show an integration, with its circuit breaker (`circuit`) and OAuth connection (`connection`)."""
    integrations = call.services.integrations
    integration = integrations.get_integration(call.scope, slug)
    more = {
        "circuit": circuit_view(integrations.health(call.scope, slug)),
        "connection": connection_view(connecting.connection(integrations, call.scope, slug)),
    }
    view = integration_view(integration).model_copy(update=more)
    return Answer(view, etag=str(integration.version))


@route("PATCH", "/integrations/{slug}", scope="integrations.write", body=ChangeIntegration, returns=IntegrationView)
def change_integration(call: Call, slug: str) -> Answer:
    """Change an integration (RFC 7396).

    Secrets that are left out, or sent back as they were read, stay. A change of where they are sent (such as the base
    address) requires sending them again.
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
        raise VersionConflict("If-Match is not an ETag of this integration; read the integration again and repeat the change")
    return int(etag)


@route("DELETE", "/integrations/{slug}", scope="integrations.write", returns=DeletedView)
def delete_integration(call: Call, slug: str) -> DeletedView:
    """Delete an integration with the records of its calls; refused while a call has an unknown outcome."""
    call.services.integrations.delete_integration(call.scope, slug)
    return DeletedView(deleted=slug)


@route("POST", "/integrations/{slug}/test", scope="integrations.write", returns=CheckView, atomic=False)
async def test_integration(call: Call, slug: str) -> CheckView:
    """Test the settings against the foreign system; a failed test is reported as a result, not as an error."""
    test = partial(call.services.executor.test_integration, call.scope, slug)
    return check_view(await asyncio.wrap_future(call.services.executor.submit(call.scope, test)))


@route("POST", "/integrations/{slug}/circuit/close", scope="integrations.write", returns=CircuitView)
def close_circuit(call: Call, slug: str) -> CircuitView:
    """Close the circuit breaker, so that calls are sent again at once."""
    integrations = call.services.integrations
    integrations.close_circuit(call.scope, slug)
    return circuit_view(integrations.health(call.scope, slug))


class TrySettings(Body):
    """Settings of a connector; with `integration`, that integration's secrets may be sent as they were read."""

    settings: dict[str, Any] = Field(default_factory=dict)
    integration: str | None = None


@route(
    "POST", "/integrations/connectors/{connector}/test", scope="integrations.write", body=TrySettings, returns=CheckView,
    atomic=False,
)  # fmt: skip
async def try_settings(call: Call, connector: str) -> CheckView:
    """Test settings against the foreign system before saving them; nothing is stored."""
    body: TrySettings = call.body
    executor = call.services.executor
    call.services.integrations.get_connector(connector)
    call.end_turn()
    test = partial(executor.try_settings, call.scope, IntegrationSpec(connector, body.settings), body.integration)
    return check_view(await asyncio.wrap_future(executor.submit(call.scope, test)))


@route(
    "POST", "/integrations/{slug}/execute", scope="integrations.execute", body=ExecuteAction, query=ExecuteActionQuery,
    returns=ResultView | CallView, also={202: CallView}, atomic=False,
    acts=GOVERNED,
)  # fmt: skip
async def execute_action(call: Call, slug: str) -> Answer:
    """Execute an action of an integration, subject to all policies.

    `mode: preview` evaluates policies and sends nothing: it returns what the action would do and, for HTTP, the requests it
    would send. With `async=true` the call is queued and the answer is 202. The Idempotency-Key is passed on to the foreign
    system; a write whose outcome is unknown is not sent again.

    If a policy requires an approval, the answer is 403 `approval_required` with the `action_digest`. If the key has the scope
    approvals.request, the call has also requested the approval: once it is approved, repeat the call with its `approval_id`,
    which is valid once (until then, repeating the call returns the same request). Otherwise `scope` names the missing scope.
    429 while too many requests wait for people.
    """
    body: ExecuteAction = call.body
    document_access = frozenset(access for access in ("read", "write") if f"documents.{access}" in call.scope.scopes)
    request = ActionRequest(
        slug, body.action, body.input, body.mode, idempotency_key=call.token or None, seconds=body.timeout_s,
        documents=document_access, approval_id=body.approval_id,
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
