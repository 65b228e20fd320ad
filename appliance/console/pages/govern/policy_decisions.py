"""The page that explains what policies would decide of an action, without doing anything."""

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
from appliance.governance.policies import Compiled, Decision, Facts, Finding, ToolAction, decide, explain, parse_policy
from appliance.tenants import people

from .rule_sentences import tell_obligations

INTEGRATIONS = "execute_tenant_integration"
_KINDS: dict[subjects.Kind, str] = {
    "user": mark("a person"), "agent": mark("an agent"), "key": mark("an API key"), "execution": mark("an execution"),
    "system": mark("the appliance"),
}  # fmt: skip
_ROADS: dict[Via, str] = {
    "rest": mark("the API"), "console": mark("the console"), "mcp": "MCP", "process": mark("a process"),
    "agent": mark("an agent's run"),
}  # fmt: skip
_EFFECTS: dict[Effect, str] = {
    "read": mark("only reads"), "idempotent": mark("writes, and may be repeated"), "write": mark("writes"),
}  # fmt: skip
_TEXTS = ("who", "skills", "tool", "integration", "operation", "host", "policy")


@dataclass(frozen=True)
class Explained:
    """A decision with every rule that was looked at, and what it obliges to as sentences."""

    decision: Decision
    findings: list[Finding]
    duties: list[str]


@page("GET", "/policies/-/decide", scope="policies.read")
def show_decider(visit: Visit) -> Answer:
    """The form."""
    return _decider(visit)


@page("POST", "/policies/-/decide", scope="policies.read")
def explain_decision(visit: Visit) -> Answer:
    """What would be decided, why, and by which rules."""
    try:
        policies, facts = _policies(visit), Facts(_subject(visit), _action(visit))
    except ApplianceError as error:
        return _decider(visit, problem=error)
    decision = decide(policies, facts)
    return _decider(visit, Explained(decision, explain(policies, facts), tell_obligations(decision)))


def _decider(visit: Visit, told: Explained | None = None, problem: ApplianceError | None = None) -> Page:
    asked = visit.asked
    form = {name: asked.field(name) for name in (*_TEXTS, "kind", "via", "effect", "tainted", "input")}
    if asked.method == "GET":
        form["policy"] = asked.args.get("policy", "")
    stored = visit.services.policies.list_policies(visit.scope, PageRequest(MAX_LIMIT)).items
    drafts = [(each.name, _("the active policies and the draft of %(name)s", name=each.name)) for each in stored]
    values = {
        "form": form, "kinds": _told(_KINDS), "roads": _told(_ROADS), "effects": _told(_EFFECTS),
        "drafts": drafts, "told": told, "problem": problem,
        "default_tool": INTEGRATIONS,
    }  # fmt: skip
    return Page("policy_decide.html", values, problem.status if problem else 200)


def _told(words: Mapping[Any, str]) -> dict[str, str]:
    return {name: _(text) for name, text in words.items()}


def _policies(visit: Visit) -> Compiled:
    """Those that are active, or with the draft of one of them in the place of its active version."""
    policies, name = visit.services.policies, visit.asked.field("policy")
    if not name:
        return policies.compiled(visit.scope)
    return policies.compiled_with(visit.scope, parse_policy(policies.get_policy(visit.scope, name).draft, name))


def _subject(visit: Visit) -> Subject:
    asked = visit.asked
    kind, who = cast(subjects.Kind, _chosen(visit, "kind", _KINDS, "user")), asked.field("who").strip()
    via = cast(Via, _chosen(visit, "via", _ROADS, "agent" if kind == "agent" else "rest"))
    skills = tuple(SkillUsed(name, "", True) for name in asked.field("skills").replace(",", " ").split())
    tainted = ("outside",) if asked.field("tainted") == "yes" else ()
    if kind == "agent":
        if not who:
            raise ValidationFailed("name the agent by its id", pointer="/who")
        return Subject(visit.scope.actor, via, who, "", skills, tainted)
    return Subject(_actor(visit, kind, who), via, "", "", skills, tainted)


def _actor(visit: Visit, kind: subjects.Kind, who: str) -> str:
    """`user:…` of a login, `key:…` of a key's id; the visitor where nobody is named."""
    if kind == "system":
        return "system"
    if kind != "user":
        return f"{kind}:{who}"
    if not who:
        return visit.scope.actor
    for member in people.list_members(visit.scope):
        if who.lower() in (member.login.lower(), member.user_id.lower()):
            return f"user:{member.user_id}"
    raise ValidationFailed("nobody of this tenant has this login; leave it empty to mean yourself", pointer="/who")


def _action(visit: Visit) -> ToolAction:
    asked = visit.asked
    effect = cast(Effect, _chosen(visit, "effect", _EFFECTS, "read"))
    return ToolAction(
        asked.field("tool").strip() or INTEGRATIONS, effect, _input(visit), integration=asked.field("integration").strip(),
        operation=asked.field("operation").strip(), host=asked.field("host").strip(),
    )  # fmt: skip


def _input(visit: Visit) -> dict[str, Any]:
    text = visit.asked.field("input").strip() or "{}"
    try:
        value = load_json(text.encode(), visit.services.config.limits.json_depth)
    except ApplianceError as error:
        raise ValidationFailed(error.message.replace("the body", "the input"), pointer="/input") from error
    if not isinstance(value, dict):
        raise ValidationFailed('the input is an object, such as {"total": 1500}', pointer="/input")
    return value


def _chosen(visit: Visit, name: str, known: dict[Any, str], default: str) -> str:
    given = visit.asked.field(name) or default
    if given not in known:
        raise ValidationFailed("choose one of the list", pointer=f"/{name}")
    return given
