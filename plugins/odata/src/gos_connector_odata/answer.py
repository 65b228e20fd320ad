"""What came back: the JSON of a success, or the contract's error for a status."""

import json
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from appliance.connectors.contract import (
    AuthError,
    ConnectorError,
    HttpAnswer,
    Outcome,
    RateLimited,
    Rejected,
    SystemFailure,
    TransientError,
    retry_after,
)

_EXCERPT = 500
_EXACT = 2**53
# What Business Central answers when the etag is not the entity's any more.
_BUSINESS_CENTRALS_412 = "Request_EntityChanged"
_NEVER_SUPPORTED = frozenset({501, 505})


def parse_object(answer: HttpAnswer) -> dict[str, Any]:
    """The body as a JSON object, numbers that would be rounded as text; SystemFailure when it is none."""
    try:
        body = json.loads(answer.content, parse_float=_exact_float, parse_int=_exact_int, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise _not_odata(answer) from error
    if not isinstance(body, dict):
        raise _not_odata(answer)
    return body


def _not_odata(answer: HttpAnswer) -> SystemFailure:
    details = {"status": answer.status, "body": _excerpt(answer)}
    return SystemFailure("The service did not answer with a JSON object, as OData does.", outcome="unknown", details=details)


def _exact_float(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) and Decimal(repr(value)) == Decimal(text) else text


def _exact_int(text: str) -> int | str:
    return int(text) if len(text) < 18 and abs(int(text)) <= _EXACT else text


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def error_of(answer: HttpAnswer) -> ConnectorError | None:
    """The error a status stands for, None for a success."""
    status = answer.status
    if 200 <= status < 300:
        return None
    code, said = _said(answer)
    # What is no error of OData may repeat the request, credentials included: it stays out of the sentence.
    details = {"status": status, "code": code, "message": said or _excerpt(answer)}
    reason = f": {said}" if said else f" ({status})."
    if status in (401, 403):
        return AuthError(f"The service does not accept the credentials, or they lack a right{reason}", details=details)
    after = retry_after(answer)
    if status == 429 or (status == 503 and after is not None):
        return RateLimited(f"The service asks to wait ({status}).", retry_after=after, details=details)
    if status in (408, 425) or (status >= 500 and status not in _NEVER_SUPPORTED):
        # 503, 408 and 425 say that the work was not begun; after another 5xx nobody knows.
        outcome: Outcome = "not_done" if status in (408, 425, 503) else "unknown"
        return TransientError(f"The service failed{reason}", outcome=outcome, details=details)
    if status == 423:
        return TransientError(f"Somebody else has locked the entity{reason}", details=details)
    if status == 412 or (status == 409 and code == _BUSINESS_CENTRALS_412):
        message = "The entity has changed since the given etag, by others or by an earlier try of this very call. Read it again."
        return Rejected(message, details=details)
    if status == 404:
        return Rejected(f"The service does not have what the address names{reason}", details=details)
    return Rejected(f"The service refused the request{reason}", details=details)


def _said(answer: HttpAnswer) -> tuple[str, str]:
    """Code and message of an OData error body; nothing without one."""
    try:
        error = json.loads(answer.content)["error"]
        message = error["message"]
        # Some services wrap the text together with its language, as OData 3 did.
        text = message["value"] if isinstance(message, Mapping) else message
        return str(error.get("code") or "")[:120], _with_details(str(text), error.get("details"))[:_EXCERPT]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "", ""


def _with_details(text: str, details: Any) -> str:
    """The message with those of its details that say something else, as SAP gives the fields that are wrong."""
    found = [each.get("message") for each in details if isinstance(each, Mapping)] if isinstance(details, list) else []
    return " ".join(dict.fromkeys([text, *(str(each) for each in found[:5] if each)]))


def messages_of(answer: HttpAnswer) -> list[str]:
    """What SAP says beside a success, by the header `sap-messages`."""
    try:
        found = json.loads(answer.headers.get("sap-messages", "[]"))
    except (ValueError, RecursionError):
        return []
    said = [each.get("message") for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []
    return [str(each)[:_EXCERPT] for each in said[:10] if each]


def _excerpt(answer: HttpAnswer) -> str:
    return answer.content[:_EXCERPT].decode("utf-8", "replace")
