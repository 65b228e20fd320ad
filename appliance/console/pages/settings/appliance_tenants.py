"""Pages for administrators: the list of tenants, and the import of an exported tenant."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from appliance.backups import ImportRequest, count_in_manifest, has_account
from appliance.backups.jobs import UploadedExport
from appliance.console.frame.routing import Answer, Page, Redirect, Visit, page
from appliance.core.errors import ApplianceError, ValidationFailed
from appliance.core.texts import mark
from appliance.tenants import people, quota_settings, service

from .appliance import require_administrator
from .tenant_settings import KINDS

HERE = "/console/appliance/tenants"
EVERY_MS = 700
STAGES = {
    "": mark("It starts in a moment."), "reading": mark("Reading and checking it; nothing is stored yet."),
    "contents": mark("Storing contents."), "preparing": mark("Preparing its rows; nobody sees the tenant yet."),
    "writing": mark("Writing rows; the tenant is there when all are."),
}  # fmt: skip
IMPORT_QUOTAS = ("storage", "entities")
MAX_NAMES = 40  # The maximum number of names of one kind on the page.


@page("GET", "/appliance/tenants", scope=None)
def list_tenants(visit: Visit) -> Answer:
    """All tenants, and the form to upload an export."""
    require_administrator(visit)
    return _list_page(visit)


def _list_page(visit: Visit, problem: ApplianceError | None = None) -> Page:
    config = visit.services.config
    rows = [(row, config.tenant_url(row.id)) for row in service.list_tenants()]
    own = {row.id for row, _ in people.tenants_of(visit.person.user_id)}
    return Page("appliance_tenants.html", {"rows": rows, "own": own, "problem": problem}, problem.status if problem else 200)


@page("POST", "/appliance/tenants/import", scope=None, takes_files=True, admins_only=True)
def send_export(visit: Visit) -> Answer:
    """Receive an export file, and start reading it unless it needs a passphrase first."""
    require_administrator(visit)
    sent = visit.request.file("file")
    try:
        if sent is None or not sent.received.size:
            raise ValidationFailed("choose an export file", pointer="/file")
        upload = visit.services.transfers.arrivals.receive(visit.scope, sent.name, sent.received)
    except ApplianceError as error:
        return _list_page(visit, error)
    return Redirect(_address(upload))


def _address(upload: UploadedExport) -> str:
    return f"{HERE}/import/{upload.id}"


@page("GET", "/appliance/tenants/import/<arrival_id>", scope=None)
def show_import(visit: Visit, arrival_id: str) -> Answer:
    """The content of the file and a preview of the import; later the progress, and what must be entered again."""
    require_administrator(visit)
    return _import_page(visit, visit.services.transfers.arrivals.get(visit.scope, arrival_id))


def _import_page(visit: Visit, upload: UploadedExport, problem: ApplianceError | None = None) -> Page:
    request, manifest = visit.request, upload.manifest
    sent = request.method == "POST"
    form: Mapping[str, Any] = {
        "name": request.field("name") if sent else _free_id(manifest),
        "title": request.field("title") if sent else _name_of(manifest),
        "active": bool(request.field("active")), "owner": bool(request.field("owner")) or not sent,
        **{name: request.field(name) for name in IMPORT_QUOTAS},
    }  # fmt: skip
    values = {
        "upload": upload, "manifest": manifest, "here": _address(upload), "problem": problem, "form": form, "stages": STAGES,
        "every": EVERY_MS if upload.is_busy else 0, "kinds": KINDS, "max_names": MAX_NAMES,
        "comes": count_in_manifest(manifest["tables"]) if manifest else [],
        "known": {each["login"] for each in manifest.get("people", ()) if has_account(each["login"])},
        "url": visit.services.config.tenant_url(upload.imported.tenant_id) if upload.imported else "",
    }  # fmt: skip
    template = "arrival_live.html" if request.is_fragment else "arrival.html"
    return Page(template, values, problem.status if problem else 200)


def _free_id(manifest: Mapping[str, Any]) -> str:
    """The tenant id in the export; empty when it is already in use here."""
    tenant_id = str(manifest["tenant"]["id"]) if manifest else ""
    return "" if tenant_id in {row.id for row in service.list_tenants()} else tenant_id


def _name_of(manifest: Mapping[str, Any]) -> str:
    return str(manifest["tenant"]["name"]) if manifest else ""


@page("POST", "/appliance/tenants/import/<arrival_id>/open", scope=None)
def open_export(visit: Visit, arrival_id: str) -> Answer:
    """Decrypt an export with its passphrase and read it."""
    require_administrator(visit)
    arrivals = visit.services.transfers.arrivals
    upload = arrivals.get(visit.scope, arrival_id)
    try:
        if not visit.request.field("passphrase"):
            raise ValidationFailed("enter the passphrase that the file was encrypted with", pointer="/passphrase")
        arrivals.open(visit.scope, arrival_id, visit.request.field("passphrase"))
    except ApplianceError as error:
        return _import_page(visit, arrivals.get(visit.scope, arrival_id), error)
    return Redirect(_address(upload))


@page("POST", "/appliance/tenants/import/<arrival_id>/run", scope=None)
def run_import(visit: Visit, arrival_id: str) -> Answer:
    """Import the export as a new tenant."""
    require_administrator(visit)
    arrivals, field = visit.services.transfers.arrivals, visit.request.field
    upload = arrivals.get(visit.scope, arrival_id)
    try:
        owner = visit.person.login if field("owner") else ""
        tenant_id, title = field("name").strip(), field("title").strip()
        if not tenant_id:
            raise ValidationFailed("enter an id for the new tenant", pointer="/name")
        quotas = {name: amount for name in IMPORT_QUOTAS if (amount := field(name).strip())}
        quota_settings.parse_quotas(quotas)
        request = ImportRequest(
            Path(upload.job.name), None, tenant_id, bool(field("active")), title, owner, quotas=quotas
        )  # fmt: skip
        arrivals.write(visit.scope, arrival_id, request)
    except ApplianceError as error:
        return _import_page(visit, arrivals.get(visit.scope, arrival_id), error)
    return Redirect(_address(upload))


@page("POST", "/appliance/tenants/import/<arrival_id>/discard", scope=None)
def discard_export(visit: Visit, arrival_id: str) -> Answer:
    """Delete the uploaded file."""
    require_administrator(visit)
    visit.services.transfers.arrivals.delete(visit.scope, arrival_id)
    return Redirect(HERE)
