"""What came back: parsed by its type, or turned into the contract's error for its status."""

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


def parse_answer(answer: HttpAnswer, wanted: str) -> dict[str, Any]:
    """`{status, headers, format, body}`; SystemFailure when JSON was wanted and something else came."""
    headers = {name: value for name, value in answer.headers.items() if name != "set-cookie"}
    form, body = _body(answer, wanted)
    return {"status": answer.status, "headers": headers, "format": form, "body": body}


def _body(answer: HttpAnswer, wanted: str) -> tuple[str, Any]:
    if not answer.content:
        return "none", None
    kind = _content_type(answer)
    if wanted == "json":
        return "json", parse_json(answer)
    if wanted == "auto" and _is_json(kind.get_content_type()):
        try:
            return "json", parse_json(answer)
        except SystemFailure:
            return "text", _text(answer, kind)
    if wanted == "text" or (wanted == "auto" and _is_text(kind.get_content_type())):
        return "text", _text(answer, kind)
    return "base64", base64.b64encode(answer.content).decode("ascii")


def parse_json(answer: HttpAnswer) -> Any:
    """The body as strict JSON; SystemFailure otherwise."""
    try:
        return json.loads(answer.content, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise SystemFailure(
            "The service did not answer with JSON.",
            outcome="unknown",
            details={"status": answer.status, "body": excerpt(answer)},
        ) from error


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


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
    """The beginning of the body, for a person to read."""
    return answer.content[:_EXCERPT].decode("utf-8", "replace")


def error_of(answer: HttpAnswer, accepted: Collection[int]) -> ConnectorError | None:
    """The error a status stands for, None for a success or an accepted status."""
    status = answer.status
    if 200 <= status < 300 or status in accepted:
        return None
    details = {"status": status, "body": excerpt(answer)}
    if status in (401, 403):
        return AuthError(f"The service does not accept the credentials ({status}).", details=details)
    after = retry_after(answer)
    if status == 429 or (status == 503 and after is not None):
        return RateLimited(f"The service asks to wait ({status}).", retry_after=after, details=details)
    if status in (408, 425) or (status >= 500 and status not in _NEVER_SUPPORTED):
        # 503, 408 and 425 say that the work was not begun; after another 5xx nobody knows.
        outcome: Outcome = "not_done" if status in (408, 425, 503) else "unknown"
        return TransientError(f"The service failed ({status}).", outcome=outcome, details=details)
    if 300 <= status < 400:
        return Rejected(f"The service points elsewhere ({status}) and was not followed.", details=details)
    return Rejected(f"The service refused the request ({status}).", details=details)
