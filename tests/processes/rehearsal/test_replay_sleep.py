"""Replay of steps that slept, of secrets and of child executions: without waiting and without calls."""

from typing import Any

import pytest

from appliance.core.database import db
from appliance.tenants import service as tenants
from tests.processes.engine.test_suspend import HUMAN, decide, send_event
from tests.processes.world import GRANTS, SEALER, World, code, rule, wait_until

from .replaying import change, first, replay, results

SLEEPS = """
const seen = [input, Date.now(), Math.random()];
const asked = api.human.request({kind: 'approval', title: 'Ship?'});
seen.push(Date.now());
const answer = await asked;
seen.push(Date.now(), answer.status);
await api.datapool.create('marks', {what: String(Math.random())});
await Promise.all([api.wait.for('5ms'), api.events.wait('paid').then((value: any) => seen.push(value, Date.now()))]);
if (api.execution.attempt < input.attempts) throw new Error('again');
return [...seen, Math.random(), api.now()];
"""


def settle(world: World, execution: str) -> None:
    """A person approves, and the event comes."""
    decide(world, waits_for(world, execution, "human")["approval_id"])
    send_event(world, execution, waits_for(world, execution, "event")["token"], {"sum": 7})


def waits_for(world: World, execution: str, kind: str) -> dict[str, Any]:
    """What the execution waits for, once it is of this kind."""

    def result() -> dict[str, Any] | None:
        waits = (world.get(execution).waiting_for or {}).get("waits", [])
        return next((each for each in waits if each["kind"] == kind), None)

    return dict(wait_until(result))


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_step_that_slept_is_replayed_straight_through(world: World, attempts: int) -> None:
    payload = {"attempts": f"= {attempts}", "at": "= Date.now()"}
    retry = {"max_attempts": 2, "initial": "5ms", "classes": ["user_code"]}
    process = world.publish([code("ask", SLEEPS, input=payload, retry=retry), rule("b", "= steps.ask")], grants=HUMAN)
    execution = world.start(process)
    for _ in range(attempts):
        settle(world, execution)
    row = world.finish(execution)
    assert row.status == "succeeded", row.error
    report = replay(world, row)
    assert report.is_identical, report.first
    assert db.rows("SELECT count(*) FROM suspended_step")[0][0] == 0
    change(world, process, [code("ask", SLEEPS.replace("Ship?", "Send?"), input=payload, retry=retry)], grants=HUMAN)
    other = replay(world, row, version=2)
    assert results(other) == {"ask": "diverged", "b": "skipped"}
    divergence = first(other).divergence
    assert divergence is not None
    assert (divergence.call, divergence.replayed["args"][0]["title"]) == (1, "Send?")


def test_a_secret_is_given_again_while_the_grant_stands_and_never_shown(world: World) -> None:
    tenants.set_secret(world.scope, SEALER, "token", "s3cr3t-value-41")
    body = "const s = await api.secrets.get('token'); await api.datapool.create('marks', {what: 'x' + s.length}); return s.length"
    granted = {**GRANTS, "secrets": ["token"]}
    process = world.publish([code("a", body)], grants=granted)
    row = world.finish(world.start(process))
    tenants.set_secret(world.scope, SEALER, "token", "a-second-token")
    assert replay(world, row).is_identical, "the secret is that of the recorded run"
    change(world, process, [code("a", body)])
    report = replay(world, row, version=2)
    assert results(report) == {"a": "diverged"}
    assert "s3cr3t" not in repr(report)


def test_child_executions_are_not_started_again(world: World) -> None:
    child = world.publish([rule("c", "= input.n * 2")])
    body = f"""
      const started = await api.processes.execute('{child}', {{n: 1}});
      const done = await api.processes.execute('{child}', {{n: 2}}, {{wait: true}});
      return [typeof started.execution_id, done];
    """
    row = world.finish(world.start(world.publish([code("a", body)], grants={**GRANTS, "processes": [child]})))
    assert row.status == "succeeded", row.error
    before = db.rows("SELECT count(*) FROM execution")
    assert replay(world, row).is_identical
    assert db.rows("SELECT count(*) FROM execution") == before
