"""What waits for an owner: asked once, decided by a signed-in owner only, carried out in the same write."""

import pytest

from appliance.core import db
from appliance.core.errors import Conflict, NotFound, ScopeMissing
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.monitor import audit
from appliance.monitor.audit import AuditFilter
from appliance.tenants import confirmations
from appliance.tenants.confirmations import MOST_OPEN, Ask, Confirmation, ConfirmationDecisions
from appliance.tenants.scopes import scopes_of_role


def asked(scope: TenantScope, digest: str = "d1", deadline: int | None = None) -> Confirmation:
    return db.write(lambda: confirmations.ask(scope, Ask("grant", "orders", digest, {"needs": ["entities.read"]}, deadline)))


def person(scope: TenantScope, role: str) -> TenantScope:
    return TenantScope(scope.tenant_id, f"user:{role}", scopes_of_role(role))


def test_the_same_thing_is_asked_once_and_listed_with_what_ends_soonest_first(one: TenantScope, two: TenantScope) -> None:
    first, later, soon = asked(one), asked(one, "d2"), asked(one, "d3", deadline=5)
    assert asked(one) == first
    assert [each.id for each in confirmations.open_confirmations(one)] == [soon.id, first.id, later.id]
    assert confirmations.find(one, "grant", "orders", "d1") == first
    assert confirmations.find(one, "secret", "orders", "d1") is None
    assert confirmations.find(two, "grant", "orders", "d1") is None
    assert confirmations.open_confirmations(two) == []


def test_only_a_signed_in_owner_decides(one: TenantScope, two: TenantScope) -> None:
    wanted, decisions = asked(one), ConfirmationDecisions()
    for other in (one, person(one, "builder"), one.acting("key:k"), one.acting("execution:e")):
        with pytest.raises(ScopeMissing):
            decisions.decide(other, wanted.id, True)
    with pytest.raises(NotFound):
        decisions.decide(person(two, "owner"), wanted.id, True)
    decided = decisions.decide(person(one, "owner"), wanted.id, True)
    assert (decided.state, decided.decided_by) == ("confirmed", "user:owner")
    assert asked(one) == decided
    assert confirmations.open_confirmations(one) == []
    assert [each.id for each in confirmations.decided_confirmations(one, 10)] == [wanted.id]


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
    known = confirmations.find(one, "grant", "orders", "d1")
    assert known is not None
    assert known.state == "refused"
    actions = [each.action for each in audit.list_entries(one, AuditFilter(subject="orders"), PageRequest(10)).items]
    assert actions == ["grant.refused", "grant.confirmed", "grant.confirmation_requested"]


def test_nobody_fills_the_page_and_what_is_settled_goes(one: TenantScope) -> None:
    key, kept = one.acting("key:busy"), asked(one, "of the appliance")
    for number in range(MOST_OPEN + 3):
        asked(key, f"k{number}")
    open_now = {each.digest for each in confirmations.open_confirmations(one)}
    assert len(open_now) == MOST_OPEN + 1
    assert {"k0", "k1", "k2"}.isdisjoint(open_now)
    assert kept.digest in open_now
    assert db.write(lambda: confirmations.withdraw(one, "grant", "orders", "k9")) == 1
    assert db.write(lambda: confirmations.withdraw(one, "grant", "orders")) == MOST_OPEN
