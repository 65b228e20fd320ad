"""Maps a server's HTTP statuses and JSON-RPC errors to the errors of the connector contract."""

from collections.abc import Mapping
from typing import Any

from appliance.connectors.contract import (
    AuthError,
    ConfigError,
    ConnectorError,
    HttpAnswer,
    Rejected,
    SystemFailure,
    excerpt,
    status_error,
)
from gos_connector_mcp.visible import escape_invisible

_EXCERPT = 500

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
    """The `error` member of an answer as an exception."""
    code = error.get("code")
    return ProtocolError(
        code if isinstance(code, int) else 0, escape_invisible(str(error.get("message", "")), _EXCERPT), error.get("data"), status
    )


def error_of(error: ProtocolError, *, changes: bool) -> ConnectorError:
    """The contract's error for a JSON-RPC error; `changes` says whether the request may have changed something."""
    details = {"code": error.code, "message": error.message, "status": error.status}
    text = f"{error.message} ({error.code})"
    if error.status in (401, 403):
        return AuthError(f"The server does not accept the credentials, or they lack a permission: {text}", details=details)
    match error.code:
        case code if code in (CAPABILITY_MISSING, URL_ELICITATION_REQUIRED):
            message = f"The tool requires input from a user or a model, which outside servers do not get: {text}"
            return Rejected(message, details=details)
        case code if code == METHOD_NOT_FOUND:
            return ConfigError(f"The server does not offer this: {text} Check `url`.", details=details)
        case code if code == VERSION_NOT_SUPPORTED:
            return ConfigError(f"The server speaks another revision of the protocol: {text} Check `protocol`.", details=details)
        case code if code in (PARSE_ERROR, INVALID_REQUEST, HEADER_MISMATCH):
            return SystemFailure(f"The server did not understand the request: {text}", details=details)
        case code if code == INVALID_PARAMS:
            return Rejected(f"The server refused: {text}", details=details)
    # After any other error the server may have started the work.
    return SystemFailure(f"The server failed: {text}", outcome="unknown" if changes else "not_done", details=details)


def error_of_status(answer: HttpAnswer, *, changes: bool) -> ConnectorError | None:
    """The contract's error for an unsuccessful status; None for a success."""
    status = answer.status
    if 200 <= status < 300:
        return None
    details = {"status": status, "body": escape_invisible(excerpt(answer))}
    if 300 <= status < 400 or status in (404, 405, 406):
        return ConfigError(f"There is no MCP server (Streamable HTTP) at this address ({status}); check `url`.", details=details)
    return status_error(answer, "The server", details=details, changes=changes)


def invalid_answer(answer: HttpAnswer, what: str, *, changes: bool) -> SystemFailure:
    """The error for an answer that violates MCP; `what` says how."""
    body = escape_invisible(excerpt(answer))
    return SystemFailure(
        f"The server's answer is not valid MCP: {what}.",
        outcome="unknown" if changes else "not_done",
        details={"status": answer.status, "body": body},
    )
