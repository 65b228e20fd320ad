"""Parses responses into data and errors, and maps statuses and GraphQL errors to errors of the connector contract.

Statuses and bodies follow the GraphQL over HTTP draft; errors follow the GraphQL specification (October 2021, § 7.1).
"""

from collections.abc import Mapping
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
    excerpt,
    parse_json,
    retry_after,
    status_error,
)

_EXCERPT = 500
_MAX_ERRORS = 20
# Values of `extensions.code` documented by Apollo and other servers.
_NOT_ALLOWED = frozenset({"UNAUTHENTICATED", "FORBIDDEN", "UNAUTHORIZED", "ACCESS_DENIED", "AUTHENTICATION_ERROR"})
_RATE_LIMITED = frozenset({"THROTTLED", "RATE_LIMITED", "RATE_LIMIT_EXCEEDED", "TOO_MANY_REQUESTS"})
_BROKEN = frozenset({"INTERNAL_SERVER_ERROR", "INTERNAL_ERROR"})


def parse_body(answer: HttpAnswer, *, changes: bool) -> dict[str, Any]:
    """`{data, errors, executed}` of a response; raises an error of the contract when the body is not a GraphQL response."""
    body = _parse_json(answer)
    if body is None:
        raise _status_error(answer, "") or _not_graphql(answer, changes)
    raw_errors = body.get("errors", [])
    if not isinstance(raw_errors, list) or not isinstance(body.get("data"), dict | None):
        raise _status_error(answer, "") or _not_graphql(answer, changes)
    errors = [_to_error(each) for each in raw_errors[:_MAX_ERRORS]]
    if not 200 <= answer.status < 300:
        error = _status_error(answer, _summarize(errors))
        if error is not None:
            error.details["errors"] = errors
            raise error
    if body.get("data") is None and not errors:
        raise _not_graphql(answer, changes)
    return {"data": body.get("data"), "errors": errors, "executed": "data" in body and not _is_document_refused(raw_errors)}


def _is_document_refused(raw_errors: list[Any]) -> bool:
    """Whether all errors refer to the document and none to data, so the document was refused before it ran.

    Many servers also send `"data": null` with such errors, although the specification does not allow it.
    """
    return bool(raw_errors) and all(
        isinstance(each, Mapping) and each.get("locations") and not each.get("path") for each in raw_errors
    )


def _parse_json(answer: HttpAnswer) -> dict[str, Any] | None:
    try:
        body = parse_json(answer.content, exact=True)
    except ValueError:
        return None
    return body if isinstance(body, dict) and ("data" in body or "errors" in body) else None


def _to_error(error: Any) -> dict[str, Any]:
    """Message, path and code of one error in the list."""
    source: Mapping[str, Any] = error if isinstance(error, Mapping) else {}
    path, extensions = source.get("path"), source.get("extensions")
    entry: dict[str, Any] = {"message": str(source.get("message", error))[:_EXCERPT]}
    if isinstance(path, list):
        entry["path"] = [part if isinstance(part, int) else str(part)[:200] for part in path[:50]]
    if isinstance(extensions, Mapping) and isinstance(extensions.get("code"), str):
        entry["code"] = extensions["code"][:100]
    return entry


def _summarize(errors: list[dict[str, Any]]) -> str:
    if not errors:
        return ""
    first = errors[0]
    where = f" at {'.'.join(str(part) for part in first['path'])}" if first.get("path") else ""
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{first['message']}{where}{more}"


def errors_to_exception(body: Mapping[str, Any], answer: HttpAnswer, *, changes: bool) -> ConnectorError | None:
    """The exception for the body's errors, or None without errors."""
    errors = body["errors"]
    if not errors:
        return None
    outcome: Outcome = "unknown" if changes and _may_have_changed(body) else "not_done"
    details: dict[str, Any] = {"status": answer.status, "errors": errors}
    summary = _summarize(errors)
    codes = {each.get("code") for each in errors}
    if codes & _NOT_ALLOWED:
        return AuthError(
            f"The service does not accept the credentials or denies access: {summary}", outcome=outcome, details=details
        )
    if codes & _RATE_LIMITED:
        message = f"The service limits the rate of requests: {summary}"
        return RateLimited(message, retry_after=retry_after(answer), outcome=outcome, details=details)
    if codes & _BROKEN:
        return SystemFailure(f"The service failed: {summary}", outcome="unknown" if changes else "not_done", details=details)
    if outcome == "unknown":
        message = f"The service refused part of the mutation; other parts may have been executed: {summary}"
        return Rejected(message, outcome=outcome, details=details)
    return Rejected(f"The service refused the request: {summary}", details=details)


def _may_have_changed(body: Mapping[str, Any]) -> bool:
    """Whether a mutation with errors may have changed something.

    It has not when the document was refused before it ran or when every top-level field failed. It may have when a nested
    field failed, because the change itself was made, or when the data is null, because the null may hide other changes.
    """
    if not body["executed"]:
        return False
    data = body["data"]
    paths = [each.get("path", []) for each in body["errors"]]
    failed = {path[0] for path in paths if len(path) == 1}
    if data is None or failed != set(data):
        return True
    return any(value is not None for value in data.values()) or any(len(path) != 1 for path in paths)


def _status_error(answer: HttpAnswer, summary: str) -> ConnectorError | None:
    """The error for a status; None for a success."""
    status = answer.status
    if 200 <= status < 300:
        return None
    details: dict[str, Any] = {"status": status} if summary else {"status": status, "body": excerpt(answer)}
    if 300 <= status < 400 or status in (404, 405):
        return ConfigError(f"There is no GraphQL service at this address ({status}); check `url`.", details=details)
    return status_error(answer, reason=summary, details=details)


def _not_graphql(answer: HttpAnswer, changes: bool) -> SystemFailure:
    return SystemFailure(
        "The response is not a GraphQL response, an object with `data` or `errors`; check `url`.",
        outcome="unknown" if changes else "not_done",
        details={"status": answer.status, "body": excerpt(answer)},
    )
