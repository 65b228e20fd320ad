"""Pages for administrators: the keys of the appliance itself, by which programs operate it."""

from appliance.console.frame.people import Names
from appliance.console.frame.routing import Answer, Page, Redirect, Visit, page
from appliance.core.errors import ApplianceError, ValidationFailed
from appliance.core.pages import MAX_LIMIT, PageRequest
from appliance.core.texts import gettext as _
from appliance.tenants import APPLIANCE_SCOPES, appliance_scope
from appliance.tenants.keys import keys, lineage

from .appliance import require_administrator
from .keys import LIFETIMES, state_of

HERE = "/console/appliance/keys"


@page("GET", "/appliance/keys", scope=None)
def list_appliance_keys(visit: Visit) -> Answer:
    """The keys of the appliance with their states, and the form to issue one."""
    require_administrator(visit)
    return _page(visit)


def _page(visit: Visit, problem: ApplianceError | None = None) -> Page:
    scope, request = appliance_scope(), visit.request
    rows = keys.list_keys(scope, PageRequest(limit=MAX_LIMIT)).items
    values = {
        "rows": [(row, state_of(row, lineage.build_authority(row))) for row in rows], "names": Names(visit, scope),
        "scopes": [(name, _(text)) for name, text in APPLIANCE_SCOPES.items()], "lifetimes": LIFETIMES, "problem": problem,
        "chosen": request.form.get("scopes", []), "name": request.field("name"), "days": request.field("days") or "365",
        "addresses": request.field("addresses"),
    }  # fmt: skip
    return Page("appliance_keys.html", values, problem.status if problem else 200)


@page("POST", "/appliance/keys", scope=None, step_up=True)
def issue_appliance_key(visit: Visit) -> Answer:
    """Issue a key of the appliance and show its text, which cannot be shown again."""
    require_administrator(visit)
    request, limits = visit.request, visit.services.config.limits
    try:
        if not (scopes := request.form.get("scopes", [])):
            raise ValidationFailed("select at least one scope for the key", pointer="/scopes")
        days = request.field("days")
        spec = keys.KeySpec(
            name=request.field("name").strip(), scopes=scopes, rate_requests=limits.rate_requests,
            rate_window_s=limits.rate_window_s, allowed_ips=request.field("addresses").replace(",", " ").split(),
            expires_in_days=int(days) if days.isascii() and days.isdigit() and len(days) < 5 else 0,
        )  # fmt: skip
        row, text = keys.issue_key(appliance_scope(visit.scope.actor), visit.services.sealer, spec)
    except ApplianceError as error:
        return _page(visit, error)
    url = f"{visit.services.config.base_url}/api/v1/appliance/tenants"
    return Page("key_shown.html", {"row": row, "text": text, "url": url, "back": HERE}, 201)


@page("POST", "/appliance/keys/<key_id>/revoke", scope=None)
def revoke_appliance_key(visit: Visit, key_id: str) -> Answer:
    """Revoke a key of the appliance immediately."""
    require_administrator(visit)
    keys.revoke_key(appliance_scope(visit.scope.actor), key_id)
    return Redirect(HERE)
