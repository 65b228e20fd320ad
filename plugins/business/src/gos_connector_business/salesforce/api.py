"""Salesforce's REST API: its address, its credentials, its paging and the mapping of its errors."""

import json
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
    TransientError,
    retry_after,
)
from gos_connector_business.answers import error_of, excerpt
from gos_connector_business.rest import Rest, records_in

SYSTEM = "Salesforce"
# The limit covers the last 24 hours, and when it frees up is unknown: retry once an hour.
_DAILY_LIMIT_WAIT_S = 3600.0
_BUSY = frozenset({"UNABLE_TO_LOCK_ROW", "SERVER_UNAVAILABLE", "CONCURRENT_REQUEST_LIMIT_EXCEEDED", "QUERY_TIMEOUT"})


def auth_block(settings: Json) -> Json:
    """Return the `auth` block completed with the OAuth endpoints of the domain."""
    auth: Json = settings["auth"]
    if auth["kind"] != "oauth2":
        return auth
    oauth = f"{settings['url'].rstrip('/')}/services/oauth2"
    defaults = {"scope": "api refresh_token"} if auth.get("grant") == "authorization_code" else {}
    return {**defaults, **auth, "token_url": f"{oauth}/token", "authorize_url": f"{oauth}/authorize"}


def make_api(settings: Json, auth: Json) -> Rest:
    """Return the API with the credentials of these settings."""
    return Rest(SYSTEM, settings["url"].rstrip("/"), (), to_error, settings.get("timeout_s", 60), auth)


def to_error(answer: HttpAnswer) -> ConnectorError:
    """Return the error for an unsuccessful response."""
    if answer.status == 300:
        return Rejected("Several records have this external id; it must be unique.", details={"status": 300})
    return to_error_from_list(_parse_errors(answer), answer)


def to_error_from_list(errors: list[dict[str, Any]], answer: HttpAnswer) -> ConnectorError:
    """Return the error for Salesforce's list of error codes and messages."""
    code = str(errors[0].get("errorCode") or "")[:80] if errors else ""
    message = excerpt(" ".join(dict.fromkeys(str(each["message"]) for each in errors[:5] if each.get("message"))))
    details = {"status": answer.status, "code": code, "message": message}
    if code == "REQUEST_LIMIT_EXCEEDED":
        delay = retry_after(answer)
        wait = _DAILY_LIMIT_WAIT_S if delay is None else delay
        return RateLimited("The organization's limit of API requests is reached.", retry_after=wait, details=details)
    if code in _BUSY:
        return TransientError(f"Salesforce is busy; try again: {message}", details=details)
    if code == "API_DISABLED_FOR_ORG":
        return AuthError("This Salesforce edition or user has no API access.", details=details)
    return error_of(answer, SYSTEM, message, code)


def _parse_errors(answer: HttpAnswer) -> list[dict[str, Any]]:
    try:
        errors = json.loads(answer.content)
    except (ValueError, RecursionError):
        return []
    return [each for each in errors if isinstance(each, dict)] if isinstance(errors, list) else []


def query(api: Rest, root: str, soql: str, ctx: Context, max_records: int) -> tuple[list[dict[str, Any]], bool]:
    """Return at most `max_records` records of a query and whether there are more.  `root` is the path of the query resource."""
    page = api.request_object("GET", root, ctx, params=[("q", soql)])
    records = [_without_attributes(each) for each in records_in(page, "records", SYSTEM)]
    while len(records) < max_records and page.get("done") is False:
        page = api.request_object("GET", _next_path(page, root), ctx)
        page_records = records_in(page, "records", SYSTEM)
        if not page_records:
            raise SystemFailure("Salesforce returned an empty page that is not the last, so paging would not end.")
        records += [_without_attributes(each) for each in page_records]
    return records[:max_records], len(records) > max_records or page.get("done") is False


def _next_path(page: Json, root: str) -> str:
    """Return the path of the next page; SystemFailure when it is outside the query resource."""
    path = str(page.get("nextRecordsUrl"))
    if not path.startswith(f"{root}/") or not path.removeprefix(f"{root}/").replace("-", "").isalnum():
        raise SystemFailure("The path of Salesforce's next page is outside the query resource.")
    return path


def _without_attributes(record: Any) -> Any:
    """Return a record without the `attributes` that Salesforce adds to it and to nested records."""
    if isinstance(record, list):
        return [_without_attributes(each) for each in record]
    if not isinstance(record, dict):
        return record
    return {name: _without_attributes(value) for name, value in record.items() if name != "attributes"}
