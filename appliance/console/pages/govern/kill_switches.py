"""The page of kill switches: what is off, and the forms that switch something off and on again."""

from appliance.agents import versions
from appliance.console.frame.people import Names
from appliance.console.frame.routing import Answer, Page, Redirect, Visit, page
from appliance.core.errors import ApplianceError, NotFound, ValidationFailed
from appliance.core.pages import MAX_LIMIT, PageRequest
from appliance.core.sentences import Sentence
from appliance.governance import KINDS, Kind, switches

HERE = "/console/kill-switches"
LONGEST_NAME = 100
LONGEST_REASON = 500


@page("GET", "/kill-switches", scope="integrations.read")
def list_kill_switches(visit: Visit) -> Answer:
    """What is off."""
    return _page(visit)


def _page(visit: Visit, problem: ApplianceError | None = None) -> Page:
    scope, most = visit.scope, PageRequest(MAX_LIMIT)
    may = [kind for kind in KINDS if visit.may("integrations.write") and visit.may(switches.SCOPE_OF[kind])]
    found = [each.slug for each in visit.services.integrations.list_integrations(scope, most).items]
    if visit.may("agents.read"):
        found += [each.id for each in versions.list_agents(scope, most).items]
    values = {
        "rows": switches.list_switches(scope), "may": may, "known": sorted(set(found)), "names": Names(visit), "problem": problem,
        "form": {name: visit.asked.field(name) for name in ("kind", "name", "reason")},
    }  # fmt: skip
    return Page("kill_switches.html", values, problem.status if problem else 200)


@page("POST", "/kill-switches/off", scope="integrations.write")
def switch_off(visit: Visit) -> Answer:
    """Stop something, with a reason."""
    asked = visit.asked
    try:
        kind, name = _meant(visit)
        reason = asked.field("reason").strip()
        if not 1 <= len(reason) <= LONGEST_REASON:
            raise ValidationFailed(
                Sentence("say why in 1 to %(longest_reason)s characters; who is refused reads it", longest_reason=LONGEST_REASON),
                pointer="/reason",
            )
        if asked.field("sure") != "yes":
            raise ValidationFailed("say that you mean it: what is under way ends too", pointer="/sure")
        if kind == "integration":
            _refuse_unknown(visit, name)
    except ApplianceError as error:
        return _page(visit, error)
    switches.switch_off(visit.scope, kind, name, reason)
    return Redirect(HERE)


def _refuse_unknown(visit: Visit, slug: str) -> None:
    """A misspelt integration would stay on while people believe it off."""
    try:
        visit.services.integrations.get_integration(visit.scope, slug)
    except NotFound as error:
        raise ValidationFailed(
            Sentence("there is no integration %(slug)s; its id stands on its page", slug=slug), pointer="/name"
        ) from error


@page("POST", "/kill-switches/on", scope="integrations.write")
def switch_on(visit: Visit) -> Answer:
    """Let something go on."""
    try:
        kind, name = _meant(visit)
    except ApplianceError as error:
        return _page(visit, error)
    switches.switch_on(visit.scope, kind, name)
    return Redirect(HERE)


def _meant(visit: Visit) -> tuple[Kind, str]:
    """What the form is about; ScopeMissing when it is not this person's to switch."""
    given, name = visit.asked.field("kind"), visit.asked.field("name").strip()
    if given not in KINDS:
        raise ValidationFailed("choose what is meant", pointer="/kind")
    visit.scope.require(switches.SCOPE_OF[given])
    if (given == "tenant") != (not name):
        if name:
            raise ValidationFailed("leave the name empty: all of this tenant is meant", pointer="/name")
        raise ValidationFailed("name what is meant", pointer="/name")
    if len(name) > LONGEST_NAME:
        raise ValidationFailed(
            Sentence("a name has at most %(longest_name)s characters", longest_name=LONGEST_NAME), pointer="/name"
        )
    return given, name or switches.WHOLE_TENANT
