"""What rules cap is counted by each rule for itself, in its hour and in its run."""

import pytest

from appliance.core import clock
from appliance.core.errors import BudgetExceeded
from appliance.governance.subjects import Subject
from tests.governance.ruling import put_rules
from tests.governance.test_governor import refused
from tests.integrations.world import World


def test_each_rule_counts_against_its_own_cap(world: World) -> None:
    world.ledger()
    put_rules(
        world.one,
        {"id": "all", "effect": "allow", "reason": "r", "obligations": {"calls_per_hour": 3}},
        {"id": "writes", "effect": "allow", "effects": ["write"], "reason": "w", "obligations": {"calls_per_hour": 1}},
    )
    for _ in range(2):
        world.executor.execute(world.one, world.request("look"))
    world.executor.execute(world.one, world.request())
    assert refused(world, world.request("look"), BudgetExceeded).extra["rules"] == ["gate/all"]


def test_the_cap_of_a_run_is_none_for_who_acts_in_no_run(world: World) -> None:
    world.ledger()
    put_rules(world.one, {"id": "few", "effect": "allow", "reason": "few", "obligations": {"calls_per_run": 1}})
    for _ in range(3):
        world.executor.execute(world.one, world.request())
    running = Subject("key:test", "rest", run_id="run_1")
    world.executor.execute(world.one, world.request(subject=running))
    assert refused(world, world.request(subject=running), BudgetExceeded).extra["reason"] == "calls_per_run"


def test_a_new_hour_begins_at_nought_and_a_run_never_does(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.ledger()
    caps = {"calls_per_hour": 1, "calls_per_run": 2}
    put_rules(world.one, {"id": "few", "effect": "allow", "reason": "few", "obligations": caps})
    first = Subject("key:test", "rest", run_id="run_1")
    world.executor.execute(world.one, world.request(subject=first))
    assert refused(world, world.request(subject=first), BudgetExceeded).extra["reason"] == "calls_per_hour"
    now = clock.now_ms()
    monkeypatch.setattr(clock, "now_ms", lambda: now + 3_600_000)
    world.executor.execute(world.one, world.request(subject=first))
    monkeypatch.setattr(clock, "now_ms", lambda: now + 7_200_000)
    assert refused(world, world.request(subject=first), BudgetExceeded).extra["reason"] == "calls_per_run"
    world.executor.execute(world.one, world.request(subject=Subject("key:test", "rest", run_id="run_2")))
