"""Parses responses as JSON and maps error statuses to the errors of the connector contract."""

import json
from typing import Any

from appliance.connectors import contract
from appliance.connectors.contract import ConnectorError, HttpAnswer, SystemFailure, status_error

_EXCERPT = 500


def parse_json(answer: HttpAnswer, system: str) -> Any:
    """Return the body as JSON; SystemFailure when it is not JSON."""
    try:
        return contract.parse_json(answer.content)
    except ValueError as error:
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
    details = {"status": answer.status, **({"code": code} if code else {}), **({"message": message} if message else {})}
    return status_error(answer, system, reason=message, details=details)
