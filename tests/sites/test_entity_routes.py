"""Routes that access a collection, for visitors who may see part of it."""

import asyncio
import json
import threading
from collections.abc import MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import pytest

from appliance.core.scope import TenantScope
from appliance.sites.webapps.routes import RouteRequest, Routes
from appliance.sites.webapps.sending import Sender
from appliance.testing.running import Running
from appliance.web import Exchange
from appliance.webapps.access import ANONYMOUS, Visitor
from appliance.webapps.routes import RouteTable, parse_routes
from tests.sites.route_shop import ROUTES, deploy, executions, resume, wait_for

ADA, BOB = Visitor("user", "usr_ada", "ada@acme.example", "s-ada"), Visitor("user", "usr_bob", "bob@acme.example", "s-bob")
ALL = ["list", "view", "create", "update", "delete"]
NOTES = {"path": "/api/notes", "entities": "route-notes", "operations": ALL, "access": "signed_in"}
OPEN = {"path": "/api/open", "entities": "route-notes", "operations": ["list", "create"], "access": "public"}
STAFF = {"path": "/api/staff", "entities": "route-staff", "operations": ["list", "view"], "access": "member"}
OWN = {"owner": "$actor.id"}


@dataclass
class Shop:
    """The routes as served to visitors with access."""

    running: Running
    table: RouteTable
    tenant: str = "acme"
    address: str = "192.0.2.1"
    reading: threading.Event = field(default_factory=threading.Event)
    arrived: threading.Event | None = None  # a body that comes then
    routes: Routes = field(init=False)

    def __post_init__(self) -> None:
        services = self.running.services
        self.routes = Routes(services, Sender(services.blobs, services.threads))

    def ask(self, visitor: Visitor, method: str, path: str, body: Any = None, **more: str) -> httpx.Response:
        """The answer to a request of a browser."""
        raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        address, _, query = path.partition("?")
        headers = {"host": "shop--acme.content.localhost", "sec-fetch-site": "same-origin"} | more
        headers |= {} if body is None or "content-type" in more else {"content-type": "application/json"}
        scope = {
            "type": "http", "method": method, "path": address, "query_string": query.encode(), "scheme": "http",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()], "gos.request_id": "req_test",
            "gos.address": self.address,
        }  # fmt: skip
        sent: list[MutableMapping[str, Any]] = []

        async def receive() -> MutableMapping[str, Any]:
            self.reading.set()
            if self.arrived is not None:
                await asyncio.to_thread(self.arrived.wait, 60)
            return {"type": "http.request", "body": raw, "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        exchange = Exchange(scope, receive, send)
        request = RouteRequest(exchange, TenantScope(self.tenant, "site"), "shop", self.table, False, visitor)
        assert asyncio.run(self.routes.answer(request))
        return httpx.Response(sent[0]["status"], headers=sent[0]["headers"], content=sent[1]["body"])


@pytest.fixture(scope="module")
def shop(running: Running, acme: httpx.Client, globex: httpx.Client, route_shop: httpx.Client) -> Shop:
    fields = [
        {"name": "title", "type": "text", "required": True},
        {"name": "owner", "type": "text"},
        {"name": "n", "type": "integer"},
    ]
    access = {"list": {"_or": [OWN, {"owner": "everybody"}]}, "view": OWN, "create": OWN, "update": OWN, "delete": OWN}
    for api in (acme, globex):
        for name, rules in (("route-notes", access), ("route-staff", {"list": {"$actor.roles": {"_contains": "builder"}}})):
            api.post("/api/v1/datapool", json={"name": name, "fields": fields, "access": rules}).raise_for_status()
    return Shop(running, RouteTable(parse_routes([NOTES, OPEN, STAFF, *ROUTES])))


def small(running: Running, shop: Shop) -> tuple[Shop, Shop]:
    """The same for two tenants, in an appliance that works on four requests at once."""
    config = running.services.config
    services = replace(running.services, config=replace(config, server=replace(config.server, max_in_flight=4)))
    both = Shop(running, shop.table), Shop(running, shop.table, "globex")
    both[0].routes = both[1].routes = Routes(services, Sender(services.blobs, services.threads))
    return both


def data(answer: httpx.Response, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()["data"]


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_a_visitor_works_with_their_own_entities(shop: Shop, acme: httpx.Client) -> None:
    created = shop.ask(ADA, "POST", "/api/notes", {"title": "mine", "owner": ADA.id, "n": 7})
    note = data(created, 201)
    assert (note["title"], note["n"], created.headers["etag"]) == ("mine", 7, '"1"')
    here = f"/api/notes/{note['id']}"
    assert data(shop.ask(ADA, "GET", f"{here}?fields=title"))["title"] == "mine"
    changed = shop.ask(ADA, "PATCH", here, {"title": "still mine"}, **{"if-match": '"1"'})
    assert (data(changed)["title"], changed.headers["etag"]) == ("still mine", '"2"')
    assert code(shop.ask(ADA, "PATCH", here, {"title": "late"}, **{"if-match": '"1"'})) == (412, "version_conflict")
    history = acme.get(f"/api/v1/datapool/route-notes/entities/{note['id']}/history").raise_for_status().json()["data"]
    assert {each["actor"] for each in history} == {"webapp:shop"}
    for method, body in (("GET", None), ("PATCH", {"title": "x"}), ("DELETE", None)):
        assert code(shop.ask(BOB, method, here, body)) == (404, "not_found")
        assert code(shop.ask(ANONYMOUS, method, here, body)) == (401, "sign_in_required")
    assert [each["id"] for each in data(shop.ask(BOB, "GET", "/api/notes"))] == []
    assert data(shop.ask(ADA, "DELETE", here)) == {"deleted": note["id"]}
    assert code(shop.ask(ADA, "GET", here)) == (404, "not_found")


def test_forbidden_operations_are_refused_without_details(shop: Shop) -> None:
    for visitor, path in ((BOB, "/api/notes"), (ANONYMOUS, "/api/open")):
        refused = shop.ask(visitor, "POST", path, {"title": "theirs", "owner": ADA.id})
        assert code(refused) == (403, "policy_denied")
        assert "route-notes" not in refused.text
    assert code(shop.ask(ADA, "POST", "/api/notes", {"owner": ADA.id})) == (422, "validation_failed")
    assert code(shop.ask(ADA, "POST", "/api/notes", [1])) == (422, "validation_failed")


def test_a_list_contains_visible_entities_page_by_page(shop: Shop, acme: httpx.Client, globex: httpx.Client) -> None:
    for api in (acme, globex):
        for number in range(5):
            note = {"title": f"for all {number}", "owner": "everybody", "n": number}
            api.post("/api/v1/datapool/route-notes/entities", json=note).raise_for_status()
    acme.post("/api/v1/datapool/route-notes/entities", json={"title": "hidden", "owner": "somebody"}).raise_for_status()
    first = shop.ask(ANONYMOUS, "GET", "/api/open?sort=-n&limit=3&fields=n,title&count=exact")
    assert [each["n"] for each in data(first)] == [4, 3, 2]
    meta = first.json()["meta"]
    assert meta["total"] == 5
    rest = data(shop.ask(ANONYMOUS, "GET", f"/api/open?sort=-n&limit=3&fields=n,title&cursor={meta['next_cursor']}"))
    assert [each["n"] for each in rest] == [1, 0]
    page = data(shop.ask(ANONYMOUS, "GET", '/api/open?filter={"n":{"_gt":3}}'))
    assert [each["title"] for each in page] == ["for all 4"]
    for query, wrong in (
        ("limit=101", "invalid_request"), ("limit=x", "invalid_request"), ("group=n", "invalid_request"),
        ("x=1", "invalid_request"),
        ("sort=n&sort=n", "invalid_request"), ("filter={", "invalid_filter"), ("cursor=x", "invalid_cursor"),
    ):  # fmt: skip
        assert code(shop.ask(ANONYMOUS, "GET", f"/api/open?{query}")) == (400, wrong), query


def test_a_form_can_create_an_entity(shop: Shop) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    created = data(shop.ask(ADA, "POST", "/api/notes", b"title=8&owner=usr_ada&n=12", **form), 201)
    assert (created["title"], created["n"]) == ("8", 12)


def test_rules_see_the_roles_of_the_visitor(shop: Shop, acme: httpx.Client) -> None:
    builder, viewer = (Visitor("member", f"usr_{role}", "", f"s-{role}", (role,)) for role in ("builder", "viewer"))
    acme.post("/api/v1/datapool/route-staff/entities", json={"title": "for builders"}).raise_for_status()
    assert [each["title"] for each in data(shop.ask(builder, "GET", "/api/staff"))] == ["for builders"]
    for visitor in (viewer, Visitor("member", "usr_nobody", "", "s")):
        assert data(shop.ask(visitor, "GET", "/api/staff")) == []
    assert code(shop.ask(ADA, "GET", "/api/staff")) == (403, "policy_denied")
    assert code(shop.ask(builder, "GET", "/api/staff/ent_1")) == (403, "policy_denied")


def test_another_tenants_entities_are_not_found(shop: Shop, running: Running) -> None:
    created = data(shop.ask(ADA, "POST", "/api/notes", {"title": "acme's", "owner": ADA.id}), 201)
    elsewhere = Shop(running, shop.table, "globex")
    assert code(elsewhere.ask(ADA, "GET", f"/api/notes/{created['id']}")) == (404, "not_found")
    assert [each["title"] for each in data(elsewhere.ask(ADA, "GET", "/api/notes")) if each["title"] == "acme's"] == []


def test_a_process_knows_the_visitor_and_only_they_can_follow(shop: Shop) -> None:
    response = shop.ask(ADA, "PUT", "/api/orders/7", {"name": "Ada"})
    assert data(response)["input"]["by"] == ADA.email
    slow = shop.ask(ADA, "POST", "/api/slow", {})
    follow = data(slow, 202)["follow"]
    assert "set-cookie" not in slow.headers
    assert data(shop.ask(ADA, "GET", follow))["status"] in ("running", "waiting")
    for visitor in (BOB, ANONYMOUS, Visitor("user", ADA.id, ADA.email, "another session")):
        assert code(shop.ask(visitor, "GET", follow)) == (404, "not_found")


def test_publishing_requires_the_collection_of_a_route(acme: httpx.Client, shop: Shop) -> None:
    assert deploy(acme, "route-notes", [NOTES], access="members").status_code == 200
    acme.delete("/api/v1/webapps/route-notes", params={"force": "true"}).raise_for_status()


def test_one_tenant_does_not_use_up_the_slots_for_routes(running: Running, shop: Shop, acme: httpx.Client) -> None:
    mine, theirs = small(running, shop)
    before = {each["execution_id"] for each in executions(acme, "route-slow")}
    with ThreadPoolExecutor(1) as threads:
        patient = threads.submit(mine.ask, ADA, "POST", "/api/patient", {})
        [new] = wait_for(lambda: {each["execution_id"] for each in executions(acme, "route-slow")} - before)
        busy = mine.ask(BOB, "POST", "/api/orders", {"name": "Bob"})
        assert code(busy) == (503, "overloaded")
        assert theirs.ask(BOB, "POST", "/api/orders", {"name": "Bob"}).status_code == 200
        resume(acme, new, "done")
        assert data(patient.result(60)) == {"said": "done"}
    assert mine.ask(BOB, "POST", "/api/orders", {"name": "Bob"}).status_code == 200


def test_a_slow_body_holds_no_slot(running: Running, shop: Shop) -> None:
    mine = small(running, shop)[0]
    for path, good in (("/api/notes", 201), ("/api/orders", 200)):
        slow = Shop(running, shop.table, arrived=threading.Event())
        slow.routes = mine.routes
        body = {"name": "Ada"} if good == 200 else {"title": "Ada's", "owner": ADA.id}
        with ThreadPoolExecutor(1) as threads:
            late = threads.submit(slow.ask, ADA, "POST", path, body)
            assert slow.reading.wait(60)
            quick = mine.ask(BOB, "POST", "/api/orders", {"name": "Bob"})
            assert slow.arrived is not None
            slow.arrived.set()
            assert (quick.status_code, late.result(60).status_code) == (200, good)


def count_refused(acme: httpx.Client) -> int:
    lines = acme.get("/api/v1/logs", params={"source": "webapp", "limit": 500}).raise_for_status().json()["data"]
    return len([each for each in lines if (each["fields"].get("webapp"), each["fields"].get("status")) == ("shop", 403)])


def test_refused_calls_do_not_fill_the_log(running: Running, shop: Shop, acme: httpx.Client) -> None:
    fresh = Shop(running, shop.table)
    before = count_refused(acme)
    for _ in range(60):
        foreign = {"sec-fetch-site": "cross-site"}
        assert code(fresh.ask(ANONYMOUS, "POST", "/api/orders", {"name": "x"}, **foreign)) == (403, "browser_call_refused")
    assert data(fresh.ask(ANONYMOUS, "POST", "/api/orders", {"name": "x"}))["stored"] == "x"
    assert 1 <= count_refused(acme) - before <= 21
