"""One tenant's executions leave room to everybody else's: those that wait for their turn, and those that descend from one."""

import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.processes.scheduling import backlog
from appliance.testing.running import Running
from tests.api.resources import Resources

RECURSIVE = """
export default async function (input, api) {
  const outcomes = [];
  for (let n = 0; n < input.times; n++) {
    try { outcomes.push((await api.processes.execute(input.own, {own: input.own, times: input.times})).status); }
    catch (error) { outcomes.push(error.code); }
  }
  return {outcomes};
}
"""


@pytest.fixture
def few(running: Running) -> Iterator[None]:
    backlog.configure(queued=5, descendants=7)
    yield
    limits = running.config.limits
    backlog.configure(queued=limits.queued_executions, descendants=limits.execution_descendants)


def paused_process(ours: Resources) -> str:
    """A published process whose executions stay queued."""
    process = ours.process()
    ours.ask("POST", f"/processes/{process}/pause")
    return process


def count_queued(tenant: str) -> int:
    ((count,),) = db.rows("SELECT count(*) FROM execution WHERE tenant_id = ? AND status = 'queued'", (tenant,))
    return int(count)


def test_the_queue_of_a_tenant_is_limited(
    few: None, ours: Resources, theirs: Resources, acme: httpx.Client
) -> None:
    process = paused_process(ours)
    free = 5 - count_queued("acme")
    answers = [acme.post(f"/api/v1/processes/{process}/execute", json={"a": 1}) for _ in range(free + 3)]
    assert [answer.status_code for answer in answers] == [202] * free + [429] * 3
    error = answers[-1].json()["error"]
    assert error["code"] == "concurrency_limited"
    assert "limits.queued_executions" in error["message"]
    assert int(answers[-1].headers["retry-after"]) >= 1
    assert count_queued("acme") == 5
    theirs.execution(theirs.process())
    for row in ours.ask("GET", f"/processes/{process}/executions"):
        ours.ask("POST", f"/processes/{process}/executions/{row['execution_id']}/cancel")
    pause = threading.Event()
    while acme.post(f"/api/v1/processes/{process}/execute", json={"a": 1}).status_code != 202:
        pause.wait(0.05)  # what was counted is believed for half a second
    for row in ours.ask("GET", f"/processes/{process}/executions?status=queued"):
        ours.ask("POST", f"/processes/{process}/executions/{row['execution_id']}/cancel")


def run_in(seconds: float) -> dict[str, str]:
    return {"run_at": clock.rfc3339(clock.now_ms() + int(seconds * 1000))}


def test_planned_executions_are_limited_too(few: None, ours: Resources, theirs: Resources, acme: httpx.Client) -> None:
    process = paused_process(ours)
    free = 5 - count_queued("acme")
    path = f"/api/v1/processes/{process}/execute"
    answers = [acme.post(path, json={"a": 1}, params=run_in(3600)) for _ in range(free + 2)]
    assert [answer.status_code for answer in answers] == [202] * free + [429] * 2
    error = answers[-1].json()["error"]
    assert error["code"] == "concurrency_limited"
    assert "(run_at)" in error["message"]
    assert "limits.queued_executions" in error["message"]
    assert int(answers[-1].headers["retry-after"]) >= 1
    now = [acme.post(path, json={"a": 1}) for _ in range(free + 1)]
    assert [answer.status_code for answer in now] == [202] * free + [429], "what is planned keeps nothing from being executed now"
    theirs.ask("POST", f"/processes/{theirs.process()}/execute", {"a": 1}, params=run_in(3600))
    for row in ours.ask("GET", f"/processes/{process}/executions"):
        ours.ask("POST", f"/processes/{process}/executions/{row['execution_id']}/cancel")


def test_a_full_queue_takes_no_execution_planned_for_the_next_second(few: None, ours: Resources, acme: httpx.Client) -> None:
    process = paused_process(ours)
    path = f"/api/v1/processes/{process}/execute"
    while acme.post(path, json={"a": 1}).status_code == 202:
        pass
    assert acme.post(path, json={"a": 1}, params=run_in(1)).status_code == 429
    for row in ours.ask("GET", f"/processes/{process}/executions?status=queued"):
        ours.ask("POST", f"/processes/{process}/executions/{row['execution_id']}/cancel")


def test_a_repeated_request_is_answered_with_a_full_queue(few: None, ours: Resources, acme: httpx.Client) -> None:
    process = paused_process(ours)
    headers = {"Idempotency-Key": f"share-{process}"}
    first = acme.post(f"/api/v1/processes/{process}/execute", json={"a": 1}, headers=headers)
    while acme.post(f"/api/v1/processes/{process}/execute", json={"a": 1}).status_code == 202:
        pass
    again = acme.post(f"/api/v1/processes/{process}/execute", json={"a": 1}, headers=headers)
    assert (again.status_code, again.json()["data"]["execution_id"]) == (202, first.json()["data"]["execution_id"])
    for row in ours.ask("GET", f"/processes/{process}/executions?status=queued"):
        ours.ask("POST", f"/processes/{process}/executions/{row['execution_id']}/cancel")


def test_executions_are_not_counted_for_every_request(
    few: None, ours: Resources, acme: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    backlog.configure(queued=1_000, descendants=7)
    counted: list[str] = []
    count = backlog._count_queued

    def note_and_count(scope: TenantScope, *, with_planned: bool) -> int:
        counted.append(scope.tenant_id)
        return count(scope, with_planned=with_planned)

    monkeypatch.setattr(backlog, "_count_queued", note_and_count)
    monkeypatch.setattr(backlog, "FRESH_SECONDS", 3600.0)
    process = paused_process(ours)
    ids = [ours.ask("POST", f"/processes/{process}/execute", {"a": 1})["execution_id"] for _ in range(20)]
    assert counted == ["acme"]
    for each in ids:
        ours.ask("POST", f"/processes/{process}/executions/{each}/cancel")


def test_a_process_that_executes_itself_is_stopped_at_a_limit(few: None, ours: Resources, acme: httpx.Client) -> None:
    backlog.configure(queued=1_000, descendants=7)
    process = ours.process()
    definition: dict[str, Any] = {
        "input": {"type": "object", "properties": {"own": {"type": "string"}, "times": {"type": "integer"}}},
        "steps": [
            {"id": "again", "code": {"language": "javascript", "file": "steps/again.js"}, "grants": {"processes": [process]}}
        ],
    }
    ours.ask("PUT", f"/processes/{process}", {"definition": definition, "files": {"steps/again.js": RECURSIVE}})
    ours.ask("POST", f"/processes/{process}/publish", {})
    before = count_unfinished()
    root = ours.ask("POST", f"/processes/{process}/execute", {"own": process, "times": 30}, params={"wait": 30})
    assert root["status"] == "succeeded"
    pause = threading.Event()
    while count_unfinished() > before:
        pause.wait(0.05)
    ((descended, deepest),) = db.rows(
        "SELECT count(*), max(depth) FROM execution WHERE tenant_id = 'acme' AND root = ?", (root["execution_id"],)
    )
    assert 7 <= descended < 200, "thirty to the tenth descended from it where nobody counts"
    assert deepest <= 10
    outcomes = ours.ask("GET", f"/processes/{process}/executions/{root['execution_id']}/steps")[0]["output"]["outcomes"]
    assert len(outcomes) == 30
    assert "concurrency_limited" in outcomes


def count_unfinished() -> int:
    ((count,),) = db.rows("SELECT count(*) FROM execution WHERE tenant_id = 'acme' AND root IS NOT NULL AND finished_at IS NULL")
    return int(count)
