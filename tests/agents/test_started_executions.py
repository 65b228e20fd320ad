"""Executions that runs start: one deeper than the run's own, and with what the run has read."""

from collections.abc import Iterator
from typing import Any

import pytest

from appliance.agents.models import AgentRunRow
from appliance.agents.tools.processes import ProcessTools
from appliance.api import make_shapes
from appliance.core.database import db
from appliance.processes import Execution
from appliance.processes.engine import MAX_DEPTH
from tests.agents.equipped import put_process
from tests.agents.stepping import STEP, Stepping, open_stepping
from tests.agents.world import book, calls, says

WORK = ("execute_process", {"process_id": "work", "input": {}})
ABLE: dict[str, Any] = {"tools": ["books:*", WORK[0]]}


@pytest.fixture(scope="module")
def stepping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stepping]:
    with open_stepping(tmp_path_factory.mktemp("started")) as opened:
        put_process(opened.world.scope, 1)
        for tool in ProcessTools(opened.flow, make_shapes().execution).tools():
            opened.world.runs.runner.dependencies.toolbox.add(tool)
        yield opened


def started_executions(stepping: Stepping, run_id: str) -> list[Execution]:
    return [row for row in stepping.world.scope.select(Execution) if row.actor == f"run:{run_id}"]


def returned_entries(stepping: Stepping, run_id: str) -> list[Any]:
    return [entry.data for entry in stepping.world.journal(run_id) if entry.kind == "returned"]


@pytest.mark.parametrize(("read", "sources"), [([], None), ([calls(book("look"))], ["integration:books"])])
def test_an_execution_inherits_the_taint_of_its_run(stepping: Stepping, read: list[Any], sources: Any) -> None:
    run = stepping.world.run(*read, calls(WORK), says("done"), **ABLE)
    executions = [(row.depth, row.tainted_by) for row in started_executions(stepping, run.id)]
    assert executions == [(1, sources)], returned_entries(stepping, run.id)


@pytest.mark.parametrize("depth", [MAX_DEPTH - 1, MAX_DEPTH])
def test_runs_and_executions_nest_no_deeper_than_children(stepping: Stepping, depth: int) -> None:
    stepping.world.make(calls(WORK), says("done"), **ABLE)
    execution_id = stepping.start({**STEP, "grants": {"processes": ["work"]}})
    db.write(lambda: db.execute("UPDATE execution SET depth = ? WHERE id = ?", (depth, execution_id)))
    (run,) = stepping.runs(execution_id)
    assert stepping.world.drive(run.id).status == "succeeded"
    (result,) = returned_entries(stepping, run.id)
    if depth < MAX_DEPTH:
        assert [row.depth for row in started_executions(stepping, run.id)] == [depth + 1], result
    else:
        assert (started_executions(stepping, run.id), result["ok"], result["error"]["code"]) == ([], False, "conflict")
        assert f"at most {MAX_DEPTH} deep" in result["error"]["message"]


def effects_of_run(stepping: Stepping, *turns: Any, grants: Any = None) -> list[tuple[str, bool]]:
    """The effects that a retry plan lists for a run that makes these calls and then fails."""
    stepping.world.make(*turns, says("never"), **ABLE, budget={"turns": len(turns)})
    execution_id = stepping.start({**STEP, "grants": grants or {"processes": ["work"], "integrations": {"books": "*"}}})
    assert stepping.finish(execution_id).status == "failed"
    return effects(stepping, execution_id)


def effects(stepping: Stepping, execution_id: str) -> list[tuple[str, bool]]:
    plan = stepping.flow.plan_retry(stepping.world.scope, execution_id)
    return [(each.target.removeprefix("clerk/"), "may have done" not in each.sentence) for each in plan.effects[1:]]


def latest(stepping: Stepping) -> str:
    """The run that was started last."""
    return max(stepping.world.scope.select(AgentRunRow), key=lambda row: (row.created_at, row.id)).id  # type: ignore[no-any-return]


def test_a_write_with_unknown_outcome_may_happen_again(stepping: Stepping) -> None:
    assert effects_of_run(stepping, calls(book("book", do="TransientError unknown"))) == [("books/book", False)]


def test_previews_and_reads_have_no_effect(stepping: Stepping) -> None:
    tool, params = book("set", amount=1)
    assert effects_of_run(stepping, calls((tool, {**params, "mode": "preview"}), book("look"))) == []


def test_a_failed_process_counts_as_started(stepping: Stepping) -> None:
    grants = {"processes": ["work", stepping.publish({"id": "end", "process": {"use": "none-such"}})]}
    call = ("execute_process", {"process_id": grants["processes"][1], "input": {}, "wait": 30})
    assert effects_of_run(stepping, calls(call), grants=grants) == [("execute_process", True)]
    (result,) = returned_entries(stepping, latest(stepping))
    assert result["result"]["error"]["code"] == "not_found", "which of an action would say that nothing was done"


@pytest.mark.parametrize(("fields", "listed"), [({"begun": True}, [("execute_process", False)]), ({}, [])])
def test_a_refused_call_that_had_begun_may_have_had_an_effect(stepping: Stepping, fields: Any, listed: Any) -> None:
    effects_of_run(stepping, calls(WORK))
    error_data = {"tool": WORK[0], "ok": False, "error": {"code": "policy_denied", "message": "no", **fields}}
    change = "UPDATE agent_journal SET data = ? WHERE kind = 'returned' AND run_id = ?"
    db.write(lambda: db.execute(change, (db.dump_json(error_data), latest(stepping))))
    assert effects(stepping, stepping.world.get(latest(stepping)).origin.execution_id) == listed  # type: ignore[union-attr]
