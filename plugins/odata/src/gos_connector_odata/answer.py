"""Parses JSON responses, or maps their status to an error of the connector contract."""

import json
from collections.abc import Mapping
from typing import Any

from appliance.connectors import contract
from appliance.connectors.contract import (
    ConnectorError,
    HttpAnswer,
    Rejected,
    SystemFailure,
    TransientError,
    excerpt,
    parse_json,
)

_EXCERPT = 500
# Business Central's error code for an outdated etag, sent with 409 instead of 412.
_BUSINESS_CENTRAL_CHANGED = "Request_EntityChanged"


def parse_object(answer: HttpAnswer) -> dict[str, Any]:
    """The body as a JSON object, with numbers that would be rounded as text; SystemFailure when it is not an object."""
    try:
        body = parse_json(answer.content, exact=True)
    except ValueError as error:
        raise _not_odata(answer) from error
    if not isinstance(body, dict):
        raise _not_odata(answer)
    return body


def _not_odata(answer: HttpAnswer) -> SystemFailure:
    details = {"status": answer.status, "body": excerpt(answer)}
    return SystemFailure("The response is not a JSON object, as OData requires.", outcome="unknown", details=details)


def status_error(answer: HttpAnswer) -> ConnectorError | None:
    """The error for a status; None for a success."""
    status = answer.status
    if 200 <= status < 300:
        return None
    code, message = _parse_error(answer)
    # A body that is not an OData error may echo the request with its credentials, so it stays out of the message.
    details = {"status": status, "code": code, "message": message or excerpt(answer)}
    reason = f": {message}" if message else f" ({status})."
    if status == 423:
        return TransientError(f"The entity is locked{reason}", details=details)
    if status == 412 or (status == 409 and code == _BUSINESS_CENTRAL_CHANGED):
        text = "The entity has changed since this etag, by someone else or by an earlier attempt of this call; read it again."
        return Rejected(text, details=details)
    if status == 404:
        return Rejected(f"The service has nothing at this address{reason}", details=details)
    return contract.status_error(answer, reason=message, details=details)


def _parse_error(answer: HttpAnswer) -> tuple[str, str]:
    """Code and message of an OData error body; empty strings when the body is not one."""
    try:
        error = json.loads(answer.content)["error"]
        message = error["message"]
        # Some services wrap the text in an object with its language, as in OData 3.
        text = message["value"] if isinstance(message, Mapping) else message
        return str(error.get("code") or "")[:120], _with_details(str(text), error.get("details"))[:_EXCERPT]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "", ""


def _with_details(text: str, details: Any) -> str:
    """The message followed by those of its details, without repetitions; SAP reports invalid fields there."""
    messages = [each.get("message") for each in details if isinstance(each, Mapping)] if isinstance(details, list) else []
    return " ".join(dict.fromkeys([text, *(str(each) for each in messages[:5] if each)]))


def parse_sap_messages(answer: HttpAnswer) -> list[str]:
    """The messages SAP sends with a success, from the header `sap-messages`."""
    try:
        entries = json.loads(answer.headers.get("sap-messages", "[]"))
    except (ValueError, RecursionError):
        return []
    messages = [each.get("message") for each in entries if isinstance(each, Mapping)] if isinstance(entries, list) else []
    return [str(each)[:_EXCERPT] for each in messages[:10] if each]
