"""Pages of API keys: the list, the form to issue one with its scopes explained, rotation, adoption and revocation."""

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlencode

from appliance.console.frame.people import Names
from appliance.console.frame.routing import Answer, ConsoleRequest, Page, Redirect, Visit, page
from appliance.core import clock
from appliance.core.errors import ApplianceError, ValidationFailed
from appliance.core.pages import PageRequest
from appliance.core.sentences import Sentence
from appliance.core.texts import gettext as _
from appliance.core.texts import mark
from appliance.tenants import SCOPES, ApiKey, ServiceAccount, service_accounts
from appliance.tenants.keys import (
    KeyAuthority,
    KeyChanges,
    RequestFilter,
    adoption,
    changes,
    continuing_keys,
    daily_quotas,
    key_addresses,
    key_requests,
    keys,
    lineage,
    resource_limits,
)

MOST_REQUESTS = 1_000_000
SOON_MS = 30 * 86_400_000
NEWLY_MS = 7 * 86_400_000
OVERLAPS = (("0", mark("at once")), ("3600", mark("in 1 hour")), ("86400", mark("in 1 day")), ("604800", mark("in 7 days")))
LIFETIMES = (
    ("1", mark("1 day")), ("30", mark("30 days")), ("90", mark("90 days")), ("365", mark("1 year")), ("730", mark("2 years")),
)  # fmt: skip
AREA_NAMES = {
    "processflow": mark("Processes"), "integrations": mark("Integrations"), "entities": mark("DataPool entities"),
    "datapool": mark("DataPool collections"), "webapps": mark("WebApps"), "documents": mark("Documents"), "logs": mark("Monitor"),
    "agents": mark("Agents"), "skills": mark("Skills"), "policies": mark("Policies"), "approvals": mark("Approvals"),
    "secrets": mark("Secrets"), "keys": mark("API keys"), "solutions": mark("Solutions"),
}  # fmt: skip


def state_of(row: ApiKey, authority: KeyAuthority) -> str:
    """The state of a key: `active`, `replaced` (rotated, still in its overlap), `ended` (with its issuer), `expired`, `revoked`."""
    if row.revoked_at is not None:
        return "revoked"
    if min(row.expires_at, row.grace_until or row.expires_at) <= clock.now_ms():
        return "expired"
    if authority.ended:
        return "ended"
    return "replaced" if row.grace_until is not None else "active"


@page("GET", "/keys", scope="keys.read")
def list_keys(visit: Visit) -> Answer:
    """The tenant's API keys with their states."""
    return Page("keys.html", list_values(visit, ""))


def list_values(visit: Visit, account: str) -> dict[str, Any]:
    """What a table of keys shows: a page of the tenant's keys, or of those of a service account (`service:…`)."""
    result = keys.list_keys(visit.scope, visit.page(), account)
    issuers = lineage.load_issuers(visit.scope)
    authorities = {row.id: lineage.build_authority(row, issuers) for row in result.items}
    rows = [(row, state_of(row, authorities[row.id])) for row in result.items]
    accounts = service_accounts.list_active(visit.scope)
    can_revoke = [row for row, state in rows if state != "revoked"] if visit.may("keys.write") else []
    return {
        "continuing": continuing_keys.list_continuing(visit.scope, can_revoke),
        "rows": rows, "next_cursor": result.next_cursor, "names": Names(visit), "overlaps": OVERLAPS,
        "homes": {row.id: _possible_accounts(row, accounts) for row, state in rows if state != "expired"},
        "why": {
            row.id: _explain_restrictions(authorities[row.id]) for row, state in rows if state in ("active", "replaced", "ended")
        },
        "ending": [row for row, state in rows if state == "active" and row.expires_at < clock.now_ms() + SOON_MS],
        "usage": daily_quotas.read_usage(visit.scope),
        "elsewhere": key_addresses.list_new(visit.scope, clock.now_ms() - NEWLY_MS),
    }  # fmt: skip


def _possible_accounts(row: ApiKey, accounts: Iterable[tuple[str, str, frozenset[str]]]) -> list[tuple[str, str]]:
    """Name and title of each service account that the key can be moved to: others that have all its scopes."""
    return [(name, title) for name, title, scopes in accounts if scopes >= set(row.scopes) and row.issuer != f"service:{name}"]


def _explain_restrictions(authority: KeyAuthority) -> str:
    """Why a key has ended, will end, or has fewer effective scopes than it was issued with; empty when nothing applies."""
    if authority.ended == lineage.ISSUER_DISABLED:
        return _("The account of the person who issued it is disabled. It works again when the account is enabled, or adopt it.")
    if authority.ended == lineage.ACCOUNT_DISABLED:
        return _("Its service account is disabled. It works again when the account is enabled.")
    if authority.ended:
        by_key = authority.row.issuer.startswith("key:")
        return (
            _("The key that issued it is no longer valid. Adopt this key to use it again.")
            if by_key
            else _("Its issuer left this tenant. Adopt the key to use it again.")
        )
    if authority.row.orphaned_at is not None:
        return _("Its issuer left this tenant before the upgrade. Adopt the key, or it ends.")
    if authority.withheld:
        lost = ", ".join(sorted(authority.withheld))
        if lineage.account_in(authority.row.issuer):
            return _("Its service account has fewer scopes now. Missing: %(scopes)s.", scopes=lost)
        return _("Its issuer has fewer permissions now. Missing: %(scopes)s. Adopt the key to restore them.", scopes=lost)
    return ""


@page("GET", "/keys/new", scope="keys.write")
def show_new_key(visit: Visit) -> Answer:
    """The form of a new key."""
    return new_key_form(visit)


def scope_areas(visit: Visit, among: Iterable[str] = SCOPES) -> dict[str, list[tuple[str, str]]]:
    """The scopes that the visitor can give, by area with their texts; only those among these."""
    areas: dict[str, list[tuple[str, str]]] = {}
    for name, text in SCOPES.items():
        if visit.may(name) and name in among:
            areas.setdefault(_(AREA_NAMES[name.partition(".")[0]]), []).append((name, _(text)))
    return areas


def new_key_form(visit: Visit, problem: ApplianceError | None = None, account: ServiceAccount | None = None) -> Page:
    """The form of a new key, of the visitor or of a service account."""
    request = visit.request
    values = {
        "areas": scope_areas(visit, account.scopes if account else SCOPES), "account": account, "back": _home_of(account),
        "lifetimes": LIFETIMES, "problem": problem, "chosen": request.form.get("scopes", []),
        "name": request.field("name"), "environment": request.field("environment") or "live",
        "days": request.field("days") or "365", "addresses": request.field("addresses"), "limits": visit.services.config.limits,
        "requests": request.field("requests"), "kind": request.field("kind") or "service",
        "limited": {plural: request.field(plural) for plural in resource_limits.KINDS},
        "is_limited": bool(request.field("limited")), "daily": request.field("daily"),
    }  # fmt: skip
    return Page("key_new.html", values, problem.status if problem else 200)


def _read_quota(request: ConsoleRequest) -> int:
    """The daily quota in a form, 0 for none; ValidationFailed."""
    text = request.field("daily").strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 10) and text:
        raise ValidationFailed(
            Sentence("daily_requests must be between 1 and %(most)s", most=daily_quotas.MAX_QUOTA), pointer="/daily_requests"
        )
    return int(text or 0)


def _read_limits(request: ConsoleRequest) -> dict[str, list[str]] | None:
    """The limits in a form; None unless the box is checked."""
    if not request.field("limited"):
        return None
    return {plural: request.field(plural).replace(",", " ").split() for plural in resource_limits.KINDS}


@page("POST", "/keys/new", scope="keys.write", step_up=True)
def issue_key(visit: Visit) -> Answer:
    """Issue a key and show its text, which cannot be shown again."""
    try:
        row, text = keys.issue_key(visit.scope, visit.services.sealer, read_spec(visit))
    except ApplianceError as error:
        return new_key_form(visit, error)
    return show_text(visit, row, text)


def read_spec(visit: Visit) -> keys.KeySpec:
    """The properties of a new key in a form; ValidationFailed."""
    request, limits = visit.request, visit.services.config.limits
    scopes = request.form.get("scopes", [])
    if not scopes:
        raise ValidationFailed("select at least one scope for the key", pointer="/scopes")
    days, requests = request.field("days"), request.field("requests").strip() or str(limits.rate_requests)
    if not (requests.isascii() and requests.isdigit() and len(requests) < 8 and 1 <= int(requests) <= MOST_REQUESTS):
        raise ValidationFailed(
            Sentence("`requests` must be a whole number from 1 to %(most_requests)s", most_requests=MOST_REQUESTS),
            pointer="/rate_limit",
        )
    return keys.KeySpec(
        name=request.field("name").strip(), scopes=scopes, environment=request.field("environment").strip(),
        expires_in_days=int(days) if days.isascii() and days.isdigit() and len(days) < 5 else 0, rate_requests=int(requests),
        rate_window_s=limits.rate_window_s, allowed_ips=request.field("addresses").replace(",", " ").split(),
        kind="agent" if request.field("kind") == "agent" else "service", limits=_read_limits(request),
        daily_requests=_read_quota(request) or None,
    )  # fmt: skip


def show_text(visit: Visit, row: ApiKey, text: str) -> Page:
    """The page that shows the text of a new key, once."""
    url = f"{visit.services.config.tenant_url(visit.scope.tenant_id)}/api/v1/tenant"
    return Page("key_shown.html", {"row": row, "text": text, "url": url, "back": _back_from(row)}, 201)


def _home_of(account: ServiceAccount | None) -> str:
    return f"/console/service-accounts/{account.id}" if account else "/console/keys"


def _back_from(row: ApiKey) -> str:
    """The page that lists the key: that of its service account, or of all keys."""
    name = lineage.account_in(row.issuer).removeprefix("service:")
    return f"/console/service-accounts/{name}" if name else "/console/keys"


@page("GET", "/keys/<key_id>", scope="keys.read")
def show_key(visit: Visit, key_id: str) -> Answer:
    """One key: what it may do, and the form to change it."""
    return _show(visit, key_id)


def _show(visit: Visit, key_id: str, problem: ApplianceError | None = None) -> Page:
    row = keys.get_key(visit.scope, key_id)
    authority = lineage.build_authority(row)
    values = {
        "continuing": continuing_keys.list_continuing(visit.scope, [row]).get(key_id, []),
        "row": row, "state": state_of(row, authority), "why": _explain_restrictions(authority), "authority": authority,
        "names": Names(visit), "back": _back_from(row), "problem": problem,
        "name": visit.request.field("name") if problem else row.name,
        "is_limited": bool(visit.request.field("limited")) if problem else row.limits is not None,
        "limited": {
            plural: visit.request.field(plural) if problem else ", ".join((row.limits or {}).get(plural, ()))
            for plural in resource_limits.KINDS
        },
        "effective": authority.limits, "used": daily_quotas.read_usage(visit.scope).get(row.counted_as or row.id, 0),
        "daily": visit.request.field("daily") if problem else row.daily_requests or "",
        "records": bool(visit.request.field("records")) if problem else row.records_requests,
        "addresses": key_addresses.list_addresses(visit.scope, row, PageRequest(key_addresses.MAX_ADDRESSES)).items,
        "new_since": clock.now_ms() - NEWLY_MS, **_list_requests(visit, key_id),
    }  # fmt: skip
    return Page("key.html", values, problem.status if problem else 200)


def _list_requests(visit: Visit, key_id: str) -> dict[str, Any]:
    """The recorded requests that match the filter in the page's address."""
    args = visit.request.args
    show, address = args.get("show", ""), args.get("address", "").strip()
    criteria = RequestFilter(address=address or None, is_error={"failed": True, "succeeded": False}.get(show))
    result = key_requests.list_requests(visit.scope, key_id, criteria, visit.page())
    query = urlencode({"show": show, "address": address})
    return {"requests": result.items, "next_cursor": result.next_cursor, "show": show, "address": address, "query": query}


@page("POST", "/keys/<key_id>", scope="keys.write", step_up=True)
def change_key(visit: Visit, key_id: str) -> Answer:
    """Change what the form of a key has."""
    try:
        limits = _read_limits(visit.request)
        requested = KeyChanges(
            name=visit.request.field("name"), limits=limits, is_unlimited=limits is None,
            daily_requests=_read_quota(visit.request), records_requests=bool(visit.request.field("records")),
        )  # fmt: skip
        changes.change_key(visit.scope, key_id, requested)
    except ValidationFailed as error:
        return _show(visit, key_id, error)
    return Redirect(f"/console/keys/{key_id}")


@page("POST", "/keys/<key_id>/rotate", scope="keys.write", step_up=True)
def rotate_key(visit: Visit, key_id: str) -> Answer:
    """Issue a new key with the same grants; the old one stays valid for the chosen overlap."""
    overlap = visit.request.field("overlap")
    if overlap not in dict(OVERLAPS):
        raise ValidationFailed("choose when the old key ends", pointer="/overlap")
    row, text = keys.rotate_key(visit.scope, visit.services.sealer, key_id, int(overlap))
    return show_text(visit, row, text)


@page("POST", "/keys/<key_id>/adopt", scope="keys.write", step_up=True)
def adopt_key(visit: Visit, key_id: str) -> Answer:
    """Make the visitor, or the chosen service account, the issuer of a key, so that it stays valid."""
    if account_id := visit.request.field("account"):
        return Redirect(_back_from(service_accounts.adopt_key(visit.scope, account_id, key_id)))
    adoption.adopt_key(visit.scope, key_id)
    return Redirect("/console/keys")


@page("POST", "/keys/<key_id>/revoke", scope="keys.write")
def revoke_key(visit: Visit, key_id: str) -> Answer:
    """Revoke a key immediately."""
    return Redirect(_back_from(keys.revoke_key(visit.scope, key_id)))


@page("POST", "/keys/<key_id>/make-agent", scope="keys.write")
def make_agent_key(visit: Visit, key_id: str) -> Answer:
    """Treat a key as an agent's key in policies from now on."""
    return Redirect(_back_from(keys.convert_to_agent_key(visit.scope, key_id)))
