"""Asking a connector for what is new: judged like every call that reads, and never recorded as one of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from appliance.connectors.contract import Polled, Trigger
from appliance.core.errors import ValidationFailed
from appliance.core.scope import TenantScope
from appliance.integrations.connections import Ready
from appliance.integrations.gate import Gate
from appliance.integrations.service import Integrations

POLL_SECONDS = 60.0


@dataclass(frozen=True)
class PollRequest:
    """What is asked: a trigger of an integration, from where the last poll left off."""

    integration: str
    trigger: str
    query: Mapping[str, Any]
    cursor: Any = None


def find_trigger(integrations: Integrations, scope: TenantScope, request: PollRequest) -> tuple[Ready, Trigger]:
    """The integration, ready, and its trigger; NotFound, ConnectorFailed, ValidationFailed for a wrong query."""
    ready = integrations.ready(scope, request.integration)
    trigger = ready.installed.triggers.get(request.trigger)
    if trigger is None:
        known = ", ".join(sorted(ready.installed.triggers)) or "none"
        message = f"{ready.installed.name} has no trigger {request.trigger[:80]!r}; it has {known}"
        raise ValidationFailed(message, pointer="/trigger")
    problems = ready.installed.queries[trigger.name].problems(dict(request.query), under="/query")
    if problems:
        first = f"{problems[0].pointer}: {problems[0].message}"
        raise ValidationFailed(f"the query does not suit {trigger.name} of {request.integration}, {first}", details=problems)
    return ready, trigger


def poll(
    integrations: Integrations, gate: Gate, scope: TenantScope, request: PollRequest, judge: Callable[[Ready, Trigger], None]
) -> Polled:
    """What is new, once `judge` lets it; ConnectorError from the connector itself."""
    ready, trigger = find_trigger(integrations, scope, request)
    judge(ready, trigger)

    def ask(seconds: float) -> Polled:
        return integrations.calls.poll(ready, trigger.name, request.query, request.cursor, seconds)

    return gate.run(scope, ready.slug, POLL_SECONDS, ask, ready.concurrency)
