"""Finding the action a request names: a declared one, or one that was discovered, which is done first where it is due."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from appliance.connectors.contract import Action, Effect
from appliance.core.database import db
from appliance.core.errors import Conflict, PolicyDenied, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.integrations import Gate, Integrations, Ready
from appliance.monitor import audit

_MOST_NAMED = 20


class ActionWithheld(Conflict):
    """The foreign system offers the action otherwise than it was approved; the message says what to do."""

    code = "action_withheld"


@dataclass(frozen=True)
class Wanted:
    """An action that somebody wants of a ready integration; `allow` judges what is known of it (its effect, a write where nobody
    knows, and whether anybody does) before its foreign system is asked for its actions, and raises what forbids that."""

    ready: Ready
    name: str
    seconds: float
    allow: Callable[[Effect, bool], None]


def find_action(integrations: Integrations, gate: Gate, scope: TenantScope, wanted: Wanted) -> Action:
    """The action; ValidationFailed when there is none of that name, ActionWithheld when it is not offered at present (which
    the audit trail says as well), ConnectorError when discovering fails, and what `allow` raises."""
    ready, name = wanted.ready, wanted.name
    declared = ready.installed.actions.get(name)
    if declared is not None:
        return declared
    if integrations.must_discover(scope, ready):
        stored = integrations.actions_of(scope, ready).get(name)
        allow = partial(wanted.allow, stored.effect if stored is not None else "write", stored is not None)
        allow()

        def discover(left: float) -> None:
            allow()  # it may have waited for its turn
            integrations.discover(scope, ready, left)

        gate.run(scope, ready.slug, wanted.seconds, discover, ready.concurrency)
    actions = integrations.actions_of(scope, ready)
    found = actions.get(name)
    if found is None:
        message = Sentence(
            "%(name)s has no action %(name2)s; %(ready)s",
            name=ready.installed.name, name2=repr(name[:80]), ready=_known(ready, list(actions)),
        )
        raise ValidationFailed(message, pointer="/action")
    if found.withheld:
        refused = ActionWithheld(found.withheld, pointer="/action", extra={"integration": ready.slug, "action": name})
        told = {"code": refused.code, "reason": found.withheld}
        db.write(partial(audit.record, scope, "integration.refuse", f"{ready.slug}/{name}", told))
        raise refused
    return found


def judged_unknown(refusal: PolicyDenied, ready: Ready) -> PolicyDenied:
    """The refusal of an action that counts as a write because nobody knows it."""
    told = Sentence(
        "the actions of %(slug)s are not known yet, so this counts as a write: have somebody test the integration first",
        slug=ready.slug,
    )
    return PolicyDenied(Sentence("%(message)s; %(told)s", message=refusal.message, told=told), extra=refusal.extra)


def check_input(ready: Ready, action: Action, given: dict[str, object]) -> None:
    """ValidationFailed with everything in the input that does not suit the action."""
    problems = ready.installed.input_of(action).problems(given, under="/input", namespace=ready.tenant_id)
    if problems:
        raise ValidationFailed(
            Sentence("the input does not suit %(name)s of %(slug)s", name=action.name, slug=ready.slug), details=problems
        )


def _known(ready: Ready, names: list[str]) -> str:
    if len(names) <= _MOST_NAMED:
        return f"it has {', '.join(sorted(names)) or 'none'}"
    return f"it has {len(names)}; GET /api/v1/integrations/{ready.slug}/actions?q=… finds one by words"
