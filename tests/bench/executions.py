"""Executions per second through `POST /execute?wait=…`, memory, start; with floors (bare Hypercorn, SQLite) in the same run.

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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from appliance.connectors.testing import free_port

ROOT = Path(__file__).parent.parent.parent
ONE_CODE_STEP = {
    "id": "one",
    "steps": [{"id": "a", "code": {"language": "javascript", "source": "export default (input) => ({n: input.n + 1})"}}],
}
FORTY_STEPS = {"id": "forty", "steps": [{"id": f"s{i}", "rule": {"expression": f"= input.n + {i} * 1"}} for i in range(40)]}
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


def load(port: int, path: str, headers: dict[str, str], concurrency: int, count: int) -> tuple[float, list[float]]:
    """(requests per second, sorted latencies in ms) of `count` POSTs by a client process of its own."""
    plan = json.dumps([port, path, headers, concurrency, count])
    done = subprocess.run([sys.executable, "-m", "tests.bench.client", plan], cwd=ROOT, capture_output=True, check=True)
    seconds, latencies = json.loads(done.stdout)
    return count / seconds, sorted(latencies)


@contextmanager
def running_server(folder: Path, port: int) -> Iterator[float]:
    """A `gos serve` process; yields the seconds from start to ready."""
    began = time.perf_counter()
    line = [sys.executable, "-m", "appliance", "--data", str(folder), "serve", "--port", str(port)]
    process = subprocess.Popen(line, cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_ready(port)
        yield time.perf_counter() - began
    finally:
        process.terminate()
        process.wait(60)


def wait_ready(port: int) -> None:
    """Return as soon as /readyz answers 200."""
    deadline = time.monotonic() + 60
    with httpx.Client(trust_env=False) as client:
        while time.monotonic() < deadline:
            try:
                if client.get(f"http://127.0.0.1:{port}/readyz").status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.005)
    raise TimeoutError(f"nothing answers on port {port}")


def find_server(port: int) -> int:
    """The id of the process that `running_server` started."""
    result = subprocess.run(["pgrep", "-f", f"serve --port {port}"], capture_output=True, text=True, check=True)
    return int(result.stdout.split()[0])


def memory_mb(port: int) -> float:
    """Proportional set size of the server and its children: shared pages are counted once."""
    server = find_server(port)
    children = subprocess.run(["pgrep", "-P", str(server)], capture_output=True, text=True, check=False)
    total = 0
    for pid in (server, *map(int, children.stdout.split())):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def floor_sqlite(folder: Path) -> float:
    """Milliseconds of one raw insert with synchronous=FULL."""
    connection = sqlite3.connect(folder / "floor.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE t (a TEXT)")
    times = []
    for _ in range(300):
        began = time.perf_counter()
        connection.execute("INSERT INTO t VALUES ('x')")
        times.append((time.perf_counter() - began) * 1000)
    connection.close()
    return statistics.median(times)


def floor_hypercorn() -> float:
    """Milliseconds of one request to a bare ASGI application."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-c", BARE, str(port)], stderr=subprocess.DEVNULL)
    try:
        wait_ready(port)
        return statistics.median(load(port, "/", {}, 1, 300)[1])
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def set_up(folder: Path, port: int) -> tuple[str, str]:
    """Create an appliance's data; returns the first tenant and a key of it with a very high rate limit."""
    environment = {"GOS_PORT": str(port), **os.environ}
    line = [sys.executable, "-m", "appliance", "--data", str(folder)]
    subprocess.run([*line, "init"], cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    first = json.loads((folder / "first-run.json").read_text())
    key = subprocess.run(
        [*line, "key", "add", "--tenant", "demo", "--name", "bench", "--quiet"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    raise_rate(folder)
    return first["tenant"], key


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        tenant, key = set_up(folder, port)
        print(f"floor: bare Hypercorn {floor_hypercorn():.2f} ms, one FULL insert {floor_sqlite(folder):.2f} ms")
        with running_server(folder, port) as ready:
            print(f"ready {ready:.2f} s after the start, {memory_mb(port):.0f} MB idle (PSS, with sandbox processes)")
            measure(port, tenant, key)


def raise_rate(folder: Path) -> None:
    """Raise the rate limits, which would stop this run."""
    with sqlite3.connect(folder / "gos.db") as connection:
        connection.execute("UPDATE api_key SET rate_requests = 1000000")


def measure(port: int, tenant: str, key: str) -> None:
    headers = {"Host": f"{tenant}.localhost:{port}", "X-API-Key": key, "Content-Type": "application/json"}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, trust_env=False) as client:
        for process in (ONE_CODE_STEP, FORTY_STEPS):
            client.put(f"/api/v1/processes/{process['id']}", json=process).raise_for_status()
            client.post(f"/api/v1/processes/{process['id']}/publish", json={}).raise_for_status()
    path = "/api/v1/processes/one/execute?wait=20"
    load(port, path, headers, 4, 200)
    for concurrency, count in ((1, 600), (8, 1600), (32, 1600)):
        rate, times = load(port, path, headers, concurrency, count)
        print(
            f"one code step, concurrency {concurrency:2}: {rate:4.0f} executions/s, "
            f"p50 {times[len(times) // 2]:.1f} ms, p99 {times[int(len(times) * 0.99)]:.1f} ms"
        )
    _, times = load(port, "/api/v1/processes/forty/execute?wait=20", headers, 1, 20)
    print(f"40 steps one after another: {statistics.median(times):.0f} ms")
    print(f"{memory_mb(port):.0f} MB after the load")


if __name__ == "__main__":
    main()
