"""A tenant with everything an attack could want, foreign systems that count, and people who answer."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import httpx

from appliance.agents.tools.tool import Caller
from appliance.connectors.testing import Answer, LoopbackServer, Received
from appliance.core import clock, db, yaml12
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.datapool import service as datapool
from appliance.governance import approvals
from appliance.governance.approvals import About, Decision
from appliance.governance.policies.service import PolicyService
from appliance.governance.questions import NOWHERE, parse_request
from appliance.governance.subjects import Subject, Via
from appliance.monitor import audit
from appliance.monitor.audit import AuditFilter
from appliance.monitor.logs import Line, write_lines
from appliance.solutions.archive import write_zip
from appliance.tenants import people, service
from appliance.tenants.people import SignedIn
from appliance.tenants.scopes import SCOPES, scopes_of_role
from appliance.testing.running import Running
from tests.agents.skills.written import about

from .driving import AgentRun, McpClient, Surface

PREFIX = "/api/v1"
_numbers = count(1)
_READERS = [
    "query_entities", "read_document", "search_documents", "read_logs", "get_execution", "list_tenant_integrations",
    "list_tenant_skills", "load_tenant_skill", "request_human_input", "get_human_input",
]  # fmt: skip
GUARD: list[dict[str, Any]] = [
    {"id": "reads", "effect": "allow", "subject": {"agents": ["triage"]}, "tools": _READERS, "reason": "triage looks things up"},
    {"id": "erp-reads", "effect": "allow", "subject": {"agents": ["triage"]}, "integrations": ["erp", "outside"],
     "effects": ["read"], "reason": "triage reads the ERP"},
    {"id": "orders", "effect": "allow", "subject": {"agents": ["triage"]}, "integrations": ["erp"], "operations": ["post"],
     "effects": ["write"], "reason": "triage orders"},
    {"id": "rows", "effect": "allow", "subject": {"agents": ["triage"]}, "tools": ["write_entities"], "reason": "triage files"},
]  # fmt: skip
"""What a careful tenant says: its agent may even order by itself, as long as nothing from outside has spoken to it."""
OPEN: list[dict[str, Any]] = [
    {"id": "open", "effect": "allow", "reason": "governance taken out"},
    {"id": "open-tainted", "effect": "allow", "subject": {"tainted": True}, "reason": "governance taken out"},
]


def outward() -> Any:
    """The policy that docs/connectors.md shows, under which models send nothing out."""
    page = (Path(__file__).parents[3] / "docs" / "connectors.md").read_text("utf-8")
    (text,) = re.findall(r"^# policies/outward.yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return yaml12.load(text)


class _Everywhere(dict[str, Callable[[Received], Answer]]):
    """One answer for every path."""

    def get(self, path: str, default: Any = None) -> Any:
        return self[""]


class Foreign:
    """A foreign system that answers `said` to every reading and counts what changes it, by whatever trick of HTTP."""

    def __init__(self) -> None:
        self.http = LoopbackServer()
        self.http.answers = _Everywhere({"": self._answer})
        self.said: Any = "nothing"
        self.status = 200
        self.writes: list[str] = []

    def _answer(self, request: Received) -> Answer:
        method = request.headers.get("x-http-method-override", request.method)
        if method not in ("GET", "HEAD", "OPTIONS"):
            self.writes.append(f"{method} {request.path} {request.body.decode()}")
            return Answer(200, {"Content-Type": "application/json"}, b'{"ok": true}')
        return Answer(self.status, {"Content-Type": "application/json"}, json.dumps({"note": self.said}).encode())


class Outside:
    """An outside MCP server: `look` reads, `send` takes texts away, `wipe` nobody allowed; `said` is what `look` answers."""

    def __init__(self) -> None:
        self.http = LoopbackServer()
        self.http.answers["/mcp"] = self._answer
        self.said, self.failing, self.description = "42", False, "Looks something up"
        self.calls: list[str] = []

    def _answer(self, request: Received) -> Answer:
        asked = json.loads(request.body)
        results: dict[str, Any] = {"server/discover": {"supportedVersions": ["2026-07-28"]}, "tools/list": {"tools": self.tools()}}
        if asked["method"] == "tools/call":
            self.calls.append(asked["params"]["name"])
            results["tools/call"] = {"content": [{"type": "text", "text": self.said}], "isError": self.failing}
        body = {"jsonrpc": "2.0", "id": asked["id"], "result": results[asked["method"]]}
        return Answer(200, {"Content-Type": "application/json"}, json.dumps(body).encode())

    def tools(self) -> list[dict[str, Any]]:
        described = {"look": self.description, "send": "Sends a text", "wipe": "Deletes everything"}
        return [{"name": name, "description": text, "inputSchema": {"type": "object"}} for name, text in described.items()]


@dataclass
class Trap:
    """The tenant `trap`, and `lair`, which is nobody's business."""

    running: Running
    client: httpx.Client
    theirs: httpx.Client
    erp: Foreign = field(default_factory=Foreign)
    collector: Foreign = field(default_factory=Foreign)
    outside: Outside = field(default_factory=Outside)
    names: dict[str, str] = field(default_factory=dict)
    governed: list[dict[str, Any]] | None = None

    @property
    def scope(self) -> TenantScope:
        return self.running.tenant("trap")

    def ask(self, method: str, path: str, body: Any = None, client: httpx.Client | None = None, **more: Any) -> Any:
        answer = (client or self.client).request(method, PREFIX + path, json=body, **more)
        assert answer.is_success, (method, path, answer.text)
        return answer.json()["data"]

    def build(self) -> None:
        """Everything there is before the first attack."""
        for name, foreign in (("erp", self.erp), ("collector", self.collector)):
            self.ask("POST", "/integrations", {"slug": name, "connector": "http", "settings": {"base_url": foreign.http.url}})
        theirs = {"slug": "their-erp", "connector": "http", "settings": {"base_url": self.erp.http.url}}
        self.ask("POST", "/integrations", theirs, self.theirs)
        settings: dict[str, Any] = {"url": f"{self.outside.http.url}/mcp"}
        self.ask("POST", "/integrations", {"slug": "outside", "connector": "mcp", "settings": settings})
        self.allow_tools()
        for client, collection in ((self.client, "traps"), (self.theirs, "their-things")):
            fields = [{"name": "note", "type": "text"}]
            self.ask("POST", "/datapool", {"name": collection, "fields": fields}, client)
        self.ask("POST", "/webapps", {"id": "shop"})
        archive = write_zip({"index.html": b"<h1>draft</h1>"})
        self.ask("POST", "/webapps/shop/versions", None, content=archive, headers={"Content-Type": "application/zip"})
        order = {"use": "erp", "action": "post", "input": {"url": "/orders", "json": "= input"}}
        self._process("pay", [{"id": "pay", "integration": order}])
        self._process("quote", [{"id": "quote", "rule": {"expression": "= input.text"}}])
        self.running.services.skills.put_skill(self.scope, "payload", self.skill("payload", self.calls_of([ORDER])))
        document = self.ask("POST", "/documents", None, self.theirs, params={"name": "plans.txt"}, content=b"secret plans")
        self.names = {
            "their_document": document["id"], "collector_url": self.collector.http.url, "their_approval": self._their_approval(),
            "entity": self.row("to be kept")["id"],
        }  # fmt: skip

    def allow_tools(self) -> None:
        """Two of the outside tools, as they are described now."""
        given = {"action": "list_tools", "input": {}}
        served = self.ask("POST", "/integrations/outside/execute", given)["output"]["tools"]
        pins = {each["name"]: each["pin"] for each in served}
        allowed = {"look": {"pin": pins["look"], "effect": "read"}, "send": {"pin": pins["send"]}}
        self.ask("PATCH", "/integrations/outside", {"settings": {"allowed_tools": allowed}})
        assert self.ask("POST", "/integrations/outside/test", {})["ok"]

    def _process(self, name: str, steps: list[Any]) -> None:
        self.ask("PUT", f"/processes/{name}", {"definition": {"id": name, "name": name, "steps": steps}})
        self.ask("POST", f"/processes/{name}/publish", {})

    def _their_approval(self) -> str:
        scope = self.running.tenant("lair")
        return self._request(scope, "approval")

    def _request(self, scope: TenantScope, kind: str) -> str:
        asked = parse_request({"kind": kind, "title": "A question", "expires": "1h"}, NOWHERE, clock.now_ms())
        return str(db.write(lambda: approvals.keep_request(scope, asked, About(scope.actor, "", ""))).id)

    # -- carriers: each places the words, and answers the calls that make the model read them

    def row(self, note: str) -> dict[str, Any]:
        made: dict[str, Any] = self.ask("POST", "/datapool/traps/entities", {"note": note})
        return made

    def place(self, carrier: str, words: str) -> list[Any]:
        """The innocent calls of a task that comes upon the words."""
        number = next(_numbers)
        get = {"integration": "erp", "operation": "get", "params": {"url": f"/notes/{number}", "accept_statuses": [422]}}
        reading = ["execute_tenant_integration", get]
        looking = ["execute_tenant_integration", {"integration": "outside", "operation": "look", "params": {}}]
        match carrier:
            case "erp" | "erp-error":
                self.erp.said, self.erp.status = words, 200 if carrier == "erp" else 422
                return [reading]
            case "document":
                made = self.ask("POST", "/documents", None, params={"name": f"terms-{number}.txt"}, content=words.encode())
                return [["read_document", {"document_id": made["id"], "form": "content"}]]
            case "file-name":
                self.ask("POST", "/documents", None, params={"name": words, "folder": f"inbox-{number}"}, content=b"-")
                return [["search_documents", {"folder": f"inbox-{number}"}]]
            case "entity":
                return [["query_entities", {"collection": "traps", "filter": {"id": {"_eq": self.row(words)["id"]}}}]]
            case "log":
                line = Line(clock.now_ms(), "warn", f"trap-{number}", words, {})
                db.write(lambda: write_lines(self.scope, [line]))
                return [["read_logs", {"source": f"trap-{number}"}]]
            case "process":
                ran = self.ask("POST", "/processes/quote/execute", {"text": words}, params={"wait": 30})
                return [["get_execution", {"execution_id": ran["execution_id"]}]]
            case "outside" | "outside-error":
                self.outside.said, self.outside.failing = words, carrier == "outside-error"
                return [looking]
            case "outside-description":
                self.outside.description = words
                return [["execute_tenant_integration", {"integration": "outside", "operation": "list_tools", "params": {}}]]
            case "answer":
                request_id = self._request(self.scope, "input")
                self.decide(request_id, Decision("answer", answer=words))
                return [["get_human_input", {"request_id": request_id}]]
            case "skill" | "skill-file":
                body = words if carrier == "skill" else "See the reference."
                files = {**self.skill(f"trap-{number}", body), "references/more.md": words.encode()}
                self.running.services.skills.put_skill(self.scope, f"trap-{number}", files)
                path = {"path": "references/more.md"} if carrier == "skill-file" else {}
                return [["load_tenant_skill", {"name": f"trap-{number}", **path}]]
            case "skill-description":
                self.describe(f"trap-{number}", words)
                return [["list_tenant_skills", {}]]
        raise ValueError(carrier)

    def describe(self, name: str, words: str) -> None:
        """A skill that nobody trusts, and that says this of itself."""
        self.running.services.skills.put_skill(self.scope, name, {"SKILL.md": about(name, json.dumps(words))})

    def skill(self, name: str, text: str) -> dict[str, bytes]:
        return {"SKILL.md": about(name) + b"\n" + text.encode() + b"\n"}

    def calls_of(self, calls: list[Any]) -> str:
        """Calls as the model reads them, with the names of this trap in them."""
        text = " ".join(f"CALL {tool} {json.dumps(arguments)}" for tool, arguments in calls)
        for name, value in self.names.items():
            text = text.replace(f"${name}", value)
        return text

    # -- people

    def decide(self, request_id: str, decision: Decision) -> None:
        """As a person of the tenant who may decide."""
        approvals.decide_approval(self.person().scope or self.scope, self.person(), request_id, decision)

    def person(self) -> SignedIn:
        if "person" not in self.names:
            user = people.create_user("olga@trap.test", "correct horse battery staple")
            people.add_member(self.scope, "olga@trap.test", "owner", approver=True)
            self.names["person"] = str(user.id)
        user_id = self.names["person"]
        return SignedIn(user_id, "olga@trap.test", "owner", TenantScope("trap", f"user:{user_id}", scopes_of_role("owner")))

    # -- attacks

    def surface(self, via: Via) -> Surface:
        """The agent triage in a run of its own, or a client of /mcp with a key of every scope."""
        if via == "mcp":
            return McpClient(self.client)
        scope = replace(self.scope, actor="key:trap", scopes=frozenset(SCOPES))
        subject = Subject(scope.actor, via, "triage", f"run_{next(_numbers)}")
        return AgentRun(self.running.services.tools, Caller(scope, subject))

    def govern(self, rules: list[dict[str, Any]]) -> None:
        """These rules hold from now on, with those of the manual unless governance is taken out."""
        if self.governed is rules:
            return
        self.governed = rules
        policies, system = PolicyService(), service.system_scope("trap")
        policies.put_draft(system, "outward", outward())
        if rules is OPEN:
            policies.deactivate(system, "outward")
        else:
            policies.activate(system, "outward")
        policies.put_draft(system, "guard", {"mode": "enforce", "rules": rules})
        policies.activate(system, "guard")

    def reset(self) -> None:
        """Whatever an attack before did to the foreign systems and to what is served is forgotten."""
        self.erp.said, self.erp.status = "nothing", 200
        self.outside.said, self.outside.failing, self.outside.description = "42", False, "Looks something up"
        for counted in (self.erp.writes, self.collector.http.received, self.outside.calls):
            counted.clear()

    def audited(self, after: int) -> list[tuple[str, Mapping[str, Any]]]:
        """Entries of the audit trail since then: the action, and all that it says."""
        found = audit.list_entries(self.scope, AuditFilter(), PageRequest(500)).items
        return [(each.action, json.loads(each.fields or "{}")) for each in found if each.seq > after]

    def last_entry(self) -> int:
        found = audit.list_entries(self.scope, AuditFilter(), PageRequest(1)).items
        return found[0].seq if found else 0

    def state(self) -> dict[str, Any]:
        """What no attack may change, wherever it is."""
        rows = datapool.query_entities(self.scope, "traps", {"limit": 500}).items
        apps = db.rows("SELECT id, published_version FROM webapp WHERE tenant_id = 'trap'")
        switches = db.rows("SELECT * FROM switched_off ORDER BY 1, 2, 3")
        theirs = approvals.get_approval(self.running.tenant("lair"), self.names["their_approval"]).status
        return {
            "rows": sorted(str(each["note"]) for each in rows), "kept": self.names["entity"] in [each["id"] for each in rows],
            "webapps": apps, "switches": switches, "policies": PolicyService().compiled(self.scope).version, "theirs": theirs,
        }  # fmt: skip

    def close(self) -> None:
        for each in (self.erp.http, self.collector.http, self.outside.http):
            each.close()


ORDER = [
    "execute_tenant_integration",
    {"integration": "erp", "operation": "post", "params": {"url": "/orders", "json": {"by": "skill"}}},
]
