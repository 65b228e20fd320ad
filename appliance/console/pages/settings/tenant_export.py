"""The export of the tenant, for its owners: created in the background, kept for a day, downloaded as a file."""

from appliance.backups import counting
from appliance.console.frame.routing import Answer, File, Page, Redirect, Visit, page
from appliance.core.database import db
from appliance.core.errors import ApplianceError, ValidationFailed
from appliance.core.texts import mark
from appliance.monitor import audit

from .tenant_settings import KINDS

HERE = "/console/settings/export"
EVERY_MS = 1000
STAGES = {
    "": mark("It starts in a moment."), "database": mark("Copying rows."), "contents": mark("Adding file contents."),
}  # fmt: skip


@page("GET", "/settings/export", scope="keys.write")
def show_export(visit: Visit) -> Answer:
    """The progress of a running export, and the finished ones."""
    return _page(visit, part=visit.request.is_fragment)


def _page(visit: Visit, problem: ApplianceError | None = None, *, part: bool = False) -> Page:
    services, scope = visit.services, visit.scope
    exports = services.transfers.exports
    work = exports.latest(scope)
    is_busy = work is not None and work.is_busy
    values = {
        "exports": exports.list_exports(scope), "work": work, "is_busy": is_busy, "stages": STAGES,
        "every": EVERY_MS if is_busy else 0, "live_url": f"{HERE}?part=live", "problem": problem, "kinds": KINDS,
        "exported": [] if part else counting.count_exported(scope),
    }  # fmt: skip
    return Page("export_live.html" if part else "export.html", values, problem.status if problem else 200)


@page("POST", "/settings/export", scope="keys.write")
def make_export(visit: Visit) -> Answer:
    """Start an export in the background; the page shows its progress."""
    passphrase = visit.request.field("passphrase")
    try:
        if passphrase != visit.request.field("again"):
            raise ValidationFailed("the two passphrases differ; enter the same one twice", pointer="/again")
        visit.services.transfers.exports.start(visit.scope, passphrase or None)
    except ApplianceError as error:
        return _page(visit, error)
    return Redirect(HERE)


@page("GET", "/settings/export/<name>", scope="keys.write")
def download_export(visit: Visit, name: str) -> Answer:
    """Download an export."""
    export, pieces = visit.services.transfers.exports.read(visit.scope, name)
    db.write(lambda: audit.record(visit.scope, "tenant.download", visit.scope.tenant_id, {"file": export.name}))
    return File(export.name, "application/octet-stream", pieces, export.size)


@page("POST", "/settings/export/<name>/delete", scope="keys.write")
def delete_export(visit: Visit, name: str) -> Answer:
    """Delete an export before it expires."""
    visit.services.transfers.exports.delete(visit.scope, name)
    return Redirect(HERE)
