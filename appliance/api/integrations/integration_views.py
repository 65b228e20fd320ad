"""The views of connectors, integrations, their health, and the results of actions."""

from typing import Annotated, Any, Literal

from pydantic import Field

from appliance.api.frame.routing import View
from appliance.connectors.registry import Installed, Problem
from appliance.core import clock
from appliance.governance import decision_view
from appliance.governance.executor import ActionResult
from appliance.integrations import (
    Check,
    Health,
    Integration,
)

from .actions import ActionView, Effect, action_view
from .oauth import ConnectionView


class ConnectorTriggerView(View):
    """A trigger, which polls the foreign system; `query` and `item` are JSON Schemas."""

    name: Annotated[str, Field(description="The name by which a process definition refers to the trigger.")]
    summary: Annotated[str, Field(description="One sentence on what starts an execution.")]
    query: Annotated[dict[str, Any], Field(description="JSON Schema of what to poll the foreign system for.")]
    item: Annotated[dict[str, Any], Field(description="JSON Schema of each item found, which becomes the input of an execution.")]
    sample: Annotated[dict[str, Any], Field(description="An example of an item.")]


class ConnectorView(View):
    """An installed connector; `problem` says why it cannot be used."""

    name: Annotated[str, Field(description="The name that integrations refer to, such as `http`.")]
    distribution: Annotated[str, Field(description="The Python package that contains the connector.")]
    title: Annotated[str | None, Field(description="The name shown to people; absent if the connector cannot be used.")] = None
    version: Annotated[str | None, Field(description="The version of the connector; absent if it cannot be used.")] = None
    problem: Annotated[str | None, Field(description="Why the connector cannot be used; absent if it can.")] = None
    settings_schema: Annotated[
        dict[str, Any] | None, Field(description="JSON Schema of an integration's settings, which marks secrets; absent in lists.")
    ] = None
    actions: Annotated[
        list[ActionView] | None, Field(description="What integrations of the connector can execute; absent in lists.")
    ] = None
    triggers: Annotated[
        list[ConnectorTriggerView] | None, Field(description="What integrations of the connector can poll for; absent in lists.")
    ] = None


class CheckView(View):
    ok: Annotated[bool, Field(description="True if the foreign system accepted the settings.")]
    message: Annotated[str, Field(description="What the test showed, and if it failed, what to change.")]
    at: Annotated[str, Field(description="When the test ended; RFC 3339, UTC.")]
    error_class: Annotated[str | None, Field(description=(
        "The kind of failure, such as `auth_error` or `address_not_allowed`; absent if the test succeeded."
    ))] = None


class CircuitView(View):
    """The circuit breaker of an integration: `open` sends no calls until `retry_at`, `half_open` tries a single call.

    `failures` counts consecutive failures and `reason` is the last one; until `held_until` the foreign system asked to wait.
    """

    state: Annotated[Literal["closed", "open", "half_open"], Field(description=(
        "Whether calls are sent (`closed`), held back (`open`) or limited to one attempt (`half_open`)."
    ))]
    failures: Annotated[int, Field(description="How many calls have failed in a row; 0 after a success.")]
    reason: Annotated[str | None, Field(description="The last of these failures; absent without one.")] = None
    retry_at: Annotated[
        str | None, Field(description="When the next call may be sent; RFC 3339, UTC. Absent unless the breaker opened.")
    ] = None
    held_until: Annotated[
        str | None, Field(description="Until when the foreign system asked to wait; RFC 3339, UTC. Absent if it did not.")
    ] = None


class IntegrationView(View):
    """An integration; secret settings are shown as `{"sealed": true, "updated_at"}`."""

    slug: Annotated[str, Field(description="The name that addresses the integration in paths and definitions; never changes.")]
    name: Annotated[str, Field(description="The name shown to people.")]
    connector: Annotated[str, Field(description="The name of the connector that reaches the foreign system.")]
    settings: Annotated[dict[str, Any], Field(description=(
        "The connector's settings; a secret is shown as `{\"sealed\": true, \"updated_at\": …}`, never as its value."
    ))]
    concurrency: Annotated[int, Field(description="How many calls run at once, from 1 to 64.")]
    version: Annotated[int, Field(description="Counts changes, from 1; also the ETag of the integration.")]
    created_at: Annotated[str, Field(description="When the integration was configured; RFC 3339, UTC.")]
    updated_at: Annotated[str, Field(description="When its configuration last changed; RFC 3339, UTC.")]
    last_test: Annotated[
        CheckView | None, Field(description="The latest test of the settings; absent if they were never tested.")
    ] = None
    circuit: Annotated[
        CircuitView | None, Field(description="Whether calls are sent at present; only in the answer for a single integration.")
    ] = None
    connection: Annotated[ConnectionView | None, Field(description=(
        "The OAuth connection; only in the answer for a single integration that signs in with OAuth."
    ))] = None


class SentRequestView(View):
    """An HTTP request that would be sent, with credentials masked; `body` has the first 64 KiB of `body_bytes`."""

    method: Annotated[str, Field(description="The HTTP method.")]
    url: Annotated[str, Field(description="The absolute address, with credentials masked.")]
    # Client generators need `items` beside `prefixItems`.
    headers: Annotated[list[Annotated[tuple[str, str], Field(json_schema_extra={"items": {"type": "string"}})]], Field(description=(
        "Pairs of header name and value, with credentials masked."
    ))]
    body: Annotated[str, Field(description="The first 64 KiB of the body, with credentials masked; empty without a body.")]
    encoding: Annotated[
        Literal["text", "base64"], Field(description="How `body` is written: as it is, or in base64 if it is not text.")
    ]
    body_bytes: Annotated[int, Field(description="The full length of the body in bytes.")]


class PreviewView(View):
    """What the action would do; `requests` lists the first requests it would send, where the connector can tell."""

    integration: Annotated[str, Field(description="The slug of the integration that would be called.")]
    action: Annotated[str, Field(description="The name of the action that would be executed.")]
    input: Annotated[Any, Field(description="The input that would be used, with defaults filled in.")]
    requests: Annotated[list[SentRequestView] | None, Field(description=(
        "The first requests that would be sent; absent where the connector cannot tell."
    ))] = None


class RulingView(View):
    """How policies decide a previewed action; `action_digest` identifies the action an approval would cover."""

    verdict: Annotated[
        Literal["allow", "require_approval"], Field(description="Whether the action may be executed now or needs approval.")
    ]
    rules: Annotated[list[str], Field(description="The rules behind the decision, as `policy/rule`; empty if a default decided.")]
    reasons: Annotated[list[str], Field(description="Sentences that explain the decision.")]
    policy_version: Annotated[str, Field(description="Identifies the set of active policies that was evaluated.")]
    action_digest: Annotated[str, Field(description="SHA-256 of the canonical form of the action, which an approval would cover.")]


class ResultView(View):
    """The result of an action: `recorded` marks the answer of an earlier, equal request, `preview` says what the action would do
    and `policy` whether it would need an approval."""

    status: Annotated[Literal["succeeded", "previewed"], Field(description="Whether the action was executed or only previewed.")]
    effect: Annotated[Effect, Field(description=(
        "The strongest effect that the action can have: it only reads, can be repeated safely, or writes."
    ))]
    recorded: Annotated[
        bool, Field(description="True if this is the recorded answer of an earlier request with the same Idempotency-Key.")
    ] = False
    output: Annotated[Any, Field(description="What the action returned, as in its `output` schema; absent for a preview.")] = None
    preview: Annotated[PreviewView | None, Field(description="What would be sent; absent unless the mode is `preview`.")] = None
    policy: Annotated[
        RulingView | None, Field(description="How policies would decide; absent unless the mode is `preview`.")
    ] = None
    execution_id: Annotated[
        str | None, Field(description="Identifies the record of the call; `call_…`. Absent if none was kept, as for a preview.")
    ] = None
    links: Annotated[
        dict[str, str] | None, Field(description="Paths on this host for the call; `self` is its record. Absent without a record.")
    ] = None


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
