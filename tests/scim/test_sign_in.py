"""Provisioned people sign in with their provider, with the roles of the groups that it has sent."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from appliance.core.database import db
from appliance.tenants import accounts, people
from appliance.tenants.models import PersonIdentity
from appliance.testing.running import Running
from tests.api.resources import fresh
from tests.console.sign_in.company import PASSWORD, Employee
from tests.scim.provider import ADMINISTRATOR, BREAK_GLASS, PATCH, USER, Directory
from tests.webapps.identity_provider import IdentityProvider

NOT_ADDED = "Your provider has not added you here"


@pytest.fixture
def hire(live: Running, provider: IdentityProvider) -> Callable[[str], Employee]:
    return lambda name: Employee(live, provider, name)


def roles_of(running: Running, login: str) -> dict[str, str]:
    return {tenant.id: role for tenant, role in people.tenants_of(people.find_user(login).id)}


def entries_about(running: Running, tenant: str, subject: str) -> list[tuple[str, Any]]:
    """Action and provider of the entries about something, oldest first."""
    with running.api(tenant) as api:
        rows = api.get("/api/v1/logs/audit", params={"subject": subject, "limit": 100}).json()["data"]
    return [(each["action"], json.loads(each["fields"]).get("provider")) for each in reversed(rows) if each["actor"] == "system"]


def test_groups_give_roles_at_once_and_claims_do_not(live: Running, corp: Directory, hire: Callable[[str], Employee]) -> None:
    ann = hire(fresh("ann"))
    user = corp.add_user(ann.login)
    assert roles_of(live, ann.login) == {}
    ops, dev = corp.add_group("ops", user), corp.add_group("dev")
    assert roles_of(live, ann.login) == {"acme": "operator", "lonely": "viewer"}
    ann.sign_in("bosses")  # a claim that is not read
    assert ann.can_open("acme")
    assert roles_of(live, ann.login) == {"acme": "operator", "lonely": "viewer"}
    corp.patch(f"/Groups/{dev}", {"op": "add", "path": "members", "value": [{"value": user}]})
    assert roles_of(live, ann.login) == {"acme": "builder", "globex": "viewer", "lonely": "viewer"}
    assert ann.can_open("globex"), "without a new sign-in"
    corp.patch(f"/Groups/{ops}", {"op": "replace", "path": "displayName", "value": "bosses"})
    assert roles_of(live, ann.login) == {"acme": "owner", "globex": "viewer"}
    corp.drop(f"/Groups/{ops}")
    assert roles_of(live, ann.login) == {"acme": "builder", "globex": "viewer"}
    assert not ann.can_open("lonely")
    actions = entries_about(live, "acme", user)
    assert actions == [(each, "corp") for each in ("member.add", "identity.link", "member.add", "member.add", "member.add")]
    assert entries_about(live, "acme", ops) == [("group.add", "corp"), ("group.change", "corp"), ("group.remove", "corp")]
    corp.drop(f"/Users/{user}", f"/Groups/{dev}")
    assert entries_about(live, "globex", user)[-1] == ("user.delete", "corp")


def test_only_people_whom_the_provider_has_added_sign_in(live: Running, corp: Directory, hire: Callable[[str], Employee]) -> None:
    bob = hire(fresh("bob"))
    assert NOT_ADDED in bob.sign_in("ops").text
    assert not any(each.login == bob.login for each in accounts.list_accounts())
    bob.become("ops")
    address = bob.provider.sign_in(bob.start())
    german = bob.browser.get(address, **{"Sec-Fetch-Site": "cross-site", "Accept-Language": "de"}).text
    assert "Ihr Anbieter hat Sie hier nicht angelegt" in german
    user, group = corp.add_user(bob.login), corp.add_group("ops")
    assert "no role here" in bob.sign_in().text
    corp.patch(f"/Groups/{group}", {"op": "add", "path": "members", "value": [{"value": user}]})
    bob.sign_in()
    assert bob.can_open("acme")
    corp.drop(f"/Users/{user}")
    assert NOT_ADDED in bob.sign_in("ops").text
    corp.drop(f"/Groups/{group}")


def test_an_identity_is_linked_once(live: Running, corp: Directory, hire: Callable[[str], Employee]) -> None:
    cid = hire(fresh("cid"))
    user = corp.add_user(cid.login)
    group = corp.add_group("ops", user)
    cid.sign_in()
    assert "belongs to another account at the provider" in hire(cid.name).sign_in(sub="u-somebody-else").text
    new = f"{fresh('new')}@corp.test"
    corp.patch(f"/Users/{user}", {"op": "replace", "path": "userName", "value": new})
    assert people.find_user(new).id == user
    assert cid.can_open("acme"), "a new name ends no session"
    assert ("user.rename", "corp") in entries_about(live, "acme", user)
    assert NOT_ADDED in hire(cid.name).sign_in(sub="u-somebody-else").text, "the old name is nobody's"
    again = hire(cid.name)
    again.sign_in(email=new)
    assert again.can_open("acme")
    corp.drop(f"/Groups/{group}", f"/Users/{user}")


@pytest.mark.parametrize(("login", "expected"), [
    (BREAK_GLASS, (403, None)), (ADMINISTRATOR, (403, None)), (ADMINISTRATOR.upper(), (403, None)),
    ("owner@acme.test", (409, "uniqueness")),
])  # fmt: skip
def test_accounts_that_are_not_the_providers_are_not_taken(
    live: Running, corp: Directory, login: str, expected: tuple[int, str | None]
) -> None:
    assert corp.refuse("POST", "/Users", {"schemas": [USER], "userName": login}) == expected
    user = corp.add_user()
    for body in ({"op": "replace", "path": "userName", "value": login}, {"op": "replace", "value": {"userName": login}}):
        assert corp.refuse("PATCH", f"/Users/{user}", {"schemas": [PATCH], "Operations": [body]}) == expected
    if login == "owner@acme.test":
        owner = people.find_user(login).id
        assert entries_about(live, "acme", owner).count(("user.provision_refuse", "corp")) == 3
    corp.drop(f"/Users/{user}")


def test_a_trusted_provider_gets_existing_accounts_but_no_administrator(live: Running, trusted: Directory) -> None:
    login = f"{fresh('local')}@acme.test"
    known = live.user(login, PASSWORD, "acme", "operator")
    assert trusted.add_user(login) == known
    assert entries_about(live, "acme", known) == [("member.add", None), ("identity.link", "trusted")]
    assert roles_of(live, login) == {"acme": "operator"}
    for reserved in (ADMINISTRATOR, BREAK_GLASS):
        assert trusted.refuse("POST", "/Users", {"schemas": [USER], "userName": reserved}) == (403, None)
    trusted.drop(f"/Users/{known}")
    assert [each.state for each in accounts.list_accounts() if each.login == login] == ["disabled"], "it has a password of its own"
    assert roles_of(live, login) == {"acme": "operator"}


def test_who_signed_in_before_scim_was_turned_on_is_found(live: Running, corp: Directory) -> None:
    login = f"{fresh('early')}@corp.test"
    known = live.user(login, PASSWORD, "acme", "viewer")
    assert corp.refuse("POST", "/Users", {"schemas": [USER], "userName": login}) == (409, "uniqueness")
    issuer = live.services.single_sign_on.find_provider("corp").issuer
    db.write(lambda: PersonIdentity.create(
        issuer=issuer, subject=login, user_id=known, provider="corp", created_at=0, used_at=0
    ))  # fmt: skip
    assert corp.add_user(login) == known
    corp.drop(f"/Users/{known}")


def test_an_administrator_signs_in_without_being_provisioned(
    live: Running, corp: Directory, hire: Callable[[str], Employee]
) -> None:
    chief = hire("chief")
    assert "is an administrator of this appliance" in chief.sign_in().text, "as without SCIM"
    live.user(ADMINISTRATOR, PASSWORD, "acme", "viewer")
    assert "already an account" in chief.sign_in().text


def test_the_operator_decides_about_an_account_that_they_disabled(live: Running, corp: Directory) -> None:
    login = f"{fresh('dora')}@corp.test"
    user = corp.add_user(login)
    accounts.disable_account(login)
    for active in (False, True):
        corp.patch(f"/Users/{user}", {"op": "replace", "path": "active", "value": active})
    assert [each.state for each in accounts.list_accounts() if each.login == login] == ["disabled"]
    accounts.enable_account(login)
    corp.drop(f"/Users/{user}")


def test_who_is_no_longer_provisioned_does_not_sign_in_whatever_else_they_have(
    live: Running, corp: Directory, hire: Callable[[str], Employee]
) -> None:
    eve = hire(fresh("eve"))
    user = corp.add_user(eve.login)
    people.add_member(live.tenant("globex"), eve.login, "viewer")
    eve.sign_in()
    assert eve.can_open("globex")
    corp.patch(f"/Users/{user}", {"op": "replace", "path": "active", "value": False})
    accounts.enable_account(eve.login)  # by the operator: a password would work, the provider does not
    again = hire(eve.name)
    assert NOT_ADDED in again.sign_in().text
    assert not again.can_open("globex")
    corp.drop(f"/Users/{user}")
