"""The plan of a retry says what would stay, run again and be done once more; and the retry does just that."""

import httpx
import pytest

from appliance.core.errors import Conflict, ValidationFailed
from appliance.processes.executions.retry_plan import RetryPlan
from appliance.processes.executions.service import Execution
from tests.processes.engine.test_life import failing_once
from tests.processes.rehearsal.test_dry_run import MORE_GRANTS
from tests.processes.test_api import BASE, data, error
from tests.processes.world import World, code, make_integrations, rule

from .test_retrying import mark

BODY = """
await api.datapool.query('marks', {});
await api.datapool.create('marks', {what: 'code'});
await api.datapool.create('none-such', {}).catch(() => 0);
await api.integrations.execute('bell', 'look', {});
await api.integrations.execute('bell', 'ring', {fail: 9}).catch(() => 0);
await api.integrations.execute('bell', 'ring', {}).catch(() => 0);
await api.wait.for('1ms');
if (input.bad) throw new Error('bad');
"""
RING = {"id": "ring", "integration": {"use": "bell", "action": "ring", "input": {}}}


def plan(world: World, row: Execution, start_from: str = "failed", *, published: bool = False) -> RetryPlan:
    return world.flow.plan_retry(world.scope, row.id, start_from=start_from, published=published)


def fates(retry_plan: RetryPlan) -> dict[str, str]:
    return {f"{step.step}@{step.iteration}" if step.iteration else step.step: step.fate for step in retry_plan.steps}


def test_the_retry_follows_its_plan(world: World) -> None:
    _, failed = failing_once(world)
    for start_from in ("failed", "start", "ring", "mark", "end"):
        planned = fates(plan(world, world.get(failed), start_from))
        again = world.finish(world.flow.retry_execution(world.scope, failed, start_from=start_from).id)
        sources = {name: run.result_source for name, run in world.steps(again).items()}
        assert {name for name, fate in planned.items() if fate == "reused"} == {n for n, s in sources.items() if s == "reused"}
        executed = {name for name, source in sources.items() if source == "executed"}
        assert executed <= {name for name, fate in planned.items() if fate != "reused"}
    assert fates(plan(world, world.get(failed))) == {
        "mark": "reused", "each": "continued", "ring@0": "reused", "ring@1": "again", "end": "first",
    }  # fmt: skip


def test_effects_of_code_come_from_its_journal(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world.flow, "_find_actions", make_integrations().find_actions)
    look = {"id": "look", "integration": {"use": "bell", "action": "look", "input": {}}}
    process = world.publish([mark("first"), RING, look, code("code", BODY)], grants=MORE_GRANTS)
    row = world.finish(world.start(process, {"bad": True}))
    assert row.status == "failed"
    expected = [
        ("code", "datapool.create", "marks", True), ("code", "integrations.execute", "bell/ring", False),
        ("code", "integrations.execute", "bell/ring", True),
    ]  # fmt: skip
    planned = plan(world, row)
    assert [(e.step, e.method, e.target, e.certain) for e in planned.effects] == expected
    assert planned.sentences == [
        "Step runs: 3 reused, 1 run again.", "code would write another record to marks.",
        "code would call ring of bell again, under a new idempotency key; it may have been done before.",
        "code would call ring of bell again, under a new idempotency key.",
    ]  # fmt: skip
    before = [("first", "datapool.create", "marks", True), ("ring", "integrations.execute", "bell/ring", True)]
    assert [(e.step, e.method, e.target, e.certain) for e in plan(world, row, "start").effects] == [*before, *expected]
    retried = world.finish(world.flow.retry_execution(world.scope, row.id).id)
    from_start = plan(world, retried, "start")
    assert [(e.step, e.method, e.target, e.certain) for e in from_start.effects] == [*before, *expected], "made by the one before"


def test_people_children_and_nothing(world: World) -> None:
    child = world.publish([rule("a", "= 1")])
    steps = [
        {"id": "sub", "process": {"use": child, "input": {}}}, {**mark("skipped"), "when": "= false"},
        {"id": "ask", "human": {"kind": "approval", "title": "Well?", "expires": "1s"}}, rule("end", "= input.no.thing"),
    ]  # fmt: skip
    row = world.run(steps)
    planned = plan(world, row, "start")
    sentences = [effect.sentence for effect in planned.effects]
    assert sentences == [f"sub would execute {child} again.", "ask would ask the person again."]
    assert plan(world, row).sentences == ["Step runs: 3 reused, 1 run again.", "No external action will be repeated."]


def test_a_plan_is_refused_as_the_retry_is(world: World) -> None:
    row = world.run([rule("a", "= 1")])
    with pytest.raises(Conflict):
        plan(world, row)
    with pytest.raises(ValidationFailed):
        plan(world, row, "none")


def test_the_plan_over_http(acme: httpx.Client, globex: httpx.Client) -> None:
    address = f"{BASE}/plan-over-http"
    assert acme.put(address, json={"steps": [rule("a", "= 1"), rule("b", "= input.no.thing")]}).is_success
    data(acme.post(f"{address}/publish", json={}))
    view = data(acme.post(f"{address}/execute?wait=10", json={}))
    one = view["links"]["self"]
    plan_view = data(acme.get(f"{one}/retry-plan", params={"from": "b"}))
    assert (
        plan_view["from"], plan_view["version"], plan_view["counts"], plan_view["effects"]
    ) == ("b", 1, {"reused": 1, "again": 1}, [])
    assert plan_view["steps"][0] == {"step": "a", "path": "a", "kind": "rule", "fate": "reused"}
    assert error(acme.get(f"{one}/retry-plan?from=c"), 422)["details"][0]["pointer"] == "/from"
    assert error(acme.get(f"{one}/retry-plan?version=9"), 400)["code"] == "invalid_request"
    assert error(globex.get(f"{one}/retry-plan"), 404)["code"] == "not_found"
