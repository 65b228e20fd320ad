"""What governing a call costs: the gate's decision and record on a real database, and a whole call with and without it.

.venv/bin/python -m tests.bench.governance
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

from appliance.connectors import Traffic
from appliance.core.database import db
from appliance.governance import Subject
from appliance.governance.executor import ActionRequest
from appliance.governance.executor.tool_actions import build_tool_action
from appliance.integrations.calls import CallSpec, log_to_process
from tests.governance.ruling import make_governor, put_rules
from tests.integrations.world import World, open_world

RULES, ROUNDS = 200, 1_000
DECISION_AIM_MS, CALL_AIM_MS = 0.2, 2.0
INPUT = {"amount": 7, "note": "for the roof"}


def rule(number: int) -> dict[str, Any]:
    slug = "books" if number % 10 == 0 else f"system-{number % 20}"
    test = {"integrations": [slug], "operations": ["b*"], "when": {"input": {"amount": {"_gt": number}}}}
    return {"id": f"r{number}", "effect": "allow", "reason": "bench", **test}


def measure(work: Callable[[], object]) -> tuple[float, float]:
    """Median and 99th percentile in ms."""
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work()
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times), statistics.quantiles(times, n=100)[98]


def print_time(name: str, time_ms: tuple[float, float], aim: float | None = None) -> None:
    aimed = f"  aim {aim} ms: {'met' if time_ms[0] <= aim else 'MISSED'}" if aim is not None else ""
    print(f"{name:58} {time_ms[0]:8.3f} ms   p99 {time_ms[1]:8.3f} ms{aimed}")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, open_world(f"sqlite:///{folder}/gos.db") as world:
        world.ledger()
        put_rules(world.one, *(rule(number) for number in range(RULES)))
        run(world)


def run(world: World) -> None:
    """Print every figure."""
    governor, subject = make_governor(world.sealer), Subject("key:test", "rest")
    ready = world.integrations.ready(world.one, "books")
    action = build_tool_action(ready, "book", "write", dict(INPUT))
    decision = measure(lambda: governor.evaluate(world.one, subject, action))
    print_time(f"decision, {RULES} rules, with kill switches", decision, DECISION_AIM_MS)

    def govern() -> None:
        described = build_tool_action(ready, "book", "write", dict(INPUT))
        governor.refuse_switched_off(world.one, subject, described)
        governor.permit(world.one, subject, described).record()

    print_time("all that the gate adds to a call", measure(govern), CALL_AIM_MS)
    look = ready.installed.actions["look"]

    def bare() -> None:
        integration = world.integrations.ready(world.one, "books")
        world.integrations.calls.make(integration, CallSpec(look, INPUT, "k", 30.0, log_to_process, Traffic()))

    without, request = measure(bare), ActionRequest("books", "look", INPUT)
    whole = measure(lambda: world.executor.execute(world.one, request))
    update = "UPDATE integration SET checked_at = ? WHERE id = 'books'"
    durable = measure(lambda: db.write(lambda: db.execute(update, (time.monotonic_ns(),))))
    print_time("the connector alone, without record or gate", without)
    print_time("one durable write", durable)
    print_time("a governed read: gate, call and its durable record", whole)
    over = whole[0] - without[0]
    print(f"{'overhead of a governed call over the connector':58} {over:8.3f} ms, of it one durable write {durable[0]:.3f} ms")


if __name__ == "__main__":
    main()
