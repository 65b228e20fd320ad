"""Counts the bytecodes that the server executes for a request, and divides them by those of bare Hypercorn in the same process.

    python -m tests.bench.request_cost            prints the counts as JSON
    python -m tests.bench.request_cost --record   records them as what `test_request_cost.py` compares with

The client is the main thread, which is not counted.
"""

import argparse
import asyncio
import http.client
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import httpx

from .figures import Row, Section

ROOT = Path(__file__).parent.parent.parent
RECORDED = Path(__file__).with_suffix(".json")
WARM_UP, REQUESTS = 10, 30
QUIET_SECONDS = 0.005
ALLOWED = 1.25
CODE = {"language": "javascript", "source": "export default (input) => ({n: input.n + 1})"}
COLLECTION = {"name": "orders", "fields": [{"name": "number", "type": "text"}, {"name": "total", "type": "integer"}]}
PROCESSES = (
    {"id": "one", "steps": [{"id": "a", "code": CODE}]},
    {
        "id": "three",
        "steps": [
            {"id": "a", "code": CODE},
            {"id": "b", "datapool": {"collection": "orders", "create": {"values": {"number": "n", "total": "= steps.a.n"}}}},
            {"id": "c", "rule": {"expression": "= steps.a.n * 2"}},
        ],
    },
)


class Bytecodes:
    """Counts the bytecodes that other threads execute while `is_on`; threads must have started after `install`."""

    def __init__(self) -> None:
        self.is_on = False
        self.total = 0

    def install(self) -> None:
        threading.settrace(self._enter)

    def wait_until_quiet(self) -> None:
        """Return when nothing has been executed for QUIET_SECONDS: the server still works when the answer has arrived."""
        total, pause = -1, threading.Event()
        while total != self.total:
            total = self.total
            pause.wait(QUIET_SECONDS)

    def _enter(self, frame: FrameType, _event: str, _: Any) -> Callable[..., None] | None:
        if not self.is_on:
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return self._step

    def _step(self, _frame: FrameType, _event: str, _: Any) -> None:
        self.total += 1  # nothing is called between reading and writing it, so Python does not change threads there


@contextmanager
def bare_hypercorn() -> Iterator[str]:
    """The address of a server with the smallest application, in a thread of this process."""
    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    from appliance.connectors.testing import free_port

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            while (await receive()).get("more_body"):
                pass
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
            await send({"type": "http.response.body", "body": b"{}"})

    async def run() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        stoppers.append(lambda: loop.call_soon_threadsafe(stop.set))
        ready.set()
        await serve(answer, config, shutdown_trigger=stop.wait)

    config, ready = Config(), threading.Event()
    config.bind, config.accesslog, config.errorlog = [f"127.0.0.1:{free_port()}"], None, None
    config.keep_alive_timeout = 600.0
    stoppers: list[Callable[[], object]] = []
    thread = threading.Thread(target=lambda: asyncio.run(run()), name="bare")
    thread.start()
    ready.wait()
    try:
        yield f"http://{config.bind[0]}"
    finally:
        stoppers[0]()
        thread.join()


def set_up(api: httpx.Client) -> str:
    """Publish the processes and create one entity; its address."""
    api.post("/api/v1/datapool", json=COLLECTION).raise_for_status()
    for process in PROCESSES:
        api.post("/api/v1/processes", json=process).raise_for_status()
        api.post(f"/api/v1/processes/{process['id']}/publish", json={}).raise_for_status()
    entity = api.post("/api/v1/datapool/orders/entities", json={"number": "first", "total": 1}).raise_for_status().json()["data"]
    return f"/api/v1/datapool/orders/entities/{entity['id']}"


class Client:
    """One keep-alive connection that sends each request in one piece: the server's work depends on how it arrives."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._socket = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())

    def send(self, line: str, body: str = "") -> None:
        """Send a request and read its answer; RuntimeError unless it is a success."""
        self._socket.sendall(f"{line} HTTP/1.1\r\n{self._head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        answer = http.client.HTTPResponse(self._socket)
        answer.begin()
        content = answer.read()
        answer.close()
        if answer.status >= 300:
            raise RuntimeError(f"{line}: {answer.status} {content[:300]!r}")

    def close(self) -> None:
        self._socket.close()


def count(bytecodes: Bytecodes, request: Callable[[], object]) -> int:
    """The lowest decile of REQUESTS requests, one after another: those beside which the server had nothing else to do."""
    for _ in range(WARM_UP):
        request()
    counts = []
    bytecodes.is_on = True
    for _ in range(REQUESTS):
        before = bytecodes.total
        request()
        bytecodes.wait_until_quiet()
        counts.append(bytecodes.total - before)
    bytecodes.is_on = False
    return round(statistics.quantiles(counts, n=10)[0])


def measure() -> dict[str, int]:
    """Bytecodes of each request; `bare` is the request to bare Hypercorn."""
    bytecodes = Bytecodes()
    bytecodes.install()
    from appliance.testing.running import make_config, start

    with tempfile.TemporaryDirectory() as folder, bare_hypercorn() as address:
        running = start(make_config(Path(folder), queue__sweep_ms=60_000))
        try:
            with closing(Client(address, {"Host": "localhost"})) as bare:
                floor = count(bytecodes, partial(bare.send, "POST /", '{"n": 1}'))
            with running.api("acme") as api:
                entity = set_up(api)
                headers = {name: api.headers[name] for name in ("Host", "X-API-Key")} | {"Content-Type": "application/json"}
                with closing(Client(str(api.base_url), headers)) as client:
                    return {"bare": floor, **count_each(bytecodes, client, entity)}
        finally:
            running.stop()


def count_each(bytecodes: Bytecodes, client: Client, entity: str) -> dict[str, int]:
    lines = {
        "execution, one code step": ("POST /api/v1/processes/one/execute?wait=30", '{"n": 1}'),
        "execution, three steps": ("POST /api/v1/processes/three/execute?wait=30", '{"n": 1}'),
        "entity by id": (f"GET {entity}", ""),
        "new entity": ("POST /api/v1/datapool/orders/entities", '{"number": "n", "total": 2}'),
    }
    return {name: count(bytecodes, partial(client.send, *line)) for name, line in lines.items()}


def ratios(counts: dict[str, int]) -> dict[str, float]:
    """How many bare requests each request costs."""
    return {name: round(number / counts["bare"], 3) for name, number in counts.items() if name != "bare"}


def find_regressions(measured: dict[str, float], recorded: dict[str, float]) -> list[str]:
    """A sentence for each request that costs more than ALLOWED times what was recorded."""
    regressions = []
    for name, ratio in measured.items():
        if name not in recorded:
            regressions.append(f"{name}: {ratio:.2f} bare requests, not recorded")
        elif ratio > ALLOWED * recorded[name]:
            regressions.append(f"{name}: {ratio:.2f} bare requests, recorded {recorded[name]:.2f}")
    return regressions


def measure_section() -> Section:
    """Bytecodes of each request, counted in a process of its own, whose every thread is counted from its start."""
    run = subprocess.run([sys.executable, "-m", "tests.bench.request_cost"], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    counts = json.loads(run.stdout)["bytecodes"]
    rows = [Row(name, {"bytecodes": number, "bare requests": number / counts["bare"]}) for name, number in counts.items()]
    rows[0] = replace(rows[0], name="a request to bare Hypercorn", kind="floor")
    return Section("Work of a request", "bytecodes that the server executes; the same on every machine.", rows, plot="bytecodes")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.request_cost", description="Count the bytecodes of requests.")
    parser.add_argument("--record", action="store_true", help=f"write them to {RECORDED.name}")
    options = parser.parse_args()
    counts = measure()
    if options.record:
        RECORDED.write_text(json.dumps(ratios(counts), indent=2) + "\n", "utf8")
    print(json.dumps({"bytecodes": counts, "ratios": ratios(counts)}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
