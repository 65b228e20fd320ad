"""HubSpot's API: its address, its token, and what its errors and limits mean."""

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
from gos_connector_business.answer import brief, error_of, told_object
from gos_connector_business.rest import Rest

WHO = "HubSpot"
USUAL_ADDRESS = "https://api.hubapi.com"
# HubSpot's daily limit ends at midnight of the account's time zone; nobody is asked for longer than an hour.
_A_DAYS_LIMIT_S = 3600.0


def make_api(settings: Json) -> Rest:
    """The API with the credentials of these settings."""
    base = settings.get("base_url", USUAL_ADDRESS).rstrip("/")
    return Rest(WHO, base, [("Authorization", f"Bearer {settings['token']}")], refusal, settings.get("timeout_s", 60))


def refusal(answer: HttpAnswer) -> ConnectorError:
    """The error of an answer that is no success."""
    told = told_object(answer)
    said, category = said_in(told), str(told.get("category") or "")[:60]
    details = {"status": answer.status, "code": category, "message": said}
    if answer.status in (429, 477):
        message = "HubSpot asks to wait: " + (said or f"its limit is reached ({answer.status}).")
        return RateLimited(message, retry_after=_patience(answer, told), details=details)
    if answer.status == 403 and category == "MISSING_SCOPES":
        return AuthError(f"The private app lacks a scope: {said}", details=details)
    if answer.status == 423:
        return TransientError("HubSpot has locked the record for a moment; try again.", details=details)
    return error_of(answer, WHO, said, category)


def partial(errors: Any) -> Rejected:
    """The error of a batch of which HubSpot did a part: it is idempotent, so that the rest can be sent again."""
    faults = [each for each in errors if isinstance(each, dict)] if isinstance(errors, list) else []
    said = "; ".join(said_in(each) for each in faults[:3])[:500]
    return Rejected(
        f"HubSpot did not take {len(faults) or 'some'} of the records: {said}", details={"status": 207, "message": said}
    )


def said_in(told: Json) -> str:
    """What an error object says, with the first of its details."""
    said = [told.get("message")]
    errors = told.get("errors")
    if isinstance(errors, list) and errors and isinstance(errors[0], dict):
        said.append(errors[0].get("message"))
    return brief(" ".join(dict.fromkeys(str(each) for each in said if each)))


def _patience(answer: HttpAnswer, told: Json) -> float | None:
    asked = retry_after(answer)
    if asked is not None:
        return asked
    if str(told.get("policyName", "")).upper() == "DAILY":
        return _A_DAYS_LIMIT_S
    interval = answer.headers.get("x-hubspot-ratelimit-interval-milliseconds", "")
    if interval.isascii() and interval.isdigit():
        return float(interval[:9]) / 1000
    # The limit of searches counts by the second and sends no headers.
    return 1.0 if str(told.get("policyName", "")).upper() == "SECONDLY" else 10.0
