"""What the sandbox costs: a step, a call, an expression, a decision, start and memory; with a bare socket pair as the floor.

.venv/bin/python -m tests.bench.sandbox
"""

import socket
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from appliance.sandbox import HostCall, Pool, Program, Settings, Settled

TOTALS = "export default (input: any) => ({ total: input.lines.reduce((sum: number, line: any) => sum + line.n * line.price, 0) })"
CALLING = "export default async (input: any, api: any) => (await api.datapool.create('orders', input)).id"
ORDER = b'{"lines":[' + b",".join([b'{"n":2,"price":3.5,"sku":"abc"}'] * 10) + b"]}"
DECISION = {
    "nodes": [{"id": "i", "type": "inputNode", "name": "i"}, {"id": "o", "type": "outputNode", "name": "o"}],
    "edges": [{"id": "e", "sourceId": "i", "targetId": "o"}],
}


class Host:
    """Answers at once."""

    def __init__(self) -> None:
        self._open: deque[HostCall] = deque()

    def submit(self, call: HostCall, clock: list[int]) -> None:
        self._open.append(call)

    def wait(self, timeout: float) -> Settled | None:
        return Settled(self._open.popleft().id, True, b'{"id":"ent_1"}')


def step(source: str) -> Program:
    return Program("typescript", "a.ts", {"a.ts": source})


def measure(name: str, work: Callable[[], object], count: int = 1000) -> None:
    """One at a time: latency, and what it takes of the appliance's own processor time."""
    for _ in range(20):
        work()
    times = []
    cpu = time.thread_time()
    for _ in range(count):
        began = time.perf_counter()
        work()
        times.append((time.perf_counter() - began) * 1000)
    cpu = (time.thread_time() - cpu) * 1000 / count
    found = statistics.quantiles(times, n=100)
    print(f"{name:<34} p50 {found[49]:.3f} ms   p99 {found[98]:.3f} ms   own cpu {cpu:.3f} ms")


def measure_rate(name: str, work: Callable[[], object], threads: int, count: int = 2000) -> None:
    def run() -> None:
        for _ in range(count // threads):
            work()

    started = [threading.Thread(target=run) for _ in range(threads)]
    began = time.perf_counter()
    for each in started:
        each.start()
    for each in started:
        each.join()
    print(f"{name:<34} {threads:>2} threads   {count / (time.perf_counter() - began):,.0f}/s")


def measure_floor() -> None:
    """A round trip over a socket pair between two threads: what no process boundary is below."""
    one, other = socket.socketpair()

    def echo() -> None:
        while data := other.recv(4096):
            other.sendall(data)

    answering = threading.Thread(target=echo)
    answering.start()

    def ask() -> None:
        one.sendall(b"x" * 400)
        one.recv(4096)

    measure("floor: socket pair round trip", ask)
    one.close()
    answering.join()
    other.close()


def memory_mb(process: int) -> int:
    text = Path(f"/proc/{process}/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) >> 10


def main() -> None:
    measure_floor()
    began = time.perf_counter()
    pool = Pool(Settings(processes=2, slots=8))
    pool.start()
    print(f"{'start of two processes':<34} {time.perf_counter() - began:.2f} s")
    print(f"{'idle memory of each (PSS)':<34} {', '.join(f'{memory_mb(each)} MB' for each in pool.process_ids())}")
    totals, calling = step(TOTALS), step(CALLING)
    order = {"input": {"lines": [{"n": 2, "price": 3.5}] * 10}}
    fresh = iter(range(10**9))
    measure("step", lambda: pool.run(totals, ORDER))
    measure("step with one host call", lambda: pool.run(calling, ORDER, Host()))
    measure("two expressions", lambda: pool.evaluate({"a": "input.lines.length * 2", "b": "input.lines.map((l) => l.n)"}, order))
    measure("decision", lambda: pool.decide(DECISION, {"a": 1}))
    measure("compile a TypeScript step", lambda: pool.compile(step(f"{TOTALS} // {next(fresh)}")), count=100)
    for threads in (1, 8, 32):
        measure_rate("step", lambda: pool.run(totals, ORDER), threads)
        measure_rate("step with one host call", lambda: pool.run(calling, ORDER, Host()), threads)
    pool.stop()


if __name__ == "__main__":
    main()
