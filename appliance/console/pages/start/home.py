"""The console's first page: what needs the visitor, how the last day went, and the first steps of a new tenant."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from appliance.agents import runs
from appliance.backups import standing
from appliance.console.frame.forms import InputForm
from appliance.console.frame.people import Names
from appliance.console.frame.routing import Answer, Page, Redirect, Visit, page
from appliance.console.pages.govern.confirmations import HERE
from appliance.console.pages.govern.confirmations import tell as tell_confirmation
from appliance.console.pages.operate.approvals import find_mine
from appliance.console.pages.operate.day import DAY_MS, read_day
from appliance.console.pages.settings.appliance import is_administrator
from appliance.core import clock
from appliance.core.pages import PageRequest
from appliance.core.texts import gettext as _
from appliance.core.texts import ngettext, tell
from appliance.governance.approvals import Approval, ApprovalFilter, approvals, title_of
from appliance.integrations import gate
from appliance.monitor import failures
from appliance.processes import Process
from appliance.processes.definitions import versions
from appliance.processes.executions import ExecutionFilter
from appliance.processes.executions import service as executions
from appliance.tenants import invitations, people, service
from appliance.tenants.grants import confirmations
from appliance.tenants.keys import keys
from appliance.webapps.certificates import expiring_hosts

AHEAD_MS, BACK_MS, NEW_MS = 30 * DAY_MS, 7 * DAY_MS, 14 * DAY_MS
SHOWN = 5
READ, MOST_PAGES = 50, 10


@dataclass(frozen=True)
class Need:
    """One thing to look at; `state` gives it its badge."""

    text: str
    about: str
    url: str
    state: str
    at: int | None = None


@dataclass(frozen=True)
class Needs:
    """Things of one kind, the first few of `count`; `url` has them all."""

    title: str
    url: str
    count: int
    items: list[Need]


@dataclass(frozen=True)
class Step:
    """A first step of a new tenant, and whether it has been taken."""

    text: str
    about: str
    url: str
    is_done: bool


@page("GET", "/", scope=None)
def show_home(visit: Visit) -> Answer:
    """What needs the visitor, as far as their role lets them see it."""
    looks: tuple[tuple[str, Callable[[Visit], Needs]], ...] = (
        ("keys.write", _confirmations),
        ("approvals.read", _approvals), ("logs.read", _failures), ("integrations.read", _circuits), ("agents.read", _agents),
        ("keys.write", _keys), ("webapps.read", _certificates),
    )  # fmt: skip
    needs = [look(visit) for scope, look in looks if visit.may(scope)]
    values = {"needs": [each for each in needs if each.items], "day": read_day(visit), "steps": _first_steps(visit)}
    return Page("home.html", values)


@page("POST", "/first-steps/dismiss", scope=None)
def dismiss_first_steps(visit: Visit) -> Answer:
    """Show them to this person no more."""
    people.hide_first_steps(visit.scope, visit.person.user_id)
    return Redirect("/console/")


def _shown(title: str, url: str, items: list[Need]) -> Needs:
    return Needs(title, url, len(items), items[:SHOWN])


def _approvals(visit: Visit) -> Needs:
    found: list[Approval] = []
    cursor: str | None = None
    for _read in range(MOST_PAGES):
        page_of = approvals.list_approvals(visit.scope, ApprovalFilter("pending"), PageRequest(READ, cursor, "created_at"))
        found += page_of.items
        cursor = page_of.next_cursor
        if cursor is None:
            break
    mine = find_mine(visit.scope, visit.person, found)
    items = [
        Need(title_of(each), tell(each.request.reason), f"/console/approvals/{each.id}", "waiting", each.created_at)
        for each in found
        if each.id in mine
    ]  # fmt: skip
    return _shown(_("Waiting for your decision"), "/console/approvals", items)


def _confirmations(visit: Visit) -> Needs:
    """For whoever may decide them, owners."""
    names = Names(visit)
    told = [tell_confirmation(row, names) for row in confirmations.open_confirmations(visit.scope)]
    items = [
        Need(each.title, each.why, HERE, "suspended" if each.is_suspended else "waiting", each.row.deadline or each.row.created_at)
        for each in told
    ]  # fmt: skip
    return _shown(_("Waiting for an owner"), HERE, items)


def _times(count: int) -> str:
    return ngettext("%(num)s occurrence", "%(num)s occurrences", count)


def _failures(visit: Visit) -> Needs:
    found = failures.list_failures(visit.scope, PageRequest(SHOWN, count=True), state="open")
    items = [
        Need(f"{each.process_id}: {tell(each.message)[:160]}", _times(each.count), "/console/failures", "failed", each.first_seen)
        for each in found.items
    ]  # fmt: skip
    return Needs(_("New failures"), "/console/failures", found.total or 0, items)


def _circuits(visit: Visit) -> Needs:
    items = [
        Need(slug, gate.health(visit.scope, slug).reason, f"/console/integrations/{slug}", "failing")
        for slug in gate.failing(visit.scope)
    ]
    return _shown(_("Integrations paused after failures"), "/console/integrations", items)


def _agents(visit: Visit) -> Needs:
    items = [
        Need(each.agent_id, str((each.error or {}).get("message", "")), f"/console/agents/{each.agent_id}/runs/{each.id}", "failed",
             each.finished_at)
        for each in runs.list_over_budget(visit.scope, clock.now_ms() - BACK_MS)
    ]  # fmt: skip
    return _shown(_("Agents that reached their budget"), "/console/agents", items)


def _keys(visit: Visit) -> Needs:
    items = [
        Need(each.name, _("Expires soon. Rotate it."), "/console/keys", "expires", each.expires_at)
        for each in keys.expiring_keys(visit.scope, clock.now_ms() + AHEAD_MS)
    ]
    return _shown(_("API keys expiring within 30 days"), "/console/keys", items)


def _certificates(visit: Visit) -> Needs:
    hosts = expiring_hosts(visit.scope, clock.now_ms() + AHEAD_MS)
    items = [Need(host, _("Certificate expires within 30 days"), "/console/webapps", "expires") for host in hosts]
    return _shown(_("Certificates"), "/console/webapps", items)


def _first_steps(visit: Visit) -> list[Step]:
    """Of a tenant in its first days, until all are taken; the first of them as long as nothing was ever run."""
    scope = visit.scope
    if not visit.may("processflow.execute") or people.has_hidden_first_steps(scope, visit.person.user_id):
        return []
    has_run = bool(executions.list_executions(scope, ExecutionFilter(), PageRequest(1)).items)
    if has_run and service.get_tenant(scope.tenant_id).created_at < clock.now_ms() - NEW_MS:
        return []
    steps = [_first_run(visit, has_run)]
    if visit.may("keys.write"):
        # The key of the first run is there from the beginning, and ends after a day.
        issued = any(each.environment != keys.FIRST for each in keys.list_keys(scope, PageRequest(READ)).items)
        steps.append(Step(_("Issue an API key"), _("Programs use it to start processes."), "/console/keys/new", issued))
        several = len(people.list_members(scope)) > 1
        waits = several or bool(invitations.list_invitations(scope))
        steps.append(Step(_("Invite people"), _("Choose who builds, who approves and who only reads."), "/console/people", waits))
        if is_administrator(visit):
            kept = bool(standing(visit.services.config).kept)
            about = _("One file with all your data, verified after it is written.")
            steps.append(Step(_("Create a backup"), about, "/console/appliance/backups", kept))
    return steps if not all(step.is_done for step in steps) else []


def _first_run(visit: Visit, is_done: bool) -> Step:
    """Running a process, one whose form can be filled with an example if there is one."""
    listed = versions.list_processes(visit.scope, PageRequest(READ, sort="name")).items
    found = [each for each in listed if each.published_version]
    if not found:
        return Step(_("Build a process"), _("Start from an example or apply a solution folder."), "/console/processes", is_done)
    told = next((each for each in found if InputForm(_input_of(visit, each)).example()), None)
    name, about = _("Run %(name)s", name=(told or found[0]).name), _("Watch each step as it runs.")
    if told is None:
        return Step(name, about, f"/console/processes/{found[0].id}", is_done)
    about = _("The form is filled in with an example. Watch each step as it runs.")
    return Step(name, about, f"/console/processes/{told.id}?from=example", is_done)


def _input_of(visit: Visit, row: Process) -> Any:
    """The schema of the input that the published version takes."""
    return versions.get_version(visit.scope, row.id, row.published_version or 0).definition.get("input")
