"""Roles of visitors in routes: members have their current roles, all others have none."""

import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from appliance.core.scope import TenantScope
from appliance.testing.running import Running
from appliance.webapps.access import Visitor, parse_access
from tests.sites.route_shop import PATIENCE, SAME, deploy
from tests.sites.test_access import PAGE, cookie_of, send, start_sign_in

WORD = "correct horse battery"
LOGIN = "rita@roles.test"
EVERYBODY = {"email": {"integration": "letters", "allow": ["*@roles.test"]}}
WHO = {"id": "$visitor.id", "email": "$visitor.email", "kind": "$visitor.kind", "roles": "$visitor.roles"}
ROUTES: list[dict[str, Any]] = [
    {"path": "/api/who", "method": "POST", "process": "roles-echo", "wait": 30, "access": "signed_in", "input": WHO},
    {"path": "/api/staff", "entities": "roles-staff", "operations": ["list"], "access": "signed_in"},
]


@pytest.fixture(scope="module")
def apps(running: Running, acme: httpx.Client) -> Iterator[str]:
    """An app for members and one for people with an e-mail address, with the same routes; answers Rita's user id."""
    rule = {"_or": [{"$actor.roles": {"_contains": "operator"}}, {"$actor.roles": {"_contains": "approver"}}]}
    fields = [{"name": "title", "type": "text"}]
    acme.post("/api/v1/datapool", json={"name": "roles-staff", "fields": fields, "access": {"list": rule}}).raise_for_status()
    acme.post("/api/v1/datapool/roles-staff/entities", json={"title": "for staff"}).raise_for_status()
    echo = {"id": "roles-echo", "steps": [{"id": "said", "rule": {"expression": "= input"}}]}
    acme.put("/api/v1/processes/roles-echo", json=echo).raise_for_status()
    acme.post("/api/v1/processes/roles-echo/publish", json={}).raise_for_status()
    deploy(acme, "roles-club", ROUTES, access="members").raise_for_status()
    deploy(acme, "roles-mail", ROUTES, access=EVERYBODY).raise_for_status()
    yield running.user(LOGIN, WORD, "acme", "viewer")
    for app in ("roles-club", "roles-mail"):
        acme.delete(f"/api/v1/webapps/{app}", params={"force": "true"}).raise_for_status()
    acme.delete("/api/v1/processes/roles-echo").raise_for_status()
    acme.delete("/api/v1/datapool/roles-staff", params={"allow_loss": "true"}).raise_for_status()


@pytest.fixture
def browser(running: Running) -> Iterator[Callable[[str], httpx.Client]]:
    """Makes a browser on the host of an app of acme."""
    clients: list[httpx.Client] = []

    def make(app: str) -> httpx.Client:
        clients.append(running.client(f"{app}--acme.content.localhost", SAME))
        return clients[-1]

    yield make
    for each in clients:
        each.close()


def who(client: httpx.Client) -> Any:
    answer = client.post("/api/who", json={})
    assert answer.status_code == 200, answer.text
    return answer.json()["data"]


def staff(client: httpx.Client) -> list[str]:
    return [each["title"] for each in client.get("/api/staff").raise_for_status().json()["data"]]


def test_a_member_who_signs_in_has_the_roles_of_the_tenant(
    running: Running, acme: httpx.Client, apps: str, browser: Callable[[str], httpx.Client]
) -> None:
    member = browser("roles-club")
    path, cookie = start_sign_in(member)
    with running.client("localhost") as base:
        base.headers["Cookie"] = cookie_of(send(base, "/sign-in", {"login": LOGIN, "password": WORD}))
        back = urlsplit(base.get(path).headers["location"])
    member.headers["Cookie"] = cookie_of(member.get(f"{back.path}?{back.query}", headers={**PAGE, "Cookie": cookie}))
    expected = {"id": apps, "email": LOGIN, "kind": "member", "roles": ["viewer"]}
    assert (who(member), staff(member)) == (expected, [])
    assert member.get("/_gos/visit").json()["data"] == expected
    acme.post("/api/v1/members", json={"login": LOGIN, "role": "operator", "approver": True}).raise_for_status()
    until = time.monotonic() + PATIENCE
    while staff(member) != ["for staff"]:
        assert time.monotonic() < until, "the new role is not seen"
    assert who(member)["roles"] == ["operator", "approver"]
    acme.post("/api/v1/members", json={"login": LOGIN, "role": "viewer"}).raise_for_status()


def test_a_visitor_never_has_a_role(
    running: Running, acme: httpx.Client, apps: str, browser: Callable[[str], httpx.Client]
) -> None:
    """Not even one whose provider calls them by the user id of a member, and by the same e-mail address."""
    acme.post("/api/v1/members", json={"login": LOGIN, "role": "operator"}).raise_for_status()
    scope, access = TenantScope("acme", "tests"), parse_access(EVERYBODY)
    visitor = browser("roles-mail")
    operator = Visitor("user", apps, LOGIN, roles=("operator",))
    token = running.services.webapps.visits.open_visit(scope, "roles-mail", access, operator)
    visitor.headers["Cookie"] = f"__Host-gos_visit={token}"
    assert (who(visitor), staff(visitor)) == ({"id": apps, "email": LOGIN, "kind": "user"}, [])
    assert visitor.get("/_gos/visit").json()["data"] == {"id": apps, "email": LOGIN, "kind": "user"}
    acme.post("/api/v1/members", json={"login": LOGIN, "role": "viewer"}).raise_for_status()
