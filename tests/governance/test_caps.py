"""Caps are counted per rule, per hour and per run."""

import pytest

from appliance.core import clock
from appliance.core.errors import BudgetExceeded
from appliance.governance.subjects import Subject
from tests.governance.ruling import put_rules
from tests.governance.test_governor import expect_refusal
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
    assert expect_refusal(world, world.request("look"), BudgetExceeded).extra["rules"] == ["gate/all"]


def test_a_run_cap_does_not_apply_outside_a_run(world: World) -> None:
    world.ledger()
    put_rules(world.one, {"id": "few", "effect": "allow", "reason": "few", "obligations": {"calls_per_run": 1}})
    for _ in range(3):
        world.executor.execute(world.one, world.request())
    running = Subject("key:test", "rest", run_id="run_1")
    world.executor.execute(world.one, world.request(subject=running))
    assert expect_refusal(world, world.request(subject=running), BudgetExceeded).extra["reason"] == "calls_per_run"


def test_an_hourly_cap_resets_and_a_run_cap_does_not(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.ledger()
    caps = {"calls_per_hour": 1, "calls_per_run": 2}
    put_rules(world.one, {"id": "few", "effect": "allow", "reason": "few", "obligations": caps})
    first = Subject("key:test", "rest", run_id="run_1")
    world.executor.execute(world.one, world.request(subject=first))
    assert expect_refusal(world, world.request(subject=first), BudgetExceeded).extra["reason"] == "calls_per_hour"
    now = clock.now_ms()
    monkeypatch.setattr(clock, "now_ms", lambda: now + 3_600_000)
    world.executor.execute(world.one, world.request(subject=first))
    monkeypatch.setattr(clock, "now_ms", lambda: now + 7_200_000)
    assert expect_refusal(world, world.request(subject=first), BudgetExceeded).extra["reason"] == "calls_per_run"
    world.executor.execute(world.one, world.request(subject=Subject("key:test", "rest", run_id="run_2")))
