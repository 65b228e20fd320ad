"""What waits for an owner: asked once, decided by a signed-in owner only, carried out in the same write."""

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


def asked(scope: TenantScope, digest: str = "d1", deadline: int | None = None) -> Confirmation:
    return db.write(
        lambda: confirmations.request_confirmation(
            scope, ConfirmationRequest("grant", "orders", digest, {"needs": ["entities.read"]}, deadline)
        )
    )


def person(scope: TenantScope, role: str) -> TenantScope:
    db.write(lambda: hold(scope, role))
    return TenantScope(scope.tenant_id, f"user:{role}", scopes_of_role(role))


def hold(scope: TenantScope, role: str) -> None:
    """The user of that id has this role."""
    if Person.get_or_none(Person.id == role) is None:
        Person.insert(id=role, login=role, password_hash="", created_at=0, language="").execute()
    Membership.delete().where((Membership.tenant_id == scope.tenant_id) & (Membership.user_id == role)).execute()
    Membership.create(tenant_id=scope.tenant_id, user_id=role, role=role, approver=False, created_at=0)


def test_the_same_thing_is_asked_once_and_listed_with_what_ends_soonest_first(one: TenantScope, two: TenantScope) -> None:
    first, later, soon = asked(one), asked(one, "d2"), asked(one, "d3", deadline=5)
    assert asked(one) == first
    assert [each.id for each in confirmations.list_open(one)] == [soon.id, first.id, later.id]
    assert confirmations.find_confirmation(one, "grant", "orders", "d1") == first
    assert confirmations.find_confirmation(one, "secret", "orders", "d1") is None
    assert confirmations.find_confirmation(two, "grant", "orders", "d1") is None
    assert confirmations.list_open(two) == []


def test_only_a_signed_in_owner_decides(one: TenantScope, two: TenantScope) -> None:
    wanted, decisions = asked(one), ConfirmationDecisions()
    for other in (one, person(one, "builder"), one.with_actor("key:k"), one.with_actor("execution:e")):
        with pytest.raises(ScopeMissing):
            decisions.decide(other, wanted.id, True)
    with pytest.raises(NotFound):
        decisions.decide(person(two, "owner"), wanted.id, True)
    decided = decisions.decide(person(one, "owner"), wanted.id, True)
    assert (decided.state, decided.decided_by) == ("confirmed", "user:owner")
    assert asked(one) == decided
    assert confirmations.list_open(one) == []
    assert [each.id for each in confirmations.list_decided(one, 10)] == [wanted.id]


def test_who_is_owner_no_more_decides_nothing_with_what_a_request_began_with(one: TenantScope) -> None:
    wanted, decisions, owner = asked(one), ConfirmationDecisions(), person(one, "owner")
    mine = (Membership.tenant_id == one.tenant_id) & (Membership.user_id == "owner")
    db.write(lambda: Membership.update(role="builder").where(mine).execute())
    with pytest.raises(ScopeMissing):
        decisions.decide(owner, wanted.id, True)
    db.write(lambda: Membership.delete().where(mine).execute())
    with pytest.raises(ScopeMissing):
        decisions.decide(owner, wanted.id, True)


def test_a_decision_is_carried_out_with_it_or_not_at_all(one: TenantScope) -> None:
    wanted, decisions, seen = asked(one), ConfirmationDecisions(), []
    decisions.register("grant", lambda scope, decided: seen.append((scope.actor, decided.state)))
    owner = person(one, "owner")
    decisions.decide(owner, wanted.id, True)
    decisions.decide(owner, wanted.id, True)
    decisions.decide(owner, wanted.id, False)
    assert seen == [("user:owner", "confirmed"), ("user:owner", "refused")]

    def fail(scope: TenantScope, decided: Confirmation) -> None:
        raise Conflict("it is gone")

    decisions.register("grant", fail)
    with pytest.raises(Conflict):
        decisions.decide(owner, wanted.id, True)
    known = confirmations.find_confirmation(one, "grant", "orders", "d1")
    assert known is not None
    assert known.state == "refused"
    actions = [each.action for each in audit.list_entries(one, AuditFilter(subject="orders"), PageRequest(10)).items]
    assert actions == ["grant.refused", "grant.confirmed", "grant.confirmation_requested"]


def test_keys_of_keys_count_as_who_they_go_back_to(one: TenantScope, sealer: Sealer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirmations, "MAX_OPEN", 3)
    owner = person(one, "owner")
    first, _ = keys.issue_key(owner, sealer, KeySpec("ci", sorted(ALL_SCOPES)))
    children = [
        keys.issue_key(owner.with_actor(f"key:{first.id}"), sealer, KeySpec("child", sorted(ALL_SCOPES)))[0] for _ in range(4)
    ]
    for number, key in enumerate([first, *children]):
        asked(one.with_actor(f"key:{key.id}"), f"k{number}")
    assert {each.digest for each in confirmations.list_open(one)} == {"k2", "k3", "k4"}


def test_the_requester_who_has_most_gives_way_once_a_tenant_has_too_many(
    one: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confirmations, "MAX_OPEN_IN_TENANT", 4)
    kept = asked(one, "of the appliance")
    for number in range(3):
        asked(one.with_actor("key:busy"), f"busy{number}")
    for number in range(3):
        asked(one.with_actor(f"key:quiet{number}"), f"quiet{number}")
    left = {each.digest for each in confirmations.list_open(one)}
    assert left == {kept.digest, "busy2", "quiet0", "quiet1", "quiet2"}


def test_nobody_fills_the_page_and_what_is_settled_goes(one: TenantScope) -> None:
    key, kept = one.with_actor("key:busy"), asked(one, "of the appliance")
    for number in range(MAX_OPEN + 3):
        asked(key, f"k{number}")
    open_now = {each.digest for each in confirmations.list_open(one)}
    assert len(open_now) == MAX_OPEN + 1
    assert {"k0", "k1", "k2"}.isdisjoint(open_now)
    assert kept.digest in open_now
    assert db.write(lambda: confirmations.withdraw_open(one, "grant", "orders", "k9")) == 1
    assert db.write(lambda: confirmations.withdraw_open(one, "grant", "orders")) == MAX_OPEN
