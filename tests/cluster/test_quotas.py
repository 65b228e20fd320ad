"""Two servers on one PostgreSQL: together they stay within the quotas of a tenant, and follow a change of them."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import accumulate
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cluster.several import Several, publish, several
from tests.sandbox.paused_steps import until
from tests.store.cluster import Cluster

QUICK = {"id": "quick", "steps": [{"id": "answer", "rule": {"expression": "= 1"}}]}
SLOW_CODE = "export default () => { const end = Date.now() + 300; while (Date.now() < end); return 1 }"
SLOW = {"id": "slow", "steps": [{"id": "work", "code": {"language": "javascript", "source": SLOW_CODE}}]}
THINGS = {"name": "things", "fields": [{"name": "number", "type": "integer"}]}


@pytest.fixture
def group(tmp_path: Path, cluster: Cluster) -> Iterator[Several]:
    with several(tmp_path, cluster.emptied()) as group:
        yield group


def set_quotas(group: Several, **amounts: int) -> None:
    """As the operator does, while the servers run."""
    pairs = [f"{name}={amount}" for name, amount in amounts.items()]
    line = [sys.executable, "-m", "appliance", "--data", str(group.folder), "tenant", "quota", "acme", *pairs]
    subprocess.run(line, check=True, capture_output=True, timeout=60)


def used(client: httpx.Client, name: str) -> Any:
    rows = client.get("/api/v1/quotas").raise_for_status().json()["data"]
    return next(row["used"] for row in rows if row["name"] == name)


def limit_of(client: httpx.Client, name: str) -> Any:
    rows = client.get("/api/v1/quotas").raise_for_status().json()["data"]
    return next(row.get("limit") for row in rows if row["name"] == name)


def test_two_servers_together_stay_within_the_quotas(group: Several) -> None:
    with ExitStack() as clients:
        first, second = (clients.enter_context(group.client(group.start("serve"))) for _ in range(2))
        publish(first, QUICK)
        publish(first, SLOW)
        first.post("/api/v1/datapool", json=THINGS).raise_for_status()
        set_quotas(group, executions_per_day=40, entities=50, concurrent_executions=2)
        until(lambda: [limit_of(each, "entities") for each in (first, second)] == [50, 50])

        def execute(number: int) -> int:
            return (first, second)[number % 2].post("/api/v1/processes/quick/execute?wait=30", json={}).status_code

        def add(number: int) -> int:
            body = {"number": number}
            return (first, second)[number % 2].post("/api/v1/datapool/things/entities", json=body).status_code

        with ThreadPoolExecutor(8) as threads:
            added = list(threads.map(add, range(80)))
            assert sorted(added) == [201] * 50 + [507] * 30
            ids = [_start(first if number % 2 else second) for number in range(8)]
            until(lambda: _execution(first, ids[3])["status"] == "succeeded")
            until(lambda: all(_execution(first, each)["status"] == "succeeded" for each in ids))
            assert _most_at_once([_execution(second, each) for each in ids]) == 2
            executed = list(threads.map(execute, range(60)))
            assert executed.count(429) == 60 - (40 - 8), executed
        assert (used(first, "executions_per_day"), used(second, "entities")) == (40, 50)


def _start(client: httpx.Client) -> str:
    answer = client.post("/api/v1/processes/slow/execute", json={}).raise_for_status()
    return str(answer.json()["data"]["execution_id"])


def _execution(client: httpx.Client, execution_id: str) -> dict[str, Any]:
    return dict(client.get(f"/api/v1/processes/slow/executions/{execution_id}").raise_for_status().json()["data"])


def _most_at_once(executions: list[dict[str, Any]]) -> int:
    """How many ran at the same time at most; one may start in the millisecond in which another ends."""
    changes = sorted([(each["started_at"], 1) for each in executions] + [(each["finished_at"], -1) for each in executions])
    return max(accumulate(change for _, change in changes))
