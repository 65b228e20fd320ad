"""A valid request of each route of the appliance itself, with what it needs prepared by the same routes."""

import itertools
from collections.abc import Callable
from typing import Any

import httpx

from appliance.core import clock
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.monitor import audit
from tests.agents.world import wait_until
from tests.api.example import Example

BASE, PASSPHRASE = "/api/v1/appliance", "a passphrase of the examples"
_CLIENT = {"client_id": "gos", "client_secret": "secret"}
PROVIDERS: list[dict[str, Any]] = [
    {
        "id": "corp", "issuer": "https://127.0.0.1:9/corp", "scim": True, **_CLIENT,
        "roles": [{"group": "ops", "tenant": "acme", "role": "operator"}],
    },
    {"id": "plain", "issuer": "https://127.0.0.1:9/plain", **_CLIENT},
]  # fmt: skip
"""The identity providers that the examples need in `sign_in.providers`, one with SCIM; nobody signs in with them."""
_numbers = itertools.count(1)


def _create(client: httpx.Client, path: str, body: dict[str, Any]) -> Any:
    answer = client.post(BASE + path, json=body)
    assert answer.is_success, answer.text
    return answer.json()["data"]


def tenant(client: httpx.Client) -> str:
    return str(_create(client, "/tenants", {"id": f"shop{next(_numbers)}", "name": "The shop"})["id"])


def user(client: httpx.Client) -> str:
    return str(_create(client, "/users", {"login": f"ann{next(_numbers)}@acme.example"})["id"])


def scim_token(client: httpx.Client) -> str:
    return str(_create(client, "/scim-tokens", {"provider": "corp", "days": 90})["id"])


def membership(client: httpx.Client) -> dict[str, str]:
    path = {"user_id": user(client), "tenant_id": tenant(client)}
    answer = client.put(f"{BASE}/users/{path['user_id']}/memberships/{path['tenant_id']}", json={"role": "viewer"})
    assert answer.is_success, answer.text
    return path


def _idle(client: httpx.Client) -> None:
    """Wait until another backup can be made: they are named after the second in which they are begun."""

    def can_begin() -> bool:
        backups = client.get(f"{BASE}/backups").json()["data"]
        this_second = clock.rfc3339(clock.now_ms())[:19]
        return all(each["state"] != "running" and each["started_at"][:19] < this_second for each in backups)

    wait_until(can_begin, seconds=60)


def backup(client: httpx.Client) -> str:
    _idle(client)
    number = _create(client, "/backups", {"passphrase": PASSPHRASE})["number"]
    wait_until(lambda: client.get(f"{BASE}/backups/{number}").json()["data"]["state"] != "running", seconds=60)
    return str(number)


def _rehearsed(client: httpx.Client) -> Example:
    backup(client)
    _create(client, "/rehearsals", {})
    wait_until(lambda: client.get(f"{BASE}/rehearsals").json()["data"][0]["state"] != "running", seconds=60)
    return Example()


def _prepared(prepare: Callable[[httpx.Client], Any], **parts: Any) -> Callable[[httpx.Client], Example]:
    def example(client: httpx.Client) -> Example:
        prepare(client)
        return Example(**parts)

    return example


def refuse_records(tenant_id: str) -> None:
    """Have the database say that the collector has refused two records of the tenant's trail."""
    insert = (
        "INSERT INTO audit_forward (tenant_id, destination, seq, fence, lease_until, checkpoint_seq, checkpoint_at, rejected, "
        "rejected_first, rejected_last, rejected_at, rejected_reason) VALUES (?, 'otlp', 3, 0, 0, 3, 0, 2, 1, 3, ?, ?)"
    )

    def write() -> None:
        audit.record(TenantScope(tenant_id, "system"), "quota.set", "storage", {"amount": "20GB"})
        db.execute(insert, (tenant_id, clock.now_ms(), "attribute too long"))

    db.write(write)


EXAMPLES: dict[str, Callable[[httpx.Client], Example]] = {
    "list_tenants": _prepared(tenant),
    "create_tenant": lambda client: Example(
        body={"id": f"shop{next(_numbers)}", "name": "The shop", "sandbox": True, "days": 30}
    ),
    "get_managed_tenant": lambda client: Example({"tenant_id": tenant(client)}),
    "change_tenant": lambda client: Example({"tenant_id": tenant(client)}, {"name": "Shop of Acme"}),
    "delete_tenant": lambda client: Example({"tenant_id": tenant(client)}),
    "list_tenant_quotas": lambda client: Example({"tenant_id": tenant(client)}),
    "put_tenant_quotas": lambda client: Example(
        {"tenant_id": tenant(client)}, {"quotas": {"storage": "20GB", "executions_per_day": "5000"}}
    ),
    "invite_to_tenant": lambda client: Example(
        {"tenant_id": tenant(client)}, {"login": f"bob{next(_numbers)}@acme.example", "role": "owner"}
    ),
    "list_users": _prepared(membership),
    "create_user": lambda client: Example(body={"login": f"ann{next(_numbers)}@acme.example"}),
    "get_user": lambda client: Example({"user_id": membership(client)["user_id"]}),
    "change_user": lambda client: Example({"user_id": user(client)}, {"disabled": True}),
    "delete_user": lambda client: Example({"user_id": user(client)}),
    "put_membership": lambda client: Example({"user_id": user(client), "tenant_id": tenant(client)}, {"role": "owner"}),
    "delete_membership": lambda client: Example(membership(client)),
    "list_scim_tokens": _prepared(scim_token),
    "issue_scim_token": lambda client: Example(body={"provider": "corp", "days": 90}),
    "get_scim_token": lambda client: Example({"token_id": scim_token(client)}),
    "rotate_scim_token": lambda client: Example({"token_id": scim_token(client)}, {"overlap_seconds": 86_400}),
    "revoke_scim_token": lambda client: Example({"token_id": scim_token(client)}),
    "list_backups": _prepared(backup),
    "make_backup": _prepared(_idle, body={"passphrase": PASSPHRASE}),
    "get_backup": lambda client: Example({"number": backup(client)}),
    "list_restore_rehearsals": _rehearsed,
    "rehearse_restore": lambda client: Example(),
    "get_points": lambda client: Example(),
    "get_health": lambda client: Example(),
    "list_appliance_audit": _prepared(tenant),
    "list_audit_rejections": _prepared(lambda client: refuse_records(tenant(client))),
    "verify_appliance_audit": lambda client: Example(),
}
