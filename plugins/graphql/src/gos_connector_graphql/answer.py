"""What came back: data, or the contract's error for a status or for what the service lists as errors.

Statuses and bodies follow the GraphQL over HTTP draft; errors the GraphQL specification (October 2021, § 7.1).
"""

import json
import math
import time
from collections.abc import Mapping
from datetime import UTC
from decimal import Decimal
from email.utils import parsedate_to_datetime
from typing import Any

from appliance.connectors.contract import (
    AuthError,
    ConfigError,
    ConnectorError,
    HttpAnswer,
    Outcome,
    RateLimited,
    Rejected,
    SystemFailure,
    TransientError,
)

_EXCERPT = 500
_MOST_ERRORS = 20
_EXACT = 2**53
_NEVER_SUPPORTED = frozenset({501, 505})
# `extensions.code` as Apollo's and other servers' documents name them.
_NOT_ALLOWED = frozenset({"UNAUTHENTICATED", "FORBIDDEN", "UNAUTHORIZED", "ACCESS_DENIED", "AUTHENTICATION_ERROR"})
_LATER = frozenset({"THROTTLED", "RATE_LIMITED", "RATE_LIMIT_EXCEEDED", "TOO_MANY_REQUESTS"})
_BROKEN = frozenset({"INTERNAL_SERVER_ERROR", "INTERNAL_ERROR"})


def body_of(answer: HttpAnswer, *, changes: bool) -> dict[str, Any]:
    """`{data, errors}` of an answer, errors as the service lists them; an error of the contract when there is no such body."""
    body = _parsed(answer)
    if body is None:
        raise _error_of_status(answer, "") or _nonsense(answer, changes)
    listed = body.get("errors", [])
    if not isinstance(listed, list) or not isinstance(body.get("data"), dict | None):
        raise _error_of_status(answer, "") or _nonsense(answer, changes)
    errors = [_told(each) for each in listed[:_MOST_ERRORS]]
    if not 200 <= answer.status < 300:
        error = _error_of_status(answer, _sentence(errors))
        if error is not None:
            error.details["errors"] = errors
            raise error
    if body.get("data") is None and not errors:
        raise _nonsense(answer, changes)
    return {"data": body.get("data"), "errors": errors, "executed": "data" in body and not _about_document(listed)}


def _about_document(listed: list[Any]) -> bool:
    """Whether all errors are about places of the document and none about the data: it was refused before it ran.

    Many servers send `"data": null` with these, too, though they should not.
    """
    return bool(listed) and all(isinstance(each, Mapping) and each.get("locations") and not each.get("path") for each in listed)


def _parsed(answer: HttpAnswer) -> dict[str, Any] | None:
    try:
        body = json.loads(answer.content, parse_float=_exact_float, parse_int=_exact_int, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) and ("data" in body or "errors" in body) else None


def _exact_float(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) and Decimal(repr(value)) == Decimal(text) else text


def _exact_int(text: str) -> int | str:
    return int(text) if len(text) < 18 and abs(int(text)) <= _EXACT else text


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _told(error: Any) -> dict[str, Any]:
    """One error of the list: its message, path, and code."""
    given: Mapping[str, Any] = error if isinstance(error, Mapping) else {}
    path, extensions = given.get("path"), given.get("extensions")
    told: dict[str, Any] = {"message": str(given.get("message", error))[:_EXCERPT]}
    if isinstance(path, list):
        told["path"] = [part if isinstance(part, int) else str(part)[:200] for part in path[:50]]
    if isinstance(extensions, Mapping) and isinstance(extensions.get("code"), str):
        told["code"] = extensions["code"][:100]
    return told


def _sentence(errors: list[dict[str, Any]]) -> str:
    if not errors:
        return ""
    first = errors[0]
    where = f" at {'.'.join(str(part) for part in first['path'])}" if first.get("path") else ""
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{first['message']}{where}{more}"


def error_of(body: Mapping[str, Any], answer: HttpAnswer, *, changes: bool) -> ConnectorError | None:
    """The error a list of errors stands for, None when there is none."""
    errors = body["errors"]
    if not errors:
        return None
    outcome: Outcome = "unknown" if changes and _may_be_done(body) else "not_done"
    details: dict[str, Any] = {"status": answer.status, "errors": errors}
    said = _sentence(errors)
    codes = {each.get("code") for each in errors}
    if codes & _NOT_ALLOWED:
        return AuthError(
            f"The service does not accept the credentials, or they lack a right: {said}", outcome=outcome, details=details
        )
    if codes & _LATER:
        return RateLimited(f"The service asks to wait: {said}", retry_after=retry_after(answer), outcome=outcome, details=details)
    if codes & _BROKEN:
        return SystemFailure(f"The service failed: {said}", outcome="unknown" if changes else "not_done", details=details)
    if outcome == "unknown":
        return Rejected(f"The service refused a part, and another part may be done: {said}", outcome=outcome, details=details)
    return Rejected(f"The service refused: {said}", details=details)


def _may_be_done(body: Mapping[str, Any]) -> bool:
    """Whether a mutation with errors may have changed something.

    Not when it was refused before it ran, nor when each of its fields failed itself; but when a field below failed, the change
    above it was made, and when a null has swallowed the data, nobody sees what else was made.
    """
    if not body["executed"]:
        return False
    data = body["data"]
    paths = [each.get("path", []) for each in body["errors"]]
    failed = {path[0] for path in paths if len(path) == 1}
    if data is None or failed != set(data):
        return True
    return any(value is not None for value in data.values()) or any(len(path) != 1 for path in paths)


def _error_of_status(answer: HttpAnswer, said: str) -> ConnectorError | None:
    """The error of a status that is no success; None for a success."""
    status = answer.status
    if 200 <= status < 300:
        return None
    details: dict[str, Any] = {"status": status} if said else {"status": status, "body": _excerpt(answer)}
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
    if 300 <= status < 400 or status in (404, 405):
        return ConfigError(f"There is no GraphQL at this address ({status}); check `url`.", details=details)
    return Rejected(f"The service refused{reason}", details=details)


def _nonsense(answer: HttpAnswer, changes: bool) -> SystemFailure:
    return SystemFailure(
        "The service did not answer as GraphQL does, with an object of `data` or `errors`; check `url`.",
        outcome="unknown" if changes else "not_done",
        details={"status": answer.status, "body": _excerpt(answer)},
    )


def _excerpt(answer: HttpAnswer) -> str:
    return answer.content[:_EXCERPT].decode("utf-8", "replace")


def retry_after(answer: HttpAnswer) -> float | None:
    """Seconds of the header Retry-After (RFC 9110 § 10.2.3), given as seconds or as a date."""
    text = answer.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    return max(0.0, moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() - time.time())
