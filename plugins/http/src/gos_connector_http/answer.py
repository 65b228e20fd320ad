"""Parses a response by its content type, or turns its status into an error of the connector contract."""

import base64
import json
from collections.abc import Collection
from email.message import Message
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

_EXCERPT = 2000
_NEVER_SUPPORTED = frozenset({501, 505})


def parse_answer(answer: HttpAnswer, mode: str) -> dict[str, Any]:
    """`{status, headers, format, body}`; SystemFailure when `mode` is `json` and the body is not JSON."""
    headers = {name: value for name, value in answer.headers.items() if name != "set-cookie"}
    body_format, body = _body(answer, mode)
    return {"status": answer.status, "headers": headers, "format": body_format, "body": body}


def _body(answer: HttpAnswer, mode: str) -> tuple[str, Any]:
    if not answer.content:
        return "none", None
    kind = _content_type(answer)
    if mode == "json":
        return "json", parse_json(answer)
    if mode == "auto" and _is_json(kind.get_content_type()):
        try:
            return "json", parse_json(answer)
        except SystemFailure:
            return "text", _text(answer, kind)
    if mode == "text" or (mode == "auto" and _is_text(kind.get_content_type())):
        return "text", _text(answer, kind)
    return "base64", base64.b64encode(answer.content).decode("ascii")


def parse_json(answer: HttpAnswer) -> Any:
    """The body as strict JSON; SystemFailure otherwise."""
    try:
        return json.loads(answer.content, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise SystemFailure(
            "The service did not return JSON.",
            outcome="unknown",
            details={"status": answer.status, "body": excerpt(answer)},
        ) from error


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not valid JSON")


def _content_type(answer: HttpAnswer) -> Message:
    message = Message()
    message["Content-Type"] = answer.headers.get("content-type", "application/octet-stream").replace("\n", " ")
    return message


def _is_json(kind: str) -> bool:
    return kind == "application/json" or kind.endswith("+json")


def _is_text(kind: str) -> bool:
    return kind.startswith("text/") or kind.endswith("+xml") or kind in ("application/xml", "application/javascript")


def _text(answer: HttpAnswer, kind: Message) -> str:
    try:
        return answer.content.decode(str(kind.get_param("charset", "utf-8")), "replace")
    except LookupError:
        return answer.content.decode("utf-8", "replace")


def excerpt(answer: HttpAnswer) -> str:
    """The first 2,000 bytes of the body as text, for error details."""
    return answer.content[:_EXCERPT].decode("utf-8", "replace")


def status_error(answer: HttpAnswer, accepted: Collection[int]) -> ConnectorError | None:
    """The error for a status; None for a success or an accepted status."""
    status = answer.status
    if 200 <= status < 300 or status in accepted:
        return None
    details = {"status": status, "body": excerpt(answer)}
    if status in (401, 403):
        return AuthError(f"The service does not accept the credentials ({status}).", details=details)
    wait_s = retry_after(answer)
    if status == 429 or (status == 503 and wait_s is not None):
        return RateLimited(f"The service limits the rate of requests ({status}).", retry_after=wait_s, details=details)
    if status in (408, 425) or (status >= 500 and status not in _NEVER_SUPPORTED):
        # 408, 425 and 503 mean that processing did not start; after any other 5xx it is unknown.
        outcome: Outcome = "not_done" if status in (408, 425, 503) else "unknown"
        return TransientError(f"The service failed ({status}).", outcome=outcome, details=details)
    if 300 <= status < 400:
        return Rejected(f"The service redirects the request ({status}); redirects are not followed.", details=details)
    return Rejected(f"The service refused the request ({status}).", details=details)
