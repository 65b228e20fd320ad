"""The rule of lineage itself, on both databases: what a key may do now, and what rotation and adoption make of it."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import ApplianceError, Conflict, PolicyDenied, RateLimited, RevokedApiKey, ScopeMissing, ValidationFailed
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.tenants import RateLimiter, people, scopes_of_role, service
from appliance.tenants.grants import ConfirmationDecisions, ConfirmationRequest, confirmations, continued_access
from appliance.tenants.keys import KeySpec, adoption, keys, lineage

PASSWORD = "correct horse battery"
SEALER = Sealer(b"k" * 32)
NARROW = ["entities.read", "keys.read", "keys.write", "processflow.write"]


@pytest.fixture
def one(two_tenants: None) -> Iterator[TenantScope]:
    """Tenant acme on both databases."""
    lineage.clear_cache()
    yield service.system_scope("acme")
    lineage.clear_cache()


def make_person(scope: TenantScope, login: str, role: str = "owner") -> TenantScope:
    """A new member, as the console sees them."""
    person = people.create_user(login, PASSWORD)
    people.add_member(service.system_scope(scope.tenant_id), login, role)
    return TenantScope(scope.tenant_id, f"user:{person.id}", scopes_of_role(role))


def issue(scope: TenantScope, scopes: list[str] = NARROW, **more: Any) -> tuple[str, str]:
    """The id and the text of a new key."""
    row, text = keys.issue_key(scope, SEALER, KeySpec("issued", scopes, "test", **more))
    return row.id, text


def use(text: str, address: str = "127.0.0.1") -> keys.Caller:
    return keys.authenticate_key(SEALER, text, tenant_id="acme", address=address, request_id="req_1")


def by(text: str) -> TenantScope:
    """The scope of a key that authenticates now."""
    lineage.clear_cache()
    return use(text).scope


def test_a_chain_of_keys_ends_and_shrinks_with_the_person_at_its_root(one: TenantScope) -> None:
    ann = make_person(one, "ann@acme.test")
    _, first = issue(ann)
    _, second = issue(by(first))
    _, third = issue(by(second), ["entities.read", "keys.write"])
    assert by(third).scopes == {"entities.read", "keys.write"}
    make_person(one, "eve@acme.test")
    people.add_member(one, "ann@acme.test", "operator")
    assert by(first).scopes == {"entities.read", "keys.read"}
    assert by(third).scopes == {"entities.read"}
    assert use(third).withheld == {"keys.write"}
    people.remove_member(one, ann.actor.removeprefix("user:"))
    for text in (first, second, third):
        with pytest.raises(RevokedApiKey, match="is no longer a member of this tenant"):
            use(text)


def test_a_returning_member_does_not_get_ended_keys_back(one: TenantScope) -> None:
    ann = make_person(one, "ann@acme.test")
    make_person(one, "eve@acme.test")
    _, text = issue(ann)
    people.remove_member(one, ann.actor.removeprefix("user:"))
    people.add_member(one, "ann@acme.test", "owner")
    with pytest.raises(RevokedApiKey):
        use(text)
    assert use(issue(ann)[1]).scope.scopes == set(NARROW)


def test_a_system_key_has_no_key_above_it(one: TenantScope) -> None:
    _, text = issue(one)
    caller = use(text)
    assert (caller.above, caller.withheld, caller.scope.scopes) == ((), frozenset(), frozenset(NARROW))


def test_other_processes_see_a_removal_within_half_a_second(one: TenantScope) -> None:
    """What this process has cached is all that another's change has to outlive."""
    assert lineage.CACHE_MS <= 500
    ann = make_person(one, "ann@acme.test")
    _, text = issue(ann)
    use(text)
    as_another_process = "DELETE FROM membership WHERE user_id = ?"  # nothing in this one hears of it
    db.write(lambda: db.execute(as_another_process, (ann.actor.removeprefix("user:"),)))
    clock.move(lineage.CACHE_MS)
    try:
        with pytest.raises(RevokedApiKey):
            use(text)
    finally:
        clock.move(-lineage.CACHE_MS)


def test_children_end_with_their_parent(one: TenantScope) -> None:
    parent_id, parent = issue(one)
    _, child = issue(by(parent))
    _, grandchild = issue(by(child), ["entities.read"])
    keys.revoke_key(one, parent_id)
    for text in (child, grandchild):
        with pytest.raises(RevokedApiKey, match="because the key that issued it"):
            use(text)


def test_children_expire_with_their_parent(one: TenantScope) -> None:
    parent_id, parent = issue(one)
    _, child = issue(by(parent))
    db.write(lambda: db.execute("UPDATE api_key SET grace_until = 1 WHERE id = ?", (parent_id,)))
    with pytest.raises(RevokedApiKey, match="because the key that issued it"):
        by(child)


def test_requests_over_a_keys_own_limit_do_not_count_for_its_parent(one: TenantScope) -> None:
    _, parent = issue(one, rate_requests=10)
    _, child = issue(by(parent), rate_requests=2)
    limiter, caller = RateLimiter(), use(child)
    assert [limiter.count(caller).remaining for _ in range(2)] == [1, 0]
    for _ in range(18):
        with pytest.raises(RateLimited):
            limiter.count(caller)
    assert limiter.count(use(parent)).remaining == 7


def test_an_older_key_is_bound_by_its_parents_addresses(one: TenantScope) -> None:
    parent_id, parent = issue(one)
    _, child = issue(by(parent))
    db.write(lambda: db.execute("""UPDATE api_key SET allowed_ips = '["10.0.0.0/8"]' WHERE id = ?""", (parent_id,)))
    lineage.clear_cache()
    assert use(child, "10.1.2.3").key_id
    with pytest.raises(ApplianceError, match="because the key that issued it cannot") as refused:
        use(child, "192.0.2.1")
    assert refused.value.code == "address_not_allowed"


def test_the_number_of_generations_is_limited(one: TenantScope) -> None:
    scope = one
    for _ in range(lineage.MAX_GENERATIONS):
        scope = by(issue(scope)[1])
    with pytest.raises(Conflict, match="8 generations"):
        issue(scope)


def test_a_key_that_rotates_itself_keeps_its_issuer_and_what_it_issued(one: TenantScope) -> None:
    ann = make_person(one, "ann@acme.test")
    make_person(one, "eve@acme.test")
    old_id, old = issue(ann)
    _, child = issue(by(old), ["entities.read"])
    new, text = keys.rotate_key(by(old), SEALER, old_id, 0)
    assert (new.issuer, new.created_by) == (ann.actor, f"key:{old_id}")
    assert by(text).scopes == set(NARROW)
    assert by(child).scopes == {"entities.read"}, "what it issued rests on the new key"
    people.remove_member(one, ann.actor.removeprefix("user:"))
    for ended in (text, child):
        with pytest.raises(RevokedApiKey):
            by(ended)


def test_rotation_by_somebody_else_makes_them_the_issuer(one: TenantScope) -> None:
    ann, eve = make_person(one, "ann@acme.test"), make_person(one, "eve@acme.test")
    old_id, _ = issue(ann)
    new, text = keys.rotate_key(eve, SEALER, old_id, 0)
    assert new.issuer == eve.actor
    people.remove_member(one, ann.actor.removeprefix("user:"))
    assert by(text).scopes == set(NARROW)


def test_a_narrow_key_cannot_rotate_a_wider_one(one: TenantScope) -> None:
    wide_id, _ = issue(one, [*NARROW, "secrets.write"])
    _, other = issue(one)
    with pytest.raises(ScopeMissing, match=r"secrets\.write"):
        keys.rotate_key(by(other), SEALER, wide_id, 0)
    bound_id, _ = issue(one, allowed_ips=["10.0.0.0/8"])
    _, elsewhere = issue(one, allowed_ips=["127.0.0.1"], rate_requests=5, expires_in_days=7)
    with pytest.raises(ValidationFailed, match=r"used from 10\.0\.0\.0/8"):
        keys.rotate_key(by(elsewhere), SEALER, bound_id, 0)
    free_id, _ = issue(one)
    new, _ = keys.rotate_key(by(elsewhere), SEALER, free_id, 0)
    assert (new.rate_requests, new.allowed_ips) == (5, ["127.0.0.1"])
    assert new.expires_at <= clock.now_ms() + 7 * keys.DAY


def test_a_key_cannot_take_over_its_ancestors(one: TenantScope) -> None:
    parent_id, parent = issue(one)
    child_id, child = issue(by(parent))
    for take in (lambda scope: keys.rotate_key(scope, SEALER, parent_id, 0), lambda scope: adoption.adopt_key(scope, parent_id)):
        with pytest.raises(PolicyDenied, match="descends from"):
            take(by(child))
    with pytest.raises(Conflict, match="adopt itself"):
        adoption.adopt_key(by(child), child_id)


def test_creator_and_adopter_are_both_behind_a_key(one: TenantScope) -> None:
    ann, eve = make_person(one, "ann@acme.test"), make_person(one, "eve@acme.test")
    key_id, _ = issue(ann)
    adoption.adopt_key(eve, key_id)
    assert lineage.people_behind(one, f"key:{key_id}") == {scope.actor.removeprefix("user:") for scope in (ann, eve)}


def test_access_in_the_name_of_an_ended_key_is_refused(one: TenantScope) -> None:
    ann = make_person(one, "ann@acme.test")
    make_person(one, "eve@acme.test")
    _, parent = issue(ann)
    child_id, child = issue(by(parent), ["entities.read"])
    actor = f"key:{child_id}"
    continued_access.check_still_allowed(one, actor, {"entities.read"})
    assert continued_access.is_still_allowed(by(child), "entities.read")
    lasting = by(child)
    people.remove_member(one, ann.actor.removeprefix("user:"))
    with pytest.raises(PolicyDenied, match="ended with its issuer"):
        continued_access.check_still_allowed(one, actor, {"entities.read"})
    assert not continued_access.is_still_allowed(lasting, "entities.read")


def test_access_in_the_name_of_a_key_that_lost_a_scope_is_refused(one: TenantScope) -> None:
    ann = make_person(one, "ann@acme.test")
    make_person(one, "eve@acme.test")
    key_id, _ = issue(ann, ["agents.write", "agents.run"])
    continued_access.check_still_allowed(one, f"key:{key_id}", {"agents.write"})
    people.add_member(one, "ann@acme.test", "operator")
    with pytest.raises(PolicyDenied, match=r"no longer has the scope agents\.write"):
        continued_access.check_still_allowed(one, f"key:{key_id}", {"agents.write"})


def make_orphan(one: TenantScope, within_ms: int) -> tuple[str, str]:
    """Id and text of a removed member's key as a development version left it: with a deadline, and a request to the owners."""
    ann, _ = make_person(one, "ann@acme.test"), make_person(one, "eve@acme.test")
    orphan_id, orphan = issue(ann)
    issue(by(orphan), ["entities.read"])
    people.remove_member(one, ann.actor.removeprefix("user:"))
    deadline = clock.now_ms() + within_ms
    row = keys.get_key(one, orphan_id)
    details = {"name": row.name, "ends_with": f"{row.prefix}…{row.last4}", "scopes": row.scopes, "issuer": row.issuer}
    request = ConfirmationRequest("key", orphan_id, "digest", details, deadline)
    db.write(partial(db.execute, "UPDATE api_key SET orphan_until = ? WHERE id = ?", (deadline, orphan_id)))
    db.write(partial(confirmations.request_confirmation, one, request))
    lineage.clear_cache()
    return orphan_id, orphan


def test_orphaned_keys_work_until_their_deadline(one: TenantScope) -> None:
    day = 86_400_000
    orphan_id, orphan = make_orphan(one, 30 * day)
    assert use(orphan).scope.scopes == set(NARROW)
    with pytest.raises(Conflict, match="adopt the key"):
        keys.rotate_key(by(orphan), SEALER, orphan_id, 0)
    clock.move(30 * day)
    try:
        with pytest.raises(RevokedApiKey):
            by(orphan)
    finally:
        clock.move(-30 * day)


def test_bulk_loading_gives_the_same_authority_as_single_reads(one: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    ann, eve = make_person(one, "ann@acme.test"), make_person(one, "eve@acme.test")
    make_person(one, "fay@acme.test")
    first = issue(ann)[1]
    second_id, second = issue(by(first), ["entities.read", "keys.write"])
    issue(by(second), ["entities.read"])
    keys.revoke_key(one, second_id)
    issue(by(issue(eve)[1]), ["entities.read"])
    issue(one)
    people.add_member(one, "ann@acme.test", "operator")
    people.remove_member(one, eve.actor.removeprefix("user:"))
    rows = keys.list_keys(one, PageRequest(50)).items
    alone = [lineage.build_authority(row) for row in rows]
    issuers = lineage.load_issuers(one)
    monkeypatch.setattr(lineage, "_find_key", None)
    monkeypatch.setattr(lineage, "find_role", None)
    assert [lineage.build_authority(row, issuers) for row in rows] == alone
    assert {authority.ended for authority in alone} == {"", lineage.ISSUER_REMOVED, lineage.PARENT_ENDED}


@pytest.mark.parametrize("confirm", [True, False])
@pytest.mark.parametrize("within_ms", [0, 60_000])
def test_an_owner_decides_about_an_orphaned_key(one: TenantScope, within_ms: int, confirm: bool) -> None:
    orphan_id, orphan = make_orphan(one, within_ms)
    (confirmation,) = confirmations.list_open(one)
    eve = make_person(one, "fay@acme.test")
    decisions = ConfirmationDecisions()
    decisions.register("key", adoption.decide_key)
    decisions.decide(eve, confirmation.id, confirm)
    row = keys.get_key(one, orphan_id)
    assert confirmations.list_open(one) == []
    if confirm:
        assert (row.issuer, row.orphaned_at) == (eve.actor, None)
        assert by(orphan).scopes == set(NARROW)
    else:
        assert row.revoked_at is not None
        with pytest.raises(RevokedApiKey):
            by(orphan)
