"""The quotas of the tenant with their use; administrators of the appliance set them."""

from collections.abc import Mapping
from dataclasses import dataclass

from appliance.console.frame.routing import Answer, Page, Redirect, Visit, page
from appliance.core.errors import ApplianceError, ValidationFailed
from appliance.core.texts import mark
from appliance.quotas import KINDS, QuotaState, format_amount, limits, to_number
from appliance.tenants import quota_settings

from .appliance import is_administrator, require_administrator

HERE = "/console/quotas"
TITLES: Mapping[str, str] = {
    "storage": mark("Storage"), "entities": mark("Entities"), "executions_per_day": mark("Executions per day"),
    "concurrent_executions": mark("Executions at once"), "llm_tokens_per_day": mark("LLM tokens per day"),
    "llm_tokens_per_month": mark("LLM tokens per month"), "llm_cost_per_day": mark("LLM cost per day"),
    "llm_cost_per_month": mark("LLM cost per month"), "requests_per_day": mark("API requests per day"),
}  # fmt: skip
EXPLANATIONS: Mapping[str, str] = {
    "storage": mark("documents, WebApps, skills, and entities with their history"),
    "entities": mark("in all collections"),
    "executions_per_day": mark("started on this day, with those that others start; counted while there is a limit"),
    "concurrent_executions": mark("others wait in the queue"),
    "llm_tokens_per_day": mark("of all models"), "llm_tokens_per_month": mark("of all models"),
    "llm_cost_per_day": mark("in the currency of the profiles' prices"),
    "llm_cost_per_month": mark("in the currency of the profiles' prices"),
    "requests_per_day": mark("with all API keys; counted while there is a limit"),
}  # fmt: skip


@dataclass(frozen=True)
class QuotaLine:
    """A quota as the page shows it; `text` is the amount in its field: empty for the default."""

    state: QuotaState
    used: float
    limit: float | None
    text: str


@page("GET", "/quotas", scope=None)
def show_quotas(visit: Visit) -> Answer:
    """What this tenant may use and has used; for administrators, the forms that change it."""
    return _page(visit)


def _page(visit: Visit, problem: ApplianceError | None = None) -> Page:
    current, request = limits.limits_of(visit.scope.tenant_id), visit.request
    lines = [_line(visit, state, is_sent=problem is not None) for state in visit.services.limits.quotas.list_states(visit.scope)]
    values = {
        "lines": lines, "titles": TITLES, "explanations": EXPLANATIONS, "problem": problem, "runs_it": is_administrator(visit),
        "expires_at": current.expires_at, "is_expired": current.is_expired, "days": request.field("days"),
        "grace_days": visit.services.config.sandbox_tenants.grace_days,
    }  # fmt: skip
    return Page("quotas.html", values, problem.status if problem else 200)


def _line(visit: Visit, state: QuotaState, *, is_sent: bool) -> QuotaLine:
    text = format_amount(state.kind, state.limit) if state.is_own else ""
    limit = None if state.limit is None else to_number(state.kind, state.limit)
    return QuotaLine(
        state, to_number(state.kind, state.used), limit, visit.request.field(state.kind.name) if is_sent else text
    )


@page("POST", "/quotas", scope=None)
def set_quotas(visit: Visit) -> Answer:
    """Set the quotas of this tenant; an empty field is the default."""
    require_administrator(visit)
    amounts = {name: visit.request.field(name).strip() or quota_settings.DEFAULT for name in KINDS}
    try:
        quota_settings.change_quotas(visit.scope, amounts)
    except ApplianceError as error:
        return _page(visit, error)
    return Redirect(HERE)


@page("POST", "/quotas/expiry", scope=None)
def set_expiry(visit: Visit) -> Answer:
    """Let this sandbox tenant expire later."""
    require_administrator(visit)
    days = visit.request.field("days").strip()
    try:
        if not (days.isascii() and days.isdigit() and len(days) < 6):
            raise ValidationFailed("enter a whole number of days", pointer="/days")
        quota_settings.extend_sandbox(visit.scope, int(days))
    except ApplianceError as error:
        return _page(visit, error)
    return Redirect(HERE)
