"""The page of kill switches: what is switched off, and the forms to switch things off and on."""

from appliance.agents import versions
from appliance.console.frame.people import Names
from appliance.console.frame.routing import Answer, Page, Redirect, Visit, page
from appliance.core.errors import ApplianceError, NotFound, ValidationFailed
from appliance.core.pages import MAX_LIMIT, PageRequest
from appliance.core.sentences import Sentence
from appliance.governance import KINDS, Kind, kill_switches

HERE = "/console/kill-switches"
LONGEST_NAME = 100
LONGEST_REASON = 500


@page("GET", "/kill-switches", scope="integrations.read")
def list_kill_switches(visit: Visit) -> Answer:
    """Everything that is switched off, and the form."""
    return _page(visit)


def _page(visit: Visit, problem: ApplianceError | None = None) -> Page:
    scope, most = visit.scope, PageRequest(MAX_LIMIT)
    may = [kind for kind in KINDS if visit.may("integrations.write") and visit.may(kill_switches.SCOPES[kind])]
    ids = [each.slug for each in visit.services.integrations.list_integrations(scope, most).items]
    if visit.may("agents.read"):
        ids += [each.id for each in versions.list_agents(scope, most).items]
    values = {
        "rows": kill_switches.list_switches(scope), "may": may, "known": sorted(set(ids)), "names": Names(visit),
        "problem": problem, "form": {name: visit.request.field(name) for name in ("kind", "name", "reason")},
    }  # fmt: skip
    return Page("kill_switches.html", values, problem.status if problem else 200)


@page("POST", "/kill-switches/off", scope="integrations.write", step_up=True)
def switch_off(visit: Visit) -> Answer:
    """Switch something off; a reason and a confirmation are required."""
    request = visit.request
    try:
        kind, name = _parse_target(visit)
        reason = request.field("reason").strip()
        if not 1 <= len(reason) <= LONGEST_REASON:
            raise ValidationFailed(
                Sentence(
                    "enter a reason of 1 to %(longest_reason)s characters; it is shown for every blocked call",
                    longest_reason=LONGEST_REASON,
                ),
                pointer="/reason",
            )
        if request.field("sure") != "yes":
            raise ValidationFailed("confirm with the checkbox; running work is stopped as well", pointer="/sure")
        if kind == "integration":
            _refuse_unknown(visit, name)
    except ApplianceError as error:
        return _page(visit, error)
    kill_switches.switch_off(visit.scope, kind, name, reason)
    return Redirect(HERE)


def _refuse_unknown(visit: Visit, slug: str) -> None:
    """ValidationFailed for an unknown integration: with a misspelled name it would stay on while people believe it is off."""
    try:
        visit.services.integrations.get_integration(visit.scope, slug)
    except NotFound as error:
        raise ValidationFailed(
            Sentence("there is no integration %(slug)s; use the id shown on its page", slug=slug), pointer="/name"
        ) from error


@page("POST", "/kill-switches/on", scope="integrations.write", step_up=True)
def switch_on(visit: Visit) -> Answer:
    """Switch something on again."""
    try:
        kind, name = _parse_target(visit)
    except ApplianceError as error:
        return _page(visit, error)
    kill_switches.switch_on(visit.scope, kind, name)
    return Redirect(HERE)


def _parse_target(visit: Visit) -> tuple[Kind, str]:
    """The kind and name that the form refers to; ScopeMissing when the person may not switch that kind."""
    kind, name = visit.request.field("kind"), visit.request.field("name").strip()
    if kind not in KINDS:
        raise ValidationFailed("choose what to switch", pointer="/kind")
    visit.scope.require(kill_switches.SCOPES[kind])
    if (kind == "tenant") != (not name):
        if name:
            raise ValidationFailed("leave the name empty to switch the whole tenant", pointer="/name")
        raise ValidationFailed("enter a name", pointer="/name")
    if len(name) > LONGEST_NAME:
        raise ValidationFailed(
            Sentence("the name is too long; the maximum is %(longest_name)s characters", longest_name=LONGEST_NAME), pointer="/name"
        )
    return kind, name or kill_switches.WHOLE_TENANT
