"""Two changes of policies, switches and approved actions end as if one had followed the other."""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.governance import budgets, kill_switches
from appliance.governance.actions import canonical_action
from appliance.governance.approvals import approvals
from appliance.governance.approvals.action_approvals import RequestOptions
from appliance.governance.policies.decision import Decision, Obligations, RuleCaps
from appliance.governance.policies.service import PolicyService
from appliance.governance.subjects import Subject
from appliance.monitor import audit
from appliance.tenants import service as tenants
from tests.governance.asking import TenantFixture, make_tenant
from tests.governance.test_action_approvals import ACTION, APPROVALS, approval_decision, ask, consume, subject_of
from tests.store.cluster import Cluster
from tests.store.interleaving import Pair, check_pair, without_exclusive_writes
from tests.store.opening import open_migrated

POLICIES = PolicyService()
numbers = itertools.count(1)


@pytest.fixture(scope="module")
def tenant(cluster: Cluster) -> Iterator[TenantFixture]:
    open_migrated(cluster.emptied())
    yield make_tenant("acme")
    db.close_database()


def owner_of(of: TenantFixture) -> TenantScope:
    return tenants.system_scope(of.scope.tenant_id, "key:test")


def document(count: int = 1, effect: str = "allow") -> dict[str, Any]:
    return {"mode": "enforce", "rules": [{"id": f"r{n}", "effect": effect, "reason": "because"} for n in range(count)]}


def new_policy(of: TenantFixture, **options: Any) -> str:
    name = f"p{next(numbers)}"
    POLICIES.save_draft(owner_of(of), name, document(**options))
    return name


def read_policy(of: TenantFixture, name: str) -> Any:
    rows = db.rows("SELECT active_version FROM policy WHERE id = ?", (name,))
    documents = db.rows("SELECT document FROM policy_version WHERE policy_id = ? ORDER BY number", (name,))
    return rows, [document.count("because") for (document,) in documents]


def two_drafts_of_a_policy(of: TenantFixture) -> Pair:
    name = f"p{next(numbers)}"
    return Pair.of((partial(POLICIES.save_draft, owner_of(of), name, document(n)) for n in (1, 2)), partial(read_policy, of, name))


def two_changes_of_a_draft(of: TenantFixture) -> Pair:
    name = new_policy(of)
    digest = POLICIES.get_policy(owner_of(of), name).draft_digest
    change = partial(POLICIES.save_draft, owner_of(of), name, if_digest=digest)
    return Pair.of((partial(change, document(n)) for n in (2, 3)), partial(read_policy, of, name))


def a_draft_is_changed_and_activated(of: TenantFixture) -> Pair:
    name = new_policy(of)
    return Pair(
        lambda: POLICIES.save_draft(owner_of(of), name, document(2)),
        lambda: POLICIES.activate(owner_of(of), name),
        partial(read_policy, of, name),
    )


def a_policy_is_activated_twice(of: TenantFixture) -> Pair:
    name = new_policy(of)
    return Pair.of((partial(POLICIES.activate, owner_of(of), name),) * 2, partial(read_policy, of, name))


def a_policy_is_activated_and_deleted(of: TenantFixture) -> Pair:
    name = new_policy(of)
    return Pair(
        lambda: POLICIES.activate(owner_of(of), name),
        lambda: POLICIES.delete_policy(owner_of(of), name),
        partial(read_policy, of, name),
    )


def a_policy_is_activated_and_deactivated(of: TenantFixture) -> Pair:
    name = new_policy(of)
    return Pair(
        lambda: POLICIES.activate(owner_of(of), name),
        lambda: POLICIES.deactivate(owner_of(of), name),
        lambda: (read_policy(of, name), name in repr(POLICIES.compiled(owner_of(of)))),
    )


def something_is_switched_off_twice(of: TenantFixture) -> Pair:
    name = f"i{next(numbers)}"
    read = partial(db.rows, "SELECT count(*) FROM switched_off WHERE name = ?", (name,))
    return Pair.of((partial(kill_switches.switch_off, of.scope, "integration", name, why) for why in "ab"), read)


def something_is_switched_off_and_on(of: TenantFixture) -> Pair:
    name = f"i{next(numbers)}"
    return Pair(
        lambda: kill_switches.switch_off(of.scope, "integration", name, "why"),
        lambda: kill_switches.switch_on(of.scope, "integration", name),
        lambda: [each.name == name for each in kill_switches.list_switches(of.scope) if each.name == name],
    )


def two_last_calls_of_a_cap(of: TenantFixture) -> Pair:
    """Counted by one statement, so it holds in shared writes, too."""
    decision = Decision("allow", (), "p1", ("r",), Obligations(calls_per_hour=1), caps=(RuleCaps(f"r{next(numbers)}", 1),))
    subject = Subject("key:test", "rest")
    count = lambda: db.write(lambda: budgets.count_call(of.scope, subject, decision), is_shared=True)  # noqa: E731
    return Pair(count, count, partial(db.rows, "SELECT calls FROM governed_use WHERE name = ?", (decision.caps[0].rule,)))


def approved(of: TenantFixture) -> tuple[str, Subject]:
    subject = subject_of(of)
    approval = ask(of, subject)
    of.decide("eve", approval)
    return approval.id, subject


def status_of(of: TenantFixture, approval_id: str) -> Any:
    return approvals.get_approval(of.scope, approval_id).status, audit.verify(of.scope).intact


def an_approval_is_used_twice(of: TenantFixture) -> Pair:
    approval_id, subject = approved(of)
    return Pair.of((partial(consume, of, approval_id, subject),) * 2, partial(status_of, of, approval_id))


def an_approval_is_given_and_used(of: TenantFixture) -> Pair:
    subject = subject_of(of)
    approval = ask(of, subject)
    return Pair(
        lambda: of.decide("eve", approval), lambda: consume(of, approval.id, subject), partial(status_of, of, approval.id)
    )


def an_approval_is_requested_twice_with_a_key(of: TenantFixture) -> Pair:
    subject, key = subject_of(of), f"k{next(numbers)}"
    read = partial(db.rows, "SELECT count(*) FROM approval WHERE idempotency_key = ?", (key,))
    request = partial(
        APPROVALS.request_action, of.scope.with_actor(subject.actor), subject, ACTION, approval_decision(),
        RequestOptions(idempotency_key=key),
    )  # fmt: skip
    return Pair(request, request, read)


def an_approval_expires_and_is_used(of: TenantFixture) -> Pair:
    """What is marked as expired can no longer be used, even by a caller who looked before."""
    approval_id, subject = approved(of)
    presented = canonical_action(of.scope, subject, ACTION, "p1")
    expire = "UPDATE approval SET expires_at = 1 WHERE id = ?"
    return Pair(
        lambda: db.write(lambda: db.execute(expire, (approval_id,))),
        lambda: db.write(lambda: APPROVALS.consume_action(of.scope, approval_id, presented, "call:1")),
        partial(status_of, of, approval_id),
    )


PAIRS: dict[str, Callable[[TenantFixture], Pair]] = {
    each.__name__: each
    for each in (
        two_drafts_of_a_policy, two_changes_of_a_draft, a_draft_is_changed_and_activated, a_policy_is_activated_twice,
        a_policy_is_activated_and_deleted, a_policy_is_activated_and_deactivated, something_is_switched_off_twice,
        something_is_switched_off_and_on, two_last_calls_of_a_cap, an_approval_is_used_twice, an_approval_is_given_and_used,
        an_approval_is_requested_twice_with_a_key, an_approval_expires_and_is_used,
    )
}  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS)
def test_both_orders(tenant: TenantFixture, pair: str, request: pytest.FixtureRequest) -> None:
    assert check_pair(lambda: PAIRS[pair](tenant), reads=request.config.option.all) >= 4


@pytest.mark.parametrize("pair", ["two_changes_of_a_draft", "a_policy_is_activated_and_deleted"])
def test_without_exclusive_writes_it_is_not_so(tenant: TenantFixture, pair: str) -> None:
    with without_exclusive_writes(), pytest.raises(AssertionError, match="was halted before"):
        check_pair(lambda: PAIRS[pair](tenant))
