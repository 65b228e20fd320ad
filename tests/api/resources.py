"""Creates what the requests of tests need: processes, executions, entities, keys … of one tenant, over the API itself."""

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx

from appliance.core.database import db
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.governance.approvals import Origin, approvals, parse_request
from appliance.solutions import write_zip
from appliance.testing.running import Running
from appliance.webapps.access import Access, Visitor, Visits

PREFIX = "/api/v1"
_numbers = count(1)
FIELDS = [{"name": "number", "type": "text", "unique": True, "required": True}, {"name": "total", "type": "integer"}]


def fresh(stem: str) -> str:
    """A unique name."""
    return f"{stem}-{next(_numbers)}"


def restart_numbers() -> None:
    """Let `fresh` count from 1 again, for another tenant."""
    global _numbers  # noqa: PLW0603  # one counter for all tests of a process
    _numbers = count(1)


@dataclass
class Resources:
    """One tenant's API client and what was created through it; each method creates a new thing and returns its id."""

    running: Running
    tenant: str
    client: httpx.Client
    created: dict[str, str] = field(default_factory=dict)

    @property
    def scope(self) -> TenantScope:
        return self.running.tenant(self.tenant)

    def ask(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """The `data` of a call that must succeed."""
        answer = self.client.request(method, PREFIX + path, json=body, **more)
        assert answer.is_success, (method, path, answer.text)
        return answer.json()["data"]

    def once(self, name: str, make: Callable[[], str]) -> str:
        """A thing that several requests may share."""
        if name not in self.created:
            self.created[name] = make()
        return self.created[name]

    def sample(self, process: str) -> str:
        name = fresh("sample")
        self.ask("PUT", f"/processes/{process}/samples/{name}", {"input": {"a": 1}, "steps": {"answer": [1]}})
        return name

    def triggered_process(self) -> str:
        """A process with a schedule."""
        return self.once("triggered", lambda: self.process(triggers=[{"id": self.trigger(), "schedule": {"cron": "0 6 * * *"}}]))

    def trigger(self) -> str:
        """The trigger of that process."""
        return self.once("trigger", lambda: fresh("nightly"))

    def process(self, *, steps: list[Any] | None = None, **more: Any) -> str:
        """A process with two versions."""
        name = fresh("proc")
        for value in (1, 2):
            definition = {"id": name, "steps": steps or [{"id": "answer", "rule": {"expression": f"= {value}"}}], **more}
            self.ask("PUT", f"/processes/{name}", {"definition": {**definition, "name": f"{name} {value}"}})
            self.ask("POST", f"/processes/{name}/publish", {})
        return name

    def document(self) -> str:
        """A document with one revision."""
        document = self.ask("POST", "/documents", None, params={"name": "orders.csv"}, content=f"{fresh('number')}\n")
        return str(document["id"])

    def execution(self, process: str, input_: Any = None) -> str:
        """A finished execution."""
        return str(self.ask("POST", f"/processes/{process}/execute", input_ or {}, params={"wait": 30})["execution_id"])

    def waiting_execution(self) -> tuple[str, str]:
        """A process and an execution of it that waits for an hour."""
        process = self.once("pausing", lambda: self.process(steps=[{"id": "pause", "wait": {"for": "1h"}}]))
        execution = self.ask("POST", f"/processes/{process}/execute", {}, params={"wait": 0})["execution_id"]
        return process, str(execution)

    def execution_that_waits_for_an_event(self) -> tuple[str, str, str]:
        """A process, an execution of it, and the token of the event."""
        source = 'export default async (input, api) => await api.events.wait("paid")'
        code = {"language": "javascript", "source": source}
        process = self.once("expecting", lambda: self.process(steps=[{"id": "expect", "code": code}]))
        execution = self.ask("POST", f"/processes/{process}/execute", {}, params={"wait": 0})["execution_id"]
        pause = threading.Event()
        while not (waiting_for := self.ask("GET", f"/processes/{process}/executions/{execution}").get("waiting_for")):
            pause.wait(0.05)
        return process, str(execution), str(waiting_for["waits"][0]["token"])

    def failure(self) -> str:
        """A group of failures with one execution."""
        process = self.process(steps=[{"id": "broken", "rule": {"expression": "= input.nothing.here"}}])
        self.execution(process)
        return str(self.ask("GET", f"/logs/failures?process={process}")[0]["id"])

    def approval(self, kind: str = "approval", **members: Any) -> str:
        """An approval that a waiting execution requested."""
        process, execution = self.waiting_execution()
        request = parse_request({"kind": kind, "title": fresh("Shall"), **members}, Origin(execution, process, "pause", "pause"), 0)
        return str(db.write(lambda: approvals.request_approval(self.scope, request)).id)

    def request(self, **members: Any) -> str:
        """An approval that this key requested."""
        return str(self.ask("POST", "/approvals", {"kind": "approval", "title": fresh("May we"), **members})["id"])

    def webapp(self) -> str:
        """A WebApp with two versions, of which the second is published."""
        name = f"app{next(_numbers)}"
        self.ask("POST", "/webapps", {"id": name})
        for number in (1, 2):
            archive = write_zip({"index.html": f"<h1>{name} {number}</h1>".encode()})
            self.ask("POST", f"/webapps/{name}/versions", None, content=archive, headers={"Content-Type": "application/zip"})
            self.ask("POST", f"/webapps/{name}/versions/{number}/publish", {})
        return name

    def visit(self, app: str) -> str:
        """The visit of a member."""
        visits: Visits = self.running.services.webapps.visits
        visits.open_visit(self.scope, app, Access("members"), Visitor("member", fresh("usr")))
        return visits.list_visits(self.scope, app, PageRequest()).items[0].id

    def uploading_webapp(self, content: bytes) -> str:
        """A WebApp whose only version lacks this content."""
        name = f"app{next(_numbers)}"
        self.ask("POST", "/webapps", {"id": name})
        spec = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
        self.ask("POST", f"/webapps/{name}/versions", {"files": {"index.html": spec}})
        return name

    def collection(self) -> str:
        name = fresh("things")
        self.ask("POST", "/datapool", {"name": name, "fields": FIELDS})
        return name

    def entity(self, collection: str) -> str:
        return str(self.ask("POST", f"/datapool/{collection}/entities", {"number": fresh("n"), "total": 1})["id"])

    def integration(self, base_url: str = "") -> str:
        """An integration with the order system of the demo, unless `base_url` says otherwise."""
        slug = fresh("orders")
        settings = {"base_url": base_url or f"http://127.0.0.1:{self.running.config.server.port}/demo"}
        self.ask("POST", "/integrations", {"slug": slug, "connector": "http", "settings": settings})
        return slug

    def mailbox(self) -> str:
        """An e-mail integration whose server does not exist."""
        slug = fresh("post")
        settings = {"smtp_host": "127.0.0.1", "smtp_port": 9, "smtp_tls": "off", "from": "shop@firma.example"}
        self.ask("POST", "/integrations", {"slug": slug, "connector": "email", "settings": settings})
        return slug

    def consented_integration(self) -> str:
        """An integration that needs a person's OAuth consent."""
        slug = fresh("crm")
        auth = {
            "kind": "oauth2", "grant": "authorization_code", "client_id": "gos",
            "authorize_url": "https://login.example/authorize", "token_url": "https://login.example/token",
        }  # fmt: skip
        settings = {"base_url": "https://api.example/v1", "auth": auth}
        self.ask("POST", "/integrations", {"slug": slug, "connector": "http", "settings": settings})
        return slug

    def llm_profile(self) -> str:
        slug = fresh("model")
        body = {"slug": slug, "kind": "openai", "model": "small", "base_url": "http://127.0.0.1:9/v1", "api_key": "a key"}
        self.ask("POST", "/llm-profiles", body)
        return slug

    def call(self, integration: str) -> str:
        body = {"action": "get", "input": {"url": "/orders"}}
        return str(self.ask("POST", f"/integrations/{integration}/execute", body)["execution_id"])

    def failed_call(self, integration: str) -> str:
        """A call that the foreign system refused."""
        call = self.call(integration)
        db.write(lambda: db.execute("UPDATE integration_call SET status = 'failed', outcome = 'not_done' WHERE id = ?", (call,)))
        return call

    def unknown_call(self, integration: str) -> str:
        """A call whose outcome is unknown, as after a crash."""
        call = self.call(integration)
        db.write(lambda: db.execute("UPDATE integration_call SET status = 'waiting', outcome = 'unknown' WHERE id = ?", (call,)))
        return call

    def key(self) -> str:
        return str(self.ask("POST", "/keys", {"name": fresh("key"), "scopes": ["logs.read"]})["id"])

    def secret(self) -> str:
        name = f"secret_{next(_numbers)}"
        self.ask("PUT", f"/secrets/{name}", {"value": "a value"})
        return name

    def secret_binding(self) -> tuple[str, str]:
        """The name of a secret, and one of its destinations."""
        name = self.secret()
        place = {"kind": "process", "target": fresh("orders")}
        return name, str(self.ask("POST", f"/secrets/{name}/bindings", place)["id"])

    def login(self) -> str:
        """The login of a user, shared because creating one takes a while."""

        def make() -> str:
            login = f"{fresh('user')}@{self.tenant}.test"
            self.running.user(login, "a long enough password")
            return login

        return self.once("login", make)

    def member(self) -> str:
        return str(self.ask("POST", "/members", {"login": self.login(), "role": "viewer"})["user_id"])

    def invitation(self) -> str:
        return str(self.ask("POST", "/invitations", {"login": f"{fresh('guest')}@example.com", "role": "viewer"})["id"])

    def webhook(self) -> str:
        """A webhook whose receiver cannot be reached."""
        body = {"url": "http://127.0.0.1:9/hook", "events": ["approval.requested"]}
        return str(self.ask("POST", "/webhooks", body)["id"])

    def alert(self) -> str:
        """An alert that notifies only that webhook."""
        body = {
            "name": fresh("alert"), "condition": {"kind": "queue_age", "longer_than": "30d"},
            "actions": [{"kind": "webhook", "webhook": self.once("webhook", self.webhook)}],
        }  # fmt: skip
        return str(self.ask("POST", "/logs/alerts", body)["id"])

    def delivery(self, webhook: str) -> str:
        """A message to that webhook."""
        return str(self.ask("POST", f"/webhooks/{webhook}/test")["id"])
