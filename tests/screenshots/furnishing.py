"""A tenant with example data of every kind, for the screenshots and the checks of every page."""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from appliance.agents import runs
from appliance.core import clock
from appliance.core.database import db
from appliance.core.pages import PageRequest
from appliance.solutions import apply_solution, starter_input, starter_solution, write_zip
from appliance.tenants import SignedIn, people, service
from appliance.tenants.second_factors import factors, step_ups
from appliance.tenants.sign_in import sessions
from appliance.testing.running import Running
from tests.agents.model_server import obey, serving
from tests.screenshots import furniture

TENANT, NAME = "northgate", "Northgate Traders"
LOGIN, PASSWORD = "ada@northgate.test", "the pictures of a busy week"
PATIENCE_S = 60.0
DAY_MS = 86_400_000
PREFIX = "/api/v1"


@dataclass
class FurnishedTenant:
    """A tenant with example data; `things` are the ids that appear in addresses of pages."""

    running: Running
    api: httpx.Client
    things: dict[str, str] = field(default_factory=dict)

    def ask(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """The `data` of a call that must succeed."""
        answer = self.api.request(method, PREFIX + path, json=body, **more)
        assert answer.is_success, (method, path, answer.text)
        return answer.json()["data"]

    def publish(self, definition: Mapping[str, Any]) -> None:
        self.ask("PUT", f"/processes/{definition['id']}", definition)
        self.ask("POST", f"/processes/{definition['id']}/publish", {"message": "the first"})

    def execute(self, process: str, input_: Mapping[str, Any], *, wait: int = 30, **query: Any) -> str:
        path = f"/processes/{process}/execute"
        return str(self.ask("POST", path, input_, params={"wait": wait, **query})["execution_id"])

    def until(self, path: str, status: str) -> Any:
        """The data at `path`, once it has this status."""
        pause = threading.Event()
        for _ in range(int(PATIENCE_S / 0.05)):
            data = self.ask("GET", path)
            if data["status"] == status:
                return data
            pause.wait(0.05)
        raise AssertionError(f"{path} is {data['status']}, not {status}")


def furnish(running: Running) -> FurnishedTenant:
    """Create the tenant with its data; nothing in it is still running on return."""
    if TENANT not in {tenant.id for tenant in service.list_tenants()}:
        service.create_tenant(TENANT, NAME)
    members = ((LOGIN, "owner"), ("ben@northgate.test", "builder"), ("eve@northgate.test", "operator"))
    users = {login: running.user(login, PASSWORD, TENANT, role) for login, role in members}
    people.add_member(running.tenant(TENANT), "eve@northgate.test", "operator", approver=True)
    people.add_member(running.tenant("globex"), LOGIN, "viewer")
    with running.api(TENANT) as api:
        house = FurnishedTenant(running, api, {"tenant": TENANT, "member": users["eve@northgate.test"]})
        _add_processes(house)
        _add_executions(house)
        _add_documents(house)
        _add_webapp(house)
        _add_governance(house)
        _add_agent(house)
        _add_keys(house)
        house.things["step_up"] = _request_proof(running, "ben@northgate.test")
        house.things["password"] = "a-new-password-for-ben"
        running.services.password_resets.store("ben@northgate.test", house.things["password"], "127.0.0.1")
        invitation = house.ask("POST", "/invitations", {"login": "iris@northgate.test", "role": "operator", "approver": True})
        house.things["invitation"] = invitation["link"].partition("token=")[2]
        for name, login, lifetime_ms in (("another", LOGIN, DAY_MS), ("ended", "ben@northgate.test", -1)):
            house.things[name] = sessions.create_session(
                running.services.sealer, users[login], TENANT, lifetime_ms=lifetime_ms
            )
    return house


def _request_proof(running: Running, login: str) -> str:
    """Somebody with a passkey and an app, whose form waits for a proof; returns the token of the form."""
    person = people.find_user(login)
    ben = SignedIn(person.id, login, "builder", running.tenant(TENANT))
    services = running.services

    def add() -> None:
        factors.add_factor(person.id, "passkey", "Laptop", {"counter": 0})
        factors.add_factor(person.id, "totp", "Phone", {"counter": 0})

    db.write(add)
    services.second_factors.replace_recovery_codes(person.id)
    return step_ups.store_request(services.sealer, ben, "/console/people", "")


def _add_processes(house: FurnishedTenant) -> None:
    running = house.running
    url = f"http://localhost:{running.config.server.port}/demo"
    apply_solution(running.tenant(TENANT), running.services.solutions, starter_solution(url))
    for definition in furniture.PROCESSES:
        house.publish(definition)
    house.ask("PUT", "/processes/price-list", furniture.DRAFT)


def _add_alerts(house: FurnishedTenant) -> None:
    """One that is OK, and one that fires soon."""
    waits = {"name": "Queue stands", "condition": {"kind": "queue_age", "longer_than": "10m"}, "for": "5m", "repeat": "1h"}
    failures = {"kind": "failures", "process": "delivery-check", "above": 0, "window": "1h"}
    house.ask("POST", "/logs/alerts", waits)
    house.things["alert"] = house.ask("POST", "/logs/alerts", {"name": "Delivery check fails", "condition": failures})["id"]


def _add_executions(house: FurnishedTenant) -> None:
    """One execution in every lasting state."""
    things = house.things
    input_ = json.loads(starter_input().read_text("utf8"))
    things["succeeded"] = house.execute("order-intake", input_, label="March catalogue")
    for number in (10250, 10251, 10252):
        house.execute("delivery-check", {"order": number, "weight": number - 10240})
    for weight in (-1, -2):
        things["failed"] = house.execute("delivery-check", {"order": 10260, "weight": weight})
    house.execute("carrier-quote", {"order": 10248})
    house.execute("slow-export", {})
    lines = [{"number": number, **({"price": number * 2} if number != 7 else {})} for number in range(60)]
    things["wide"] = house.execute("line-check", {"lines": lines}, label="order 10249")
    things["asking"] = house.execute("release-order", {"order": 10248}, wait=0)
    house.until(f"/processes/release-order/executions/{things['asking']}", "waiting")
    things["approval"] = house.ask("GET", "/approvals")[0]["id"]
    paused = house.execute("nightly-close", {}, wait=0, label="close of the week")
    house.until(f"/processes/nightly-close/executions/{paused}", "waiting")
    house.execute("nightly-close", {}, wait=0, run_at=clock.rfc3339(clock.now_ms() + 30 * DAY_MS))
    cancelled = house.execute("nightly-close", {}, wait=0)
    house.ask("POST", f"/processes/nightly-close/executions/{cancelled}/cancel", {})
    _add_alerts(house)
    things["call"] = house.ask("GET", "/integrations/order-system/executions")[0]["execution_id"]
    things["order"] = house.ask("GET", "/datapool/orders/entities")[0]["id"]


def _add_documents(house: FurnishedTenant) -> None:
    def upload(name: str, folder: str, content: bytes, tags: str = "") -> str:
        form = {"name": name, "folder": folder, "tags": tags}
        answer = house.api.post(f"{PREFIX}/documents", files={"file": (name, content)}, data=form)
        assert answer.is_success, answer.text
        return str(answer.json()["data"]["id"])

    for name, folder in (("price list 2026.csv", "sales"), ("carriers.json", "logistics"), ("terms of delivery.md", "sales")):
        upload(name, folder, furniture.TEXTS[name].encode(), "current")
    for name, folder in (("terms 2025.md", "contracts/2025"), ("Around the Horn.md", "contracts/2026/suppliers")):
        upload(name, folder, furniture.CONTRACT.encode() + name.encode())
    document = house.things["document"] = upload(
        "contract Alfreds Futterkiste.md", "contracts/2026", furniture.CONTRACT.encode(), "2026, customer"
    )
    path = f"/documents/{document}"
    house.ask(
        "POST",
        f"{path}/revisions",
        None,
        params={"comment": "with the new address"},
        content=furniture.CONTRACT.encode() + b"\nB.\n",
    )
    house.ask("POST", f"{path}/reviews", {"reviewers": ["eve@northgate.test", LOGIN], "note": "Is the discount agreed?"})
    house.ask("POST", f"{path}/shares", {"note": "for Alfreds"})
    house.api.get(f"{PREFIX}{path}/content").raise_for_status()


def _add_webapp(house: FurnishedTenant) -> None:
    house.ask("POST", "/webapps", {"id": "shop", "name": "Shop"})
    for number in (1, 2):
        archive = write_zip({"index.html": f"<!doctype html><title>Shop</title><h1>Shop {number}</h1>".encode()})
        path = f"/webapps/shop/versions?message=edition+{number}"
        house.ask("POST", path, None, content=archive, headers={"Content-Type": "application/zip"})
    house.ask("POST", "/webapps/shop/versions/1/publish", {})
    house.ask("POST", "/webapps/shop/domains", {"host": "shop.northgate.example"})
    with house.running.client(f"shop--{TENANT}.{house.running.config.domains.content}") as visitor:
        for path in ("/", "/", "/tea", "/favicon.ico"):
            visitor.get(path)


def _add_governance(house: FurnishedTenant) -> None:
    house.ask("PUT", "/policies/large-orders", furniture.POLICY)
    house.ask("POST", "/policies/large-orders/activate", {"message": "agreed with sales"})
    house.ask("PUT", "/policies/quiet-hours", furniture.SECOND_POLICY)
    house.ask("PUT", "/skills/returns", {"files": furniture.SKILL})
    house.ask(
        "POST",
        "/approvals",
        {"kind": "choice", "title": "Which carrier from May on?", "choices": ["Speedy Express", "United Package"]},
    )


def _add_agent(house: FurnishedTenant) -> None:
    """An agent with three runs: one succeeded, one waiting for a person, one stopped by its budget."""
    things = house.things
    house.ask("POST", "/datapool", {"name": "notes", "fields": [{"name": "text", "type": "text"}]})
    with serving(obey()) as server:
        house.ask("PUT", "/secrets/order_token", {"value": "kept here once"})
        house.ask("PUT", "/llm-profiles/default", {"kind": "openai", "model": "small", "base_url": server.url})
        for agent in furniture.AGENTS:
            house.ask("PUT", f"/agents/{agent['id']}", agent)

        def run(agent: str, task: str, status: str) -> str:
            started = house.ask("POST", f"/agents/{agent}/runs", {"input": task})
            house.until(f"/agents/{agent}/runs/{started['run_id']}", status)
            return str(started["run_id"])

        things["run"] = run("clerk", furniture.READ_PROMPT, "succeeded")
        things["waiting_run"] = run("clerk", furniture.WRITE_PROMPT, "waiting")
        run("hasty", furniture.READ_PROMPT, "failed")
    assert runs.list_runs(house.running.tenant(TENANT), "clerk", PageRequest(10)).items


def _add_keys(house: FurnishedTenant) -> None:
    for name, scopes, days in (
        ("warehouse scanner", ["processflow.execute", "processflow.read"], 12),
        ("monthly report", ["entities.read", "logs.read"], 300),
    ):
        expires_at = clock.rfc3339(clock.now_ms() + days * DAY_MS)
        house.things["key"] = house.ask("POST", "/keys", {"name": name, "scopes": scopes, "expires_at": expires_at})["id"]
    old = house.ask("POST", "/keys", {"name": "old shop", "scopes": ["entities.read"]})
    house.ask("DELETE", f"/keys/{old['id']}")
    intake = {"id": "order-intake", "title": "Order intake", "description": "Reads orders from the shop and starts the process."}
    scopes = ["entities.read", "processflow.execute", "processflow.read"]
    house.things["account"] = house.ask("POST", "/service-accounts", {**intake, "scopes": scopes, "responsible": LOGIN})["id"]
    house.ask("POST", "/service-accounts/order-intake/keys", {"name": "shop", "scopes": scopes[1:]})
