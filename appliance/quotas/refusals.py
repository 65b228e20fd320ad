"""The errors of used-up quotas: which one, how much of it is used, and when it begins again or whom to ask."""

from collections.abc import Mapping
from typing import Any

from appliance.core import clock
from appliance.core.errors import ApplianceError, BudgetExceeded, RateLimited, StorageFull
from appliance.core.sentences import Sentence
from appliance.core.texts import mark_error

from . import limits
from .kinds import KINDS, QuotaKind, format_amount, to_number

_EXPIRED = mark_error(
    "this sandbox tenant expired on %(day)s, so nothing can be added or started any more; export what you need, or ask the "
    "operator of the appliance to extend it (gos tenant sandbox)"
)
_SENTENCES: Mapping[str, Sentence] = {
    "storage": mark_error(
        "this tenant uses %(used)s of the %(limit)s of storage that it may use, and this needs more; delete what you do not need "
        "(a deleted content counts for another day), or ask the operator of the appliance to raise the quota storage"
    ),
    "entities": mark_error(
        "this tenant has %(used)s of the %(limit)s entities that it may have; delete what you do not need, or ask the operator of "
        "the appliance to raise the quota entities"
    ),
    "executions_per_day": mark_error(
        "this tenant has started %(used)s of the %(limit)s executions that it may start on a day (UTC); try again after %(reset)s, "
        "or ask the operator of the appliance to raise the quota executions_per_day"
    ),
    "requests_per_day": mark_error(
        "this tenant has made %(used)s of the %(limit)s requests that it may make on a day (UTC); try again after %(reset)s, or "
        "ask the operator of the appliance to raise the quota requests_per_day"
    ),
}
_LLM = mark_error(
    "the language models of this tenant have used %(used)s of %(limit)s %(unit)s of this %(period)s; try again after %(reset)s, or "
    "ask the operator of the appliance to raise the quota %(name)s"
)
_WORDS = {
    "tokens": mark_error("tokens"), "money": mark_error("units of money"), "day": mark_error("day (UTC)"),
    "month": mark_error("month (UTC)"),
}  # fmt: skip


def make_refusal(tenant_id: str, name: str, used: int, limit: int) -> ApplianceError:
    """The error for work beyond a quota of which `used` is in use; its members are `quota`, `used`, `limit` and `resets_at`."""
    kind, now = KINDS[name], clock.now_ms()
    resets_at = kind.period_of(now)[1]
    extra: dict[str, Any] = {"quota": name, "used": to_number(kind, used), "limit": to_number(kind, limit), "retryable": False}
    headers: dict[str, str] = {}
    current = limits.limits_of(tenant_id)
    if current.is_expired and current.expires_at is not None:
        sentence = _EXPIRED % {"day": clock.rfc3339(current.expires_at)[:10]}
    else:
        sentence = _describe(kind, used, limit, resets_at)
        if resets_at is not None:
            extra["resets_at"] = clock.rfc3339(resets_at)
            headers["Retry-After"] = str((resets_at - now + 999) // 1000)
    if name.startswith("llm_"):
        return BudgetExceeded(sentence, extra=extra)
    if kind.period:
        return RateLimited(sentence, headers=headers, extra=extra)
    return StorageFull(sentence, extra=extra)


def _describe(kind: QuotaKind, used: int, limit: int, resets_at: int | None) -> Sentence:
    reset = f"{clock.rfc3339(resets_at)[:16]}Z" if resets_at is not None else ""
    amounts = {"used": _readable(kind, used), "limit": format_amount(kind, limit), "reset": reset}
    if kind.unit in ("tokens", "money"):
        return _LLM % {**amounts, "unit": _WORDS[kind.unit], "period": _WORDS[kind.period], "name": kind.name}
    return _SENTENCES[kind.name] % amounts


def _readable(kind: QuotaKind, used: int) -> str:
    """What is used, rounded as people read it."""
    if kind.unit == "bytes":
        return f"{used / 10**6:.1f}MB"
    return f"{to_number(kind, used):.4f}" if kind.unit == "money" else str(used)
