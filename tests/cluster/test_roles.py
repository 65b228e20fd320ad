"""`gos serve --no-workers` answers requests and leaves executions, timers and upkeep to `gos worker`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from appliance.app import composition
from appliance.app.sandboxes import make_pool
from appliance.testing.running import make_config
from tests.cluster.several import Several, publish, several
from tests.sandbox.paused_steps import until
from tests.store.cluster import Cluster

WAITING = {
    "id": "waiting",
    "steps": [
        {"id": "code", "code": {"language": "javascript", "source": "export default () => ({ answer: 42 })"}},
        {"id": "pause", "wait": {"for": "50ms"}},
        {"id": "last", "rule": {"expression": "= steps.code.answer"}},
    ],
}


@pytest.fixture
def group(tmp_path: Path, cluster: Cluster) -> Iterator[Several]:
    with several(tmp_path, cluster.emptied()) as group:
        yield group


def queues(client: httpx.Client) -> dict[str, Any]:
    answer = client.get("/api/v1/logs/queues").raise_for_status()
    return dict(answer.json()["data"])


def status(client: httpx.Client, execution_id: str) -> str:
    return str(client.get(f"/api/v1/processes/waiting/executions/{execution_id}").raise_for_status().json()["data"]["status"])


def test_an_execution_accepted_without_workers_is_finished_by_a_worker_and_answered(group: Several) -> None:
    with group.client(group.start("serve", "--no-workers")) as client:
        idle = queues(client)
        assert idle["workers"] == 0
        assert (idle["sandbox"]["processes"], idle["sandbox"]["starts_on_demand"], idle["sandbox"]["protections"]) == (0, True, [])

        publish(client, WAITING)  # compiles the step's code, for which the sandbox starts
        assert queues(client)["sandbox"]["processes"] == 1

        queued = client.post("/api/v1/processes/waiting/execute", json={}).raise_for_status().json()["data"]["execution_id"]
        unanswered = client.post("/api/v1/processes/waiting/execute?wait=1", json={})
        assert unanswered.status_code == 202
        assert [status(client, each) for each in (queued, unanswered.json()["data"]["execution_id"])] == ["queued", "queued"]
        assert queues(client)["depth"] == 2

        group.start("worker")
        answer = client.post("/api/v1/processes/waiting/execute?wait=30", json={})
        assert (answer.status_code, answer.json()["data"]["status"]) == (200, "succeeded")
        until(lambda: status(client, queued) == "succeeded")
        assert queues(client)["workers"] == 0


def test_a_worker_ignores_the_setting_for_servers(tmp_path: Path, cluster: Cluster) -> None:
    with several(tmp_path, cluster.emptied(), server={"run_workers": False}) as group:
        group.start("worker")
        with group.client(group.start("serve")) as client:
            assert queues(client)["workers"] == 0
            publish(client, WAITING)
            answer = client.post("/api/v1/processes/waiting/execute?wait=30", json={})
            assert (answer.status_code, answer.json()["data"]["status"]) == (200, "succeeded")


SHARED = {"retention", "backups", "due-backups", "approvals", "alerts", "calls", "domains"}


def test_upkeep_for_all_processes_runs_beside_workers(tmp_path: Path) -> None:
    jobs = {}
    for runs_workers in (True, False):
        folder = tmp_path / str(runs_workers)
        folder.mkdir()
        config = make_config(folder, server__run_workers=runs_workers)
        appliance = composition.build(config, make_pool(config))
        jobs[runs_workers] = {each.name for each in appliance.upkeep}
        appliance.stop()
    assert jobs[True] >= SHARED
    assert not jobs[False] & SHARED
    assert jobs[False] < jobs[True]
    assert {"requests", "key-traffic", "public-deliveries"} <= jobs[False]  # its own counters
