"""Foreign systems on loopback whose answers a test chooses, and which record every change."""

import json
import re
import socketserver
import threading
from collections.abc import Callable
from typing import Any

from appliance.connectors.testing import Answer, LoopbackServer, Received

_JSON = {"Content-Type": "application/json"}


class _Everywhere(dict[str, Callable[[Received], Answer]]):
    """One answer for every path."""

    def get(self, path: str, default: Any = None) -> Any:
        return self[""]


class Foreign:
    """A system that answers `reply` to every read and records every write, by whatever trick of HTTP.

    As some systems do, it also accepts writes by GET: under /do/.
    """

    def __init__(self) -> None:
        self.http = LoopbackServer()
        self.http.answers = _Everywhere({"": self._answer})
        self.reply: Any = "nothing"
        self.status = 200
        self.writes: list[tuple[str, Any]] = []

    def _answer(self, request: Received) -> Answer:
        method = request.headers.get("x-http-method-override", request.method)
        if method not in ("GET", "HEAD", "OPTIONS") or request.path.startswith("/do/"):
            body = json.loads(request.body) if request.body else None
            self.writes.append((f"{method} {request.path}", body))
            return Answer(200, _JSON, b'{"ok": true}')
        return Answer(self.status, _JSON, json.dumps({"note": self.reply}).encode())

    def received_text(self) -> str:
        """Every request as text: method, path, headers and body."""
        return "\n".join(f"{each.method} {each.path} {each.headers} {each.body.decode()}" for each in self.http.received)


class Site:
    """A web site: every page is `page`."""

    def __init__(self) -> None:
        self.page = "<p>nothing</p>"
        self.http = LoopbackServer()
        self.http.answers = _Everywhere({"": self._answer})

    def _answer(self, _: Received) -> Answer:
        return Answer(200, {"Content-Type": "text/html; charset=utf-8"}, self.page.encode())


class Outside:
    """An outside MCP server: `look` reads and answers `reply`, `send` takes texts away, `wipe` is not allowed."""

    def __init__(self) -> None:
        self.http = LoopbackServer()
        self.http.answers["/mcp"] = self._answer
        self.reply, self.is_failing, self.description = "42", False, "Looks something up"
        self.structured: Any = None
        self.calls: list[tuple[str, Any]] = []

    def _answer(self, request: Received) -> Answer:
        call = json.loads(request.body)
        results: dict[str, Any] = {"server/discover": {"supportedVersions": ["2026-07-28"]}, "tools/list": {"tools": self.tools()}}
        if call["method"] == "tools/call":
            self.calls.append((call["params"]["name"], call["params"].get("arguments") or {}))
            result = {"content": [{"type": "text", "text": self.reply}], "isError": self.is_failing}
            results["tools/call"] = result | ({"structuredContent": self.structured} if self.structured is not None else {})
        body = {"jsonrpc": "2.0", "id": call["id"], "result": results[call["method"]]}
        return Answer(200, _JSON, json.dumps(body).encode())

    def tools(self) -> list[dict[str, Any]]:
        described = {"look": self.description, "send": "Sends a text", "wipe": "Deletes everything"}
        return [{"name": name, "description": text, "inputSchema": {"type": "object"}} for name, text in described.items()]


class Mailbox:
    """An IMAP server with one message, which whoever signs in may read; with a `refusal` it opens no folder and says that."""

    def __init__(self) -> None:
        self.message, self.refusal = b"", ""
        self._server = _Mail(("127.0.0.1", 0), _conversation(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Ends once every conversation has."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def status_line(self, command: str) -> str:
        """The last line of an answer."""
        return f"NO {self.refusal}" if self.refusal and command.startswith("EXAMINE") else "OK done"

    def answer(self, command: str) -> bytes:
        """The lines before the status line."""
        if command.startswith("CAPABILITY"):
            return b"* CAPABILITY IMAP4rev1\r\n"
        if command.startswith(("EXAMINE", "SELECT")):
            return b"* 1 EXISTS\r\n* OK [UIDVALIDITY 7] ok\r\n* OK [UIDNEXT 2] ok\r\n"
        if command.startswith("UID SEARCH"):
            return b"* SEARCH 1\r\n"
        if "BODY.PEEK[]" in command:
            return b"* 1 FETCH (UID 1 BODY[] {%d}\r\n%s)\r\n" % (len(self.message), self.message)
        if command.startswith("UID FETCH"):
            return b"* 1 FETCH (UID 1 FLAGS () RFC822.SIZE %d)\r\n" % len(self.message)
        return b""


class _Mail(socketserver.ThreadingTCPServer):
    daemon_threads = False
    allow_reuse_address = True


def _conversation(mailbox: Mailbox) -> type[socketserver.StreamRequestHandler]:
    class Conversation(socketserver.StreamRequestHandler):
        timeout = 30

        def handle(self) -> None:
            self.wfile.write(b"* OK ready\r\n")
            for line in self.rfile:
                match = re.match(r"(\S+) (.*)", line.decode().rstrip("\r\n"))
                assert match is not None, line
                self.wfile.write(mailbox.answer(match[2]) + f"{match[1]} {mailbox.status_line(match[2])}\r\n".encode())

    return Conversation
