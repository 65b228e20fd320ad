"""What the sandbox costs: steps, calls, sleep, expressions, decisions, memory; beside node and php, measured in the same run.

.venv/bin/python -m tests.bench.sandbox
"""

from __future__ import annotations

import socket
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from appliance.sandbox import SUSPEND, HostCall, Outcome, Pool, Program, Settings, Settled, Snapshot, Suspend
from tests.bench import peers

from .figures import Kind, Row, Section, show
from .processes import cpu_ms, pss_mb

TOTALS = "export default (input) => ({ total: input.lines.reduce((sum, line) => sum + line.n * line.price, 0) })"
TYPED = "export default (input: any) => ({ total: input.lines.reduce((sum: number, l: any) => sum + l.n * l.price, 0) })"
IN_PHP = """<?php return function (array $input, $api) { $total = 0;
foreach ($input['lines'] as $line) { $total += $line['n'] * $line['price']; } return ['total' => $total]; };"""
CALLS = 20
CALLING = "export default async (input, api) => { for (let k = 0; k < %d; k++) await api.datapool.create('orders', input) }"
SLEEPING = (Path(__file__).parents[1] / "sandbox" / "rich_step.ts").read_text()
HOLDING = """export default async (input, api) => {
  const orders = Array.from({length: 100}, (_, k) => ({...input, number: `order-${k}`, total: k * 1.5}));
  const byNumber = new Map(orders.map((order) => [order.number, order]));
  const answer = await api.CALL('orders', 'ent_1');
  return { answer, size: byNumber.size };
}"""
LIBRARY = "export const tag = (n: number) => `t${n}`; export const later = new Map<string, number>();"
ORDER = b'{"lines":[' + b",".join([b'{"n":2,"price":3.5,"sku":"abc"}'] * 10) + b"]}"
DECISION = {
    "nodes": [{"id": "i", "type": "inputNode", "name": "i"}, {"id": "o", "type": "outputNode", "name": "o"}],
    "edges": [{"id": "e", "sourceId": "i", "targetId": "o"}],
}
ROUNDS, RARE = 1000, 30


class Host:
    """Answers at once; lets the step sleep over calls that ask people or systems."""

    def __init__(self, *answers: Settled) -> None:
        self._open: deque[Settled] = deque(answers)

    def submit(self, call: HostCall, clock: list[int]) -> None:
        if call.method.startswith("datapool."):
            self._open.append(Settled(call.id, True, b'{"id":"ent_1","items":[1,2]}'))

    def wait(self, timeout: float) -> Settled | Suspend | None:
        return self._open.popleft() if self._open else SUSPEND


class HoldingHost(Host):
    """Blocks the step until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived, self.go = threading.Event(), threading.Event()

    def wait(self, timeout: float) -> Settled | Suspend | None:
        self.arrived.set()
        self.go.wait()
        return super().wait(timeout)


@dataclass(frozen=True)
class Timing:
    """`ms`: the median; `aim`: the most it should be."""

    name: str
    ms: float
    p99: float = 0.0
    aim: float = 0.0

    def to_row(self, kind: Kind = "measured") -> Row:
        figures = {"median ms": self.ms} | ({"p99 ms": self.p99} if self.p99 else {})
        return Row(self.name, figures, kind, f"{self.aim:g} ms" if self.aim else "")


def time_of(work: Callable[[], object], count: int = ROUNDS) -> list[float]:
    """Milliseconds of each of `count` runs, one at a time, after some that warm up."""
    for _ in range(min(count, 20)):
        work()
    times = []
    for _ in range(count):
        began = time.perf_counter()
        work()
        times.append((time.perf_counter() - began) * 1000)
    return times


def timing(name: str, times: list[float], aim: float = 0.0) -> Timing:
    return Timing(name, statistics.median(times), statistics.quantiles(times, n=100)[98], aim)


def step_rows(name: str, run: Callable[[], Outcome], aim: float = 0.0) -> list[Timing]:
    """A whole step as the appliance sees it, the part inside the sandbox process, and the boundary between them."""
    whole, inside = [], []

    def once() -> None:
        began = time.perf_counter()
        outcome = run()
        whole.append((time.perf_counter() - began) * 1000)
        if outcome.failure is not None:
            raise RuntimeError(outcome.failure.message)
        inside.append(outcome.wall_ms)

    time_of(once)
    between = [all_of_it - part for all_of_it, part in zip(whole, inside, strict=True)]
    boundary = timing("  boundary of the process", between, 0.2 if aim else 0.0)
    return [timing(name, whole), timing("  inside the sandbox process", inside, aim), boundary]


def floor_row() -> Timing:
    """A round trip over a socket pair between two threads: the floor for any process boundary."""
    one, other = socket.socketpair()

    def echo() -> None:
        while data := other.recv(4096):
            other.sendall(data)

    answering = threading.Thread(target=echo)
    answering.start()

    def ask() -> None:
        one.sendall(b"x" * 400)
        one.recv(4096)

    floor = timing("socket pair round trip", time_of(ask))
    one.close()
    answering.join()
    other.close()
    return floor


def sleep_rows(pool: Pool) -> list[Timing]:
    """What sleep adds: a run that suspends compared with one that gets its answer, and a run that resumes."""
    holding = step("javascript", HOLDING.replace("CALL", "human.request"))
    answered = step("javascript", HOLDING.replace("CALL", "datapool.find"))
    snapshot = _snapshot_of(pool.run(holding, ORDER, Host()))
    wake = [Settled(number, True, b"{}") for number in snapshot.pending]
    plain = step_rows("step with one host call", lambda: pool.run(answered, ORDER, Host()))
    sleeping = step_rows("visit that ends in sleep", lambda: pool.run(holding, ORDER, Host()))
    waking = step_rows("visit that wakes and returns", lambda: pool.run(holding, None, Host(*wake), resume=snapshot))
    return [
        *plain[:2],
        *sleeping[:2],
        Timing("  suspend", sleeping[1].ms - plain[1].ms, aim=5.0),
        waking[0],
        Timing("  resume, to the end of the step", waking[1].ms, waking[1].p99, 5.0),
    ]


def size_rows(pool: Pool) -> list[Row]:
    """What is stored of a step that sleeps."""
    holding = step("javascript", HOLDING.replace("CALL", "human.request"))
    rich = Program("typescript", "a.ts", {"a.ts": SLEEPING.replace("./lib", "./lib.ts"), "lib.ts": LIBRARY})
    sizes = [len(_snapshot_of(pool.run(each, ORDER, Host())).data) / 1024 for each in (holding, rich)]
    names = ("snapshot with 100 orders", "snapshot with one of everything")
    return [Row(name, {"KB": size}, aim="64 KB") for name, size in zip(names, sizes, strict=True)]


def _snapshot_of(outcome: Outcome) -> Snapshot:
    if outcome.snapshot is None:
        raise RuntimeError(f"the step did not sleep: {outcome.failure}")
    return outcome.snapshot


def memory_rows(pool: Pool, program: Program, count: int) -> list[Row]:
    """Proportional set size of a process, and what each of `count` instances at once adds to it."""
    (number,) = pool.process_ids()
    pool.run(program, ORDER, Host())
    before = pss_mb(number) * 1024
    hosts = [HoldingHost() for _ in range(count)]
    threads = [threading.Thread(target=pool.run, args=(program, ORDER, each)) for each in hosts]
    for thread in threads:
        thread.start()
    for host in hosts:
        host.arrived.wait()
    during = pss_mb(number) * 1024
    for host in hosts:
        host.go.set()
    for thread in threads:
        thread.join()
    return [Row("a sandbox process", {"KB": before}), Row("each live instance more", {"KB": (during - before) / (count - 1)})]


def processor_seconds(processes: list[int]) -> float:
    return time.process_time() + sum(map(cpu_ms, processes)) / 1000


def rate_row(name: str, pool: Pool, work: Callable[[], object], threads: int, count: int = 4000) -> Row:
    """Steps per second, and per second of processor time, the appliance's included."""
    def run() -> None:
        for _ in range(count // threads):
            work()

    started = [threading.Thread(target=run) for _ in range(threads)]
    began, used = time.perf_counter(), processor_seconds(pool.process_ids())
    for each in started:
        each.start()
    for each in started:
        each.join()
    used = processor_seconds(pool.process_ids()) - used
    rate = count / (time.perf_counter() - began)
    return Row(f"{name}, {threads} threads", {"per second": rate, "per CPU second": count / used})


def peer_rows(order: bytes, omitted: list[str]) -> list[Timing]:
    out = []
    for name, work in (("node -e, a new process", peers.fresh_node(order)), ("php -n -r, a new process", peers.fresh_php(order))):
        if work is None:
            omitted.append(f"{name}: not installed")
        else:
            out.append(timing(name, time_of(work, RARE)))
    for fresh, name in ((True, "warm node, a context for each step"), (False, "warm node, nothing apart")):
        with peers.warm_node(order, fresh=fresh) as ask:
            if ask is not None:
                out.append(timing(name, time_of(ask)))
    return out


def step(language: str, source: str) -> Program:
    name = {"typescript": "a.ts", "javascript": "a.js", "php": "a.php"}[language]
    return Program(language, name, {name: source})  # type: ignore[arg-type]


def language_rows(pool: Pool, omitted: list[str]) -> list[Timing]:
    rows: list[Timing] = []
    for language, source, aim in (("javascript", TOTALS, 0.5), ("typescript", TYPED, 0.5), ("php", IN_PHP, 1.5)):
        program = step(language, source)
        failure = next(iter(pool.compile(program)), None)
        if failure is not None:
            omitted.append(f"{language} step: {failure.message}")
            continue
        rows += step_rows(f"{language} step, a fresh instance", lambda program=program: pool.run(program, ORDER), aim)  # type: ignore[misc]
    return rows


def call_row(pool: Pool) -> Timing:
    program = step("javascript", CALLING % CALLS)
    none = step("javascript", CALLING % 0)
    with_calls = statistics.median(time_of(lambda: pool.run(program, ORDER, Host())))
    without = statistics.median(time_of(lambda: pool.run(none, ORDER, Host())))
    return Timing("host call, boundary both ways", (with_calls - without) / CALLS)


def other_rows(pool: Pool) -> list[Timing]:
    order = {"input": {"lines": [{"n": 2, "price": 3.5}] * 10}}
    fresh = iter(range(10**9))
    two = {"a": "input.lines.length * 2", "b": "input.lines.map((l) => l.n)"}
    return [
        timing("two expressions", time_of(lambda: pool.evaluate(two, order))),
        timing("decision", time_of(lambda: pool.decide(DECISION, {"a": 1}))),
        timing("compile a TypeScript step", time_of(lambda: pool.compile(step("typescript", f"{TYPED} // {next(fresh)}")), 100)),
    ]


def measure_section() -> Section:
    section = Section("Sandbox", "steps over an order of 10 lines, each in a fresh instance, one at a time.", plot="median ms")
    against = peer_rows(ORDER, section.omitted)
    pool = Pool(Settings(processes=1, slots=8))
    pool.start()
    memory = memory_rows(pool, step("javascript", CALLING % 1), 8)
    timings = [*language_rows(pool, section.omitted), call_row(pool), *sleep_rows(pool), *other_rows(pool)]
    section.rows += [floor_row().to_row("floor"), *(each.to_row() for each in timings), *size_rows(pool), *memory]
    pool.stop()
    section.rows += [each.to_row("peer") for each in against]
    both = Pool(Settings(processes=2, slots=8))
    both.start()
    totals = step("javascript", TOTALS)
    section.rows += [rate_row("javascript step", both, lambda: both.run(totals, ORDER), threads) for threads in (1, 8, 32)]
    both.stop()
    return section


if __name__ == "__main__":
    show(measure_section())
