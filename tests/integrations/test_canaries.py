"""No secret leaks: canaries pass through a whole appliance while everything fails, and all output is searched for them."""

import base64
import io
import json
import logging
import socket
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from appliance.connectors.testing import Answer, LoopbackServer, Received
from appliance.core.database import db
from appliance.core.logs import configure_logs
from appliance.testing.running import Running
from tests.console.browser import Browser
from tests.store.tables import stored_tables

API = "/api/v1"
# With a quote, a slash and an umlaut, so that every encoding of it looks different.
TENANT_SECRET = "kanari-tenant/\"'+1a"
SETTING = "kanari-setting/\"ü'+2b"
CLIENT_SECRET = "kanari-client/\"ü'+3c"
ACCESS_TOKEN = "kanari-access-4d"
REFRESH_TOKEN = "kanari-refresh-5e"
MODEL_KEY = "kanari-model/+6f"
PAPER = "kanari-paper-7g"
PASSWORD = "correct horse battery staple"


def forms(canary: str) -> set[bytes]:
    """Every encoding of the canary, for each of its positions within base64 text."""
    raw = canary.encode()
    encodings = {raw, raw.hex().encode(), raw.hex().upper().encode(), quote(canary, safe="").encode(), quote(canary).encode()}
    encodings |= {json.dumps(canary)[1:-1].encode(), json.dumps(canary, ensure_ascii=False)[1:-1].encode()}
    for shift in range(3):
        text = base64.b64encode(b"\0" * shift + raw).rstrip(b"=")
        encodings.add(text[(0, 2, 3)[shift] : len(text) - 2])
    return encodings


class Output:
    """All output, by the place where it appeared."""

    def __init__(self) -> None:
        self.places: dict[str, bytes] = {}
        self.exempt_paths: set[str] = set()

    def note(self, place: str, content: bytes) -> None:
        self.places[place] = self.places.get(place, b"") + b"\n" + content

    def watch(self, client: httpx.Client) -> httpx.Client:
        def record(answer: httpx.Response) -> None:
            if answer.request.url.path not in self.exempt_paths:
                self.note(f"{answer.request.method} {answer.request.url.path}", answer.read() + str(answer.headers.raw).encode())

        client.event_hooks = {"response": [record]}
        return client

    def leaks(self, canaries: Mapping[str, str]) -> list[str]:
        return [
            f"{name} in {place}"
            for name, canary in canaries.items()
            for place, content in self.places.items()
            if any(form in content for form in forms(canary))
        ]


def test_a_leak_is_found_in_every_form() -> None:
    for form in forms(SETTING) | {base64.b64encode(b"user:" + SETTING.encode())}:
        seen = Output()
        seen.note("here", b"before " + form + b" after")
        assert seen.leaks({"setting": SETTING}) == ["setting in here"]
    assert Output().leaks({"setting": SETTING}) == []


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    """Issues tokens, and answers everything else with an error that repeats the whole request."""

    def echo(request: Received) -> Answer:
        body = {"headers": request.headers, "path": request.path, "body": request.body.decode("utf-8", "replace")}
        return Answer(int(request.path[-3:]) if request.path[-3:].isdigit() else 400, {}, json.dumps(body).encode())

    class Everywhere(dict[str, Callable[[Received], Answer]]):
        def get(self, key: str, default: Any = None) -> Callable[[Received], Answer]:
            return super().get(key, echo)

    server = LoopbackServer()
    server.answers = Everywhere()
    tokens = {"access_token": ACCESS_TOKEN, "refresh_token": REFRESH_TOKEN, "token_type": "Bearer", "expires_in": 3600}
    server.answers["/token"] = lambda _: Answer(200, {"Content-Type": "application/json"}, json.dumps(tokens).encode())
    yield server
    server.close()


@contextmanager
def echoing() -> Iterator[int]:
    """A port that echoes what it receives and closes the connection."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=50)

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with closing(peer):
                try:
                    peer.settimeout(1)
                    peer.sendall(peer.recv(65536))
                except OSError:
                    continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(20)


def http_settings(url: str) -> list[dict[str, Any]]:
    base: dict[str, Any] = {"base_url": url, "retries": {"attempts": 1}}
    oauth = {"kind": "oauth2", "grant": "client_credentials", "client_id": "gos", "client_secret": CLIENT_SECRET}
    return [
        {**base, "auth": {"kind": "bearer", "token": "= secrets.canary"}},
        {**base, "auth": {"kind": "basic", "username": "anna", "password": SETTING}},
        {**base, "auth": {"kind": "query", "name": "key", "value": SETTING}},
        {**base, "auth": {**oauth, "token_url": f"{url}/token"}},
    ]


def settings_for(schema: Mapping[str, Any], url: str, port: int) -> dict[str, Any]:
    """Settings for any connector: secrets are the canary, addresses point to the servers of the test."""
    members: Mapping[str, Any] = schema.get("properties", {})
    needed = set(schema.get("required", ())) | {"tls", "security", "encryption"}
    settings: dict[str, Any] = {}
    for name, part in members.items():
        if part.get("secret"):
            settings[name] = SETTING
        elif name == "port":
            settings[name] = port
        elif name == "host":
            settings[name] = "127.0.0.1"
        elif "url" in name or name in ("endpoint", "server", "address"):
            settings[name] = url
        elif part.get("type") == "object" and name in needed | {"auth", "smtp", "imap"}:
            settings[name] = settings_for(part, url, port)
        elif name in needed and "enum" in part:
            plain = [value for value in part["enum"] if value in ("off", "none", "plain", "basic")]
            settings[name] = (plain or part["enum"])[0]
        elif name in needed:
            settings[name] = "gos"
    return settings


def fail_everywhere(api: httpx.Client, url: str, port: int, registry: Any) -> set[str]:
    """Create, test and call integrations of every kind, also from steps; returns the connectors that accepted settings."""
    accepted: set[str] = set()
    every = [("http", settings) for settings in http_settings(url)]
    every += [(name, settings_for(plugin.connector.settings_schema, url, port)) for name, plugin in registry.installed.items()]
    steps: list[dict[str, Any]] = []
    for number, (connector, settings) in enumerate(every):
        slug = f"canary-{number}"
        if "127.0.0.1" not in str(settings):
            continue  # it would call its vendor's own address
        if api.post(f"{API}/integrations", json={"slug": slug, "connector": connector, "settings": settings}).status_code != 201:
            continue
        accepted.add(connector)
        api.post(f"{API}/integrations/{slug}/test", timeout=60)
        actions = sorted(registry.installed[connector].connector.actions, key=lambda action: action.effect != "read")[:1]
        for action in actions:
            params = {"url": "/echo/500"} if connector == "http" else dict(action.sample)
            call = {"action": action.name, "input": params, "timeout_s": 1}
            api.post(f"{API}/integrations/{slug}/execute", json=call)
            api.post(f"{API}/integrations/{slug}/execute", json={**call, "mode": "preview"})
            if number == 0 or connector == "postgresql":
                step = {"use": slug, "action": action.name, "input": params}
                steps.append({"id": f"s{number}", "integration": step, "limits": {"time": "1s"}})
    for step in steps:
        name = f"ask-{step['id']}"
        api.put(f"{API}/processes/{name}", json={"id": name, "steps": [step]}).raise_for_status()
        api.post(f"{API}/processes/{name}/publish", json={}).raise_for_status()
        execution = api.post(f"{API}/processes/{name}/execute", params={"wait": 30}, json={}).json()["data"]
        for part in ("steps", "journal", "logs"):
            api.get(f"{API}/processes/{name}/executions/{execution['execution_id']}/{part}")
    return accepted


def read_everything(api: httpx.Client, browser: Browser, seen: Output, running: Running) -> None:
    """Read everything that users, programs and monitors can read."""
    for path in (
        "integrations",
        "secrets",
        "webhooks",
        "llm-profiles",
        "logs",
        "logs/calls",
        "logs/failures",
        "logs/audit",
        "documents",
    ):
        api.get(f"{API}/{path}").raise_for_status()
    export = api.get(f"{API}/solutions/export", params={"drafts": "true"}).raise_for_status()
    with zipfile.ZipFile(io.BytesIO(export.content)) as archive:
        for name in archive.namelist():
            seen.note(f"export {name}", archive.read(name))
    integrations = [each["slug"] for each in api.get(f"{API}/integrations", params={"limit": 500}).json()["data"]]
    pages = ["integrations", "logs", "failures", "executions", *(f"integrations/{slug}" for slug in integrations)]
    for page in pages:
        answer = browser.get(browser.at("canaries", f"/console/{page}"))
        assert answer.status_code == 200, page
        seen.note(f"console {page}", answer.content)
    with running.client("localhost") as anybody:
        seen.note("metrics", anybody.get("/metrics").content)
    for table in stored_tables():
        rows = db.rows(f"SELECT * FROM {table}")  # noqa: S608 - names the database itself gives
        seen.note(f"table {table}", "\n".join(str(value) for row in rows for value in row if isinstance(value, str)).encode())


def files_of(folder: Path, seen: Output) -> None:
    """Record all files, including the write-ahead log and freed pages, except the blobs of documents."""
    for path in folder.rglob("*"):
        if path.is_file() and "blobs" not in path.relative_to(folder).parts:
            seen.note(f"file {path.name}", path.read_bytes())


def test_a_whole_run_leaks_no_secret(running: Running, server: LoopbackServer, capsys: pytest.CaptureFixture[str]) -> None:
    seen, root = Output(), logging.getLogger()
    before = (root.level, list(root.handlers))
    running.user("canary-owner", PASSWORD, "canaries")
    registry = running.services.integrations.registry
    with echoing() as port, seen.watch(running.api("canaries")) as api:
        configure_logs("debug", "json")
        try:
            api.put(f"{API}/secrets/canary", json={"value": TENANT_SECRET}).raise_for_status()
            seen.exempt_paths.add(f"{API}/webhooks")
            hook = {"url": f"{server.url}/hook/500", "events": ["integration.failing", "execution.failed"]}
            webhook = api.post(f"{API}/webhooks", json=hook).raise_for_status().json()["data"]
            seen.exempt_paths.clear()
            profile = {"slug": "model", "kind": "openai", "model": "small", "base_url": f"{server.url}/v1", "api_key": MODEL_KEY}
            api.post(f"{API}/llm-profiles", json=profile).raise_for_status()
            paper = api.post(f"{API}/documents", files={"file": ("paper.bin", b"\0\1" + PAPER.encode(), None)})
            assert paper.status_code == 201, paper.text
            accepted = fail_everywhere(api, server.url, port, registry)
            assert {"http", "odata", "postgresql", "mysql", "sftp", "webdav", "tryton"} <= accepted
            browser = Browser(running)
            browser.sign_in("canary-owner", PASSWORD, "canaries")
            read_everything(api, browser, seen, running)
            logging.getLogger(__name__).debug("the run is over")
        finally:
            logged = capsys.readouterr()
            root.handlers[:] = before[1]
            root.setLevel(before[0])
    seen.note("log of the process", (logged.err + logged.out).encode())
    assert "the run is over" in logged.err, "the log was watched"
    files_of(Path(running.config.storage.data), seen)
    sent = b"".join(str(request.headers).encode() + request.body for request in server.received)
    assert ACCESS_TOKEN.encode() in sent, "a token was fetched and used"
    assert TENANT_SECRET in "".join(v for r in server.received for v in r.headers.values())
    canaries = {
        "the tenant's secret": TENANT_SECRET, "a setting": SETTING, "an OAuth client": CLIENT_SECRET, "a token": ACCESS_TOKEN,
        "a refresh token": REFRESH_TOKEN, "a model's key": MODEL_KEY, "a document": PAPER, "a webhook": webhook["secret"],
    }  # fmt: skip
    assert seen.leaks(canaries) == []
    assert len(seen.places) > 100
