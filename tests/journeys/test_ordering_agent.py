"""An agent is let near the ERP: it loads a skill, a person approves in a real browser, and the order is placed once as approved."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from appliance.connectors.testing import Answer, LoopbackServer, Received
from appliance.core import clock
from appliance.core.database import db
from appliance.tenants import people, scopes_of_role
from appliance.tenants.keys import KeySpec, issue_key
from appliance.testing.kit import Gos
from appliance.testing.pages import find_flaws
from appliance.testing.running import Running
from appliance.testing.tenants import QaTenant
from tests.agents.model_server import obey, serving
from tests.agents.skills.sample_skills import about

pytestmark = pytest.mark.browser

TENANT, PREFIX = "larder", "/api/v1"
ORDER = {"url": "/orders", "json": {"product": "Chai", "quantity": 24}}
PLACE = {"integration": "erp", "operation": "post", "params": ORDER}
RULES = [
    {"id": "skills", "effect": "allow", "subject": {"agents": ["buyer"]}, "tools": ["load_tenant_skill"], "reason": "it reads how"},
    {"id": "orders", "effect": "require_approval", "integrations": ["erp"], "operations": ["post"], "effects": ["write"],
     "reason": "every order is looked at", "obligations": {"approvers": ["role:operator"], "ttl_seconds": 3600}},
]  # fmt: skip


class Erp:
    """Takes orders, and keeps each that reached it."""

    def __init__(self) -> None:
        self.http = LoopbackServer()
        self.http.answers["/orders"] = self._take
        self.orders: list[Any] = []

    def _take(self, request: Received) -> Answer:
        self.orders.append(json.loads(request.body))
        return Answer(201, {"Content-Type": "application/json"}, json.dumps({"number": len(self.orders)}).encode())


@dataclass
class Larder:
    """The tenant: its API with a key of no member, its ERP, and the browser of eve, who approves."""

    api: httpx.Client
    erp: Erp
    running: Running
    tenant: QaTenant
    eve: Page = field(init=False)

    def ask(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        answer = self.api.request(method, PREFIX + path, json=body, **more)
        assert answer.is_success, (method, path, answer.text)
        return answer.json()["data"]

    def refused(self, client: httpx.Client, approval: str, params: Any = None) -> dict[str, Any]:
        """The error of an order under this approval."""
        body = {"action": "post", "input": ORDER if params is None else params, "approval_id": approval}
        answer = client.post(f"{PREFIX}/integrations/erp/execute", json=body)
        assert answer.is_error, answer.text
        error: dict[str, Any] = answer.json()["error"]
        return error

    def request(self, client: httpx.Client | None = None, **more: Any) -> str:
        """A request for an approval of the order."""
        action = {"tool": "execute_tenant_integration", "arguments": PLACE}
        answer = (client or self.api).post(f"{PREFIX}/approvals", json={"kind": "approval", "action": action, **more})
        assert answer.is_success, answer.text
        return str(answer.json()["data"]["id"])

    def open(self, approval: str) -> None:
        self.eve.goto(self.tenant.url(f"/console/approvals/{approval}"))

    def approve(self, approval: str) -> None:
        self.open(approval)
        self.eve.get_by_role("button", name="Approve").click()
        expect(self.eve.get_by_role("status")).to_have_text("approved")

    def run(self, run_id: str, until: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The run, as soon as `until` holds."""
        pause, ends = Event(), clock.monotonic() + 60
        while not until(run := self.ask("GET", f"/agents/buyer/runs/{run_id}")):
            assert clock.monotonic() < ends, run
            pause.wait(0.05)
        return dict(run)

    def reasons(self, subject: str, action: str) -> list[str]:
        """The reasons of refusals in the audit trail, oldest first."""
        entries = self.ask("GET", "/logs/audit", params={"subject": subject, "action": action})
        return [json.loads(entry["fields"])["reason"] for entry in reversed(entries)]


@pytest.fixture(scope="module")
def shared_larder(running: Running, gos: Gos) -> Iterator[Larder]:
    erp = Erp()
    tenant = gos.tenant(TENANT)
    with running.api(TENANT) as api, serving(obey()) as model:
        larder = Larder(api, erp, running, tenant)
        larder.ask("POST", "/integrations", {"slug": "erp", "connector": "http", "settings": {"base_url": erp.http.url}})
        larder.ask("PUT", "/policies/buying", {"mode": "enforce", "rules": RULES})
        larder.ask("POST", "/policies/buying/activate", {})
        larder.ask("PUT", "/llm-profiles/house", {"kind": "openai", "model": "small", "base_url": model.url})
        steps = f"CALL execute_tenant_integration {json.dumps(PLACE)}\nSAY ordered\n"
        files = {"SKILL.md": (about("restock", "How the larder is filled.") + steps.encode()).decode()}
        larder.ask("PUT", "/skills/restock", {"files": files})
        agent = {"id": "buyer", "name": "Buyer", "model": "house", "instructions": "Fill the larder.", "skills": ["restock"]}
        larder.ask("PUT", "/agents/buyer", {**agent, "tools": ["erp:post"], "policy": ["buying"]})
        yield larder
    erp.http.close()


@pytest.fixture
def larder(shared_larder: Larder, gos_page_as: Callable[..., Page]) -> Larder:
    """The shared larder, with the browser of eve."""
    shared_larder.eve = gos_page_as("approver", shared_larder.tenant)
    return shared_larder


def trust(larder: Larder, name: str) -> None:
    page = larder.eve
    page.goto(larder.tenant.url(f"/console/skills/{name}"))
    page.get_by_label("I have read the instructions").check()
    page.get_by_role("button", name="Approve this version").click()
    expect(page.get_by_role("status")).to_have_text("trusted")


def test_an_approved_order_is_placed_once(larder: Larder) -> None:
    trust(larder, "restock")
    start = {"input": 'CALL load_tenant_skill {"name": "restock"}'}
    run_id = larder.ask("POST", "/agents/buyer/runs", start)["run_id"]
    larder.run(run_id, lambda run: run["status"] == "waiting")
    assert larder.erp.orders == []
    page = larder.eve
    page.goto(larder.tenant.url("/console/approvals"))
    page.get_by_role("link", name=re.compile("post of erp")).click()
    what = page.get_by_role("region", name="Requested action")
    for text in ("Chai", "24", "every order is looked at", "buying/orders"):
        expect(what).to_contain_text(text)
    expect(page.locator("#content")).to_contain_text("restock")
    assert find_flaws(page) == []
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("status")).to_have_text(re.compile("^(approved|used)$"))  # the run may have continued already
    run = larder.run(run_id, lambda run: run["status"] not in ("queued", "running", "waiting"))
    assert (run["status"], run["output"]) == ("succeeded", "ordered")
    assert larder.erp.orders == [ORDER["json"]]
    (approval,) = [each for each in larder.ask("GET", "/approvals") if each.get("run_id") == run_id]
    assert approval["status"] == "used"


def test_each_refusal_has_its_reason_in_the_audit_trail(larder: Larder) -> None:
    before = len(larder.erp.orders)
    approval = larder.request()
    larder.approve(approval)
    changed = larder.refused(larder.api, approval, {"url": "/orders", "json": {"product": "Chai", "quantity": 2400}})
    assert (changed["reason"], changed["changed"]) == ("digest_differs", ["input"])
    with larder.running.api("globex") as theirs:
        answer = theirs.get(f"{PREFIX}/approvals/{approval}")
        assert answer.status_code == 404
    with larder.running.client(f"{TENANT}.localhost", {"X-API-Key": larder.running.key(TENANT)}) as other:
        assert larder.refused(other, approval)["reason"] == "digest_differs"  # another key is another actor
    off = {"integration": "erp", "off": True, "reason": "it books twice"}
    larder.ask("PUT", "/kill-switches", off)
    assert "switched off" in larder.refused(larder.api, approval)["message"]
    larder.ask("PUT", "/kill-switches", off | {"off": False})
    body = {"action": "post", "input": ORDER, "approval_id": approval}
    assert larder.ask("POST", "/integrations/erp/execute", body)["status"] == "succeeded"
    assert larder.refused(larder.api, approval)["reason"] == "used"
    assert larder.erp.orders[before:] == [ORDER["json"]]
    assert larder.reasons(approval, "approval.refuse") == ["digest_differs", "digest_differs", "used"]
    denied = larder.ask("GET", "/logs/audit", params={"action": "policy.deny"})
    assert any("it books twice" in entry["fields"] for entry in denied)


def test_a_request_by_ones_own_key_cannot_be_approved(larder: Larder) -> None:
    eve = next(each for each in people.list_members(larder.running.tenant(TENANT)) if "approver" in each.roles)
    scope = larder.running.tenant(TENANT).with_actor(f"user:{eve.user_id}")
    services = larder.running.services
    key = issue_key(scope, services.sealer, KeySpec("own", sorted(scopes_of_role("operator")), "test"))[1]
    with larder.running.client(f"{TENANT}.localhost", {"X-API-Key": key}) as own:
        approval = larder.request(own)
        larder.open(approval)
        expect(larder.eve.locator("#content")).to_contain_text("You cannot decide this request.")
        expect(larder.eve.get_by_role("button", name="Approve")).to_have_count(0)
        assert larder.refused(own, approval)["reason"] == "pending"
    assert larder.reasons(approval, "approval.refuse") == ["pending"]


def test_an_expired_approval_is_refused(larder: Larder) -> None:
    approval = larder.request(ttl_seconds=60)
    larder.approve(approval)
    db.write(lambda: db.execute("UPDATE approval SET expires_at = ? WHERE id = ?", (clock.now_ms() - 1, approval)))
    assert larder.refused(larder.api, approval)["reason"] == "expired"
    assert larder.reasons(approval, "approval.refuse") == ["expired"]
