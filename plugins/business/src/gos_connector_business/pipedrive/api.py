"""Pipedrive's API: its address, its credentials, its paging and the mapping of its errors and rate limits."""

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
from gos_connector_business.answers import error_of, excerpt, parse_error_body
from gos_connector_business.rest import Pairs, Rest, records_in

SYSTEM = "Pipedrive"
# The daily budget resets at midnight in Pipedrive's time zone: retry once an hour.
_DAILY_LIMIT_WAIT_S = 3600.0


def make_api(settings: Json) -> Rest:
    """Return the API with the credentials of these settings."""
    base = settings.get("base_url") or f"https://{settings['company']}.pipedrive.com"
    return Rest(SYSTEM, base.rstrip("/"), [("x-api-token", settings["token"])], to_error, settings.get("timeout_s", 60))


def to_error(answer: HttpAnswer) -> ConnectorError:
    """Return the error for an unsuccessful response."""
    body = parse_error_body(answer)
    reason, code = excerpt(body.get("error") or ""), str(body.get("code") or "")[:60]
    details = {"status": answer.status, "code": code, "message": reason}
    if answer.status == 429:
        return RateLimited("Pipedrive's rate limit is reached; try again later.", retry_after=_retry_delay(answer), details=details)
    if answer.status == 403 and not body:
        # After too many requests beyond the limit, the firewall in front of Pipedrive blocks the client with an HTML page.
        message = "Pipedrive temporarily blocks this appliance after too many requests."
        return RateLimited(message, retry_after=_DAILY_LIMIT_WAIT_S, details=details)
    if answer.status == 403 and code.startswith("feature_capping"):
        return Rejected(f"The limit of the Pipedrive plan is reached: {reason}", details=details)
    if answer.status == 402:
        return AuthError(f"The Pipedrive account is not active: {reason}", details=details)
    return error_of(answer, SYSTEM, reason, code)


def _retry_delay(answer: HttpAnswer) -> float | None:
    delay = retry_after(answer)
    if delay is not None:
        return delay
    for header in ("x-daily-ratelimit-token-remaining", "x-daily-requests-left"):
        if answer.headers.get(header, "").strip().startswith(("0", "-")):
            return _DAILY_LIMIT_WAIT_S
    reset = answer.headers.get("x-ratelimit-reset", "").strip()
    return float(reset[:9]) if reset.isascii() and reset.isdigit() else None


def list_records(api: Rest, path: str, ctx: Context, params: Pairs, max_records: int) -> tuple[list[dict[str, Any]], bool]:
    """Return at most `max_records` records of a list or a search and whether there are more."""
    records: list[dict[str, Any]] = []
    cursor: str | None = ""
    size = 100 if path.endswith("/search") else 500
    while cursor is not None and len(records) < max_records:
        page_params = [*params, ("limit", str(min(size, max_records - len(records)))), *([("cursor", cursor)] if cursor else [])]
        page = api.request_object("GET", path, ctx, params=page_params)
        records += _records_of(page)
        paging = page.get("additional_data")
        next_cursor = paging.get("next_cursor") if isinstance(paging, dict) else None
        if next_cursor is not None and str(next_cursor) == cursor:
            raise SystemFailure("Pipedrive repeated the cursor of the previous page, so paging would not end.")
        cursor = str(next_cursor) if next_cursor else None
    return records[:max_records], cursor is not None or len(records) > max_records


def _records_of(page: Json) -> list[dict[str, Any]]:
    data = page.get("data")
    if isinstance(data, dict):
        return [each.get("item", {}) for each in records_in(data, "items", SYSTEM)]
    return [] if data is None and page.get("success") is True else records_in(page, "data", SYSTEM)
