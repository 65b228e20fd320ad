"""The reset of the tenant to a solution, for its owners: previewed, confirmed with the tenant's id, run in the background."""

from appliance.backups import counting
from appliance.blobs import ReceivedFile
from appliance.console.frame.routing import Answer, Page, Redirect, Visit, page
from appliance.core.errors import ApplianceError, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.solutions import LARGEST_BYTES

from .tenant_settings import KINDS

HERE = "/console/settings/reset"
EVERY_MS = 700


@page("GET", "/settings/reset", scope="keys.write")
def show_reset(visit: Visit) -> Answer:
    """What a reset deletes and keeps, and the progress of a running one."""
    return _page(visit, part=visit.request.is_fragment)


def _page(visit: Visit, problem: ApplianceError | None = None, *, part: bool = False) -> Page:
    work = visit.services.transfers.resets.latest(visit.scope)
    is_busy = work is not None and work.is_busy
    limits, request = visit.services.config.limits, visit.request
    values = {
        "work": work, "is_busy": is_busy, "every": EVERY_MS if is_busy else 0, "live_url": f"{HERE}?part=live", "problem": problem,
        "deleted": [] if part else counting.count_exported(visit.scope),
        "stay": [] if part else counting.count_credentials(visit.scope),
        "kinds": KINDS, "chosen": request.field("solution") or "starter", "most_mb": min(limits.upload_mb, LARGEST_BYTES >> 20),
    }  # fmt: skip
    return Page("reset_live.html" if part else "reset.html", values, problem.status if problem else 200)


@page("POST", "/settings/reset", scope="keys.write", takes_files=True)
def reset_tenant(visit: Visit) -> Answer:
    """Start a reset; if it fails, the tenant is left unchanged."""
    try:
        if visit.request.field("confirm").strip() != visit.scope.tenant_id:
            raise ValidationFailed(
                Sentence("enter the id of this tenant to confirm: %(tenant)s", tenant=visit.scope.tenant_id), pointer="/confirm"
            )
        visit.services.transfers.resets.start(visit.scope, _archive(visit))
    except ApplianceError as error:
        return _page(visit, error)
    return Redirect(HERE)


def _archive(visit: Visit) -> ReceivedFile | None:
    """The archive of the chosen solution; None for the starter."""
    if visit.request.field("solution") != "own":
        return None
    sent = visit.request.file("file")
    if sent is None or not sent.received.size:
        raise ValidationFailed("choose the archive of the solution, or the starter", pointer="/file")
    return sent.received
