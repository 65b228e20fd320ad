"""Every change by SCIM, and every refused one, is in the trails of the tenants that it concerns, with the provider."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from appliance.core.database import db
from appliance.scim import METHODS
from appliance.scim.resources import PROVIDER
from appliance.tenants import people
from appliance.testing.running import Running
from tests.api.resources import fresh
from tests.console.sign_in.company import PASSWORD
from tests.scim.provider import GROUP, PATCH, USER, Directory

CHANGES = [(method, str(kind.endpoint)) for method in METHODS if method != "GET" for kind in PROVIDER.resource_types]
Entries = Callable[[], list[tuple[str, str]]]


@pytest.fixture
def entries(live: Running) -> Entries:
    """Action and provider of what has been recorded in acme's trail since the test began."""
    ((before,),) = db.rows("SELECT last_seq FROM audit_chain WHERE tenant_id = 'acme'")

    def read() -> list[tuple[str, str]]:
        rows = db.rows("SELECT action, fields FROM audit_entry WHERE tenant_id = 'acme' AND seq > ? ORDER BY seq", (before,))
        return [(action, json.loads(fields).get("provider", "")) for action, fields in rows]

    return read


def change_user(directory: Directory, running: Running, method: str) -> str:
    """Send a change of a person who is a member of acme; returns their id."""
    login = f"{fresh('m')}@acme.test"
    known = running.user(login, PASSWORD, "acme", "operator")
    body = {"schemas": [USER], "userName": login, "displayName": "Ann"}
    directory.ask("POST", "/Users", body)
    if method == "PUT":
        directory.ask("PUT", f"/Users/{known}", body | {"displayName": "Bea"})
    if method == "PATCH":
        directory.patch(f"/Users/{known}", {"op": "remove", "path": "displayName"})
    if method == "DELETE":
        directory.drop(f"/Users/{known}")
    return known


def change_group(directory: Directory, method: str) -> None:
    """Send a change of a group that has a role in acme."""
    group = directory.add_group("ops")
    if method == "PUT":
        directory.ask("PUT", f"/Groups/{group}", {"schemas": [GROUP], "displayName": "ops 2"})
    if method == "PATCH":
        directory.patch(f"/Groups/{group}", {"op": "replace", "path": "displayName", "value": "ops 2"})
    directory.drop(f"/Groups/{group}")


EXPECTED = {
    ("POST", "/Users"): "identity.link", ("PUT", "/Users"): "user.change", ("PATCH", "/Users"): "user.change",
    ("DELETE", "/Users"): "user.disable", ("POST", "/Groups"): "group.add", ("PUT", "/Groups"): "group.change",
    ("PATCH", "/Groups"): "group.change", ("DELETE", "/Groups"): "group.remove",
}  # fmt: skip


@pytest.mark.parametrize(("method", "endpoint"), CHANGES)
def test_a_change_is_in_the_audit_trail(
    live: Running, corp: Directory, trusted: Directory, entries: Entries, method: str, endpoint: str
) -> None:
    if endpoint == "/Users":
        change_user(trusted, live, method)
        assert (EXPECTED[method, endpoint], "trusted") in entries()
    else:
        change_group(corp, method)
        assert (EXPECTED[method, endpoint], "corp") in entries()


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_a_refused_try_to_take_an_account_is_in_the_audit_trail(
    live: Running, corp: Directory, entries: Entries, method: str
) -> None:
    login = people.list_members(live.tenant("acme"))[0].login
    user = corp.add_user()
    body: dict[str, Any] = {"schemas": [USER], "userName": login}
    if method == "PATCH":
        body = {"schemas": [PATCH], "Operations": [{"op": "replace", "path": "userName", "value": login}]}
    path = "/Users" if method == "POST" else f"/Users/{user}"
    assert corp.refuse(method, path, body) == (409, "uniqueness")
    assert entries() == [("user.provision_refuse", "corp")]
    corp.drop(f"/Users/{user}")


def test_no_value_about_a_person_is_in_the_trail(live: Running, trusted: Directory) -> None:
    user = change_user(trusted, live, "PUT")
    with live.api("acme") as api:
        rows = api.get("/api/v1/logs/audit", params={"subject": user}).json()["data"]
    assert [json.loads(each["fields"])["changed"] for each in rows if each["action"] == "user.change"] == [["displayName"]]
    assert "Bea" not in json.dumps(rows)


def test_a_change_that_changes_nothing_leaves_no_entry(corp: Directory, entries: Entries) -> None:
    group = corp.add_group("ops")
    before = entries()
    corp.patch(f"/Groups/{group}", {"op": "replace", "path": "displayName", "value": "ops"})
    corp.ask("PUT", f"/Groups/{group}", {"schemas": [GROUP], "displayName": "ops"})
    assert entries() == before
    corp.drop(f"/Groups/{group}")
