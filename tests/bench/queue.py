"""The queue under load: one tenant's backlog beside another's single execution, long and wide processes, a steady stream.

.venv/bin/python -m tests.bench.queue
"""

import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from appliance.app.store import open_store
from appliance.connectors.testing import free_port
from appliance.core.config import load_config
from appliance.core.database import db
from appliance.processes.executions import ExecutionOrigin, StartRequest, insert_execution
from appliance.processes.scheduling import backlog
from appliance.tenants import service
from appliance.tenants.keys import keys

from .executions import running_server
from .figures import Row, Section, latencies, show

BACKLOG = 10_000
BACKLOGS = ("quick", "busy", "wide")
STREAM_SECONDS = 20
STREAM_RATE = 50
BUSY = "export default () => { const until = Date.now() + 500; while (Date.now() < until); return 1 }"
QUICK = {"id": "quick", "rule": {"expression": "= input.n + 1"}}


def single_step(step: Any, **more: Any) -> dict[str, Any]:
    return {"steps": [step], **more}


PROCESSES: dict[str, dict[str, Any]] = {
    "quick": single_step(QUICK),
    "busy": single_step({"id": "busy", "code": {"language": "javascript", "source": BUSY}}),
    "wide": single_step({"id": "wide", "for_each": {"items": list(range(200)), "as": "x", "concurrency": 50, "steps": [
        {"id": "busy", "code": {"language": "javascript", "source": BUSY}}]}}),
    "forty": {"steps": [{"id": f"s{i}", "rule": {"expression": f"= input.n + {i} * 1"}} for i in range(40)]},
    "each": single_step({"id": "each", "for_each": {"items": "= input.items", "as": "x", "concurrency": 10, "steps": [
        {"id": "double", "rule": {"expression": "= x * 2"}}]}}),
    "fan": single_step({"id": "fan", "for_each": {"items": "= input.items", "as": "x", "concurrency": 50, "steps": [
        {"id": "child", "process": {"use": "quick", "input": {"n": "= x"}}}]}}),
    "two": {"steps": [
        {"id": "a", "code": {"language": "javascript", "source": "export default (input) => ({n: input.n + 1})"}},
        {"id": "b", "rule": {"expression": "= steps.a.n * 2"}}]},
}  # fmt: skip


class Bench:
    """One `gos serve` with the tenants alpha and beta."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        sealer = open_store(load_config(environment={}, flags={"storage.data": str(folder)}))
        self.keys: dict[str, str] = {}
        for name in ("alpha", "beta"):
            service.create_tenant(name, name)
            scope = service.system_scope(name)
            self.keys[name] = keys.issue_key(scope, sealer, keys.KeySpec("bench", sorted(scope.scopes), rate_requests=1_000_000))[1]
        db.close_database()

    @contextmanager
    def client(self, tenant: str) -> Iterator[httpx.Client]:
        headers = {"Host": f"{tenant}.localhost:{self.port}", "X-API-Key": self.keys[tenant]}
        base = f"http://127.0.0.1:{self.port}/api/v1"
        with httpx.Client(base_url=base, headers=headers, timeout=90, trust_env=False) as client:
            yield client

    def publish(self) -> None:
        for tenant in self.keys:
            with self.client(tenant) as client:
                for name, definition in PROCESSES.items():
                    client.put(f"/processes/{name}", json={"id": name, **definition}).raise_for_status()
                    client.post(f"/processes/{name}/publish", json={}).raise_for_status()

    def queue_up(self, process: str, count: int) -> None:
        """Write a backlog of alpha while the process is paused and the appliance is stopped."""
        db.open_database(f"sqlite:///{self.folder / 'gos.db'}")
        scope = service.system_scope("alpha")
        backlog.bounds.queued = (BACKLOG + 1) * len(BACKLOGS)  # the limit of a tenant would end this bench

        def insert() -> None:
            for _ in range(count // 10):
                insert_execution(scope, process, 1, StartRequest({"n": 1}), ExecutionOrigin())

        for _ in range(10):
            db.write(insert)
        db.close_database()

    def rows(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with sqlite3.connect(f"file:{self.folder / 'gos.db'}?mode=ro", uri=True, timeout=20) as connection:
            return connection.execute(sql, values).fetchall()

    def run(self, tenant: str, process: str, payload: Any, wait: int = 60) -> tuple[float, dict[str, Any]]:
        """(milliseconds as the caller sees them, the execution)."""
        with self.client(tenant) as client:
            began = time.perf_counter()
            answer = client.post(f"/processes/{process}/execute", params={"wait": wait}, json=payload)
            took = (time.perf_counter() - began) * 1000
        answer.raise_for_status()
        return took, answer.json()["data"]


def beside_a_backlog(bench: Bench, process: str) -> list[Row]:
    """With 10,000 queued executions of alpha, how long until a single one of beta starts, and until its caller has the answer."""
    with bench.client("alpha") as client:
        client.post(f"/processes/{process}/resume-triggers", json={}).raise_for_status()
    pause = threading.Event()
    starts, answers = [], []
    for number in range(20):
        _, queued = bench.run("beta", "quick", {"n": number}, wait=0)
        started: list[tuple[Any, ...]] = []
        while not started:
            pause.wait(0.01)
            sql = "SELECT started_at - created_at FROM execution WHERE id = ? AND started_at IS NOT NULL"
            started = bench.rows(sql, (queued["execution_id"],))
        starts.append(started[0][0])
        answers.append(bench.run("beta", "quick", {"n": number})[0])
    ((left,),) = bench.rows("SELECT count(*) FROM execution WHERE process_id = ? AND status = 'queued'", (process,))
    beside = f"beside {left:,} queued `{process}` of another tenant"
    rows = [Row(f"{beside}: start", latencies(starts), aim="1 s"), Row(f"{beside}: answer", latencies(answers))]
    if process == "wide":
        took = [bench.run("beta", "each", {"items": list(range(20))})[0] for _ in range(5)]
        rows.append(Row("beside the same: a `for_each` of 20 items", latencies(took)))
    with bench.client("alpha") as client:
        client.post(f"/processes/{process}/pause", json={}).raise_for_status()
    return rows


def stream(bench: Bench) -> Row:
    """Two-step executions at a steady rate; the time of each from acceptance to its end."""
    with bench.client("beta") as client, ThreadPoolExecutor(8) as senders:
        began = time.perf_counter()

        def send(number: int) -> str:
            # The steady rate that is measured.
            time.sleep(max(0.0, began + number / STREAM_RATE - time.perf_counter()))
            return str(client.post("/processes/two/execute", json={"n": number}).json()["data"]["execution_id"])

        ids = list(senders.map(send, range(STREAM_RATE * STREAM_SECONDS)))
        sent = time.perf_counter() - began
    pause = threading.Event()
    while bench.rows("SELECT 1 FROM execution WHERE tenant_id = 'beta' AND finished_at IS NULL LIMIT 1"):
        pause.wait(0.05)
    took = bench.rows("SELECT finished_at - created_at FROM execution WHERE process_id = 'two' AND tenant_id = 'beta'")
    name = f"{len(ids):,} executions of two steps at {len(ids) / sent:.0f} per second: acceptance to end"
    return Row(name, latencies([row[0] for row in took]), aim="1 s")


def run_each(bench: Bench) -> list[Row]:
    """Long, wide and deep processes, one execution after another."""
    rows = []
    for process, payload, title in (
        ("forty", {"n": 1}, "40 steps in a row"),
        ("each", {"items": list(range(1000))}, "a `for_each` of 1,000 items"),
        ("fan", {"items": list(range(100))}, "100 children of one execution"),
    ):
        results = [bench.run("beta", process, payload) for _ in range(3 if process != "forty" else 20)]
        assert all(execution["status"] == "succeeded" for _, execution in results), results[0][1]
        rows.append(Row(title, latencies([took for took, _ in results])))
    return rows


def measure_section() -> Section:
    about = f"long, wide and deep processes; a steady stream; one execution beside {BACKLOG:,} queued ones of another tenant."
    section = Section("Queue", about)
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name))
        with running_server(bench.folder, bench.port):
            bench.publish()
            section.rows += [*run_each(bench), stream(bench)]
            with bench.client("alpha") as client:
                for process in BACKLOGS:
                    client.post(f"/processes/{process}/pause", json={}).raise_for_status()
        for process in BACKLOGS:
            bench.queue_up(process, BACKLOG)
        with running_server(bench.folder, bench.port):
            for process in BACKLOGS:
                section.rows += beside_a_backlog(bench, process)
    return section


if __name__ == "__main__":
    show(measure_section())
