"""The page that evaluates the policies for an action without performing it, and explains the decision."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from appliance.connectors.contract import Effect
from appliance.console.frame.routing import Answer, Page, Visit, page
from appliance.core.errors import ApplianceError, ValidationFailed
from appliance.core.json_text import load_json
from appliance.core.pages import MAX_LIMIT, PageRequest
from appliance.core.texts import gettext as _
from appliance.core.texts import mark
from appliance.governance import SkillUsed, Subject, Via, subjects
from appliance.governance.policies import CompiledPolicies, Decision, Finding, ToolAction, decide, explain, parse_policy
from appliance.tenants import people

from .rule_sentences import describe_obligations

INTEGRATIONS = "execute_tenant_integration"
_KINDS: dict[subjects.Kind, str] = {
    "user": mark("a person"), "agent": mark("an agent"), "key": mark("an API key"), "execution": mark("an execution"),
    "system": mark("the appliance"),
}  # fmt: skip
_VIA: dict[Via, str] = {
    "rest": mark("the API"), "console": mark("the console"), "mcp": "MCP", "process": mark("a process"),
    "agent": mark("an agent's run"),
}  # fmt: skip
_EFFECTS: dict[Effect, str] = {
    "read": mark("only reads"), "idempotent": mark("writes, and may be repeated"), "write": mark("writes"),
}  # fmt: skip
_TEXTS = ("who", "skills", "tool", "integration", "operation", "host", "policy")


@dataclass(frozen=True)
class Explanation:
    """A decision with every rule that was evaluated, and its obligations as sentences."""

    decision: Decision
    findings: list[Finding]
    duties: list[str]


@page("GET", "/policies/-/decide", scope="policies.read")
def show_decider(visit: Visit) -> Answer:
    """The form that describes the action to evaluate."""
    return _decision_page(visit)


@page("POST", "/policies/-/decide", scope="policies.read")
def explain_decision(visit: Visit) -> Answer:
    """The decision for the described action, with the rules that led to it."""
    try:
        policies, subject = _policies(visit), _subject(visit)
        facts = visit.services.governance.policies.describe(visit.scope, subject, _action(visit))
    except ApplianceError as error:
        return _decision_page(visit, problem=error)
    decision = decide(policies, facts)
    return _decision_page(visit, Explanation(decision, explain(policies, facts), describe_obligations(decision)))


def _decision_page(visit: Visit, explanation: Explanation | None = None, problem: ApplianceError | None = None) -> Page:
    request = visit.request
    form = {name: request.field(name) for name in (*_TEXTS, "kind", "via", "effect", "tainted", "input")}
    if request.method == "GET":
        form["policy"] = request.args.get("policy", "")
    stored = visit.services.governance.policies.list_policies(visit.scope, PageRequest(MAX_LIMIT)).items
    drafts = [(each.name, _("the active policies and the draft of %(name)s", name=each.name)) for each in stored]
    values = {
        "form": form, "kinds": _translate(_KINDS), "channels": _translate(_VIA), "effects": _translate(_EFFECTS),
        "drafts": drafts, "explanation": explanation, "problem": problem,
        "default_tool": INTEGRATIONS,
    }  # fmt: skip
    return Page("policy_decide.html", values, problem.status if problem else 200)


def _translate(words: Mapping[Any, str]) -> dict[str, str]:
    return {name: _(text) for name, text in words.items()}


def _policies(visit: Visit) -> CompiledPolicies:
    """The active policies; if the form names a policy, its draft replaces its active version."""
    policies, name = visit.services.governance.policies, visit.request.field("policy")
    if not name:
        return policies.compiled(visit.scope)
    return policies.compiled_with(visit.scope, parse_policy(policies.get_policy(visit.scope, name).draft, name))


def _subject(visit: Visit) -> Subject:
    request = visit.request
    kind, who = cast(subjects.Kind, _read_choice(visit, "kind", _KINDS, "user")), request.field("who").strip()
    via = cast(Via, _read_choice(visit, "via", _VIA, "agent" if kind == "agent" else "rest"))
    skills = tuple(SkillUsed(name, "", True) for name in request.field("skills").replace(",", " ").split())
    tainted = ("outside",) if request.field("tainted") == "yes" else ()
    if kind == "agent":
        if not who:
            raise ValidationFailed("enter the id of the agent", pointer="/who")
        return Subject(visit.scope.actor, via, who, "", skills, tainted)
    return Subject(_actor(visit, kind, who), via, "", "", skills, tainted)


def _actor(visit: Visit, kind: subjects.Kind, who: str) -> str:
    """The actor for the form's kind and id or login; the visitor when a user is not named."""
    if kind == "system":
        return "system"
    if kind != "user":
        return f"{kind}:{who}"
    if not who:
        return visit.scope.actor
    for member in people.list_members(visit.scope):
        if who.lower() in (member.login.lower(), member.user_id.lower()):
            return f"user:{member.user_id}"
    raise ValidationFailed("no member of this tenant has this login; leave the field empty to use your own", pointer="/who")


def _action(visit: Visit) -> ToolAction:
    request = visit.request
    effect = cast(Effect, _read_choice(visit, "effect", _EFFECTS, "read"))
    return ToolAction(
        request.field("tool").strip() or INTEGRATIONS, effect, _input(visit), integration=request.field("integration").strip(),
        operation=request.field("operation").strip(), host=request.field("host").strip(),
    )  # fmt: skip


def _input(visit: Visit) -> dict[str, Any]:
    text = visit.request.field("input").strip() or "{}"
    try:
        value = load_json(text.encode(), visit.services.config.limits.json_depth)
    except ApplianceError as error:
        raise ValidationFailed(error.message.replace("the body", "the input"), pointer="/input") from error
    if not isinstance(value, dict):
        raise ValidationFailed('the input must be a JSON object, such as {"total": 1500}', pointer="/input")
    return value


def _read_choice(visit: Visit, name: str, choices: dict[Any, str], default: str) -> str:
    value = visit.request.field(name) or default
    if value not in choices:
        raise ValidationFailed("choose a value from the list", pointer=f"/{name}")
    return value
