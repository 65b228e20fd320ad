"""Every way in which a request writes into a tenant, at one server: over the API, webhooks, MCP, WebApp routes and the console."""

import json
import re
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPResponse
from typing import Any
from urllib.parse import urlencode

import httpx

from tests.store.two_servers import TwoServers

TENANT, BASE, APP = "acme.localhost", "localhost", "shop--acme.content.localhost"
MARK = "written"
"""How everything begins that a door writes."""
_FIELDS = b"fields: [{name: run, type: text}, {name: what, type: text}, {name: note, type: text}]\n"
_CREATE = b'datapool: {collection: marks, create: {values: {run: "= input.run"}}}'
_ENDLESS = b"""export default async function (input, api) {
  for (;;) await api.datapool.create("marks", {run: input.run});
}
"""
_ROUTES = b"""routes:
  - {path: /note, method: POST, process: note, wait: 20, access: public, input: {run: $body.run}}
  - {path: /marks, entities: marks, operations: [create], access: public}
  - {path: /photos, method: POST, process: note, wait: 20, access: public, input: {run: $body.run},
     upload: {folder: photos, types: [text/*]}}
"""
SOLUTION = {
    "solution.yaml": b"name: shop\n",
    "collections/marks.yaml": b"name: marks\n" + _FIELDS + b"indexes: [{fields: [run]}]\naccess: {create: allow}\n",
    "processes/note/process.yaml": b"id: note\ngrants: {datapool: {marks: [write]}}\n"
    b"triggers: [{webhook: {path: note, verify: {kind: none}, input: {run: = trigger.body.run}}}]\n"
    b"steps: [{id: write, " + _CREATE + b"}]\n",
    "processes/endless/process.yaml": b"id: endless\ngrants: {datapool: {marks: [write]}}\n"
    b"steps: [{id: write, code: {language: javascript, file: steps/write.js}}]\n",
    "processes/endless/steps/write.js": _ENDLESS,
    "policies/tools.yaml": b"mode: enforce\nrules:\n"
    b"  - {id: write, effect: allow, subject: {via: [mcp]}, tools: [write_entities], reason: Tools may write here.}\n",
    "webapps/shop/app.yaml": _ROUTES,
    "webapps/shop/public/index.html": b"<h1>Shop</h1>\n",
}
"""What the tenant has before it is reset, and what the reset applies, so that a late write has all it needs."""


@dataclass(frozen=True)
class Request:
    """One request that writes `mark` somewhere."""

    method: str
    path: str
    body: bytes
    host: str = TENANT
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Door:
    """A way to write: `make` is given a mark that nothing else has; `by` is what authenticates: key, agent, browser or nothing."""

    make: Callable[[str], Request]
    by: str = "key"


def _json(path: str, by: str = "key", host: str = TENANT, **more: Any) -> Door:
    """The mark as the member `run` of a body, with more members."""

    def make(mark: str) -> Request:
        return Request("POST", path, json.dumps({"run": mark, **more}).encode(), host, {"Content-Type": "application/json"})

    return Door(make, by)


def _document(mark: str) -> Request:
    headers = {"Content-Type": "application/octet-stream"}
    return Request("POST", f"/api/v1/documents?name={mark}.txt", f"{mark} {secrets.token_hex(20_000)}".encode(), TENANT, headers)


def _mcp(mark: str) -> Request:
    operations = [{"op": "create", "collection": "marks", "values": {"run": mark}}]
    params = {"name": "write_entities", "arguments": {"operations": operations}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    headers["MCP-Protocol-Version"] = "2025-06-18"
    return Request("POST", "/mcp", json.dumps(body).encode(), TENANT, headers)


def _form(mark: str) -> Request:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    return Request("POST", "/console/datapool/marks/new", urlencode({"run": mark, "then": "another"}).encode(), TENANT, headers)


def _files(path: str, host: str, by: str) -> Door:
    """The mark as the content of a file in a form, and as its member `run`."""

    def make(mark: str) -> Request:
        boundary = secrets.token_hex(10)
        parts = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="run"\r\n\r\n{mark}\r\n--{boundary}\r\nContent-Disposition: '
            f'form-data; name="file"; filename="{mark}.txt"\r\nContent-Type: text/plain\r\n\r\n{mark}\r\n--{boundary}--\r\n'
        )
        headers = {"Content-Type": f"multipart/form-data; boundary={boundary}", "Sec-Fetch-Site": "same-origin"}
        return Request("POST", path, parts.encode(), host, headers)

    return Door(make, by)


DOORS: Mapping[str, Door] = {
    "an entity": _json("/api/v1/datapool/marks/entities"),
    "an entity at the base host": _json("/api/v1/datapool/marks/entities", host=BASE),
    "a document": Door(_document),
    "an execution": _json("/api/v1/processes/note/execute"),
    "an awaited execution": _json("/api/v1/processes/note/execute?wait=20"),
    "a webhook": _json("/hooks/note", "nothing"),
    "a tool over MCP": Door(_mcp, "agent"),
    "a process behind a route": _json("/note", "nothing", APP),
    "entities behind a route": _json("/marks", "nothing", APP),
    "files behind a route": _files("/photos", APP, "nothing"),
    "a form of the console": Door(_form, "browser"),
    "a file in the console": _files("/console/documents/-/upload", TENANT, "browser"),
}


def new_mark() -> str:
    """A mark that nothing else has."""
    return f"{MARK}-{secrets.token_hex(8)}"


@dataclass(frozen=True)
class Visitor:
    """Whoever uses the doors of one server: with the tenant's key, that of an agent, and the cookie of a signed-in owner."""

    servers: TwoServers
    server: int
    agent_key: str
    browser: Mapping[str, str]

    def headers(self, door: Door, request: Request) -> dict[str, str]:
        """All headers of the request, but for the length."""
        known: Mapping[str, Mapping[str, str]] = {
            "key": {"X-API-Key": self.servers.key}, "agent": {"X-API-Key": self.agent_key}, "browser": self.browser, "nothing": {},
        }  # fmt: skip
        return {"Host": f"{request.host}:{self.servers.ports[0]}", **request.headers, **known[door.by]}

    def use(self, client: httpx.Client, door: Door, mark: str) -> tuple[int, str]:
        """Write at once; the status, and the text or where it leads."""
        request = door.make(mark)
        answer = client.request(request.method, request.path, content=request.body, headers=self.headers(door, request))
        return answer.status_code, answer.text or answer.headers.get("Location", "")

    @contextmanager
    def client(self) -> Iterator[httpx.Client]:
        """A client of the server that keeps no cookies."""
        url = f"http://127.0.0.1:{self.servers.ports[self.server]}"
        with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
            yield client

    @contextmanager
    def start(self, door: Door, mark: str) -> Iterator[Callable[[], tuple[int, str]]]:
        """A request of which the server has everything but the body; yields what sends that, and returns status and text."""
        request = door.make(mark)
        fields = {**self.headers(door, request), "Content-Length": str(len(request.body)), "Expect": "100-continue"}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value)
        with socket.create_connection(("127.0.0.1", self.servers.ports[self.server]), 60) as connection:
            connection.sendall(f"{request.method} {request.path} HTTP/1.1\r\n{head}\r\n".encode())
            interim = connection.recv(1_000)
            assert interim.startswith(b"HTTP/1.1 100"), interim

            def finish() -> tuple[int, str]:
                connection.sendall(request.body)
                response = HTTPResponse(connection, method=request.method)
                response.begin()
                return response.status, response.read().decode() or response.headers.get("Location", "")

            yield finish


def is_done(status: int, text: str) -> bool:
    """Whether the answer says that something was written; one of MCP or of an execution can say in its body that it was not."""
    return status < 400 and not re.search(r'"isError":\s*true|"status":\s*"(cancelled|failed)"', text)


def is_refused_for_reset(text: str) -> bool:
    """Whether the answer says why: the tenant is being reset."""
    return re.search("his tenant (is being|was) reset", text) is not None
