"""Tenants, for those who run the appliance: which there are, and one more made of an export."""

from collections.abc import Mapping
from typing import Any

from appliance.backups import Arrival, ImportRequest, count_told, is_known
from appliance.console.frame.routing import Answer, Page, Redirect, Visit, page
from appliance.core.errors import ApplianceError, ValidationFailed
from appliance.core.texts import mark
from appliance.tenants import people, service

from .appliance import require_administrator
from .tenant_settings import KINDS

HERE = "/console/appliance/tenants"
EVERY_MS = 700
STAGES = {
    "": mark("It starts in a moment."), "reading": mark("Reading and checking it; nothing is stored yet."),
    "contents": mark("Storing contents."), "writing": mark("Writing rows, all at once."),
}  # fmt: skip
SHOWN = 40  # names of one kind on the page


@page("GET", "/appliance/tenants", scope=None)
def list_tenants(visit: Visit) -> Answer:
    """Every tenant, and the form for an export."""
    require_administrator(visit)
    return _list(visit)


def _list(visit: Visit, problem: ApplianceError | None = None) -> Page:
    config = visit.services.config
    rows = [(row, config.tenant_url(row.id)) for row in service.list_tenants()]
    own = {row.id for row, _ in people.tenants_of(visit.person.user_id)}
    return Page("appliance_tenants.html", {"rows": rows, "own": own, "problem": problem}, problem.status if problem else 200)


@page("POST", "/appliance/tenants/import", scope=None, takes_files=True, of_administrators=True)
def send_export(visit: Visit) -> Answer:
    """Take a file, and begin to read it unless a passphrase is needed first."""
    require_administrator(visit)
    sent = visit.asked.file("file")
    try:
        if sent is None or not sent.received.size:
            raise ValidationFailed("choose the file of an export", pointer="/file")
        found = visit.services.transfers.arrivals.receive(visit.scope, sent.name, sent.received)
    except ApplianceError as error:
        return _list(visit, error)
    return Redirect(_address(found))


def _address(found: Arrival) -> str:
    return f"{HERE}/import/{found.id}"


@page("GET", "/appliance/tenants/import/<arrival_id>", scope=None)
def show_import(visit: Visit, arrival_id: str) -> Answer:
    """What the file holds and what would come of it; then how the import goes, and what has to be given again."""
    require_administrator(visit)
    return _import(visit, visit.services.transfers.arrivals.get(visit.scope, arrival_id))


def _import(visit: Visit, found: Arrival, problem: ApplianceError | None = None) -> Page:
    asked, told = visit.asked, found.unpacked.manifest if found.unpacked else {}
    sent = asked.method == "POST"
    form: Mapping[str, Any] = {
        "name": asked.field("name") if sent else _free_id(told), "title": asked.field("title") if sent else _name_of(told),
        "active": bool(asked.field("active")), "owner": bool(asked.field("owner")) or not sent,
    }  # fmt: skip
    stopped = found.work.problem if found.work is not None and found.work.is_over and not found.imported else None
    values = {
        "found": found, "told": told, "here": _address(found), "problem": problem, "stopped": stopped, "form": form,
        "stages": STAGES, "every": EVERY_MS if found.is_busy else 0, "kinds": KINDS, "shown": SHOWN,
        "comes": count_told(told["tables"]) if told else [],
        "known": {each["login"] for each in told.get("people", ()) if is_known(each["login"])},
        "url": visit.services.config.tenant_url(found.imported.tenant_id) if found.imported else "",
    }  # fmt: skip
    template = "arrival_live.html" if asked.is_fragment else "arrival.html"
    return Page(template, values, problem.status if problem else 200)


def _free_id(told: Mapping[str, Any]) -> str:
    """The id that it had; empty when somebody has it here."""
    wanted = str(told["tenant"]["id"]) if told else ""
    return "" if wanted in {row.id for row in service.list_tenants()} else wanted


def _name_of(told: Mapping[str, Any]) -> str:
    return str(told["tenant"]["name"]) if told else ""


@page("POST", "/appliance/tenants/import/<arrival_id>/open", scope=None)
def open_export(visit: Visit, arrival_id: str) -> Answer:
    """Read a sealed file with its passphrase."""
    require_administrator(visit)
    arrivals = visit.services.transfers.arrivals
    found = arrivals.get(visit.scope, arrival_id)
    try:
        if not visit.asked.field("passphrase"):
            raise ValidationFailed("type the passphrase that the file was sealed with", pointer="/passphrase")
        arrivals.open(visit.scope, arrival_id, visit.asked.field("passphrase"))
    except ApplianceError as error:
        return _import(visit, found, error)
    return Redirect(_address(found))


@page("POST", "/appliance/tenants/import/<arrival_id>/run", scope=None)
def run_import(visit: Visit, arrival_id: str) -> Answer:
    """Make a tenant of it."""
    require_administrator(visit)
    arrivals, asked = visit.services.transfers.arrivals, visit.asked
    found = arrivals.get(visit.scope, arrival_id)
    try:
        owner = visit.person.login if asked.field("owner") else ""
        wanted, title = asked.field("name").strip(), asked.field("title").strip()
        if not wanted:
            raise ValidationFailed("choose the id that it is to have here", pointer="/name")
        request = ImportRequest(found.folder, None, wanted, bool(asked.field("active")), title, owner)
        arrivals.write(visit.scope, arrival_id, request)
    except ApplianceError as error:
        return _import(visit, found, error)
    return Redirect(_address(found))


@page("POST", "/appliance/tenants/import/<arrival_id>/discard", scope=None)
def discard_export(visit: Visit, arrival_id: str) -> Answer:
    """Delete the file that was sent."""
    require_administrator(visit)
    visit.services.transfers.arrivals.forget(visit.scope, arrival_id)
    return Redirect(HERE)
