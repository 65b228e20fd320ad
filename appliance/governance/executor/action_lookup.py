"""Finds the action a request names, among declared and discovered actions; discovers them first when that is due."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from appliance.connectors.contract import Action, Effect
from appliance.core.database import db
from appliance.core.errors import Conflict, PolicyDenied, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.integrations import Gate, Integrations, OpenedIntegration
from appliance.monitor import audit

_MAX_LISTED = 20


class ActionWithheld(Conflict):
    """The foreign system now offers the action differently from the approved version; the message says what to do."""

    code = "action_withheld"


@dataclass(frozen=True)
class ActionQuery:
    """The action to find; `allow(effect, is_known)` checks the policies before the foreign system is called for its actions
    (an unknown action counts as a write), and raises if they deny it."""

    ready: OpenedIntegration
    name: str
    seconds: float
    allow: Callable[[Effect, bool], None]


def find_action(integrations: Integrations, gate: Gate, scope: TenantScope, query: ActionQuery) -> Action:
    """The action; ValidationFailed if there is none of that name, ActionWithheld if it is not offered at present (also recorded
    in the audit trail), ConnectorError if discovery fails, and whatever `allow` raises."""
    ready, name = query.ready, query.name
    declared = ready.installed.actions.get(name)
    if declared is not None:
        return declared
    if integrations.must_discover(scope, ready):
        stored = integrations.actions_of(scope, ready).get(name)
        allow = partial(query.allow, stored.effect if stored is not None else "write", stored is not None)
        allow()

        def discover(left: float) -> None:
            allow()  # it may have waited for a free slot
            integrations.discover(scope, ready, left)

        gate.run(scope, ready.slug, query.seconds, discover, ready.concurrency)
    actions = integrations.actions_of(scope, ready)
    action = actions.get(name)
    if action is None:
        message = Sentence(
            "%(name)s has no action %(name2)s; %(ready)s",
            name=ready.installed.name, name2=repr(name[:80]), ready=_describe_actions(ready, list(actions)),
        )
        raise ValidationFailed(message, pointer="/action")
    if action.withheld:
        error = ActionWithheld(action.withheld, pointer="/action", extra={"integration": ready.slug, "action": name})
        details = {"code": error.code, "reason": action.withheld}
        db.write(partial(audit.record, scope, "integration.refuse", f"{ready.slug}/{name}", details))
        raise error
    return action


def unknown_action_denied(refusal: PolicyDenied, ready: OpenedIntegration) -> PolicyDenied:
    """The refusal of an action that counts as a write because it is unknown."""
    hint = Sentence(
        "the actions of %(slug)s are not known yet, so this counts as a write: test the integration first",
        slug=ready.slug,
    )
    return PolicyDenied(Sentence("%(message)s; %(told)s", message=refusal.message, told=hint), extra=refusal.extra)


def check_input(ready: OpenedIntegration, action: Action, values: dict[str, object]) -> None:
    """ValidationFailed with every error in the action's input."""
    problems = ready.installed.input_of(action).problems(values, under="/input", namespace=ready.tenant_id)
    if problems:
        raise ValidationFailed(
            Sentence("the input is not valid for %(name)s of %(slug)s", name=action.name, slug=ready.slug), details=problems
        )


def _describe_actions(ready: OpenedIntegration, names: list[str]) -> str:
    if len(names) <= _MAX_LISTED:
        return f"it has {', '.join(sorted(names)) or 'none'}"
    return f"it has {len(names)}; GET /api/v1/integrations/{ready.slug}/actions?q=… searches them"
