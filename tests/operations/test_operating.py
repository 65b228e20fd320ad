"""The appliance is operated by REST, and everything is in its own audit trail."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from appliance.backups.jobs import JobRunner, TenantDeletions
from appliance.core import clock
from appliance.monitor import verify_trails
from appliance.tenants import appliance_scope, service
from appliance.testing.running import Running
from tests.agents.world import wait_until
from tests.console.browser import Browser
from tests.operations.conftest import ADMINISTRATOR, issue

BASE, DAY_MS = "/api/v1/appliance", 86_400_000


def data(answer: httpx.Response, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()["data"]


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def entries(operator: httpx.Client, **criteria: str) -> list[dict[str, Any]]:
    """Entries of the appliance's trail, the oldest first."""
    return list(reversed(data(operator.get(f"{BASE}/audit", params={"limit": "500", **criteria}))))


def read_until(operator: httpx.Client, path: str, is_reached: Callable[[httpx.Response], bool]) -> httpx.Response:
    wait_until(lambda: is_reached(operator.get(BASE + path)), seconds=60)
    return operator.get(BASE + path)


def make_backup(operator: httpx.Client) -> dict[str, Any]:
    """A backup, made now."""
    backup: dict[str, Any] = data(operator.post(f"{BASE}/backups", json={}), 202)
    ended = read_until(operator, f"/backups/{backup['number']}", lambda answer: answer.json()["data"]["state"] != "running")
    assert (data(ended)["state"], data(ended)["encrypted"]) == ("done", True)
    return backup


def test_tenants_are_deleted_at_the_same_time(live: Running, operator: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"twin{number}" for number in range(3)]
    for name in names:
        data(operator.post(f"{BASE}/tenants", json={"id": name}), 201)
    runner, claims = live.services.transfers.runner, list[Any]()
    with monkeypatch.context() as waiting:
        waiting.setattr(runner, "submit", claims.append)  # none of them ends before the last was asked for
        for name in names:
            assert data(operator.delete(f"{BASE}/tenants/{name}"), 202)["deletion"]["state"] == "running"
    for claim in claims:
        runner.submit(claim)
    for name in names:
        read_until(operator, f"/tenants/{name}", lambda answer: answer.status_code == 404)


def test_a_tenant_from_creation_to_deletion(live: Running, operator: httpx.Client) -> None:
    actor = entries(operator, action="key.issue")[-1]["subject"]
    tenant = data(operator.post(f"{BASE}/tenants", json={"id": "shop", "name": "The shop"}), 201)
    assert (tenant["id"], tenant["kind"], "deletion" in tenant) == ("shop", "standard", False)
    conflict = operator.post(f"{BASE}/tenants", json={"id": "shop"})
    assert (*error(conflict), conflict.json()["error"]["id"]) == (409, "already_exists", "shop")
    assert data(operator.patch(f"{BASE}/tenants/shop", json={"name": "Shop"}))["name"] == "Shop"

    user = data(operator.post(f"{BASE}/users", json={"login": "Ann@acme.test", "password": "correct horse battery"}), 201)
    again = operator.post(f"{BASE}/users", json={"login": "ann@acme.test"})
    assert (*error(again), again.json()["error"]["id"]) == (409, "already_exists", user["id"])
    membership = f"{BASE}/users/{user['id']}/memberships/shop"
    for _ in range(2):
        assert data(operator.put(membership, json={"role": "owner"}))["role"] == "owner"
    assert data(operator.get(f"{BASE}/users/{user['id']}"))["memberships"] == [{"tenant_id": "shop", "role": "owner"}]
    assert [each["id"] for each in data(operator.get(f"{BASE}/users", params={"login": "ann@acme.test"}))] == [user["id"]]
    assert error(operator.delete(membership)) == (409, "conflict")

    quotas = data(operator.put(f"{BASE}/tenants/shop/quotas", json={"quotas": {"entities": "5000"}}))
    assert {each["name"]: each.get("limit") for each in quotas}["entities"] == 5000
    assert data(operator.get(f"{BASE}/tenants/shop/quotas")) == quotas

    backup = make_backup(operator)
    assert data(operator.delete(f"{BASE}/tenants/shop"), 202)["deletion"]["state"] == "running"
    read_until(operator, "/tenants/shop", lambda answer: answer.status_code == 404)
    assert data(operator.get(f"{BASE}/users/{user['id']}"))["memberships"] == []
    assert data(operator.delete(f"{BASE}/users/{user['id']}"))["deleted"] == user["id"]

    trail = [(each["action"], each["subject"]) for each in entries(operator, actor=f"key:{actor}")]
    assert trail == [
        ("tenant.create", "shop"), ("tenant.rename", "shop"), ("user.create", user["id"]), ("member.add", user["id"]),
        ("tenant.quotas", "shop"), ("backup.make", str(backup["number"])), ("tenant.delete", "shop"), ("user.delete", user["id"]),
    ]  # fmt: skip
    assert data(operator.get(f"{BASE}/audit/verify"))["intact"]
    assert all(status.intact for _, status in verify_trails())


def test_a_password_that_the_operator_knows_is_replaced_at_the_first_sign_in(live: Running, operator: httpx.Client) -> None:
    login, typed, own = "zoe@acme.test", "correct horse battery", "seven green bottles hum quietly"
    user = data(operator.post(f"{BASE}/users", json={"login": login, "password": typed}), 201)
    left = clock.parse_rfc3339(user["password_expires_at"], pointer="") - clock.now_ms()
    assert 6 * DAY_MS < left <= 7 * DAY_MS
    live.tenant("acme")
    data(operator.put(f"{BASE}/users/{user['id']}/memberships/acme", json={"role": "viewer"}))
    browser = Browser(live)
    browser.sign_in(login, typed, "acme")
    assert browser.url == browser.at("", "/sign-in/password")
    browser.post(browser.url, {"password": own, "again": own})
    assert browser.url == browser.at("acme", "/console/")
    assert "password_expires_at" not in data(operator.get(f"{BASE}/users/{user['id']}"))


def test_a_password_lasts_for_a_program_if_the_operator_says_so(live: Running, operator: httpx.Client) -> None:
    login, password = "program@acme.test", "correct horse battery"
    user = data(operator.post(f"{BASE}/users", json={"login": login, "password": password, "lasting": True}), 201)
    live.tenant("acme")
    data(operator.put(f"{BASE}/users/{user['id']}/memberships/acme", json={"role": "viewer"}))
    browser = Browser(live)
    browser.sign_in(login, password, "acme")
    assert ("password_expires_at" in user, browser.url) == (False, browser.at("acme", "/console/"))
    refused = operator.post(f"{BASE}/users", json={"login": "other@acme.test", "lasting": True})
    assert (*error(refused), "/lasting" in refused.text) == (422, "validation_failed", True)
    assert "password_expires_at" not in data(operator.post(f"{BASE}/users", json={"login": "other@acme.test"}), 201)


def test_the_trail_of_a_tenant_names_the_appliance_s_key(live: Running, operator: httpx.Client) -> None:
    data(operator.post(f"{BASE}/tenants", json={"id": "traced"}), 201)
    user = data(operator.post(f"{BASE}/users", json={"login": "eve@traced.test"}), 201)
    data(operator.put(f"{BASE}/users/{user['id']}/memberships/traced", json={"role": "viewer"}))
    data(operator.patch(f"{BASE}/users/{user['id']}", json={"disabled": True}))
    with live.api("traced") as client:
        trail = data(client.get("/api/v1/logs/audit"))
    key = entries(operator, action="key.issue")[-1]["subject"]
    assert [(each["action"], each["actor"]) for each in reversed(trail) if each["subject"] == user["id"]] == [
        ("member.add", f"appliance:{key}"), ("user.disable", f"appliance:{key}"),
    ]  # fmt: skip
    assert data(operator.get(f"{BASE}/users/{user['id']}"))["state"] == "disabled"
    assert data(operator.patch(f"{BASE}/users/{user['id']}", json={"disabled": False}))["state"] == "active"


def test_a_sandbox_expires_and_can_be_extended_and_kept(operator: httpx.Client) -> None:
    first = data(operator.post(f"{BASE}/tenants", json={"id": "trial", "sandbox": True, "days": 3}), 201)
    assert first["kind"] == "sandbox"
    longer = data(operator.patch(f"{BASE}/tenants/trial", json={"days": 30}))
    assert longer["expires_at"] > first["expires_at"]
    assert "expires_at" not in data(operator.patch(f"{BASE}/tenants/trial", json={"kind": "standard"}))
    assert error(operator.patch(f"{BASE}/tenants/trial", json={"days": 3})) == (409, "conflict")
    assert error(operator.post(f"{BASE}/tenants", json={"id": "other", "days": 3})) == (422, "validation_failed")


def test_people_are_invited(operator: httpx.Client) -> None:
    data(operator.post(f"{BASE}/tenants", json={"id": "inviting"}), 201)
    invited = operator.post(f"{BASE}/tenants/inviting/invitations", json={"login": "new@inviting.test", "role": "owner"})
    assert data(invited, 201)["link"].startswith("http")
    assert entries(operator, action="invitation.make")[-1]["subject"] == data(invited, 201)["id"]


def test_repeating_a_request_creates_nothing_twice(operator: httpx.Client) -> None:
    once = {"Idempotency-Key": "terraform-1"}
    answers = [operator.post(f"{BASE}/tenants", json={"id": "once"}, headers=once) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[1].headers["Idempotency-Replayed"] == "true"
    assert len(entries(operator, action="tenant.create", subject="once")) == 1


def test_lists_have_pages(operator: httpx.Client) -> None:
    names: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        answer = operator.get(f"{BASE}/tenants", params={"limit": "1", **cursor})
        names += [each["id"] for each in data(answer)]
        if (following := answer.json()["meta"].get("next_cursor")) is None:
            break
        cursor = {"cursor": following}
    assert names == sorted(row.id for row in service.list_tenants())
    assert "@appliance" not in names


def test_health_says_what_the_doctor_finds(live: Running, operator: httpx.Client) -> None:
    health = data(operator.get(f"{BASE}/health"))
    assert (health["pending_migrations"], health["tenants"]) == (0, len(service.list_tenants()))
    assert {"storage", "backups", "queue", "connectors", "exposure"} <= {each["check"] for each in health["findings"]}
    assert all(each["level"] in ("ok", "note", "fail") and each["text"] for each in health["findings"])
    assert health["status"] == ("failing" if any(each["level"] == "fail" for each in health["findings"]) else "ok")
    assert operator.get(f"{BASE}/tenants").status_code == 200, "the checks must leave the database open"


def test_a_restore_is_rehearsed(operator: httpx.Client) -> None:
    make_backup(operator)
    number = data(operator.post(f"{BASE}/rehearsals"), 202)["number"]
    wait_until(
        lambda: data(operator.get(f"{BASE}/rehearsals"))[0]["state"] != "running", seconds=120,
    )
    newest = data(operator.get(f"{BASE}/rehearsals"))[0]
    assert (newest["number"], newest["state"], newest.get("problem")) == (number, "done", None)
    assert entries(operator, action="backup.rehearse")[-1]["subject"] == str(number)


@pytest.mark.parametrize(("method", "body"), [("POST", {"login": ADMINISTRATOR.upper(), "password": "correct horse battery"})])
def test_keys_do_not_make_administrators(operator: httpx.Client, method: str, body: dict[str, str]) -> None:
    assert error(operator.request(method, f"{BASE}/users", json=body)) == (403, "policy_denied")
    (administrator,) = data(operator.get(f"{BASE}/users", params={"login": ADMINISTRATOR}))
    address = f"{BASE}/users/{administrator['id']}"
    assert error(operator.patch(address, json={"disabled": True})) == (403, "policy_denied")
    assert error(operator.delete(address)) == (403, "policy_denied")


def test_a_tenant_with_retained_documents_stays(live: Running, operator: httpx.Client) -> None:
    data(operator.post(f"{BASE}/tenants", json={"id": "keeping"}), 201)
    with live.api("keeping") as client:
        document = data(client.post("/api/v1/documents", params={"name": "a.txt"}, content=b"kept"), 201)["id"]
        hold = client.put(f"/api/v1/documents/{document}/legal-hold", json={"reason": "a case"})
        assert hold.is_success, hold.text
    data(operator.delete(f"{BASE}/tenants/keeping"), 202)
    answer = read_until(operator, "/tenants/keeping", lambda each: each.json()["data"]["deletion"]["state"] == "failed")
    assert "problem" in data(answer)["deletion"]
    assert entries(operator, action="tenant.delete_refused")[-1]["subject"] == "keeping"


def test_a_deletion_outlives_the_process_that_was_asked(live: Running, operator: httpx.Client) -> None:
    data(operator.post(f"{BASE}/tenants", json={"id": "orphan"}), 201)
    runner = JobRunner(live.services.sealer, "an instance that has ended", lambda _: False)
    deletions = TenantDeletions(runner)
    runner.stop()
    deletions.start(appliance_scope(), "orphan")
    read_until(operator, "/tenants/orphan", lambda answer: answer.status_code == 404)
    assert entries(operator, action="tenant.delete")[-1]["subject"] == "orphan"


def test_scopes_of_the_appliance_are_no_scopes_of_tenants(live: Running) -> None:
    narrow = issue(live, "appliance.read")
    with live.client(live.config.domains.base, {"X-API-Key": narrow}) as client:
        refused = client.post(f"{BASE}/tenants", json={"id": "never"})
        assert (*error(refused), refused.json()["error"]["scope"]) == (403, "scope_missing", "appliance.tenants")
        wait_until(lambda: [each for each in entries(client, action="request.refuse") if each["subject"] == "create_tenant"] != [])
        (entry,) = [each for each in entries(client, action="request.refuse") if each["subject"] == "create_tenant"]
    assert json.loads(entry["fields"])["code"] == "scope_missing"
    with live.api("acme") as tenant:
        issued = tenant.post("/api/v1/keys", json={"name": "wide", "scopes": ["appliance.read"]})
        assert error(issued) == (422, "validation_failed")
    assert appliance_scope().scopes.isdisjoint(service.system_scope("acme").scopes)
