"""Two changes of a tenant's people, keys and secrets end as if one had followed the other."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.tenants import AccountChanges, AccountSpec, invitations, people, service, service_accounts
from appliance.tenants.grants import confirmations, secret_bindings
from appliance.tenants.grants.confirmations import ConfirmationDecisions, ConfirmationRequest
from appliance.tenants.invitations import InvitationSpec
from appliance.tenants.keys import keys, lineage
from appliance.tenants.models import Person
from tests.store.cluster import Cluster
from tests.store.interleaving import Pair, check_pair, without_exclusive_writes
from tests.tenants.office import PASSWORD, Office, add_person, numbers, open_offices, user_of


@pytest.fixture(scope="module")
def sealer(cluster: Cluster) -> Iterator[Sealer]:
    with open_offices(cluster) as sealer:
        yield sealer


# -- people


def two_owners_leave(of: Office) -> Pair:
    return Pair.of((partial(people.remove_member, of.scope, user_of(each)) for each in (of.ann, of.bob)), of.roles)


def two_owners_remove_each_other(of: Office) -> Pair:
    return Pair(
        lambda: people.remove_member(of.ann, user_of(of.bob)), lambda: people.remove_member(of.bob, user_of(of.ann)), of.roles
    )


def an_owner_leaves_and_the_other_becomes_a_viewer(of: Office) -> Pair:
    login = Person.get_by_id(user_of(of.bob)).login
    return Pair(
        lambda: people.remove_member(of.scope, user_of(of.ann)), lambda: people.add_member(of.scope, login, "viewer"), of.roles
    )


def a_member_gets_two_roles(of: Office) -> Pair:
    login = add_person().login
    return Pair.of((partial(people.add_member, of.scope, login, role) for role in ("builder", "viewer")), lambda: len(of.roles()))


def an_owner_who_is_removed_adds_another(of: Office) -> Pair:
    login = add_person().login
    return Pair(
        lambda: people.remove_member(of.ann, user_of(of.bob)), lambda: people.add_member(of.bob, login, "owner"), of.roles
    )


def two_users_of_one_login(of: Office) -> Pair:
    login = f"p{next(numbers)}@firma.test"
    return Pair.of(
        (partial(people.create_user, login, PASSWORD),) * 2,
        lambda: len(list(Person.select().where(Person.login == login))),
    )


def an_invitation_is_accepted_twice(of: Office) -> Pair:
    login = f"p{next(numbers)}@firma.test"
    token = invitations.invite(of.ann, of.sealer, InvitationSpec(login, "viewer"))[1]
    return Pair.of((partial(invitations.accept, of.sealer, token, PASSWORD),) * 2, lambda: (of.roles(), of.count("invitation")))


def an_invitation_is_accepted_and_revoked(of: Office) -> Pair:
    invitation, token = invitations.invite(of.ann, of.sealer, InvitationSpec(f"p{next(numbers)}@firma.test", "viewer"))
    return Pair(
        lambda: invitations.accept(of.sealer, token, PASSWORD),
        lambda: invitations.revoke_invitation(of.scope, invitation.id),
        of.roles,
    )


def an_invitation_is_accepted_and_its_inviter_removed(of: Office) -> Pair:
    token = invitations.invite(of.ann, of.sealer, InvitationSpec(f"p{next(numbers)}@firma.test", "owner"))[1]
    return Pair(
        lambda: invitations.accept(of.sealer, token, PASSWORD), lambda: people.remove_member(of.bob, user_of(of.ann)), of.roles
    )


def somebody_is_invited_twice(of: Office) -> Pair:
    spec = InvitationSpec(f"p{next(numbers)}@firma.test", "viewer")
    return Pair.of((partial(invitations.invite, of.ann, of.sealer, spec),) * 2, lambda: of.count("invitation"))


def somebody_is_invited_and_added(of: Office) -> Pair:
    login = add_person().login
    return Pair(
        lambda: invitations.invite(of.ann, of.sealer, InvitationSpec(login, "owner")),
        lambda: people.add_member(of.scope, login, "viewer"),
        lambda: (of.roles(), of.count("invitation")),
    )


# -- keys


def a_key_is_rotated_twice(of: Office) -> Pair:
    key = of.issue(of.ann)
    return Pair.of((partial(keys.rotate_key, of.ann, of.sealer, key.id, 60),) * 2, of.key_states)


def a_key_is_rotated_and_revoked(of: Office) -> Pair:
    key = of.issue(of.ann)
    return Pair(
        lambda: keys.rotate_key(of.ann, of.sealer, key.id, 60), lambda: keys.revoke_key(of.ann, key.id), of.key_states
    )


def a_key_is_revoked_and_issues_another(of: Office) -> Pair:
    key = of.issue(of.ann)
    acting = TenantScope(of.scope.tenant_id, f"key:{key.id}", frozenset(key.scopes))
    return Pair(lambda: keys.revoke_key(of.ann, key.id), lambda: of.issue(acting), of.key_states)


def a_key_is_rotated_and_issues_another(of: Office) -> Pair:
    key = of.issue(of.ann)
    acting = TenantScope(of.scope.tenant_id, f"key:{key.id}", frozenset(key.scopes))
    return Pair(lambda: keys.rotate_key(of.ann, of.sealer, key.id, 60), lambda: of.issue(acting), of.key_states)


def a_member_is_removed_and_issues_a_key(of: Office) -> Pair:
    """A key of somebody who is no longer a member stays ended, even if they become one again."""

    def read() -> Any:
        people.add_member(of.scope, Person.get_by_id(user_of(of.bob)).login, "owner")
        assert not any(can_act for *_, can_act in of.key_states())

    return Pair(lambda: people.remove_member(of.ann, user_of(of.bob)), lambda: of.issue(of.bob), read)


def a_key_becomes_an_agent_s_and_issues_another(of: Office) -> Pair:
    key = of.issue(of.ann)
    acting = TenantScope(of.scope.tenant_id, f"key:{key.id}", frozenset(key.scopes))

    def read() -> Any:
        rows = keys.list_keys(of.scope, PageRequest(10)).items
        return [lineage.build_authority(row).has_agent_key for row in rows]

    return Pair(lambda: keys.convert_to_agent_key(of.ann, key.id), lambda: of.issue(acting), read)


# -- service accounts


def make_account(of: Office, name: str = "intake") -> str:
    spec = AccountSpec(name, "Intake", ["keys.read", "keys.write"], responsible=Person.get_by_id(user_of(of.bob)).login)
    return service_accounts.create_account(of.ann, spec).id


def issue_for(of: Office, account: str) -> None:
    service_accounts.issue_key(of.ann, of.sealer, account, keys.KeySpec("its", ["keys.read"]))


def two_service_accounts_of_one_name(of: Office) -> Pair:
    return Pair.of((partial(make_account, of),) * 2, lambda: of.count("service_account"))


def a_service_account_is_deleted_and_gets_a_key(of: Office) -> Pair:
    account = make_account(of)
    return Pair(lambda: service_accounts.delete_account(of.ann, account), lambda: issue_for(of, account), of.key_states)


def a_service_account_is_disabled_and_renamed(of: Office) -> Pair:
    account = make_account(of)
    return Pair.of(
        (partial(service_accounts.change_account, of.ann, account, each)
         for each in (AccountChanges(is_disabled=True), AccountChanges(title="Orders"))),
        lambda: [(each.state, each.title) for each in service_accounts.list_accounts(of.scope, PageRequest(10)).items],
    )  # fmt: skip


def a_service_account_is_created_by_an_owner_who_is_removed(of: Office) -> Pair:
    spec = AccountSpec("intake", "Intake", ["keys.read"], responsible=Person.get_by_id(user_of(of.ann)).login)
    return Pair(
        lambda: people.remove_member(of.ann, user_of(of.bob)),
        lambda: service_accounts.create_account(of.bob, spec),
        lambda: of.count("service_account"),
    )


# -- secrets, confirmations, preferences, requests


def two_values_of_a_secret(of: Office) -> Pair:
    return Pair.of((partial(service.set_secret, of.scope, of.sealer, "erp", value) for value in "ab"), lambda: of.count("secret"))


def a_secret_is_set_and_deleted(of: Office) -> Pair:
    service.set_secret(of.scope, of.sealer, "erp", "a")
    return Pair(
        lambda: service.set_secret(of.scope, of.sealer, "erp", "b"),
        lambda: service.delete_secret(of.scope, "erp"),
        lambda: of.count("secret"),
    )


def a_secret_is_bound_twice(of: Office) -> Pair:
    return Pair.of(
        (partial(secret_bindings.bind, of.ann, "erp", of.destination()),) * 2, lambda: of.count("secret_binding")
    )


def a_secret_is_bound_and_deleted(of: Office) -> Pair:
    service.set_secret(of.scope, of.sealer, "erp", "a")
    return Pair(
        lambda: secret_bindings.bind(of.ann, "erp", of.destination()),
        lambda: service.delete_secret(of.scope, "erp"),
        lambda: (of.count("secret"), of.count("secret_binding")),
    )


def a_binding_is_removed_twice(of: Office) -> Pair:
    binding = secret_bindings.bind(of.ann, "erp", of.destination())
    return Pair.of((partial(secret_bindings.unbind, of.ann, "erp", binding.id),) * 2, lambda: of.count("secret_binding"))


def a_confirmation_is_given_and_refused(of: Office) -> Pair:
    request = ConfirmationRequest("grant", "orders", "d1", {})
    confirmation = db.write(lambda: confirmations.request_confirmation(of.scope, request))
    decisions = ConfirmationDecisions()
    return Pair(
        lambda: decisions.decide(of.ann, confirmation.id, True),
        lambda: decisions.decide(of.bob, confirmation.id, False),
        lambda: of.count("audit_entry"),
    )


def a_confirmation_is_given_by_an_owner_who_is_removed(of: Office) -> Pair:
    request = ConfirmationRequest("grant", "orders", "d1", {})
    confirmation = db.write(lambda: confirmations.request_confirmation(of.scope, request))
    return Pair(
        lambda: people.remove_member(of.ann, user_of(of.bob)),
        lambda: ConfirmationDecisions().decide(of.bob, confirmation.id, True),
        lambda: [each.state for each in confirmations.list_decided(of.scope, 10)],
    )


def the_same_confirmation_is_requested_twice(of: Office) -> Pair:
    request = ConfirmationRequest("grant", "orders", "d1", {})
    ask = lambda: db.write(lambda: confirmations.request_confirmation(of.scope, request))  # noqa: E731
    return Pair(ask, ask, lambda: of.count("confirmation"))


# -- tenants


def two_tenants_of_one_name(of: Office) -> Pair:
    name = f"t{next(numbers)}"
    return Pair.of((partial(service.create_tenant, name, "A tenant"),) * 2, lambda: service.get_tenant(name).name)


def delete_tenant(of: Office) -> None:
    """As `service.delete_tenant`, without the writes between that empty its tables: the last one deletes what is left."""
    db.write(partial(service.close_tenant, of.scope))
    db.write(partial(service._delete_closed, of.scope.tenant_id))


def a_tenant_is_deleted_and_gets_a_member(of: Office) -> Pair:
    login = add_person().login
    return Pair(
        partial(delete_tenant, of),
        lambda: people.add_member(of.scope, login, "viewer"),
        lambda: (of.count("membership"), of.count("audit_entry")),
    )


def a_tenant_is_deleted_and_gets_a_key(of: Office) -> Pair:
    return Pair(
        partial(delete_tenant, of), lambda: of.issue(of.ann), lambda: of.count("api_key")
    )


def a_tenant_is_deleted_and_gets_a_secret(of: Office) -> Pair:
    return Pair(
        partial(delete_tenant, of),
        lambda: service.set_secret(of.scope, of.sealer, "erp", "a"),
        lambda: of.count("secret"),
    )


PAIRS: dict[str, Callable[[Office], Pair]] = {
    each.__name__: each
    for each in (
        two_owners_leave, two_owners_remove_each_other, an_owner_leaves_and_the_other_becomes_a_viewer, a_member_gets_two_roles,
        an_owner_who_is_removed_adds_another, two_users_of_one_login, an_invitation_is_accepted_twice,
        an_invitation_is_accepted_and_revoked, an_invitation_is_accepted_and_its_inviter_removed, somebody_is_invited_twice,
        somebody_is_invited_and_added, a_key_is_rotated_twice, a_key_is_rotated_and_revoked, a_key_is_revoked_and_issues_another,
        a_key_is_rotated_and_issues_another, a_member_is_removed_and_issues_a_key, a_key_becomes_an_agent_s_and_issues_another,
        two_service_accounts_of_one_name, a_service_account_is_deleted_and_gets_a_key, a_service_account_is_disabled_and_renamed,
        a_service_account_is_created_by_an_owner_who_is_removed,
        two_values_of_a_secret, a_secret_is_set_and_deleted, a_secret_is_bound_twice,
        a_secret_is_bound_and_deleted, a_binding_is_removed_twice, a_confirmation_is_given_and_refused,
        a_confirmation_is_given_by_an_owner_who_is_removed, the_same_confirmation_is_requested_twice,
        two_tenants_of_one_name, a_tenant_is_deleted_and_gets_a_member,
        a_tenant_is_deleted_and_gets_a_key, a_tenant_is_deleted_and_gets_a_secret,
    )
}  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS)
def test_both_orders(sealer: Sealer, pair: str, request: pytest.FixtureRequest) -> None:
    assert check_pair(lambda: PAIRS[pair](Office.make(sealer)), reads=request.config.option.all) >= 4


def test_without_exclusive_writes_no_owner_is_left(sealer: Sealer) -> None:
    with without_exclusive_writes(), pytest.raises(AssertionError, match="was halted before"):
        check_pair(lambda: two_owners_leave(Office.make(sealer)))
