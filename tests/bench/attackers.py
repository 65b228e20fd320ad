"""How a tenant that sends schema bombs and error bombs affects another tenant: latency of executions, and memory.

    .venv/bin/python -m tests.bench.attackers [SECONDS [KIND ...]]

Starts an appliance in a process of its own with two tenants.  The victim executes a process of one rule step with a small order
over two connections, first alone, then while twenty attackers of the other tenant, in a third process, send a request every
second each, of every KIND (all when none is named):

    dear      a value that the longest `enum` of objects that is accepted is searched for, 40,000 times
    errors    a value with 150,000 errors
    bomb      the draft of a process whose schema unfolds to 2^28, to be published

Prints p50 and p99 of the victim in ms and the most memory of the appliance with its children (PSS, in MB) for both runs, the
ratios, and how the attackers were answered; then what checking one order costs, beside `iter_errors` of the library.  Ends with 1
when p99 more than doubles, or memory grows by more than 64 MB.  All figures are of one run on one machine: compare ratios, not
milliseconds.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import timeit
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from appliance.core.confinement import memory
from appliance.core.json_schema import compile_schema
from appliance.core.json_schema.costs import MOST_COMPARED
from appliance.testing.running import make_config, start

ATTACKERS, VICTIMS, SECONDS, PAUSE = 20, 2, 20.0, 1.0
MOST_RATIO, MOST_MORE_MB = 2.0, 64.0
ROOT = Path(__file__).parent.parent.parent
STEPS = [{"id": "answer", "rule": {"expression": "= input.lines.length"}}]
ORDER = {"number": "3001", "customer": "ALFKI", "lines": [{"sku": f"T-{n}", "quantity": n + 1} for n in range(8)]}
ORDER_SCHEMA: dict[str, Any] = {
    "type": "object", "required": ["number", "lines"], "additionalProperties": False,
    "properties": {
        "number": {"type": "string", "maxLength": 20}, "customer": {"type": "string"},
        "lines": {"type": "array", "items": {
            "type": "object", "required": ["sku", "quantity"],
            "properties": {"sku": {"type": "string", "minLength": 1}, "quantity": {"type": "integer", "minimum": 1}},
        }},
    },
}  # fmt: skip
OBJECTS = [{"a": n} for n in range(MOST_COMPARED // 35)]
DEAR = {"type": "object", "properties": {"a": {"items": {"enum": OBJECTS}}}}
LIST = {"type": "object", "properties": {"orders": {"type": "string"}, "products": {"items": {"type": "object"}}}}
LINKS = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(28)}
BOMB = {"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {**LINKS, "d28": {"type": "integer"}}}
PROCESSES = {"orders": ORDER_SCHEMA, "dear": DEAR, "list": LIST, "bomb": BOMB}


def serve(folder: str) -> None:
    """Run an appliance until standard input ends; prints its port and the keys of its tenants first."""
    memory.give_back()
    running = start(make_config(Path(folder)))
    memory.keep_loaded()
    keys = {tenant: running.key(tenant) for tenant in ("victim", "attacker")}
    print(json.dumps({"port": running.config.server.port, "keys": keys}), flush=True)
    sys.stdin.read()
    running.stop()


def client(port: int, tenant: str, key: str) -> httpx.Client:
    headers = {"Host": f"{tenant}.localhost:{port}", "X-API-Key": key, "Content-Type": "application/json"}
    return httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", headers=headers, timeout=60, trust_env=False)


def publish(api: httpx.Client, names: list[str]) -> None:
    for name in names:
        definition = {"id": name, "input": PROCESSES[name], "steps": STEPS}
        api.put(f"/processes/{name}", json=definition).raise_for_status()
        if name != "bomb":
            api.post(f"/processes/{name}/publish", json={}).raise_for_status()


def attack(port: int, key: str, seconds: float, kinds: list[str]) -> None:
    """Send bombs over twenty connections; prints the number of responses by kind and status."""
    dear = json.dumps({"a": [OBJECTS[-1]] * 40_000}).encode()
    errors = json.dumps({"orders": 1, "products": [0] * 150_000}).encode()
    shots = [("dear", "/processes/dear/execute", dear), ("errors", "/processes/list/execute", errors),
             ("bomb", "/processes/bomb/publish", b"{}")]  # fmt: skip
    shots = [shot for shot in shots if not kinds or shot[0] in kinds]
    ends = time.monotonic() + seconds
    answers: Counter[str] = Counter()
    pause = threading.Event()

    def send(number: int) -> None:
        name, path, body = shots[number % len(shots)]
        with client(port, "attacker", key) as api:
            while time.monotonic() < ends:
                answer = api.post(path, content=body)
                answers[f"{name}: {answer.status_code}"] += 1
                pause.wait(PAUSE)

    with ThreadPoolExecutor(ATTACKERS) as threads:
        list(threads.map(send, range(ATTACKERS)))
    print(json.dumps(answers))


def tree_pss_mb(root: int) -> float:
    """Memory of a process and all below it, each shared page counted once."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents.setdefault(int(stat.read_text().rsplit(") ", 1)[1].split()[1]), []).append(int(stat.parent.name))
        except OSError:
            continue  # it ended in the meantime
    total, pending = 0, [root]
    while pending:
        each = pending.pop()
        pending += parents.get(each, [])
        try:
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
    return total / 1024


def measure(port: int, key: str, root: int, is_over: Callable[[], bool]) -> tuple[list[float], float]:
    """The victim's latencies in ms until `is_over`, and the most memory in MB."""
    latencies: list[float] = []

    def execute(_: int) -> None:
        with client(port, "victim", key) as api:
            while not is_over():
                began = time.perf_counter()
                api.post("/processes/orders/execute", json=ORDER, params={"wait": 30}).raise_for_status()
                latencies.append((time.perf_counter() - began) * 1000)

    most, pause = 0.0, threading.Event()
    with ThreadPoolExecutor(VICTIMS) as threads:
        done = [threads.submit(execute, number) for number in range(VICTIMS)]
        while not all(each.done() for each in done):
            most = max(most, tree_pss_mb(root))
            pause.wait(0.25)
    for each in done:
        each.result()
    return latencies, most


@contextmanager
def child(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    line = [sys.executable, "-m", "tests.bench.attackers", *arguments]
    with subprocess.Popen(line, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


def show(name: str, latencies: list[float], memory: float) -> float:
    p99 = statistics.quantiles(latencies, n=100)[98]
    print(f"{name}: {len(latencies)} executions, p50 {statistics.median(latencies):.1f} ms, p99 {p99:.1f} ms, {memory:.0f} MB")
    return p99


def show_check_cost() -> None:
    schema = compile_schema(ORDER_SCHEMA)
    checks: dict[str, Callable[[], object]] = {
        "problems": lambda: schema.problems(ORDER), "iter_errors": lambda: list(schema.validator.iter_errors(ORDER)),
    }  # fmt: skip
    for name, check in checks.items():
        print(f"one order, {name}: {min(timeit.repeat(check, number=2_000, repeat=5)) / 2_000 * 1e6:.1f} µs")


def main(seconds: float, kinds: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder, child("--serve", folder) as server:
        assert server.stdout is not None
        details = json.loads(server.stdout.readline())
        port, keys = details["port"], details["keys"]
        for tenant, names in (("victim", ["orders"]), ("attacker", ["dear", "list", "bomb"])):
            with client(port, tenant, keys[tenant]) as api:
                publish(api, names)
        warm = time.monotonic() + 3
        measure(port, keys["victim"], server.pid, lambda: time.monotonic() > warm)
        ends = time.monotonic() + seconds
        before = measure(port, keys["victim"], server.pid, lambda: time.monotonic() > ends)
        with child("--attack", str(port), keys["attacker"], str(seconds), *kinds) as attackers:
            under = measure(port, keys["victim"], server.pid, lambda: attackers.poll() is not None)
            answers = attackers.communicate()[0]
        server.communicate()
    alone, beside = show("alone", *before), show("beside twenty attackers", *under)
    more = under[1] - before[1]
    print(f"p99: {beside / alone:.2f} times (at most {MOST_RATIO:g}), memory: {more:.0f} MB more (at most {MOST_MORE_MB:g})")
    print(f"attackers were answered: {answers.strip()}")
    show_check_cost()
    return int(beside / alone > MOST_RATIO or more > MOST_MORE_MB)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--serve", folder]:
            serve(folder)
        case ["--attack", port, key, seconds, *kinds]:
            attack(int(port), key, float(seconds), kinds)
        case rest:
            sys.exit(main(float(rest[0]) if rest else SECONDS, rest[1:]))
