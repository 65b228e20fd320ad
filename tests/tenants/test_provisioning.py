"""Provisioned people and groups in the database: sizes, versions and repetitions."""

import pytest

from appliance.core import clock
from appliance.core.config.roles import GroupRole
from appliance.core.config.sign_in import IdentityProvider
from appliance.core.database import db
from appliance.core.errors import ValidationFailed, VersionConflict
from appliance.core.scope import TenantScope
from appliance.tenants import accounts, people
from appliance.tenants.models import Person, ScimUser
from appliance.tenants.provisioning import Criterion, GroupFields, Slice, UserFields, groups, users
from appliance.tenants.provisioning.groups import CHUNK
from appliance.tenants.single_sign_on import ReservedLogins

CORP = IdentityProvider(
    id="corp", issuer="https://id.corp.test", client_id="gos", scim=True,
    roles=(GroupRole("ops", "one", "operator"), GroupRole("dev", "two", "builder"), GroupRole("ops", "nowhere", "owner")),
)  # fmt: skip
RESERVED = ReservedLogins((), "")


def fields(login: str, *, active: bool = True) -> UserFields:
    return UserFields(login, None, active, {})


def group(name: str, *members: str) -> GroupFields:
    return GroupFields(name, None, frozenset(members))


def logins(scope: TenantScope) -> set[str]:
    return {each.login for each in people.list_members(scope)}


def test_a_group_may_be_larger_than_one_statement(one: TenantScope) -> None:
    now, ids = clock.now_ms(), [f"usr_{number:05}" for number in range(2 * CHUNK + 5)]
    common = {"provider": "corp", "active": True, "attributes": {}, "created_at": now, "updated_at": now, "version": 1}

    def insert() -> None:
        about = {"password_hash": "", "created_at": now, "language": ""}
        Person.insert_many([{"id": each, "login": each, **about} for each in ids]).execute()
        ScimUser.insert_many([{"user_id": each, "user_name": each, **common} for each in ids]).execute()

    db.write(insert)
    created = groups.create_group(CORP, group("ops", *ids))
    assert list(created.members) == ids
    assert logins(one) == set(ids)
    groups.replace_group(CORP, created.id, group("ops", ids[7]), None)
    assert logins(one) == {ids[7]}
    assert users.list_users(CORP, (), Slice(len(ids) - 2, 50)).total == len(ids)


def test_a_group_changes_only_the_tenants_that_its_name_concerns(one: TenantScope, two: TenantScope) -> None:
    ann = users.create_user(CORP, RESERVED, fields("ann@corp.test")).id
    people_of_two = groups.create_group(CORP, group("dev", ann))
    db.write(lambda: db.execute("DELETE FROM scim_member"))  # as if the membership were from before SCIM
    groups.create_group(CORP, group("ops", ann))
    assert (logins(one), logins(two)) == ({"ann@corp.test"}, {"ann@corp.test"})
    groups.delete_group(CORP, people_of_two.id)
    assert logins(two) == {"ann@corp.test"}, "she was no member of it"


def test_a_change_of_what_has_changed_meanwhile_is_refused(one: TenantScope) -> None:
    ann = users.create_user(CORP, RESERVED, fields("ann@corp.test"))
    created = groups.create_group(CORP, group("ops"))
    users.replace_user(CORP, RESERVED, ann.id, fields("ann@corp.test"), ann.version)
    groups.replace_group(CORP, created.id, group("ops", ann.id), created.version)
    with pytest.raises(VersionConflict):
        users.replace_user(CORP, RESERVED, ann.id, fields("ann@corp.test", active=False), ann.version)
    with pytest.raises(VersionConflict):
        groups.replace_group(CORP, created.id, group("ops"), created.version)
    assert logins(one) == {"ann@corp.test"}


def test_somebody_added_as_inactive_has_no_access(one: TenantScope) -> None:
    ann = users.create_user(CORP, RESERVED, fields("ann@corp.test", active=False))
    groups.create_group(CORP, group("ops", ann.id))
    assert [each.state for each in accounts.list_accounts()] == ["disabled"]
    assert logins(one) == set()
    users.replace_user(CORP, RESERVED, ann.id, fields("ann@corp.test"), None)
    assert logins(one) == {"ann@corp.test"}


def test_an_account_that_the_operator_deletes_leaves_every_group(one: TenantScope) -> None:
    ann = users.create_user(CORP, RESERVED, fields("ann@corp.test")).id
    created = groups.create_group(CORP, group("ops", ann))
    accounts.delete_account("ann@corp.test")
    assert groups.get_group(CORP, created.id).members == ()
    assert groups.replace_group(CORP, created.id, group("ops", ann), None).members == ()
    assert users.create_user(CORP, RESERVED, fields("ann@corp.test")).id != ann
    with pytest.raises(ValidationFailed):
        groups.replace_group(CORP, created.id, group("ops", created.id), None)
    assert groups.list_groups(CORP, (Criterion("member", ann),), Slice()).total == 0
