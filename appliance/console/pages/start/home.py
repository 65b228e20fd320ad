"""The console's home page: items that need attention, figures of the last day, and the first steps of a new tenant."""

from collections.abc import Callable
from dataclasses import dataclass

from appliance.agents import runs
from appliance.backups import get_status, list_jobs
from appliance.console.frame.forms import InputForm
from appliance.console.frame.people import Names
from appliance.console.frame.routing import Answer, Page, Redirect, Visit, page
from appliance.console.pages.govern.confirmations import HERE
from appliance.console.pages.govern.confirmations import to_view as tell_confirmation
from appliance.console.pages.operate.approvals import find_mine
from appliance.console.pages.operate.day import DAY_MS, read_day
from appliance.console.pages.settings.appliance import is_administrator
from appliance.core import clock
from appliance.core.pages import PageRequest
from appliance.core.texts import gettext as _
from appliance.core.texts import ngettext, translate
from appliance.governance.approvals import Approval, ApprovalFilter, approvals, describe_request
from appliance.integrations import gate
from appliance.monitor import failures
from appliance.processes.definitions import publications
from appliance.processes.executions import ExecutionFilter
from appliance.processes.executions import service as executions
from appliance.tenants import invitations, people, service, service_accounts
from appliance.tenants.grants import confirmations
from appliance.tenants.keys import keys
from appliance.webapps.certificates import expiring_hosts

AHEAD_MS, BACK_MS, NEW_MS = 30 * DAY_MS, 7 * DAY_MS, 14 * DAY_MS
MAX_SHOWN = 5
READ, MOST_PAGES = 50, 10


@dataclass(frozen=True)
class Need:
    """One item that needs attention; `state` determines its badge."""

    text: str
    about: str
    url: str
    state: str
    at: int | None = None


@dataclass(frozen=True)
class Needs:
    """The first items of one kind, out of `count`; `url` lists them all."""

    title: str
    url: str
    count: int
    items: list[Need]


@dataclass(frozen=True)
class Step:
    """A first step for a new tenant, and whether it is done."""

    text: str
    about: str
    url: str
    is_done: bool


@page("GET", "/", scope=None)
def show_home(visit: Visit) -> Answer:
    """The home page, with the items that the visitor's role may see."""
    looks: tuple[tuple[str, Callable[[Visit], Needs]], ...] = (
        ("keys.write", _confirmations),
        ("approvals.read", _approvals), ("logs.read", _failures), ("integrations.read", _circuits), ("agents.read", _agents),
        ("keys.write", _keys), ("keys.write", _unattended), ("webapps.read", _certificates),
    )  # fmt: skip
    needs = [look(visit) for scope, look in looks if visit.may(scope)]
    values = {"needs": [each for each in needs if each.items], "day": read_day(visit), "steps": _first_steps(visit)}
    return Page("home.html", values)


@page("POST", "/first-steps/dismiss", scope=None)
def dismiss_first_steps(visit: Visit) -> Answer:
    """Hide the first steps from this person permanently."""
    people.hide_first_steps(visit.scope, visit.person.user_id)
    return Redirect("/console/")


def _first_items(title: str, url: str, items: list[Need]) -> Needs:
    return Needs(title, url, len(items), items[:MAX_SHOWN])


def _approvals(visit: Visit) -> Needs:
    pending: list[Approval] = []
    cursor: str | None = None
    for _read in range(MOST_PAGES):
        page_of = approvals.list_approvals(visit.scope, ApprovalFilter("pending"), PageRequest(READ, cursor, "created_at"))
        pending += page_of.items
        cursor = page_of.next_cursor
        if cursor is None:
            break
    mine = find_mine(visit.scope, visit.person, pending)
    items = [
        Need(describe_request(each), translate(each.request.reason), f"/console/approvals/{each.id}", "waiting", each.created_at)
        for each in pending
        if each.id in mine
    ]  # fmt: skip
    return _first_items(_("Waiting for your decision"), "/console/approvals", items)


def _confirmations(visit: Visit) -> Needs:
    """The open confirmations, which only owners can decide."""
    names = Names(visit)
    views = [tell_confirmation(row, names) for row in confirmations.list_open(visit.scope)]
    items = [
        Need(each.title, each.why, HERE, "suspended" if each.is_suspended else "waiting", each.row.deadline or each.row.created_at)
        for each in views
    ]  # fmt: skip
    return _first_items(_("Waiting for an owner"), HERE, items)


def _times(count: int) -> str:
    return ngettext("%(num)s occurrence", "%(num)s occurrences", count)


def _failures(visit: Visit) -> Needs:
    result = failures.list_failures(visit.scope, PageRequest(MAX_SHOWN, count=True), state="open")
    items = [
        Need(
            f"{each.process_id}: {translate(each.message)[:160]}",
            _times(each.count),
            "/console/failures",
            "failed",
            each.first_seen,
        )
        for each in result.items
    ]  # fmt: skip
    return Needs(_("New failures"), "/console/failures", result.total or 0, items)


def _circuits(visit: Visit) -> Needs:
    items = [
        Need(slug, gate.health(visit.scope, slug).reason, f"/console/integrations/{slug}", "failing")
        for slug in gate.list_failing(visit.scope)
    ]
    return _first_items(_("Integrations paused after failures"), "/console/integrations", items)


def _agents(visit: Visit) -> Needs:
    items = [
        Need(each.agent_id, str((each.error or {}).get("message", "")), f"/console/agents/{each.agent_id}/runs/{each.id}", "failed",
             each.finished_at)
        for each in runs.list_over_budget(visit.scope, clock.now_ms() - BACK_MS)
    ]  # fmt: skip
    return _first_items(_("Agents that reached their budget"), "/console/agents", items)


def _keys(visit: Visit) -> Needs:
    items = [
        Need(each.name, _("Expires soon. Rotate it."), "/console/keys", "expires", each.expires_at)
        for each in keys.expiring_keys(visit.scope, clock.now_ms() + AHEAD_MS)
    ]
    return _first_items(_("API keys expiring within 30 days"), "/console/keys", items)


def _unattended(visit: Visit) -> Needs:
    """The service accounts for which nobody is responsible, for the owners, who can name somebody."""
    items = [
        Need(each.title, _("Its keys still work. Name a responsible person."), f"/console/service-accounts/{each.id}", "waiting")
        for each in service_accounts.list_without_responsible(visit.scope)
    ]
    return _first_items(_("Nobody is responsible for these service accounts"), "/console/service-accounts", items)


def _certificates(visit: Visit) -> Needs:
    hosts = expiring_hosts(visit.scope, clock.now_ms() + AHEAD_MS)
    items = [Need(host, _("Certificate expires within 30 days"), "/console/webapps", "expires") for host in hosts]
    return _first_items(_("Certificates"), "/console/webapps", items)


def _first_steps(visit: Visit) -> list[Step]:
    """The first steps of a tenant, until all are done.

    They disappear 14 days after the tenant was created, unless it has never run a process.
    """
    scope = visit.scope
    if not visit.may("processflow.execute") or people.has_hidden_first_steps(scope, visit.person.user_id):
        return []
    has_run = bool(executions.list_executions(scope, ExecutionFilter(), PageRequest(1)).items)
    if has_run and service.get_tenant(scope.tenant_id).created_at < clock.now_ms() - NEW_MS:
        return []
    steps = [_first_run(visit, has_run)]
    if visit.may("keys.write"):
        # Every tenant starts with the key from its first run, which expires after a day and does not count.
        issued = any(each.environment != keys.FIRST for each in keys.list_keys(scope, PageRequest(READ)).items)
        steps.append(Step(_("Issue an API key"), _("Programs use it to start processes."), "/console/keys/new", issued))
        several = len(people.list_members(scope)) > 1
        waits = several or bool(invitations.list_invitations(scope))
        steps.append(Step(_("Invite people"), _("Choose who builds, who approves and who only reads."), "/console/people", waits))
        if is_administrator(visit):
            backups = get_status(visit.services.config, list_jobs())
            has_backup = bool(backups.files or backups.elsewhere)
            about = _("One file with all your data, verified after it is written.")
            steps.append(Step(_("Create a backup"), about, "/console/appliance/backups", has_backup))
    return steps if not all(step.is_done for step in steps) else []


def _first_run(visit: Visit, is_done: bool) -> Step:
    """The step to run a process, preferably one whose form can be filled in with an example."""
    published = publications.list_published_inputs(visit.scope, READ)
    if not published:
        return Step(_("Build a process"), _("Start from an example or apply a solution folder."), "/console/processes", is_done)
    with_example = next((each for each in published if InputForm(each.schema).example()), None)
    name, about = _("Run %(name)s", name=(with_example or published[0]).name), _("Watch each step as it runs.")
    if with_example is None:
        return Step(name, about, f"/console/processes/{published[0].process_id}", is_done)
    about = _("The form is filled in with an example. Watch each step as it runs.")
    return Step(name, about, f"/console/processes/{with_example.process_id}?from=example", is_done)
