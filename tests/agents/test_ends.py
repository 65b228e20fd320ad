"""Every end of a run is in the audit trail once, written in the same transaction."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from appliance.agents import runs
from appliance.core.database import db
from appliance.core.pages import PageRequest
from appliance.governance import kill_switches
from appliance.monitor import AuditFilter, audit
from tests.agents.world import ALLOW, ASK, World, book, calls, mark, open_world, says


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with open_world(tmp_path) as opened:
        yield opened


def end_entry(world: World, run_id: str) -> Mapping[str, Any]:
    """The fields of the only `agent.end` entry of the audit trail."""
    (entry,) = audit.list_entries(world.scope, AuditFilter(action="agent.end"), PageRequest()).items
    fields: Mapping[str, Any] = json.loads(entry.fields)
    assert (entry.subject, fields["run"], fields["status"]) == ("clerk", run_id, world.get(run_id).status)
    return fields


def succeeds(world: World) -> str:
    return world.run(calls(mark("x")), says("done")).id


def fails(world: World) -> str:
    output = {"type": "object", "required": ["total"], "properties": {"total": {"type": "integer"}}}
    return world.run(*[calls(("final_result", {"total": "x"}))] * 9, output=output).id


def runs_out_of_turns(world: World) -> str:
    return world.run(calls(mark("x")), calls(mark("y")), says("done"), budget={"turns": 1}).id


def is_switched_off(world: World) -> str:
    world.make(calls(mark("x")), says("done"))
    run_id = world.start()
    world.script.before = lambda number: kill_switches.switch_off(world.scope, "agent", "clerk", "it runs wild")
    world.drive(run_id)
    world.script.before = lambda number: None
    return run_id


def is_cancelled_while_it_waits(world: World) -> str:
    world.make(calls(book(amount=7)), says("done"), rules=[ASK, ALLOW])
    run_id = world.start()
    assert world.drive(run_id).status == "waiting"
    runs.cancel_run(world.scope, "clerk", run_id)
    return run_id


def is_cancelled_while_it_runs(world: World) -> str:
    world.make(calls(mark("x")), says("done"))
    run_id = world.start()
    world.script.before = lambda number: cancel_once(world, run_id)
    world.drive(run_id)
    world.script.before = lambda number: None
    return run_id


def cancel_once(world: World, run_id: str) -> None:
    runs.cancel_run(world.scope, "clerk", run_id)


def breaks(world: World) -> str:
    return world.run(ZeroDivisionError("a bug of ours")).id


ENDS: dict[str, tuple[Callable[[World], str], dict[str, Any]]] = {
    "succeeded": (succeeds, {"status": "succeeded", "turns": 2, "tool_calls": 1, "input_tokens": 20, "output_tokens": 10}),
    "failed": (fails, {"status": "failed", "code": "answer_invalid"}),
    "budget": (runs_out_of_turns, {"status": "failed", "code": "budget_exceeded", "budget": "turns"}),
    "kill switch": (is_switched_off, {"status": "failed", "code": "policy_denied", "reason": "kill_switch"}),
    "cancelled": (is_cancelled_while_it_waits, {"status": "cancelled", "turns": 1}),
    "cancelled in a step": (is_cancelled_while_it_runs, {"status": "cancelled", "turns": 1}),
    "broken": (breaks, {"status": "failed", "code": "internal"}),
}


@pytest.mark.parametrize("how", ENDS)
def test_every_end_is_audited_once(world: World, how: str) -> None:
    end, expected = ENDS[how]
    result = end_entry(world, end(world))
    assert {name: result.get(name) for name in expected} == expected


def test_an_end_that_is_not_committed_is_not_in_the_trail(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("no place for the entry")

    world.make(says("done"))
    run_id = world.start()
    with monkeypatch.context() as broken:
        broken.setattr(runs, "note_end", refuse)
        with pytest.raises(RuntimeError):
            world.drive(run_id)
    assert world.get(run_id).status == "running"
    assert db.rows("SELECT COUNT(*) FROM audit_entry WHERE action = 'agent.end'") == [(0,)]
