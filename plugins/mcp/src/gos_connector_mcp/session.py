"""The conversation with a server, in both eras of the protocol: with an envelope in every request, or with a handshake first.

Revision 2026-07-28 has no sessions: every request carries the client's name, the revision and the client's capabilities, of
which there are none.  Earlier revisions begin with `initialize` and carry a session id.  Requests of the server (sampling,
elicitation, roots) are never answered.
"""

import base64
import itertools
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.connectors.contract import ConfigError, Context, Http, HttpAnswer, HttpRequest, Rejected
from gos_connector_mcp.failures import (
    CAPABILITY_MISSING,
    VERSION_NOT_SUPPORTED,
    ProtocolError,
    error_of,
    error_of_status,
    invalid_answer,
    protocol_error,
)
from gos_connector_mcp.messages import Response, UnreadableMessage, read_answer
from gos_connector_mcp.visible import escape_invisible

MODERN_REVISIONS = ("2026-07-28",)
EARLIER_REVISIONS = ("2025-11-25", "2025-06-18", "2025-03-26")
REVISIONS = (*MODERN_REVISIONS, *EARLIER_REVISIONS)
_CLIENT = {"name": "gos-appliance", "version": "1"}
_META = "io.modelcontextprotocol/"
_NAME_PARAMS = {"tools/call": "name"}
_PLAIN = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
MAX_ANSWER_BYTES = 4 << 20


@dataclass(frozen=True)
class Server:
    """A server as it describes itself; `session` is empty where there are no sessions."""

    revision: str
    name: str
    version: str
    instructions: str
    session: str = ""

    @property
    def is_modern(self) -> bool:
        return self.revision in MODERN_REVISIONS


@dataclass(frozen=True)
class Request:
    """One request: `headers` repeat arguments, `changes` says whether it may change something on the server."""

    method: str
    params: Mapping[str, Any]
    headers: Sequence[tuple[str, str]] = ()
    changes: bool = False
    max_bytes: int = MAX_ANSWER_BYTES


class Conversation:
    """Sends requests to one server.  Thread-safe; remembers the server, and connects again when its session was lost."""

    def __init__(self, settings: Mapping[str, Any], http: Callable[[Context], Http]) -> None:
        self._settings, self._http = settings, http
        self._lock = threading.Lock()
        self._server: Server | None = None
        self._ids = itertools.count(1)

    def get_server(self, ctx: Context) -> Server:
        """The server, detected on first use; an error of the contract when it is no MCP server or shares no revision."""
        with self._lock:
            if self._server is None:
                self._server = self._detect_server(ctx)
            return self._server

    def request(self, request: Request, ctx: Context) -> Mapping[str, Any]:
        """The result of a request; an error of the contract when it fails."""
        return self.request_with_size(request, ctx)[0]

    def request_with_size(self, request: Request, ctx: Context) -> tuple[Mapping[str, Any], int]:
        """The result of a request, and the size of the answer in bytes."""
        server = self.get_server(ctx)
        try:
            return self._ask(request, server, ctx)
        except _SessionEnded:
            # The server no longer knows the session and has done nothing (2025-11-25, Streamable HTTP): repeat the request.
            with self._lock:
                if self._server is server:
                    self._server = None
        try:
            return self._ask(request, self.get_server(ctx), ctx)
        except _SessionEnded as ended:
            raise ConfigError("The server ends every session at once; check `url`.") from ended

    def _ask(self, request: Request, server: Server, ctx: Context) -> tuple[Mapping[str, Any], int]:
        try:
            answer, response = self._send(request, server, ctx)
            return _result_of(response), len(answer.content)
        except ProtocolError as error:
            raise error_of(error, changes=request.changes) from error

    # -- detecting the server

    def _detect_server(self, ctx: Context) -> Server:
        protocol = self._settings.get("protocol", "auto")
        if protocol in EARLIER_REVISIONS:
            return self._initialize(protocol, ctx)
        try:
            return self._discover(ctx)
        except ProtocolError as error:
            if protocol in MODERN_REVISIONS or not _may_be_earlier(error):
                raise error_of(error, changes=False) from error
        except (ConfigError, Rejected):  # a bare status, with which servers of earlier revisions refuse requests without a session
            if protocol in MODERN_REVISIONS:
                raise
        return self._initialize(EARLIER_REVISIONS[0], ctx)

    def _discover(self, ctx: Context) -> Server:
        server = Server(MODERN_REVISIONS[0], "", "", "")
        result = self._result(Request("server/discover", {}), server, ctx)
        versions = result.get("supportedVersions")
        common = [each for each in MODERN_REVISIONS if isinstance(versions, list) and each in versions]
        if not common:
            data = {"supported": versions}
            raise ProtocolError(VERSION_NOT_SUPPORTED, "it names no revision that this appliance supports", data, 200)
        meta = result.get("_meta")
        info = meta.get(f"{_META}serverInfo") if isinstance(meta, Mapping) else None
        return _server(common[0], info, result.get("instructions"))

    def _initialize(self, revision: str, ctx: Context) -> Server:
        params = {"protocolVersion": revision, "capabilities": {}, "clientInfo": _CLIENT}
        try:
            answer, response = self._send(Request("initialize", params), Server("", "", "", ""), ctx)
            result = _result_of(response)
        except ProtocolError as error_sent:
            raise error_of(error_sent, changes=False) from error_sent
        agreed = result.get("protocolVersion")
        if agreed not in EARLIER_REVISIONS:
            supported = ", ".join(REVISIONS)
            raise ConfigError(f"The server supports only the revision {str(agreed)[:40]!r}; this appliance supports {supported}.")
        session = answer.headers.get("mcp-session-id", "")
        if session and not _PLAIN.fullmatch(session):
            raise invalid_answer(answer, "its session id is invalid", changes=False)
        server = _server(agreed, result.get("serverInfo"), result.get("instructions"), session)
        content = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode()
        answer = self._http(ctx).send(self._request(content, self._headers(server)))
        if error := error_of_status(answer, changes=False):
            raise error
        return server

    # -- messages

    def _result(self, request: Request, server: Server, ctx: Context) -> Mapping[str, Any]:
        _, response = self._send(request, server, ctx)
        return _result_of(response)

    def _send(self, request: Request, server: Server, ctx: Context) -> tuple[HttpAnswer, Response]:
        """The HTTP answer and the message in it; _SessionEnded, or an error of the contract."""
        number = next(self._ids)
        params = dict(request.params)
        headers = [*self._headers(server), *request.headers]
        if server.is_modern:
            envelope = {"protocolVersion": server.revision, "clientInfo": _CLIENT, "clientCapabilities": {}}
            params["_meta"] = {**params.get("_meta", {}), **{_META + name: value for name, value in envelope.items()}}
            headers.append(("Mcp-Method", request.method))
            if (member := _NAME_PARAMS.get(request.method)) is not None:
                headers.append(("Mcp-Name", header_text(str(params[member]))))
        message = {"jsonrpc": "2.0", "id": number, "method": request.method, "params": params}
        content = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")
        answer = self._http(ctx).send(self._request(content, headers, request.max_bytes))
        if answer.status == 404 and server.session:
            raise _SessionEnded
        return answer, self._read(answer, number, request, ctx)

    def _read(self, answer: HttpAnswer, number: int, request: Request, ctx: Context) -> Response:
        error = error_of_status(answer, changes=request.changes)
        try:
            response = read_answer(answer, number)
        except UnreadableMessage as problem:
            raise error or invalid_answer(answer, str(problem), changes=request.changes) from problem
        if response is None or (error is not None and not isinstance(response.message.get("error"), Mapping)):
            raise error or invalid_answer(answer, "it contains no answer to the request", changes=request.changes)
        if response.server_requests:
            details = {"asked": list(response.server_requests[:20])}
            ctx.log("warn", "The server sent requests of its own while answering; they are not answered.", details)
        refusal = response.message.get("error")
        if isinstance(refusal, Mapping):
            raise protocol_error(refusal, answer.status)
        if not isinstance(response.message.get("result"), Mapping):
            raise invalid_answer(answer, "it is neither a result nor an error", changes=request.changes)
        return response

    def _headers(self, server: Server) -> list[tuple[str, str]]:
        headers = [("Accept", "application/json, text/event-stream"), ("Content-Type", "application/json")]
        headers += list(self._settings.get("headers", {}).items())
        if server.revision:
            headers.append(("MCP-Protocol-Version", server.revision))
        if server.session:
            headers.append(("Mcp-Session-Id", server.session))
        return headers

    def _request(self, content: bytes, headers: Sequence[tuple[str, str]], max_bytes: int = MAX_ANSWER_BYTES) -> HttpRequest:
        timeout = self._settings.get("timeout_s", 60)
        url = self._settings["url"]
        return HttpRequest("POST", url, headers, (), content, timeout, follow_redirects=False, max_bytes=max_bytes)


class _SessionEnded(Exception):
    """The server does not know the session."""


def _may_be_earlier(error: ProtocolError) -> bool:
    """Whether the error for `server/discover` may come from a server of an earlier revision: not if it refuses the client or
    its credentials, or names only other revisions."""
    if error.code == CAPABILITY_MISSING or error.status in (401, 403):
        return False
    if error.code != VERSION_NOT_SUPPORTED:
        return True
    supported = error.data.get("supported") if isinstance(error.data, Mapping) else None
    return not isinstance(supported, list) or any(each in EARLIER_REVISIONS for each in supported)


def _result_of(response: Response) -> Mapping[str, Any]:
    result: Mapping[str, Any] = response.message["result"]
    return result


def _server(revision: str, raw_info: Any, instructions: Any, session: str = "") -> Server:
    info = raw_info if isinstance(raw_info, Mapping) else {}
    name, version = (escape_invisible(str(info.get(part, "")), 100) for part in ("name", "version"))
    return Server(revision, name, version, escape_invisible(instructions) if isinstance(instructions, str) else "", session)


def header_text(value: str) -> str:
    """A value encoded for a header: unchanged where that is safe, else in base64 (2026-07-28, Streamable HTTP)."""
    if _PLAIN.fullmatch(value) and not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    return f"=?base64?{base64.b64encode(value.encode(errors='replace')).decode('ascii')}?="


def argument_headers(paths: Mapping[str, Sequence[str]], arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The headers that repeat arguments; absent arguments have no header."""
    headers = []
    for token, path in paths.items():
        value: Any = arguments
        for part in path:
            value = value.get(part) if isinstance(value, Mapping) else None
        if isinstance(value, bool):
            headers.append((f"Mcp-Param-{token}", "true" if value else "false"))
        elif isinstance(value, str | int | float):
            headers.append((f"Mcp-Param-{token}", header_text(str(value))))
    return headers
