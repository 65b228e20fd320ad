"""Who leaves the company has no session, no key and no approval that waits for them here, at once."""

from collections.abc import Callable

import pytest

from appliance.core.scope import TenantScope
from appliance.governance.approvals import approvals
from appliance.tenants import ALL_SCOPES, AccountSpec, SignedIn, accounts, people, service_accounts
from appliance.tenants.keys import KeySpec, keys
from appliance.tenants.single_sign_on import ReservedLogins
from appliance.testing.running import Running
from tests.api.resources import fresh
from tests.console.sign_in.company import PASSWORD, Employee
from tests.scim.provider import GROUP, USER, Directory
from tests.scim.test_sign_in import entries_about, roles_of
from tests.webapps.identity_provider import IdentityProvider

Leave = Callable[[Directory, str, str], None]


def deactivate(corp: Directory, user: str, _group: str) -> None:
    corp.patch(f"/Users/{user}", {"op": "Replace", "path": "active", "value": "False"})


def deactivate_by_put(corp: Directory, user: str, _group: str) -> None:
    corp.ask("PUT", f"/Users/{user}", {**corp.ask("GET", f"/Users/{user}"), "active": False})


def delete(corp: Directory, user: str, _group: str) -> None:
    corp.drop(f"/Users/{user}")


def leave_group(corp: Directory, user: str, group: str) -> None:
    corp.patch(f"/Groups/{group}", {"op": "Remove", "path": f'members[value eq "{user}"]'})


def empty_group(corp: Directory, _user: str, group: str) -> None:
    corp.ask("PUT", f"/Groups/{group}", {"schemas": [GROUP], "displayName": "bosses"})


def rename_group(corp: Directory, _user: str, group: str) -> None:
    corp.patch(f"/Groups/{group}", {"op": "replace", "value": {"displayName": "no rule names it"}})


def delete_group(corp: Directory, _user: str, group: str) -> None:
    corp.drop(f"/Groups/{group}")


@pytest.fixture
def hire(live: Running, provider: IdentityProvider) -> Callable[[str], Employee]:
    return lambda name: Employee(live, provider, name)


@pytest.mark.parametrize("leave", [deactivate, deactivate_by_put, delete, leave_group, empty_group, rename_group, delete_group])
def test_a_leaver_has_nothing_left(live: Running, corp: Directory, hire: Callable[[str], Employee], leave: Leave) -> None:
    ann, acme = hire(fresh("ann")), live.tenant("acme")
    user = corp.add_user(ann.login)
    group = corp.add_group("bosses", user)
    ann.sign_in()
    assert ann.can_open("acme")
    theirs = TenantScope("acme", f"user:{user}", ALL_SCOPES)
    text = keys.issue_key(theirs, live.services.sealer, KeySpec("theirs", ["logs.read"], "test"))[1]
    with live.client("acme.localhost", {"X-API-Key": text}) as key:
        assert key.get("/api/v1/logs/audit").status_code == 200
        with live.api("acme") as other:
            assert other.post("/api/v1/approvals", json={"kind": "approval", "title": fresh("May we")}).is_success
        assert approvals.count_decidable(acme, SignedIn(user, ann.login, "owner", theirs)) >= 1
        leave(corp, user, group)
        refused = key.get("/api/v1/logs/audit")
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "revoked_api_key")
    assert not ann.can_open("acme")
    ann.browser.get(ann.browser.at("", "/"))
    assert "/sign-in" in ann.browser.url, "not even on the base host"
    assert approvals.count_decidable(acme, SignedIn(user, ann.login, "owner", theirs)) == 0
    assert ann.login not in {each.login for each in people.list_members(acme)}
    assert entries_about(live, "acme", user)[-1] in {("user.disable", "corp"), ("user.delete", "corp"), ("member.remove", "corp")}
    ann.sign_in("bosses")
    assert not ann.can_open("acme"), "and cannot sign in again"
    for each in corp.ask("GET", "/Groups")["Resources"]:
        corp.drop(f"/Groups/{each['id']}")
    for each in corp.ask("GET", "/Users")["Resources"]:
        corp.drop(f"/Users/{each['id']}")


@pytest.mark.parametrize("leave", [deactivate, delete, leave_group, delete_group])
def test_a_service_account_of_a_leaver_works_on_and_nobody_is_responsible(live: Running, corp: Directory, leave: Leave) -> None:
    acme, login = live.tenant("acme"), f"{fresh('ann')}@corp.example"
    user = corp.add_user(login)
    group = corp.add_group("bosses", user)
    theirs = TenantScope("acme", f"user:{user}", ALL_SCOPES)
    account = service_accounts.create_account(theirs, AccountSpec(fresh("robot"), "Robot", ["logs.read"]))
    assert account.responsible == login
    text = service_accounts.issue_key(theirs, live.services.sealer, account.id, KeySpec("its", ["logs.read"], "test"))[1]
    leave(corp, user, group)
    assert account.id in {each.id for each in service_accounts.list_without_responsible(acme)}
    with live.client("acme.localhost", {"X-API-Key": text}) as key:
        assert key.get("/api/v1/logs/audit").status_code == 200
    for kind in ("Groups", "Users"):
        for each in corp.ask("GET", f"/{kind}")["Resources"]:
            corp.drop(f"/{kind}/{each['id']}")


def test_who_comes_back_has_their_roles_and_keys_again(live: Running, corp: Directory, hire: Callable[[str], Employee]) -> None:
    ann = hire(fresh("ann"))
    user = corp.add_user(ann.login)
    group = corp.add_group("ops", user)
    ann.sign_in()
    deactivate(corp, user, group)
    assert accounts.find_former_name(user) == accounts.FormerName(ann.login, is_deleted=False)
    corp.patch(f"/Users/{user}", {"op": "Replace", "path": "active", "value": True})
    assert not ann.can_open("acme"), "the old session has ended"
    ann.sign_in()
    assert ann.can_open("acme")
    corp.drop(f"/Groups/{group}", f"/Users/{user}")


def test_somebody_with_another_role_stays_signed_in(live: Running, corp: Directory, hire: Callable[[str], Employee]) -> None:
    ann = hire(fresh("ann"))
    user = corp.add_user(ann.login)
    ops, dev = corp.add_group("ops", user), corp.add_group("dev", user)
    people.add_member(live.tenant("globex"), ann.login, "operator")
    ann.sign_in()
    assert ann.can_open("globex")
    corp.drop(f"/Groups/{ops}", f"/Groups/{dev}")
    assert roles_of(live, ann.login) == {"globex": "operator"}, "given by hand"
    assert (ann.can_open("globex"), ann.can_open("acme")) == (True, False)
    corp.drop(f"/Users/{user}")


def test_a_last_owner_keeps_the_role_and_loses_the_access(live: Running, corp: Directory, hire: Callable[[str], Employee]) -> None:
    cem = hire(fresh("cem"))
    user = corp.add_user(cem.login)
    group = corp.add_group("founders", user)
    assert roles_of(live, cem.login) == {"lonely": "owner"}
    cem.sign_in()
    assert cem.can_open("lonely")
    leave_group(corp, user, group)
    assert roles_of(live, cem.login) == {"lonely": "owner"}, "as in single sign-on"
    deactivate(corp, user, group)
    assert not cem.can_open("lonely")
    corp.patch(f"/Users/{user}", {"op": "Replace", "path": "active", "value": True})
    corp.drop(f"/Users/{user}", f"/Groups/{group}")
    assert roles_of(live, cem.login) == {"lonely": "owner"}
    assert [each.state for each in accounts.list_accounts() if each.login == cem.login] == ["disabled"]
    actions = [action for action, provider in entries_about(live, "lonely", user) if provider == "corp"]
    assert actions.count("member.keep_owner") == 4
    assert "user.delete" not in actions
    assert corp.refuse("POST", "/Users", {"schemas": [USER], "userName": cem.login}) == (409, "uniqueness"), "the operator decides"
    live.user("owner@lonely.test", PASSWORD, "lonely", "owner")
    accounts.delete_account(cem.login)


def test_the_account_for_emergencies_is_not_disabled(live: Running, corp: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    login = f"{fresh('glass')}@corp.test"
    user = corp.add_user(login)
    with monkeypatch.context() as later:  # the operator has named it after it was provisioned
        later.setattr(live.services.provisioning, "reserved", ReservedLogins((), login))
        body = {"schemas": [USER], "userName": login, "active": False}
        assert corp.refuse("PUT", f"/Users/{user}", body) == (403, None)
        assert corp.refuse("DELETE", f"/Users/{user}") == (403, None)
    assert [each.state for each in accounts.list_accounts() if each.login == login] == ["active"]
    corp.drop(f"/Users/{user}")
