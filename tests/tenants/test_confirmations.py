"""Confirmations: requested once, decided only by a signed-in owner, applied in the same transaction."""

import pytest

from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import Conflict, NotFound, ScopeMissing
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.monitor import AuditFilter, audit
from appliance.tenants.grants import confirmations
from appliance.tenants.grants.confirmations import MAX_OPEN, Confirmation, ConfirmationDecisions, ConfirmationRequest
from appliance.tenants.keys import keys
from appliance.tenants.keys.keys import KeySpec
from appliance.tenants.models import Membership, Person
from appliance.tenants.scopes import ALL_SCOPES, scopes_of_role


def request_one(scope: TenantScope, digest: str = "d1", deadline: int | None = None) -> Confirmation:
    return db.write(
        lambda: confirmations.request_confirmation(
            scope, ConfirmationRequest("grant", "orders", digest, {"needs": ["entities.read"]}, deadline)
        )
    )


def person(scope: TenantScope, role: str) -> TenantScope:
    db.write(lambda: set_role(scope, role))
    return TenantScope(scope.tenant_id, f"user:{role}", scopes_of_role(role))


def set_role(scope: TenantScope, role: str) -> None:
    """The user of that id has this role."""
    if Person.get_or_none(Person.id == role) is None:
        Person.insert(id=role, login=role, password_hash="", created_at=0, language="").execute()
    Membership.delete().where((Membership.tenant_id == scope.tenant_id) & (Membership.user_id == role)).execute()
    Membership.create(tenant_id=scope.tenant_id, user_id=role, role=role, approver=False, created_at=0)


def test_a_repeated_request_is_listed_once_and_sorted_by_deadline(one: TenantScope, two: TenantScope) -> None:
    first, later, expiring_soon = request_one(one), request_one(one, "d2"), request_one(one, "d3", deadline=5)
    assert request_one(one) == first
    assert [each.id for each in confirmations.list_open(one)] == [expiring_soon.id, first.id, later.id]
    assert confirmations.find_confirmation(one, "grant", "orders", "d1") == first
    assert confirmations.find_confirmation(one, "secret", "orders", "d1") is None
    assert confirmations.find_confirmation(two, "grant", "orders", "d1") is None
    assert confirmations.list_open(two) == []


def test_only_a_signed_in_owner_decides(one: TenantScope, two: TenantScope) -> None:
    confirmation, decisions = request_one(one), ConfirmationDecisions()
    for other in (one, person(one, "builder"), one.with_actor("key:k"), one.with_actor("execution:e")):
        with pytest.raises(ScopeMissing):
            decisions.decide(other, confirmation.id, True)
    with pytest.raises(NotFound):
        decisions.decide(person(two, "owner"), confirmation.id, True)
    decided = decisions.decide(person(one, "owner"), confirmation.id, True)
    assert (decided.state, decided.decided_by) == ("confirmed", "user:owner")
    assert request_one(one) == decided
    assert confirmations.list_open(one) == []
    assert [each.id for each in confirmations.list_decided(one, 10)] == [confirmation.id]


def test_a_former_owner_cannot_decide(one: TenantScope) -> None:
    confirmation, decisions, owner = request_one(one), ConfirmationDecisions(), person(one, "owner")
    own_membership = (Membership.tenant_id == one.tenant_id) & (Membership.user_id == "owner")
    db.write(lambda: Membership.update(role="builder").where(own_membership).execute())
    with pytest.raises(ScopeMissing):
        decisions.decide(owner, confirmation.id, True)
    db.write(lambda: Membership.delete().where(own_membership).execute())
    with pytest.raises(ScopeMissing):
        decisions.decide(owner, confirmation.id, True)


@pytest.mark.writes_once(reason="listeners are called inside the write")
def test_a_decision_and_its_effect_are_one_transaction(one: TenantScope) -> None:
    confirmation, decisions, seen = request_one(one), ConfirmationDecisions(), []
    decisions.register("grant", lambda scope, decided: seen.append((scope.actor, decided.state)))
    owner = person(one, "owner")
    decisions.decide(owner, confirmation.id, True)
    decisions.decide(owner, confirmation.id, True)
    decisions.decide(owner, confirmation.id, False)
    assert seen == [("user:owner", "confirmed"), ("user:owner", "refused")]

    def fail(scope: TenantScope, decided: Confirmation) -> None:
        raise Conflict("it is gone")

    decisions.register("grant", fail)
    with pytest.raises(Conflict):
        decisions.decide(owner, confirmation.id, True)
    stored = confirmations.find_confirmation(one, "grant", "orders", "d1")
    assert stored is not None
    assert stored.state == "refused"
    actions = [each.action for each in audit.list_entries(one, AuditFilter(subject="orders"), PageRequest(10)).items]
    assert actions == ["grant.refused", "grant.confirmed", "grant.confirmation_requested"]


def test_keys_issued_by_keys_count_for_their_root_actor(one: TenantScope, sealer: Sealer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirmations, "MAX_OPEN", 3)
    owner = person(one, "owner")
    first, _ = keys.issue_key(owner, sealer, KeySpec("ci", sorted(ALL_SCOPES)))
    children = [
        keys.issue_key(owner.with_actor(f"key:{first.id}"), sealer, KeySpec("child", sorted(ALL_SCOPES)))[0] for _ in range(4)
    ]
    for number, key in enumerate([first, *children]):
        request_one(one.with_actor(f"key:{key.id}"), f"k{number}")
    assert {each.digest for each in confirmations.list_open(one)} == {"k2", "k3", "k4"}


def test_over_the_tenant_limit_the_busiest_requester_loses_its_oldest(
    one: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confirmations, "MAX_OPEN_IN_TENANT", 4)
    own_request = request_one(one, "of the appliance")
    for number in range(3):
        request_one(one.with_actor("key:busy"), f"busy{number}")
    for number in range(3):
        request_one(one.with_actor(f"key:quiet{number}"), f"quiet{number}")
    remaining = {each.digest for each in confirmations.list_open(one)}
    assert remaining == {own_request.digest, "busy2", "quiet0", "quiet1", "quiet2"}


def test_open_requests_are_limited_and_can_be_withdrawn(one: TenantScope) -> None:
    key, own_request = one.with_actor("key:busy"), request_one(one, "of the appliance")
    for number in range(MAX_OPEN + 3):
        request_one(key, f"k{number}")
    open_digests = {each.digest for each in confirmations.list_open(one)}
    assert len(open_digests) == MAX_OPEN + 1
    assert {"k0", "k1", "k2"}.isdisjoint(open_digests)
    assert own_request.digest in open_digests
    assert db.write(lambda: confirmations.withdraw_open(one, "grant", "orders", "k9")) == 1
    assert db.write(lambda: confirmations.withdraw_open(one, "grant", "orders")) == MAX_OPEN
