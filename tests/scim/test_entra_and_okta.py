"""Requests as Microsoft Entra ID and Okta send them, from their documentation."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from appliance.tenants import accounts, people
from appliance.testing.running import Running
from tests.api.resources import fresh
from tests.scim.provider import GROUP, PATCH, USER, Directory

ENTERPRISE = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"


def entra_user(name: str) -> dict[str, Any]:
    """What Entra sends for a new person with its default mapping."""
    return {
        "schemas": [USER, ENTERPRISE], "externalId": f"ext-{name}", "userName": f"{name}@Corp.test", "active": True,
        "displayName": "Ann Lee", "emails": [{"primary": True, "type": "work", "value": f"{name}@corp.test"}],
        "meta": {"resourceType": "User"}, "name": {"formatted": "Ann Lee", "familyName": "Lee", "givenName": "Ann"},
        "roles": [], "title": "Buyer", "addresses": [{"type": "work", "country": "DE"}], ENTERPRISE: {"department": "Sales"},
    }  # fmt: skip


def state_of(running: Running, login: str) -> str:
    return next(each.state for each in accounts.list_accounts() if each.login == login)


def test_entra_finds_adds_changes_and_disables_a_person(live: Running, corp: Directory) -> None:
    name = fresh("entra")
    login = f"{name}@corp.test"
    empty = corp.ask("GET", "/Users", filter=f'userName eq "{login}"')
    assert (empty["totalResults"], empty.get("Resources", [])) == (0, [])
    added = corp.ask("POST", "/Users", entra_user(name))
    assert added["userName"] == f"{name}@Corp.test"
    assert added["emails"] == [{"primary": True, "type": "work", "value": login}]
    assert not {"title", "addresses", ENTERPRISE} & added.keys()
    assert people.find_user(login).id == added["id"]
    assert not people.has_password(added["id"])
    for matches in (f'userName eq "{login.upper()}"', f'externalId eq "ext-{name}"', f'{USER}:userName eq "{login}"'):
        listed = corp.ask("GET", "/Users", filter=matches)
        assert [each["id"] for each in listed["Resources"]] == [added["id"]], matches
    changed = corp.patch(
        f"/Users/{added['id']}",
        {"op": "Replace", "path": 'emails[type eq "work"].value', "value": "lee@corp.test"},
        {"op": "Add", "path": 'emails[type eq "home"].value', "value": "ann@home.test"},
        {"op": "Replace", "path": "name.familyName", "value": "Leigh"},
        {"op": "Add", "path": f"{ENTERPRISE}:department", "value": "Buying"},
        {"op": "Replace", "path": 'addresses[type eq "work"].country', "value": "AT"},
    )
    assert [each["value"] for each in changed["emails"]] == ["lee@corp.test", "ann@home.test"]
    assert changed["name"]["familyName"] == "Leigh"
    assert state_of(live, login) == "active"
    corp.patch(f"/Users/{added['id']}", {"op": "Replace", "path": "active", "value": "False"})
    assert state_of(live, login) == "disabled"
    corp.patch(f"/Users/{added['id']}", {"op": "Replace", "path": "active", "value": "True"})
    assert state_of(live, login) == "active"
    corp.drop(f"/Users/{added['id']}")
    assert login not in {each.login for each in accounts.list_accounts()}
    assert corp.refuse("GET", f"/Users/{added['id']}") == (404, None)


def test_entra_adds_and_removes_members_of_a_group(corp: Directory) -> None:
    ann, bob, name = corp.add_user(), corp.add_user(), fresh("Group")
    body = {"schemas": [GROUP, "http://schemas.microsoft.com/2006/11/ResourceManagement/ADSCIM/2.0/Group"], "externalId": name,
            "displayName": name, "meta": {"resourceType": "Group"}}  # fmt: skip
    group = corp.ask("POST", "/Groups", body)["id"]
    matches = corp.ask("GET", "/Groups", filter=f'displayName eq "{name.upper()}"', excludedAttributes="members")
    assert [each["id"] for each in matches["Resources"]] == [group]
    assert corp.send("PATCH", f"/Groups/{group}", {"schemas": [PATCH], "Operations": [
        {"op": "Add", "path": "members", "value": [{"value": ann}, {"value": bob}]}
    ]}).status_code == 204  # fmt: skip
    whole, part = corp.ask("GET", f"/Groups/{group}"), corp.ask("GET", f"/Groups/{group}", excludedAttributes="members")
    assert ({each["value"] for each in whole["members"]}, "members" in part) == ({ann, bob}, False)
    for member, count in ((ann, 1), ("usr_unknown", 0)):
        has = corp.ask("GET", "/Groups", filter=f'id eq "{group}" and members eq "{member}"')
        assert has["totalResults"] == count
    corp.patch(f"/Groups/{group}", {"op": "Remove", "path": f'members[value eq "{ann}"]'})
    corp.patch(f"/Groups/{group}", {"op": "Add", "path": "members", "value": [{"value": ann}]})
    corp.patch(f"/Groups/{group}", {"op": "Remove", "path": "members", "value": [{"value": bob}]})
    assert [each["value"] for each in corp.ask("GET", f"/Groups/{group}")["members"]] == [ann]
    assert corp.ask("GET", f"/Users/{ann}")["groups"] == [{"value": group, "display": name}]
    corp.drop(f"/Groups/{group}", f"/Users/{ann}", f"/Users/{bob}")


def test_okta_adds_replaces_and_deactivates_a_person(live: Running, corp: Directory) -> None:
    login = f"{fresh('okta')}@corp.test"
    body = {
        "schemas": [USER], "userName": login, "name": {"givenName": "Bo", "familyName": "Ek"}, "displayName": "Bo Ek",
        "emails": [{"primary": True, "value": login, "type": "work"}], "locale": "en-US", "externalId": "00u1", "groups": [],
        "password": "1mz050nq", "active": True,
    }  # fmt: skip
    added = corp.ask("POST", "/Users", body)
    assert "password" not in added
    assert not people.has_password(added["id"]), "a password of the provider is not taken"
    assert corp.ask("GET", "/Users", filter=f'userName eq "{login}"', startIndex="1", count="100")["itemsPerPage"] == 1
    replaced = {**added, "displayName": "Bo Eklund"}
    assert corp.ask("PUT", f"/Users/{added['id']}", replaced)["displayName"] == "Bo Eklund"
    corp.patch(f"/Users/{added['id']}", {"op": "replace", "value": {"active": False}})
    assert state_of(live, login) == "disabled"
    without = {name: value for name, value in replaced.items() if name != "active"}
    assert corp.ask("PUT", f"/Users/{added['id']}", without)["active"] is False, "what is left out does not bring anybody back"
    assert state_of(live, login) == "disabled"
    corp.ask("PUT", f"/Users/{added['id']}", replaced)
    assert state_of(live, login) == "active"
    corp.drop(f"/Users/{added['id']}")


def test_okta_pushes_and_renames_a_group(corp: Directory) -> None:
    ann, name = corp.add_user(), fresh("Okta")
    group = corp.add_group(name)
    corp.patch(f"/Groups/{group}", {"op": "replace", "value": {"id": group, "displayName": f"{name} new"}})
    corp.patch(f"/Groups/{group}", {"op": "add", "path": "members", "value": [{"value": ann, "display": "ann@corp.test"}]})
    corp.patch(f"/Groups/{group}", {"op": "replace", "path": "members", "value": [{"value": ann, "display": "ann"}]})
    matches = corp.ask("GET", "/Groups", filter=f'displayName eq "{name} new"')["Resources"]
    assert [[each["value"] for each in one["members"]] for one in matches] == [[ann]]
    corp.ask("PUT", f"/Groups/{group}", {"schemas": [GROUP], "displayName": name, "members": []})
    assert "members" not in corp.ask("GET", f"/Groups/{group}")
    corp.drop(f"/Groups/{group}", f"/Users/{ann}")


def test_lists_have_pages(corp: Directory) -> None:
    ids = [corp.add_user() for _ in range(5)]
    pages = [corp.ask("GET", "/Users", startIndex=str(at), count="2") for at in (1, 3, 5)]
    assert [(each["totalResults"], each["startIndex"], each["itemsPerPage"]) for each in pages] == [(5, 1, 2), (5, 3, 2), (5, 5, 1)]
    assert [each["id"] for page in pages for each in page["Resources"]] == ids
    none = corp.ask("GET", "/Users", count="0")
    assert (none["totalResults"], none.get("Resources")) == (5, [])
    assert corp.ask("GET", "/Users", startIndex="-4", count="9999")["itemsPerPage"] == 5
    far = corp.ask("GET", "/Users", startIndex=str(10**30))
    assert (far["totalResults"], far.get("Resources", [])) == (5, [])
    assert corp.ask("GET", "/Users", filter='active eq "False"')["totalResults"] == 0
    corp.drop(*(f"/Users/{each}" for each in ids))


@pytest.mark.parametrize("text", [
    'userName co "a"', 'userName eq "a" or externalId eq "b"', "userName pr", 'not (userName eq "a")', 'emails.value eq "a@b"',
    'emails[type eq "work"].value eq "a"', 'meta.lastModified gt "2011-05-13T04:42:34Z"', "userName eq 7", "userName eq",
    'active eq "maybe"', "userName eq null", '"', "((((", f'{ENTERPRISE}:department eq "a"', f'userName eq "{"a" * 2000}"',
    'externalId eq "a\\u0000"', 'externalId eq "\\ud800"', 'id eq "a\\u0000"', 'userName eq "a\x00"',
    'members[value eq "a"]', 'userName eq "a" and title eq "b"',
])  # fmt: skip
def test_a_filter_that_is_not_supported_is_refused(corp: Directory, text: str) -> None:
    assert corp.refuse("GET", "/Users", filter=text) == (400, "invalidFilter")


def test_a_group_has_people_of_its_provider_only(corp: Directory, trusted: Directory) -> None:
    ann, other = corp.add_user(), trusted.add_user()
    group = corp.add_group(fresh("Group"), ann)
    for wrong in (other, group, "usr_unknown", ""):
        body = {"schemas": [PATCH], "Operations": [{"op": "add", "path": "members", "value": [{"value": wrong}]}]}
        assert corp.refuse("PATCH", f"/Groups/{group}", body) == (400, "invalidValue"), wrong
    login = people.find_user(corp.ask("GET", f"/Users/{ann}")["userName"]).login
    accounts.delete_account(login)  # by the operator, without the provider's knowledge
    corp.ask("PUT", f"/Groups/{group}", {"schemas": [GROUP], "displayName": fresh("Group"), "members": [{"value": ann}]})
    assert "members" not in corp.ask("GET", f"/Groups/{group}")
    corp.drop(f"/Groups/{group}")
    trusted.drop(f"/Users/{other}")


def test_one_provider_neither_sees_nor_changes_the_people_of_another(corp: Directory, trusted: Directory) -> None:
    ann, name = corp.add_user(), fresh("Group")
    group = corp.add_group(name)
    bodies = {f"/Users/{ann}": {"schemas": [USER], "userName": "x@corp.test"}, f"/Groups/{group}": {"displayName": "x"}}
    for path, body in bodies.items():
        for method in ("GET", "PUT", "PATCH", "DELETE"):
            patch = {"schemas": [PATCH], "Operations": [{"op": "replace", "value": {"displayName": "x"}}]}
            sent = {"PUT": body, "PATCH": patch}.get(method)
            assert trusted.refuse(method, path, sent) == (404, None), (method, path)
    assert trusted.ask("GET", "/Groups", filter=f'displayName eq "{name}"')["totalResults"] == 0
    assert trusted.ask("GET", "/Users", filter=f'id eq "{ann}"')["totalResults"] == 0
    corp.drop(f"/Groups/{group}", f"/Users/{ann}")


def test_members_added_at_the_same_time_are_all_in_the_group(corp: Directory) -> None:
    users = [corp.add_user() for _ in range(12)]
    group = corp.add_group(fresh("Group"))

    def add(user: str) -> int:
        operation = {"op": "add", "path": "members", "value": [{"value": user}]}
        return corp.send("PATCH", f"/Groups/{group}", {"schemas": [PATCH], "Operations": [operation]}).status_code

    with ThreadPoolExecutor(len(users)) as threads:
        statuses = list(threads.map(add, users))
    members = {each["value"] for each in corp.ask("GET", f"/Groups/{group}").get("members", ())}
    assert (set(statuses), members) == ({204}, set(users))
    corp.drop(f"/Groups/{group}", *(f"/Users/{each}" for each in users))
