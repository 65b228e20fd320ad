"""A busy month of a tenant, written straight into the database: executions with steps, logs, journals, failures and counters."""

import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from appliance.core import clock, ids
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.monitor import rollup, tally

PROCESSES, VERSIONS = 20, 3
DAYS, DAY, MINUTE = 28, 86_400_000, 60_000
WIDE_RUNS = 10_000
STEPS = ("check", "enrich", "save")
# How many of a thousand executions have this status; all others succeeded.
OUTCOMES = {"failed": 25, "cancelled": 5, "timed_out": 3, "expired": 2, "waiting": 3, "scheduled": 2}
ERROR_MESSAGES = ("the customer has no address", "the carrier did not answer", "no price for this article", "the total is negative")
ACTORS = ("key:key_bench", "trigger:bench-01/nightly", "user:usr_bench", "webapp:shop")
_SOURCE = "export default async function (input, api) {\n  const order = input.order\n  api.log.info('order')\n  return order\n}\n"
_MOST_VALUES = 30_000
_CHUNK = 2_000
_TABLES = {
    "execution": "tenant_id id process_id version status wait_reason waiting_for input output error failure_class failure_code "
    "failed_step label priority created_at enqueued_at started_at finished_at next_run_at active_ms lease_until fence claims "
    "cancel_requested actor request_id depth rank",
    "step_run": "tenant_id execution_id path iteration step kind status attempt result_source input output error started_at "
    "finished_at",
    "log_line": "tenant_id at level source message fields execution_id process_id step",
    "journal": "tenant_id execution_id path iteration attempt call position method args ok answer clock at",
    "execution_event": "tenant_id execution_id at type data",
    "execution_input": "tenant_id execution_id number path value",
}


@dataclass
class Batch:
    """Rows to be written, by table, and the totals of the month's counters."""

    scope: TenantScope
    rows: dict[str, list[tuple[Any, ...]]] = field(default_factory=lambda: {name: [] for name in _TABLES})
    counters: dict[tuple[str, int, str, str, int], list[float]] = field(default_factory=dict)
    groups: dict[tuple[str, str], list[Any]] = field(default_factory=dict)
    occurrences: list[tuple[Any, ...]] = field(default_factory=list)

    def count(self, kind: str, at: int, name: str, outcome: str, took: float) -> None:
        entry = self.counters.setdefault((kind, at // MINUTE * MINUTE, name, outcome, tally.slot_of(took)), [0, 0.0])
        entry[0] += 1
        entry[1] += took

    def flush(self) -> None:
        rows = {name: list(pending) for name, pending in self.rows.items()}

        def write() -> None:
            for name, columns in _TABLES.items():
                insert(name, columns, rows[name])

        db.write(write)
        for pending in self.rows.values():
            pending.clear()


def insert(table: str, columns: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Inside a write: the rows, as many in one statement as a database takes values."""
    names = columns.split()
    at_once = _MOST_VALUES // len(names)
    for start in range(0, len(rows), at_once):
        part = rows[start : start + at_once]
        places = ", ".join([f"({', '.join('?' * len(names))})"] * len(part))
        flat = tuple(value for row in part for value in row)
        db.execute(f"INSERT INTO {table} ({', '.join(names)}) VALUES {places}", flat)  # noqa: S608 our own names


def fill(scope: TenantScope, count: int) -> dict[str, str]:
    """Write `count` executions, the newest a minute old; returns one id for each status, and for `wide`."""
    rng, batch = random.Random(11), Batch(scope)  # noqa: S311  made-up figures
    db.write(partial(_insert_processes, scope))
    now = clock.now_ms()
    ids_by_kind = {}
    for number in range(count):
        at = now - MINUTE - int((count - number) * (DAYS * DAY - MINUTE) / count)
        ids_by_kind[_add_execution(batch, rng, number, at)] = _id_of(number, at)
        if number % _CHUNK == _CHUNK - 1:
            batch.flush()
    ids_by_kind["wide"] = _add_wide(batch, now - MINUTE)
    batch.flush()
    db.write(partial(_insert_failures, batch))
    db.write(partial(_insert_counters, batch))
    while rollup.roll_up():
        pass
    tally.compact()
    return ids_by_kind


def _id_of(number: int, at: int) -> str:
    return f"exe_{ids.base62(at * 1000 + number % 1000, 9)}{ids.base62(number, 12)}"


def _insert_processes(scope: TenantScope) -> None:
    now = clock.now_ms()
    processes: list[tuple[Any, ...]] = []
    versions: list[tuple[Any, ...]] = []
    for number in range(1, PROCESSES + 1):
        name = f"bench-{number:02}"
        steps = [{"id": step, "code": {"language": "javascript", "file": f"steps/{step}.js"}} for step in STEPS]
        loop = {"id": "each", "for_each": {"items": "= input.lines", "steps": [{"id": "line", "rule": {"expression": "= item"}}]}}
        definition = {"id": name, "name": f"Bench {number:02}", "input": {"type": "object"}, "steps": [*steps, loop]}
        files = {f"steps/{step}.js": _SOURCE for step in STEPS}
        shared = (json.dumps(definition), json.dumps(files))
        processes.append((scope.tenant_id, name, definition["name"], *shared, "", f"digest-{VERSIONS}", VERSIONS, now, now))
        versions += [(scope.tenant_id, name, each, *shared, f"digest-{each}", "", now, "system") for each in range(1, VERSIONS + 1)]
    insert("process", "tenant_id id name definition files source draft_digest published_version created_at updated_at", processes)
    insert("process_version", "tenant_id process_id version definition files draft_digest message created_at created_by", versions)


def _random_status(rng: random.Random) -> str:
    number = rng.randrange(1000)
    for status, share in OUTCOMES.items():
        if number < share:
            return status
        number -= share
    return "succeeded"


def _add_execution(batch: Batch, rng: random.Random, number: int, at: int) -> str:
    """Add one execution with its rows; returns its status."""
    tenant, execution_id = batch.scope.tenant_id, _id_of(number, at)
    process, status = f"bench-{min(PROCESSES, int(rng.paretovariate(0.9))):02}", _random_status(rng)
    took = int(rng.lognormvariate(5.5, 1.2)) + 3
    is_over, has_run = status not in ("waiting", "scheduled"), status not in ("scheduled", "expired")
    error = _error(rng) if status in ("failed", "timed_out") else None
    later = clock.now_ms() + 90 * DAY
    input_ = {"order": {"number": 10_000 + number, "customer": f"C-{number % 977}", "note": "as usual, by the side door"}}
    event = {"kind": "event", "name": "paid", "step": "save", "token": f"wai_{number}"}
    waiting = {"waits": [event]} if status == "waiting" else None
    batch.rows["execution"].append((
        tenant, execution_id, process, rng.randint(1, VERSIONS), status, "event" if waiting else None, _json(waiting),
        json.dumps(input_), '{"saved":true}' if status == "succeeded" else None, _json(error),
        *(error[each] if error else None for each in ("failure_class", "code", "step")),
        f"batch {number // 500}" if number % 3 == 0 else None, 0, at, at, at + 2 if has_run else None,
        at + took if is_over else None, None if is_over else later, took, 0, 1, 0, 0, rng.choice(ACTORS), "req_bench", 0, at,
    ))  # fmt: skip
    for index, (path, value) in enumerate((("order.number", str(10_000 + number)), ("order.customer", f"C-{number % 977}"))):
        batch.rows["execution_input"].append((tenant, execution_id, index, path, value))
    for kind in ("queued", "running", status):
        batch.rows["execution_event"].append((tenant, execution_id, at, kind, json.dumps({"status": kind})))
    if has_run:
        _add_steps(batch, (execution_id, process, at, took), status, error)
    if is_over:
        batch.count("execution", at + took, process, status, took)
    if error is not None:
        group = batch.groups.setdefault((process, str(error["message"])), [ids.new("fail"), error, 0, at, at, execution_id])
        group[2], group[4], group[5] = group[2] + 1, at, execution_id
        batch.occurrences.append((tenant, group[0], execution_id, at))
    return status


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value)


def _error(rng: random.Random) -> dict[str, Any]:
    return {
        "code": "step_failed", "failure_class": "user_code", "message": rng.choice(ERROR_MESSAGES), "retryable": False,
        "step": "enrich", "attempt": 1, "position": {"file": "steps/enrich.js", "line": 3, "column": 7},
        "next": "fix the step's code, publish, and retry from the failed step with the published version",
    }  # fmt: skip


def _add_steps(batch: Batch, run: tuple[str, str, int, int], status: str, error: dict[str, Any] | None) -> None:
    execution_id, process, at, took = run
    tenant, each = batch.scope.tenant_id, max(1, took // len(STEPS))
    for index, step in enumerate(STEPS):
        begin, fails = at + index * each, error is not None and step == error["step"]
        state = "failed" if fails else "waiting" if status == "waiting" and step == "save" else "succeeded"
        batch.rows["step_run"].append((
            tenant, execution_id, step, "", step, "code", state, 1, "executed", None,
            '{"ok":true}' if state == "succeeded" else None, _json(error) if fails else None, begin,
            None if state == "waiting" else begin + each,
        ))  # fmt: skip
        line = (tenant, begin, 40 if fails else 20, "step", f"order is at {step}", "{}", execution_id, process, step)
        batch.rows["log_line"].append(line)
        batch.count("step", begin + each, "code", state, each)
        if fails:
            break
    batch.rows["journal"].append((tenant, execution_id, "check", "", 1, 0, 0, "end", "[]", 1, '{"seed":7}', f"[{at}]", at))


def _add_wide(batch: Batch, at: int) -> str:
    """Add an execution whose for_each ran a step ten thousand times, one of them failed; returns its id."""
    tenant, execution_id = batch.scope.tenant_id, _id_of(10**9, at)
    input_ = json.dumps({"lines": list(range(50))})
    batch.rows["execution"].append((
        tenant, execution_id, "bench-01", VERSIONS, "succeeded", None, None, input_, '{"saved":true}', None, None, None, None,
        "ten thousand lines", 0, at, at, at, at + WIDE_RUNS, None, WIDE_RUNS, 0, 1, 0, 0, ACTORS[0], "req_bench", 0, at,
    ))  # fmt: skip
    runs = batch.rows["step_run"]
    loop = (tenant, execution_id, "each", "", "each", "for_each", "succeeded", 1, "executed", None, "[]", None, at, at + WIDE_RUNS)
    runs.append(loop)
    for index in range(WIDE_RUNS):
        fails = index == WIDE_RUNS // 2
        state, error = ("failed", _json(_error(random.Random(index)))) if fails else ("succeeded", None)  # noqa: S311
        runs.append((
            tenant, execution_id, "each/line", str(index), "line", "rule", state, 1, "executed", f'{{"item":{index}}}',
            f'{{"line":{index}}}', error, at + index, at + index + 1 + int(10 * abs(math.sin(index))),
        ))  # fmt: skip
    return execution_id


def _insert_failures(batch: Batch) -> None:
    columns = (
        "tenant_id id fingerprint process_id step failure_class code message state count first_seen last_seen sample_execution_id"
    )
    rows = [
        (batch.scope.tenant_id, id_, f"{process}/{message}", process, error["step"], error["failure_class"], error["code"],
         message, "open", count, first, last, execution_id)
        for (process, message), (id_, error, count, first, last, execution_id) in batch.groups.items()
    ]  # fmt: skip
    insert("failure", columns, rows)
    insert("failure_occurrence", "tenant_id failure_id execution_id at", batch.occurrences)


def _insert_counters(batch: Batch) -> None:
    """Inside a write: the counters, as if nothing had been summed: what the running appliance has summed is summed again."""
    for table in ("tally_wide", "tally_mark", "tally_late"):
        db.execute(f"DELETE FROM {table} WHERE tenant_id = ?", (batch.scope.tenant_id,))  # noqa: S608 our own names

    def rows() -> Iterator[tuple[Any, ...]]:
        for (kind, at, name, outcome, slot), (count, total) in batch.counters.items():
            yield batch.scope.tenant_id, kind, at, name, outcome, slot, int(count), total

    insert("tally", "tenant_id kind at name outcome slot count sum_ms", list(rows()))
