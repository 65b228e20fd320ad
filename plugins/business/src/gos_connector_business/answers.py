"""Parses responses as JSON and maps error statuses to the errors of the connector contract."""

import json
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
_NEVER_SUPPORTED = frozenset({501, 505})


def parse_json(answer: HttpAnswer, system: str) -> Any:
    """Return the body as JSON; SystemFailure when it is not JSON."""
    try:
        return json.loads(answer.content, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise unexpected_answer(answer, system) from error


def parse_object(answer: HttpAnswer, system: str) -> dict[str, Any]:
    """Return the body as a JSON object; SystemFailure when it is anything else."""
    body = parse_json(answer, system)
    if not isinstance(body, dict):
        raise unexpected_answer(answer, system)
    return body


def parse_error_body(answer: HttpAnswer) -> dict[str, Any]:
    """Return the body of an error response as an object, empty when it is anything else, such as a gateway's HTML page."""
    try:
        body = json.loads(answer.content)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def unexpected_answer(answer: HttpAnswer, system: str) -> SystemFailure:
    """The error for a successful response with an unexpected body."""
    details = {"status": answer.status, "body": excerpt(answer.content.decode("utf-8", "replace"))}
    message = f"The server at this address does not respond like {system}; check the address."
    return SystemFailure(message, outcome="unknown", details=details)


def excerpt(text: object) -> str:
    """Return the beginning of a foreign system's message on one line, without its stack trace."""
    message = str(text).split("Traceback (most recent call last)")[0]
    return " ".join(message[: 4 * _EXCERPT].split())[:_EXCERPT]


def error_of(answer: HttpAnswer, system: str, message: str, code: str = "") -> ConnectorError:
    """Return the contract's error for an unsuccessful status; `message` is the reason the system gave."""
    status = answer.status
    details = {"status": status, **({"code": code} if code else {}), **({"message": message} if message else {})}
    reason = f": {message}" if message else f" ({status})."
    if status == 401:
        return AuthError(f"{system} does not accept the credentials{reason}", details=details)
    if status == 403:
        return AuthError(f"{system} does not allow this with these credentials{reason}", details=details)
    delay = retry_after(answer)
    if status == 429 or (status == 503 and delay is not None):
        return RateLimited(f"{system} limits the request rate ({status}); try again later.", retry_after=delay, details=details)
    if status in (408, 425) or (status >= 500 and status not in _NEVER_SUPPORTED):
        # 503, 408 and 425 mean that processing did not start; after any other 5xx the outcome is unknown.
        outcome: Outcome = "not_done" if status in (408, 425, 503) else "unknown"
        return TransientError(f"{system} failed{reason}", outcome=outcome, details=details)
    return Rejected(f"{system} refused{reason}", details=details)


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is not valid JSON")
