"""Salesforce's REST API: its address, its credentials, its pages, and what its errors mean."""

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
from gos_connector_business.answer import brief, error_of
from gos_connector_business.rest import Rest, records_in

WHO = "Salesforce"
# The limit counts the last 24 hours; nobody is asked for longer than an hour.
_A_DAYS_LIMIT_S = 3600.0
_BUSY = frozenset({"UNABLE_TO_LOCK_ROW", "SERVER_UNAVAILABLE", "CONCURRENT_REQUEST_LIMIT_EXCEEDED", "QUERY_TIMEOUT"})


def auth_block(settings: Json) -> Json:
    """The `auth` block with what Salesforce fixes: tokens come from the domain itself."""
    auth: Json = settings["auth"]
    if auth["kind"] != "oauth2":
        return auth
    oauth = f"{settings['url'].rstrip('/')}/services/oauth2"
    usual = {"scope": "api refresh_token"} if auth.get("grant") == "authorization_code" else {}
    return {**usual, **auth, "token_url": f"{oauth}/token", "authorize_url": f"{oauth}/authorize"}


def make_api(settings: Json, auth: Json) -> Rest:
    """The API with the credentials of these settings."""
    return Rest(WHO, settings["url"].rstrip("/"), (), refusal, settings.get("timeout_s", 60), auth)


def refusal(answer: HttpAnswer) -> ConnectorError:
    """The error of an answer that is no success."""
    if answer.status == 300:
        return Rejected("Several records have this external id; it should be unique.", details={"status": 300})
    return error_told(_faults(answer), answer)


def error_told(faults: list[dict[str, Any]], answer: HttpAnswer) -> ConnectorError:
    """The error that Salesforce gives as a list of codes and messages."""
    code = str(faults[0].get("errorCode") or "")[:80] if faults else ""
    said = brief(" ".join(dict.fromkeys(str(each["message"]) for each in faults[:5] if each.get("message"))))
    details = {"status": answer.status, "code": code, "message": said}
    if code == "REQUEST_LIMIT_EXCEEDED":
        patience = retry_after(answer)
        wait = _A_DAYS_LIMIT_S if patience is None else patience
        return RateLimited("The organization's limit of API requests is reached.", retry_after=wait, details=details)
    if code in _BUSY:
        return TransientError(f"Salesforce is busy with the same records or others: {said}", details=details)
    if code == "API_DISABLED_FOR_ORG":
        return AuthError("The edition of Salesforce or the user has no API.", details=details)
    return error_of(answer, WHO, said, code)


def _faults(answer: HttpAnswer) -> list[dict[str, Any]]:
    try:
        told = json.loads(answer.content)
    except (ValueError, RecursionError):
        return []
    return [each for each in told if isinstance(each, dict)] if isinstance(told, list) else []


def query(api: Rest, root: str, soql: str, ctx: Context, most: int) -> tuple[list[dict[str, Any]], bool]:
    """Up to so many records of a query, and whether there are more.  `root` is the resource that takes queries."""
    told = api.told("GET", root, ctx, params=[("q", soql)])
    found = [_plain(each) for each in records_in(told, "records", WHO)]
    while len(found) < most and told.get("done") is False:
        told = api.told("GET", _following(told, root), ctx)
        page = records_in(told, "records", WHO)
        if not page:
            raise SystemFailure("Salesforce's next page is empty; its paging does not end.")
        found += [_plain(each) for each in page]
    return found[:most], len(found) > most or told.get("done") is False


def _following(told: Json, root: str) -> str:
    """The path of the next page, which lies where queries do and nowhere else."""
    path = str(told.get("nextRecordsUrl"))
    if not path.startswith(f"{root}/") or not path.removeprefix(f"{root}/").replace("-", "").isalnum():
        raise SystemFailure("Salesforce's next page lies outside its queries.")
    return path


def _plain(record: Any) -> Any:
    """A record without the addresses Salesforce puts beside its fields."""
    if isinstance(record, list):
        return [_plain(each) for each in record]
    if not isinstance(record, dict):
        return record
    return {name: _plain(value) for name, value in record.items() if name != "attributes"}
