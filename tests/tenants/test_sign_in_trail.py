"""Who signs in to a tenant, who signs out, and whose password was refused is in its audit trail."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.tenants import people
from appliance.tenants.sign_in import Attempt, Client, PasswordChecks, sessions
from tests.agents.world import wait_until

HOUR = 3_600_000
ANN, PASSWORD = "ann@example.com", "a long enough password of hers"


@pytest.fixture
def ann(one: TenantScope, two: TenantScope) -> str:
    user_id = people.create_user(ANN, PASSWORD).id
    people.add_member(one, ANN, "owner")
    people.add_member(two, ANN, "viewer")
    return str(user_id)


def trail(scope: TenantScope, kind: str) -> list[tuple[str, str, dict[str, Any]]]:
    """(actor, action, fields) of the entries of a kind, oldest first."""
    sql = "SELECT actor, action, fields FROM audit_entry WHERE tenant_id = ? AND action LIKE ? ORDER BY seq"
    return [(actor, action, json.loads(fields)) for actor, action, fields in db.rows(sql, (scope.tenant_id, f"{kind}.%"))]


def test_entering_and_leaving_a_tenant(one: TenantScope, two: TenantScope, ann: str, sealer: Sealer) -> None:
    client = Client("Firefox", "Linux", "192.0.2.1")
    base = sessions.sign_in(sealer, people.check_password(ANN, PASSWORD), lifetime_ms=HOUR, client=client)
    assert trail(one, "session") == []
    ((root,),) = db.rows("SELECT root FROM session WHERE user_id = ?", (ann,))
    code = sessions.create_code(sealer, ann, one.tenant_id, "enter", root=root)
    assert sessions.enter(sealer, code, one.tenant_id, lifetime_ms=HOUR, client=client) is not None
    assert sessions.enter(sealer, code, one.tenant_id, lifetime_ms=HOUR, client=client) is None
    opened = (f"user:{ann}", "session.open", {"browser": "Firefox", "system": "Linux", "address": "192.0.2.1"})
    assert trail(one, "session") == [opened]
    sessions.close_sign_in(sealer, base)
    sessions.close_sign_in(sealer, base)
    assert trail(one, "session") == [opened, (f"user:{ann}", "session.close", {})]
    assert trail(two, "session") == []


def refuse(checks: PasswordChecks, login: str, address: str) -> None:
    checks.submit(Attempt(login, address, "a device"), lambda: people.check_password(login, "wrong")).exception(20)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waits between attempts."""
    monkeypatch.setattr(PasswordChecks, "_begin", lambda *_, **__: None)


@pytest.mark.usefixtures("quick", "ann")
def test_refused_passwords_are_recorded_without_filling_the_trail(one: TenantScope, two: TenantScope) -> None:
    checks = PasswordChecks()
    try:
        for _ in range(12):
            refuse(checks, ANN, "192.0.2.7")
        refuse(checks, "nobody@example.com", "192.0.2.7")
        for scope in (one, two):
            wait_until(has_entries(scope, 2))
            first, tenth = trail(scope, "sign_in")
            assert first == ("system", "sign_in.refuse", {"login": ANN, "network": "192.0.2.7", "times_today": 1})
            assert tenth[2]["times_today"] == 10
        refuse(checks, ANN, "198.51.100.1")
        wait_until(has_entries(one, 3))
    finally:
        checks.stop()


def has_entries(scope: TenantScope, count: int) -> Callable[[], bool]:
    return lambda: len(trail(scope, "sign_in")) == count
