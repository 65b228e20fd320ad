"""Executions per second through `POST …/execute?wait=…`, latency, CPU; with the floors of the same run.

.venv/bin/python -m tests.bench.executions
"""

import json
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import psycopg

from appliance.connectors.testing import free_port
from appliance.sandbox import Pool, Program, Settings
from tests.readiness import wait_ready

from .figures import Row, Section, latencies, show
from .http_load import run_load, to_request
from .processes import find_server, tree_cpu_ms

ROOT = Path(__file__).parent.parent.parent
SECONDS = 4.0
CONCURRENCIES = (1, 8, 32)
ORDER = json.dumps({"lines": [{"sku": "abc", "n": 2, "price": 3.5}] * 10})
TOTAL = {
    "language": "typescript",
    "source": "export default (input: any) => ({ total: input.lines.reduce((sum: number, l: any) => sum + l.n * l.price, 0) })",
}
NEW_ORDER = {"collection": "bench_orders", "create": {"values": {"total": "= steps.a.total"}}}
COLLECTION = {"name": "bench_orders", "fields": [{"name": "total", "type": "number"}]}
PROCESSES = (
    {"id": "one", "steps": [{"id": "a", "code": TOTAL}]},
    {
        "id": "three",
        "steps": [
            {"id": "a", "code": TOTAL},
            {"id": "b", "datapool": NEW_ORDER},
            {"id": "c", "rule": {"expression": "= steps.a.total * 2"}},
        ],
    },
    {"id": "forty", "steps": [{"id": f"s{i}", "rule": {"expression": f"= input.lines.length + {i} * 1"}} for i in range(40)]},
)  # fmt: skip
BARE = """
import asyncio, sys
from hypercorn.asyncio import serve
from hypercorn.config import Config
async def app(scope, receive, send):
    if scope["type"] == "http":
        while (await receive()).get("more_body"): pass
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"{}"})
config = Config(); config.bind = ["127.0.0.1:" + sys.argv[1]]; config.accesslog = None
asyncio.run(serve(app, config))
"""


@contextmanager
def running_server(folder: Path, port: int, root: Path = ROOT) -> Iterator[float]:
    """A `gos serve` process with the code of the checkout `root`; yields the seconds from start to ready."""
    began = time.perf_counter()
    line = [sys.executable, "-m", "appliance", "--data", str(folder), "serve", "--port", str(port)]
    process = subprocess.Popen(line, cwd=root, env=environment_of(root), stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_ready(port)
        yield time.perf_counter() - began
    finally:
        process.terminate()
        process.wait(60)


def environment_of(root: Path) -> dict[str, str]:
    """The environment in which this Python runs the appliance and the plugins of a checkout, whichever it has installed."""
    plugins = sorted(str(path) for path in root.glob("plugins/*/src"))
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *plugins])}


def measure_load(
    server: int, port: int, requests: Sequence[bytes], concurrency: int, seconds: float = SECONDS
) -> dict[str, float]:
    """Requests per second, latency and the CPU of each, over so many connections that send these requests in turn."""
    before = tree_cpu_ms(server)
    load = run_load(port, requests, concurrency, seconds)
    spent = (tree_cpu_ms(server) - before) / load.requests
    return {"per second": load.requests / load.seconds, "p50 ms": load.p50, "p99 ms": load.p99, "CPU ms": spent}


@contextmanager
def bare_hypercorn() -> Iterator[tuple[int, int]]:
    """The floor of every request: process id and port of a Hypercorn whose application answers two bytes."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-c", BARE, str(port)], stderr=subprocess.DEVNULL)
    try:
        wait_ready(port)
        yield process.pid, port
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def commit_rates(folder: Path) -> list[Row]:
    """Inserts per second with synchronous=FULL: one in each commit, and as many as callers at once could share one."""
    rows = []
    with closing(sqlite3.connect(folder / "floor.db", isolation_level=None)) as connection:
        for statement in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", "CREATE TABLE t (a TEXT)"):
            connection.execute(statement)
        for size in CONCURRENCIES:
            times = []
            for _ in range(300):
                began = time.perf_counter()
                connection.execute("BEGIN IMMEDIATE")
                for _ in range(size):
                    connection.execute("INSERT INTO t VALUES ('x')")
                connection.execute("COMMIT")
                times.append((time.perf_counter() - began) * 1000)
            rate = size * 1000 / statistics.mean(times)
            rows.append(Row(f"durable inserts, {size} in a commit", {"per second": rate, **latencies(times)}, "floor"))
    return rows


def sandbox_alone() -> Row:
    """The code step in a fresh instance, without database and HTTP."""
    program = Program("typescript", "a.ts", {"a.ts": TOTAL["source"]})
    pool = Pool(Settings(processes=1, slots=8))
    pool.start()
    try:
        times = []
        for _ in range(300):
            began = time.perf_counter()
            outcome = pool.run(program, ORDER.encode())
            times.append((time.perf_counter() - began) * 1000)
            if outcome.failure is not None:
                raise RuntimeError(outcome.failure.message)
    finally:
        pool.stop()
    figures = latencies(times)
    return Row("the code step in the sandbox alone", {"per second": 1000 / figures["p50 ms"], **figures}, "floor")


def floors(folder: Path) -> list[Row]:
    rows = []
    with bare_hypercorn() as (server, port):
        request = to_request("POST", "/", {"Host": "localhost", "Content-Type": "application/json"}, ORDER)
        for concurrency in CONCURRENCIES:
            figures = measure_load(server, port, [request], concurrency, SECONDS / 2)
            rows.append(Row(f"bare Hypercorn, concurrency {concurrency}", figures, "floor"))
    return [*rows, *commit_rates(folder), sandbox_alone()]


def set_up(folder: Path, port: int, root: Path = ROOT) -> tuple[str, str]:
    """Create an appliance's data; returns the first tenant and a key of it with a very high rate limit."""
    environment = {**environment_of(root), "GOS_PORT": str(port)}
    line = [sys.executable, "-m", "appliance", "--data", str(folder)]
    subprocess.run([*line, "init"], cwd=root, env=environment, check=True, stdout=subprocess.DEVNULL)
    first = json.loads((folder / "first-run.json").read_text())
    key = _add_key(line, root, environment, "demo")
    if (folder / "gos.db").exists():
        raise_rate(folder)
    return first["tenant"], key


def tenant_with_key(folder: Path, tenant: str) -> tuple[str, str]:
    """Another tenant of the appliance and a key of it."""
    line = [sys.executable, "-m", "appliance", "--data", str(folder)]
    environment = environment_of(ROOT)
    subprocess.run([*line, "tenant", "add", tenant], cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    return tenant, _add_key(line, ROOT, environment, tenant)


def _add_key(line: Sequence[str], root: Path, environment: Mapping[str, str], tenant: str) -> str:
    return subprocess.run(
        [*line, "key", "add", "--tenant", tenant, "--name", "bench", "--quiet"],
        cwd=root, env=environment, capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip


def raise_rate(folder: Path, database: str = "") -> None:
    """Raise the rate limits, which would stop this run: in the data folder, or on a server."""
    with psycopg.connect(database) if database else sqlite3.connect(folder / "gos.db") as connection:
        connection.execute("UPDATE api_key SET rate_requests = 1000000")


def headers_of(port: int, tenant: str, key: str) -> dict[str, str]:
    return {"Host": f"{tenant}.localhost:{port}", "X-API-Key": key, "Content-Type": "application/json"}


def publish(port: int, headers: Mapping[str, str]) -> None:
    """Create the collection and publish the processes of this bench."""
    with httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", headers=dict(headers), timeout=120, trust_env=False) as client:
        client.post("/datapool", json=COLLECTION).raise_for_status()
        for process in PROCESSES:
            client.put(f"/processes/{process['id']}", json=process).raise_for_status()
            client.post(f"/processes/{process['id']}/publish", json={}).raise_for_status()


def execute(process: str, headers: Mapping[str, str]) -> bytes:
    return to_request("POST", f"/api/v1/processes/{process}/execute?wait=20", headers, ORDER)


def measure_executions(port: int, headers: Mapping[str, str]) -> list[Row]:
    server, rows = find_server(port), []
    aims = {1: "≥ 350 per second, p50 ≤ 2.8 ms", 8: "≥ 800 per second", 32: "≥ 800 per second, p99 ≤ 120 ms"}
    run_load(port, [execute("one", headers)], 4, 1.0)
    for concurrency in CONCURRENCIES:
        figures = measure_load(server, port, [execute("one", headers)], concurrency)
        rows.append(Row(f"one code step, concurrency {concurrency}", figures, aim=aims[concurrency]))
    for concurrency in (1, 8):
        figures = measure_load(server, port, [execute("three", headers)], concurrency)
        rows.append(Row(f"code, DataPool write and rule, concurrency {concurrency}", figures))
    return [*rows, Row("40 rules in a row", measure_load(server, port, [execute("forty", headers)], 1))]


def measure_section() -> Section:
    about = f"`POST …/execute?wait=20` for {SECONDS:.0f} s each; the code step adds up an order of 10 lines in TypeScript."
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        headers = headers_of(port, *set_up(folder, port))
        section = Section("Executions", about, floors(folder), plot="per second")
        with running_server(folder, port):
            publish(port, headers)
            section.rows += measure_executions(port, headers)
    return section


if __name__ == "__main__":
    show(measure_section())
