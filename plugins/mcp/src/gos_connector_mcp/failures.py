"""What a server's refusals and failures are in the contract's words: statuses of HTTP and errors of JSON-RPC."""

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
    TransientError,
    retry_after,
)
from gos_connector_mcp.visible import shown

_EXCERPT = 500
_NEVER_SUPPORTED = frozenset({501, 505})

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
HEADER_MISMATCH = -32020
CAPABILITY_MISSING = -32021
VERSION_NOT_SUPPORTED = -32022
URL_ELICITATION_REQUIRED = -32042


class ProtocolError(Exception):
    """A JSON-RPC error as the server sent it."""

    def __init__(self, code: int, message: str, data: Any, status: int) -> None:
        super().__init__(message)
        self.code, self.message, self.data, self.status = code, message, data, status


def protocol_error(error: Mapping[str, Any], status: int) -> ProtocolError:
    """The error member of an answer."""
    code = error.get("code")
    return ProtocolError(
        code if isinstance(code, int) else 0, shown(str(error.get("message", "")), _EXCERPT), error.get("data"), status
    )


def error_of(refused: ProtocolError, *, changes: bool) -> ConnectorError:
    """The contract's error for a JSON-RPC error; `changes` says that the request may have changed something."""
    details = {"code": refused.code, "message": refused.message, "status": refused.status}
    said = f"{refused.message} ({refused.code})"
    if refused.status in (401, 403):
        return AuthError(f"The server does not accept the credentials, or they lack a right: {said}", details=details)
    match refused.code:
        case code if code in (CAPABILITY_MISSING, URL_ELICITATION_REQUIRED):
            message = f"The tool wants to ask a person or a model of ours, which an outside server may not: {said}"
            return Rejected(message, details=details)
        case code if code == METHOD_NOT_FOUND:
            return ConfigError(f"The server does not offer this: {said} Check `url`.", details=details)
        case code if code == VERSION_NOT_SUPPORTED:
            return ConfigError(f"The server speaks another revision of the protocol: {said} Check `protocol`.", details=details)
        case code if code in (PARSE_ERROR, INVALID_REQUEST, HEADER_MISMATCH):
            return SystemFailure(f"The server did not understand the request: {said}", details=details)
        case code if code == INVALID_PARAMS:
            return Rejected(f"The server refused: {said}", details=details)
    # Whatever else it says, it may have begun.
    return SystemFailure(f"The server failed: {said}", outcome="unknown" if changes else "not_done", details=details)


def error_of_status(answer: HttpAnswer, *, changes: bool) -> ConnectorError | None:
    """The contract's error for a status that is no success; None for a success."""
    status = answer.status
    if 200 <= status < 300:
        return None
    details = {"status": status, "body": shown(answer.content[:_EXCERPT].decode("utf-8", "replace"))}
    if status in (401, 403):
        return AuthError(f"The server does not accept the credentials, or they lack a right ({status}).", details=details)
    after = retry_after(answer)
    if status == 429 or (status == 503 and after is not None):
        return RateLimited(f"The server asks to wait ({status}).", retry_after=after, details=details)
    if status in (408, 425) or (status >= 500 and status not in _NEVER_SUPPORTED):
        # 503, 408 and 425 say that the work was not begun; after another 5xx nobody knows.
        outcome: Outcome = "unknown" if changes and status not in (408, 425, 503) else "not_done"
        return TransientError(f"The server failed ({status}).", outcome=outcome, details=details)
    if 300 <= status < 400 or status in (404, 405, 406):
        return ConfigError(f"There is no MCP server (Streamable HTTP) at this address ({status}); check `url`.", details=details)
    return Rejected(f"The server refused ({status}).", details=details)


def nonsense(answer: HttpAnswer, what: str, *, changes: bool) -> SystemFailure:
    """The error of an answer that is no MCP."""
    body = shown(answer.content[:_EXCERPT].decode("utf-8", "replace"))
    return SystemFailure(
        f"The server did not answer as MCP does: {what}.",
        outcome="unknown" if changes else "not_done",
        details={"status": answer.status, "body": body},
    )
