"""Pipedrive's API: its address, its token, its pages, and what its errors and limits mean."""

from typing import Any

from appliance.connectors.contract import (
    AuthError,
    ConnectorError,
    Context,
    HttpAnswer,
    Json,
    RateLimited,
    Rejected,
    SystemFailure,
    retry_after,
)
from gos_connector_business.answer import brief, error_of, told_object
from gos_connector_business.rest import Pairs, Rest, records_in

WHO = "Pipedrive"
# The budget of a day ends at midnight, Pipedrive's time; nobody is asked for longer than an hour.
_A_DAYS_LIMIT_S = 3600.0


def make_api(settings: Json) -> Rest:
    """The API with the credentials of these settings."""
    base = settings.get("base_url") or f"https://{settings['company']}.pipedrive.com"
    return Rest(WHO, base.rstrip("/"), [("x-api-token", settings["token"])], refusal, settings.get("timeout_s", 60))


def refusal(answer: HttpAnswer) -> ConnectorError:
    """The error of an answer that is no success."""
    told = told_object(answer)
    said, code = brief(told.get("error") or ""), str(told.get("code") or "")[:60]
    details = {"status": answer.status, "code": code, "message": said}
    if answer.status == 429:
        return RateLimited("Pipedrive asks to wait: its limit is reached.", retry_after=_patience(answer), details=details)
    if answer.status == 403 and not told:
        # Who goes on after 429 is kept out for a while, by the page of a guard in front of Pipedrive.
        return RateLimited("Pipedrive keeps this appliance out for a while.", retry_after=_A_DAYS_LIMIT_S, details=details)
    if answer.status == 403 and code.startswith("feature_capping"):
        return Rejected(f"The plan at Pipedrive does not hold more: {said}", details=details)
    if answer.status == 402:
        return AuthError(f"Pipedrive's account is not open: {said}", details=details)
    return error_of(answer, WHO, said, code)


def _patience(answer: HttpAnswer) -> float | None:
    asked = retry_after(answer)
    if asked is not None:
        return asked
    for header in ("x-daily-ratelimit-token-remaining", "x-daily-requests-left"):
        if answer.headers.get(header, "").strip().startswith(("0", "-")):
            return _A_DAYS_LIMIT_S
    reset = answer.headers.get("x-ratelimit-reset", "").strip()
    return float(reset[:9]) if reset.isascii() and reset.isdigit() else None


def pages(api: Rest, path: str, ctx: Context, params: Pairs, most: int) -> tuple[list[dict[str, Any]], bool]:
    """Up to so many records of a list, or all entries of a search, and whether there are more."""
    found: list[dict[str, Any]] = []
    cursor: str | None = ""
    size = 100 if path.endswith("/search") else 500
    while cursor is not None and len(found) < most:
        asked = [*params, ("limit", str(min(size, most - len(found)))), *([("cursor", cursor)] if cursor else [])]
        told = api.told("GET", path, ctx, params=asked)
        found += _entries(told)
        further = told.get("additional_data")
        following = further.get("next_cursor") if isinstance(further, dict) else None
        if following is not None and str(following) == cursor:
            raise SystemFailure("Pipedrive's next page is the one that was read; its paging does not end.")
        cursor = str(following) if following else None
    return found[:most], cursor is not None or len(found) > most


def _entries(told: Json) -> list[dict[str, Any]]:
    data = told.get("data")
    if isinstance(data, dict):
        return [each.get("item", {}) for each in records_in(data, "items", WHO)]
    return [] if data is None and told.get("success") is True else records_in(told, "data", WHO)
