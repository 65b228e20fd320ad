"""HubSpot's API: its address, its credentials, and the mapping of its errors and rate limits."""

from typing import Any

from appliance.connectors.contract import (
    AuthError,
    ConnectorError,
    HttpAnswer,
    Json,
    RateLimited,
    Rejected,
    TransientError,
    retry_after,
)
from gos_connector_business.answers import error_of, excerpt, parse_error_body
from gos_connector_business.rest import Rest

SYSTEM = "HubSpot"
DEFAULT_ADDRESS = "https://api.hubapi.com"
# HubSpot's daily limit resets at midnight in the account's time zone, which is unknown here: retry once an hour.
_DAILY_LIMIT_WAIT_S = 3600.0


def make_api(settings: Json) -> Rest:
    """Return the API with the credentials of these settings."""
    base = settings.get("base_url", DEFAULT_ADDRESS).rstrip("/")
    return Rest(SYSTEM, base, [("Authorization", f"Bearer {settings['token']}")], to_error, settings.get("timeout_s", 60))


def to_error(answer: HttpAnswer) -> ConnectorError:
    """Return the error for an unsuccessful response."""
    body = parse_error_body(answer)
    reason, category = message_of(body), str(body.get("category") or "")[:60]
    details = {"status": answer.status, "code": category, "message": reason}
    if answer.status in (429, 477):
        message = "HubSpot limits the request rate: " + (reason or f"its limit is reached ({answer.status}).")
        return RateLimited(message, retry_after=_retry_delay(answer, body), details=details)
    if answer.status == 403 and category == "MISSING_SCOPES":
        return AuthError(f"The HubSpot private app lacks a scope: {reason}", details=details)
    if answer.status == 423:
        return TransientError("HubSpot has temporarily locked the record; try again.", details=details)
    return error_of(answer, SYSTEM, reason, category)


def partial_failure(errors: Any) -> Rejected:
    """Return the error for a batch that HubSpot applied in part; the batch is idempotent and can be sent again."""
    failed = [each for each in errors if isinstance(each, dict)] if isinstance(errors, list) else []
    reasons = "; ".join(message_of(each) for each in failed[:3])[:500]
    return Rejected(
        f"HubSpot rejected {len(failed) or 'some'} of the records: {reasons}", details={"status": 207, "message": reasons}
    )


def message_of(error: Json) -> str:
    """Return the message of an error object together with the first of its detailed errors."""
    messages = [error.get("message")]
    errors = error.get("errors")
    if isinstance(errors, list) and errors and isinstance(errors[0], dict):
        messages.append(errors[0].get("message"))
    return excerpt(" ".join(dict.fromkeys(str(each) for each in messages if each)))


def _retry_delay(answer: HttpAnswer, body: Json) -> float | None:
    delay = retry_after(answer)
    if delay is not None:
        return delay
    if str(body.get("policyName", "")).upper() == "DAILY":
        return _DAILY_LIMIT_WAIT_S
    interval = answer.headers.get("x-hubspot-ratelimit-interval-milliseconds", "")
    if interval.isascii() and interval.isdigit():
        return float(interval[:9]) / 1000
    # The search limit is per second and sends no headers.
    return 1.0 if str(body.get("policyName", "")).upper() == "SECONDLY" else 10.0
