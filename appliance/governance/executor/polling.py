"""Polls a connector for new items: governed like every call that reads, but not recorded as one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from appliance.connectors.contract import ConnectorError, Polled, Trigger
from appliance.core.database import db
from appliance.core.errors import PolicyDenied, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.governance.executor.redirects import HostChecks
from appliance.governance.executor.tool_actions import ToolActionBuilder, build_tool_action
from appliance.governance.governor import ActionNeedsApproval, Governor, Permit, decision_view
from appliance.governance.subjects import subject_of
from appliance.integrations import Gate, Integrations, OpenedIntegration
from appliance.integrations.calls import PollSpec

POLL_SECONDS = 60.0


@dataclass(frozen=True)
class PollRequest:
    """A poll of an integration's trigger, continuing after the last poll's cursor."""

    integration: str
    trigger: str
    query: Mapping[str, Any]
    cursor: Any = None


def find_trigger(integrations: Integrations, scope: TenantScope, request: PollRequest) -> tuple[OpenedIntegration, Trigger]:
    """The integration and its trigger; NotFound, ConnectorFailed, ValidationFailed for an invalid query."""
    ready = integrations.ready(scope, request.integration)
    trigger = ready.installed.triggers.get(request.trigger)
    if trigger is None:
        names = ", ".join(sorted(ready.installed.triggers)) or "none"
        message = Sentence(
            "%(name)s has no trigger %(trigger)s; it has %(known)s",
            name=ready.installed.name, trigger=repr(request.trigger[:80]), known=names,
        )
        raise ValidationFailed(message, pointer="/trigger")
    problems = ready.installed.queries[trigger.name].problems(dict(request.query), under="/query", namespace=scope.tenant_id)
    if problems:
        first = f"{problems[0].pointer}: {problems[0].message}"
        raise ValidationFailed(
            Sentence(
                "the query is not valid for %(name)s of %(integration)s, %(first)s",
                name=trigger.name, integration=request.integration, first=first,
            ),
            details=problems,
        )
    return ready, trigger


def permit_poll(
    governor: Governor,
    scope: TenantScope,
    request: PollRequest,
    describer: ToolActionBuilder,
    ready: OpenedIntegration,
    trigger: Trigger,
) -> Permit:
    """Permission for one poll, counted against the caps of the rules that match.

    PolicyDenied, BudgetExceeded.  A poll can neither wait for approval nor be previewed, so rules that require that refuse it.
    """
    action = build_tool_action(ready, trigger.name, "read", dict(request.query), describer.kin_of(scope, ready))
    try:
        permit = governor.permit(scope, subject_of(scope), action)
    except ActionNeedsApproval as refusal:
        raise _poll_refused(refusal.permit, "approval_at_poll", "a person's approval") from refusal
    if permit.decision.obligations.dry_run_first:
        db.write(permit.audit_refusal)
        raise _poll_refused(permit, "preview_at_poll", "a preview first")
    if permit.needs_write:
        db.write(lambda: permit.consume(f"poll:{request.integration}/{trigger.name}"))
    return permit


def _poll_refused(permit: Permit, reason: str, requirement: str) -> PolicyDenied:
    rules = ", ".join(permit.decision.rules) or "the default policy"
    action = permit.action
    message = Sentence(
        "%(rules)s requires %(wanted)s for %(operation)s of %(integration)s, which is not possible for a poll; add a "
        "policy rule that allows this trigger to poll (subject: {actors: [%(actor)s]})",
        rules=rules, wanted=requirement, operation=action.operation, integration=action.integration, actor=permit.subject.actor,
    )
    return PolicyDenied(message, extra={**decision_view(permit.decision), "reason": reason})


def poll(
    integrations: Integrations,
    gate: Gate,
    scope: TenantScope,
    request: PollRequest,
    allow: Callable[[OpenedIntegration, Trigger], Permit],
    governor: Governor,
) -> Polled:
    """The new items, once `allow` permits the poll, without what the rules redact; ConnectorError from the connector itself.

    Redaction pointers apply to each item, as they do to the result of an action.
    """
    ready, trigger = find_trigger(integrations, scope, request)
    permit = allow(ready, trigger)
    hops = HostChecks(governor, permit)

    def call(seconds: float) -> Polled:
        permit.refuse_switched_off()
        shot = PollSpec(trigger.name, request.query, request.cursor, seconds, permit.redacts, hops.check)
        try:
            return integrations.calls.poll(ready, shot)
        except ConnectorError as error:
            permit.redact_failure(error)
            raise

    polled = gate.run(scope, ready.slug, POLL_SECONDS, call, ready.concurrency)
    return replace(polled, items=[replace(each, data=permit.redact(each.data)) for each in polled.items])
