"""/api/v1/integrations: the connector catalogue, integrations, and executing their actions."""

import asyncio
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field

from appliance.api.frame.routing import GOVERNED, Acts, Answer, Body, Call, Query, route
from appliance.api.tenants.tenants import DeletedView, NoQuery
from appliance.core.errors import (
    AlreadyExists,
    ApprovalRequired,
    BudgetExceeded,
    ConcurrencyLimited,
    Conflict,
    ConnectorFailed,
    PolicyDenied,
    VersionConflict,
)
from appliance.core.pages import Page
from appliance.governance.executor import DEFAULT_SECONDS, MOST_SECONDS, ActionRequest, ActionResult, ActionWithheld
from appliance.integrations import (
    DEFAULT_CONCURRENCY,
    MAX_CONCURRENCY,
    CallRecord,
    Integration,
    IntegrationSpec,
    connecting,
    history,
    merged_spec,
)

from .calls import ApprovalId, CallView, call_links, call_view
from .integration_views import (
    CheckView,
    CircuitView,
    ConnectorView,
    IntegrationView,
    ResultView,
    check_view,
    circuit_view,
    connector_view,
    integration_view,
    preview_view,
    problem_view,
    ruling_view,
)
from .oauth import connection_view

Name = Annotated[str, Field(min_length=1, max_length=200)]
Concurrency = Annotated[int, Field(ge=1, le=MAX_CONCURRENCY)]
"""How many calls of an integration run at once."""


class CreateIntegration(Body):
    slug: Annotated[str, Field(description=(
        "The name for paths and definitions: lower-case letters, digits and single hyphens, at most 63 characters."
    ))]
    connector: Annotated[Name, Field(description="The name of an installed connector, 1 to 200 characters.")]
    name: Annotated[Name | None, Field(description="The name shown to people, 1 to 200 characters; may be left out.")] = None
    settings: Annotated[dict[str, Any], Field(description=(
        "Settings as in the connector's `settings_schema`; `= secrets.<name>` refers to a secret of the tenant."
    ))] = Field(default_factory=dict)
    concurrency: Annotated[
        Concurrency, Field(description="How many calls run at once, from 1 to 64.")
    ] = DEFAULT_CONCURRENCY


class ChangeIntegration(Body):
    """A JSON merge patch (RFC 7396): absent members stay, null within `settings` removes a setting."""

    connector: Annotated[Name | None, Field(description=(
        "The name of another installed connector, 1 to 200 characters; absent to keep the present one."
    ))] = None
    name: Annotated[
        Name | None, Field(description="The new name shown to people, 1 to 200 characters; absent to keep the present one.")
    ] = None
    settings: Annotated[dict[str, Any] | None, Field(description=(
        "The settings to merge into the present ones; null removes a setting, absent ones stay."
    ))] = None
    concurrency: Annotated[Concurrency | None, Field(description=(
        "How many calls run at once, from 1 to 64; absent to keep it."
    ))] = None


class ExecuteAction(Body):
    action: Annotated[Name, Field(description="The name of an action of the integration, 1 to 200 characters.")]
    input: Annotated[
        dict[str, Any], Field(description="The arguments as in the `input` schema of the action.")
    ] = Field(default_factory=dict)
    mode: Annotated[Literal["execute", "preview"], Field(description=(
        "Whether to call the foreign system or only to show what would be sent (`preview`)."
    ))] = "execute"
    approval_id: Annotated[ApprovalId | None, Field(description=(
        "The approval of exactly this action, where policies require one; `apr_…`, 1 to 80 characters."
    ))] = None
    timeout_s: Annotated[
        float, Field(gt=0, le=MOST_SECONDS, strict=False, description="Seconds that the call may take, above 0 and at most 900.")
    ] = DEFAULT_SECONDS


class ExecuteActionQuery(Query):
    async_: Annotated[
        bool, Field(alias="async", description="True to queue the call and answer 202 at once; without effect on a preview.")
    ] = False


@route("GET", "/connectors", scope="integrations.read", returns=ConnectorView, listed=True, query=NoQuery)
def list_connectors(call: Call) -> Page[ConnectorView]:
    """List the installed connectors.

    One that cannot be used has a `problem`.
    """
    registry = call.services.integrations.registry
    usable = [connector_view(installed) for _, installed in sorted(registry.installed.items())]
    return Page([*usable, *map(problem_view, registry.problems)])


@route("GET", "/connectors/{connector}", scope="integrations.read", returns=ConnectorView)
def get_connector(call: Call, connector: str) -> ConnectorView:
    """Show a connector.

    With the schema of its settings, and its actions with their inputs, outputs and effects.
    """
    return connector_view(call.services.integrations.get_connector(connector), with_schemas=True)


@route(
    "GET", "/integrations", scope="integrations.read", returns=IntegrationView, listed=True,
    acts=Acts("list_tenant_integrations"),
)  # fmt: skip
def list_integrations(call: Call) -> Page[IntegrationView]:
    """List the tenant's integrations.

    Each comes with its connector and settings, in which secrets are not shown.
    """
    return call.services.integrations.list_integrations(call.scope, call.query.page).map(integration_view)


def _answer(integration: Integration, **more: Any) -> Answer:
    return Answer(integration_view(integration), etag=str(integration.version), **more)


@route(
    "POST", "/integrations", scope="integrations.write", body=CreateIntegration, returns=IntegrationView, status=201,
    errors=(AlreadyExists,),
)  # fmt: skip
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
    """Show an integration and its health.

    With its circuit breaker (`circuit`) and OAuth connection (`connection`).
    """
    integrations = call.services.integrations
    integration = integrations.get_integration(call.scope, slug)
    more = {
        "circuit": circuit_view(integrations.health(call.scope, slug)),
        "connection": connection_view(connecting.connection(integrations, call.scope, slug)),
    }
    view = integration_view(integration).model_copy(update=more)
    return Answer(view, etag=str(integration.version))


@route(
    "PATCH", "/integrations/{slug}", scope="integrations.write", body=ChangeIntegration, returns=IntegrationView,
    errors=(VersionConflict,),
)  # fmt: skip
def change_integration(call: Call, slug: str) -> Answer:
    """Change an integration (RFC 7396).

    Secrets that are left out, or sent back as they were read, stay. A change of where they are sent (such as the base
    address) requires sending them again. Takes If-Match.
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


@route("DELETE", "/integrations/{slug}", scope="integrations.write", returns=DeletedView, errors=(Conflict,))
def delete_integration(call: Call, slug: str) -> DeletedView:
    """Delete an integration with its call records.

    Refused while a call has an unknown outcome.
    """
    call.services.integrations.delete_integration(call.scope, slug)
    return DeletedView(deleted=slug)


@route(
    "POST", "/integrations/{slug}/test", scope="integrations.write", returns=CheckView, atomic=False,
    errors=(ConcurrencyLimited, ConnectorFailed),
)  # fmt: skip
async def test_integration(call: Call, slug: str) -> CheckView:
    """Test the settings of an integration.

    Calls the foreign system; a failed test is reported as a result, not as an error.
    """
    test = partial(call.services.governance.executor.test_integration, call.scope, slug)
    return check_view(await asyncio.wrap_future(call.services.governance.executor.submit(call.scope, test)))


@route("POST", "/integrations/{slug}/circuit/close", scope="integrations.write", returns=CircuitView)
def close_circuit(call: Call, slug: str) -> CircuitView:
    """Close the circuit breaker of an integration.

    Calls are sent again at once.
    """
    integrations = call.services.integrations
    integrations.close_circuit(call.scope, slug)
    return circuit_view(integrations.health(call.scope, slug))


class TrySettings(Body):
    """Settings of a connector; with `integration`, that integration's secrets may be sent as they were read."""

    settings: Annotated[
        dict[str, Any], Field(description="The settings to test, as in the connector's `settings_schema`; they are not stored.")
    ] = Field(default_factory=dict)
    integration: Annotated[str | None, Field(description=(
        "The slug of an integration whose stored secrets replace those sent as they were read; absent for new settings."
    ))] = None


@route(
    "POST", "/connectors/{connector}/test", scope="integrations.write", body=TrySettings, returns=CheckView,
    atomic=False, errors=(ConcurrencyLimited, ConnectorFailed),
)  # fmt: skip
async def try_settings(call: Call, connector: str) -> CheckView:
    """Test settings before saving them.

    Calls the foreign system; nothing is stored.
    """
    body: TrySettings = call.body
    executor = call.services.governance.executor
    call.services.integrations.get_connector(connector)
    call.end_turn()
    test = partial(executor.try_settings, call.scope, IntegrationSpec(connector, body.settings), body.integration)
    return check_view(await asyncio.wrap_future(executor.submit(call.scope, test)))


@route(
    "POST", "/integrations/{slug}/execute", scope="integrations.execute", body=ExecuteAction, query=ExecuteActionQuery,
    returns=ResultView | CallView, also={202: CallView}, atomic=False,
    acts=GOVERNED,
    errors=(ActionWithheld, ApprovalRequired, BudgetExceeded, ConcurrencyLimited, Conflict, ConnectorFailed, PolicyDenied),
)  # fmt: skip
async def execute_action(call: Call, slug: str) -> Answer:
    """Execute an action of an integration.

    The action is subject to all policies.

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
    executor = call.services.governance.executor
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
    call_id = call.services.governance.executor.enqueue(call.scope, request)
    return history.get_call(call.scope, request.integration, call_id)
