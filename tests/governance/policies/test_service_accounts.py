"""A rule that names a service account, as an actor or in its condition, applies to all its keys, at any depth, and to no others."""

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.governance import Governor, Subject
from appliance.governance.approvals import ActionApprovals
from appliance.governance.policies.compiled import Active, CompiledPolicies
from appliance.governance.policies.language import parse_policy
from appliance.governance.policies.replay import ReplayRequest, replay
from appliance.governance.policies.service import PolicyService
from appliance.integrations.models import CallRow
from appliance.tenants import AccountSpec, people, scopes_of_role, service_accounts, starters
from appliance.tenants.keys import KeySpec, keys, lineage
from tests.governance.policies.facts import action, policy, rule
from tests.integrations.world import World

SEALER = Sealer(b"k" * 32)
SCOPES = ["integrations.execute", "keys.read", "keys.write"]


@dataclass(frozen=True)
class Staff:
    """Actors of a tenant: a key of the account `robot`, one below that, and a key of a person."""

    direct: str
    below: str
    other: str
    policies: PolicyService


@pytest.fixture
def staff(world: World) -> Staff:
    lineage.clear_cache()
    person = people.create_user("ann@one.test", "correct horse battery")
    people.add_member(world.one, person.login, "owner")
    ann = world.one.with_actor(f"user:{person.id}")
    service_accounts.create_account(ann, AccountSpec("robot", "Robot", SCOPES))
    direct, _ = service_accounts.issue_key(ann, SEALER, "robot", spec())
    below, _ = keys.issue_key(scope_of(world, direct.id), SEALER, spec())
    other, _ = keys.issue_key(ann, SEALER, spec())
    return Staff(f"key:{direct.id}", f"key:{below.id}", f"key:{other.id}", PolicyService())


def spec() -> KeySpec:
    return KeySpec("a key", SCOPES, "test")


def scope_of(world: World, key_id: str) -> TenantScope:
    return TenantScope(world.one.tenant_id, f"key:{key_id}", scopes_of_role("owner") & set(SCOPES))


def verdicts(world: World, staff: Staff) -> list[str]:
    subjects = [Subject(actor, "rest", credential="service") for actor in (staff.direct, staff.below, staff.other)]
    return [staff.policies.decide(world.one, each, action()).verdict for each in subjects]


@pytest.mark.parametrize("name", ["service:robot", "service:*", "*:robot", "se*ot"])
def test_a_rule_that_names_the_account_applies_to_its_keys_alone(world: World, staff: Staff, name: str) -> None:
    staff.policies.save_draft(world.one, "robots", policy(rule("deny", subject={"actors": [name]})))
    staff.policies.activate(world.one, "robots")
    assert verdicts(world, staff) == ["deny", "deny", "allow"]


def test_other_names_apply_as_before(world: World, staff: Staff) -> None:
    staff.policies.save_draft(world.one, "robots", policy(rule("deny", subject={"actors": ["service:robo", staff.below]})))
    staff.policies.activate(world.one, "robots")
    assert verdicts(world, staff) == ["allow", "deny", "allow"]


def test_a_key_that_is_moved_to_the_account_follows_its_rules(world: World, staff: Staff) -> None:
    staff.policies.save_draft(world.one, "robots", policy(rule("deny", subject={"actors": ["service:robot"]})))
    staff.policies.activate(world.one, "robots")
    owner = world.one.with_actor(f"user:{people.find_user('ann@one.test').id}")
    service_accounts.adopt_key(owner, "robot", staff.other.removeprefix("key:"))
    assert verdicts(world, staff) == ["deny", "deny", "deny"]


@pytest.mark.parametrize(("condition", "expected"), [
    ({"service_account": "robot"}, ["deny", "deny", "allow"]),
    ({"service_account": {"_in": ["robot", "another"]}}, ["deny", "deny", "allow"]),
    ({"service_account": {"_starts_with": "rob"}}, ["deny", "deny", "allow"]),
    ({"service_account": {"_neq": "robot"}}, ["allow", "allow", "deny"]),
    ({"service_account": {"_null": False}}, ["deny", "deny", "allow"]),
    ({"service_account": {"_null": True}}, ["allow", "allow", "deny"]),
    ({"_or": [{"service_account": "another"}, {"service_account": {"_null": True}}]}, ["allow", "allow", "deny"]),
    ({"service_account": "robo"}, ["allow", "allow", "allow"]),
])  # fmt: skip
def test_a_condition_matches_by_whether_and_which_account_acts(
    world: World, staff: Staff, condition: dict[str, Any], expected: list[str]
) -> None:
    staff.policies.save_draft(world.one, "robots", policy(rule("deny", when={"subject": condition})))
    staff.policies.activate(world.one, "robots")
    assert verdicts(world, staff) == expected
    people_act = staff.policies.decide(world.one, Subject("user:ann", "console"), action()).verdict
    assert people_act == expected[-1], "as with a key of no account"


def test_a_condition_can_combine_the_account_with_the_input(world: World, staff: Staff) -> None:
    """As: the order intake may enter orders up to 1,000 by itself."""
    when = {"subject": {"service_account": "robot"}, "input": {"amount": {"_gt": 1000}}}
    staff.policies.save_draft(world.one, "robots", policy(rule("require_approval", when=when)))
    staff.policies.activate(world.one, "robots")
    seen = [
        staff.policies.decide(world.one, Subject(actor, "rest", credential="service"), action(input={"amount": amount})).verdict
        for actor in (staff.below, staff.other)
        for amount in (10, 5000)
    ]
    assert seen == ["allow", "require_approval", "allow", "allow"]


def test_the_account_is_looked_up_only_if_a_rule_may_name_it() -> None:
    def reads_of(**members: Any) -> tuple[bool, bool]:
        parsed = parse_policy(policy(rule("deny", **members)), "p")
        compiled = CompiledPolicies([Active(parsed.name, 1, parsed.digest(), parsed.document())])
        return compiled.reads_account, compiled.reads_account_behind

    def reads(*actors: str) -> tuple[bool, bool]:
        return reads_of(subject={"actors": list(actors)})

    condition = {"_or": [{"input": {"a": 1}}, {"subject": {"_and": [{"service_account": {"_null": True}}]}}]}
    assert reads_of(when=condition) == (False, True)
    assert reads_of(when={"subject": {"actor": "key:k"}, "input": {"service_account": "robot"}}) == (False, False)
    assert {reads("key:*"), reads("user:ann", "execution:*"), reads("system")} == {(False, False)}
    assert {reads("service:a"), reads("key:k", "s*"), reads("*")} == {(True, False)}


@pytest.fixture
def work(staff: Staff, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """A run that an execution has started, whose parent a key of the account has started; counts the lookups by actor."""
    started = {"execution:exe_1": staff.below, "execution:exe_2": "execution:exe_1", "run:run_1": "execution:exe_2"}
    started |= {"execution:exe_cron": "trigger:nightly"}
    lookups: Counter[str] = Counter()

    def find(kind: str, _: TenantScope, name: str) -> str | None:
        lookups[f"{kind}:{name}"] += 1
        return started.get(f"{kind}:{name}")

    for kind in ("execution", "run"):
        monkeypatch.setitem(starters.lookups, kind, partial(find, kind))
    return lookups


def test_what_the_account_has_started_is_looked_up_once_and_only_for_conditions(
    world: World, staff: Staff, work: Counter[str]
) -> None:
    def decide(actor: str, scope: TenantScope = world.one) -> str:
        return staff.policies.decide(scope.with_actor(actor), Subject(actor, "process"), action()).verdict

    staff.policies.save_draft(world.one, "robots", policy(rule("deny", subject={"actors": ["service:robot"]})))
    staff.policies.activate(world.one, "robots")
    assert (decide("execution:exe_1"), work.total()) == ("allow", 0)
    staff.policies.save_draft(world.one, "robots", policy(rule("deny", when={"subject": {"service_account": "robot"}})))
    staff.policies.activate(world.one, "robots")
    assert [decide(each) for each in ("run:run_1", "execution:exe_cron", "execution:exe_1")] == ["deny", "allow", "deny"]
    counted = work.copy()
    assert [decide(each) for each in ("run:run_1", "execution:exe_cron", "execution:exe_1")] == ["deny", "allow", "deny"]
    assert work == counted


def test_an_execution_that_is_not_stored_yet_is_known_by_its_scope_and_otherwise_denied(
    world: World, staff: Staff, work: Counter[str]
) -> None:
    """A short execution runs its first step before its row is written."""
    governor = Governor(staff.policies, ActionApprovals(SEALER))
    staff.policies.save_draft(world.one, "robots", policy(rule("deny", when={"subject": {"service_account": "robot"}})))
    staff.policies.activate(world.one, "robots")

    def decide(name: str, started_by: str) -> str:
        scope = TenantScope(world.one.tenant_id, name, started_by=started_by)
        return governor.evaluate(scope, Subject(name, "process"), action()).verdict

    assert [decide("execution:new_1", staff.direct), decide("execution:new_2", staff.other)] == ["deny", "allow"]
    assert work.total() == 0
    assert decide("execution:new_3", "") == "deny"


def test_a_replay_knows_the_account_of_a_key(world: World, staff: Staff) -> None:
    world.ledger()
    world.executor.execute(world.one, world.request(input={"amount": 5}))
    by_actor = rule("deny", subject={"actors": ["service:robot"]})
    by_condition = rule("deny", when={"subject": {"service_account": "robot"}})
    for draft in (parse_policy(policy(each), "draft") for each in (by_actor, by_condition)):
        for actor, result in ((staff.below, {"deny": 1}), (staff.other, {"allow": 1})):
            decision = {"verdict": "allow", "actor": actor, "via": "rest", "credential": "service"}
            db.write(world.one.update(CallRow, decision=decision).execute)
            assert dict(replay(world.one, draft, ReplayRequest(0, 1 << 45)).after) == result


def test_a_replay_knows_who_has_started_an_execution_as_long_as_it_is_stored(
    world: World, staff: Staff, work: Counter[str]
) -> None:
    world.ledger()
    world.executor.execute(world.one, world.request(input={"amount": 5}))
    draft = parse_policy(policy(rule("deny", when={"subject": {"service_account": "robot"}})), "draft")
    expected = {"execution:exe_2": {"deny": 1}, "execution:exe_cron": {"allow": 1}, "execution:deleted": {"undecidable": 1}}
    for actor, result in expected.items():
        decision = {"verdict": "allow", "actor": actor, "via": "process"}
        db.write(world.one.update(CallRow, decision=decision).execute)
        assert dict(replay(world.one, draft, ReplayRequest(0, 1 << 45)).after) == result, actor
