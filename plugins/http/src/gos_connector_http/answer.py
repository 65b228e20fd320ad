"""Parses a response by its content type, or turns its status into an error of the connector contract."""

import base64
from collections.abc import Collection
from email.message import Message
from typing import Any

from appliance.connectors import contract
from appliance.connectors.contract import ConnectorError, HttpAnswer, SystemFailure

_EXCERPT = 2000


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
        return contract.parse_json(answer.content)
    except ValueError as error:
        raise SystemFailure(
            "The service did not return JSON.",
            outcome="unknown",
            details={"status": answer.status, "body": excerpt(answer)},
        ) from error


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
    return contract.excerpt(answer, _EXCERPT)


def status_error(answer: HttpAnswer, accepted: Collection[int]) -> ConnectorError | None:
    """The error for a status; None for a success or an accepted status."""
    status = answer.status
    if 200 <= status < 300 or status in accepted:
        return None
    return contract.status_error(answer, details={"status": status, "body": excerpt(answer)})
