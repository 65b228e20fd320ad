"""How long the Monitor's figures and the search of log lines take over a million executions and a million lines.

    python -m tests.bench.monitor [--lines] [DATABASE_URL]

The counters are those of a month of executions, compacted by the product itself.
"""

import random
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial

from appliance.core import clock
from appliance.core.database import db
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.migrations import migrate
from appliance.monitor import Line, LineFilter, Tail, Window, analytics, logs, rollup, tally
from appliance.tenants import service as tenants

EXECUTIONS = 1_000_000
LINES = 1_000_000
PROCESSES = 20
ROUNDS = 5
DAYS = 30
MINUTE, DAY = 60_000, 86_400_000
SPANS = {"15m": 15 * MINUTE, "1h": 60 * MINUTE, "24h": DAY, "7d": 7 * DAY, "30d": 30 * DAY}
_CHUNK = 10_000
_ADD = "INSERT INTO tally (tenant_id, kind, at, name, outcome, slot, count, sum_ms) VALUES "


def main() -> None:
    arguments = [each for each in sys.argv[1:] if each != "--lines"]
    with tempfile.TemporaryDirectory(prefix="gos-bench-") as folder:
        db.open_database(arguments[0] if arguments else f"sqlite:///{folder}/gos.db")
        migrate()
        tenants.create_tenant("bench", "Bench")
        try:
            measure_counters(tenants.system_scope("bench"))
            if "--lines" in sys.argv:
                measure_lines(tenants.system_scope("bench"))
        finally:
            db.close_database()


def measure_counters(scope: TenantScope) -> None:
    """The series of every span, after a month of executions."""
    fill_counters(scope)
    ((rows,),) = db.rows("SELECT COUNT(*) FROM tally")
    while rollup.roll_up():
        pass
    tally.compact()
    ((compacted,),) = db.rows("SELECT COUNT(*) FROM tally")
    print(f"{EXECUTIONS} executions in {rows} rows of counters, {compacted} once compacted")
    now = clock.now_ms()
    for name, span in SPANS.items():
        print_time(f"series of {name}", partial(analytics.read_series, scope, Window(now - span, now + 1)))
    window = Window(now - 30 * DAY, now + 1, name="process-3")
    print_time("series of 30d of one process", partial(analytics.read_series, scope, window))


def fill_counters(scope: TenantScope) -> None:
    """Executions spread over the days of a month, each process with its own usual duration."""
    rng, now = random.Random(7), clock.now_ms()  # noqa: S311  made-up figures
    counters: dict[tuple[int, str, str, int], list[float]] = {}
    for _ in range(EXECUTIONS):
        number = int(rng.paretovariate(1.2)) % PROCESSES
        took = rng.lognormvariate(5 + number / 5, 0.8)
        at = (now - int(rng.random() * DAYS * DAY)) // MINUTE * MINUTE
        outcome = "failed" if rng.random() < 0.02 else "succeeded"
        entry = counters.setdefault((at, f"process-{number}", outcome, tally.slot_of(took)), [0, 0.0])
        entry[0] += 1
        entry[1] += took
    rows = [(scope.tenant_id, "execution", *key, int(count), total) for key, (count, total) in counters.items()]
    for start in range(0, len(rows), _CHUNK):
        part = rows[start : start + _CHUNK]
        places = ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?)"] * len(part))
        db.write(partial(db.execute, _ADD + places, tuple(value for row in part for value in row)))


def measure_lines(scope: TenantScope) -> None:
    """Searches of log lines for frequent, rare and absent words."""
    fill_lines(scope)
    now = clock.now_ms()
    for name, line_filter in {
        "the newest lines": LineFilter(),
        "errors and above": LineFilter(level="error"),
        "of one execution": LineFilter(execution_id="exe_777"),
        "a frequent text": LineFilter(text="order"),
        "a rare text": LineFilter(text="needle-77"),
        "a text that is not there, in a day": LineFilter(text="nowhere", since=now - DAY),
        "a text that is not there": LineFilter(text="nowhere"),
    }.items():
        print_time(name, partial(logs.list_lines, scope, line_filter, PageRequest(100)))
    tail = Tail(scope, LineFilter(text="order"), logs.last_number())
    print_time("a look for what is new, of a frequent text", tail.read)


def fill_lines(scope: TenantScope) -> None:
    rng, now = random.Random(7), clock.now_ms()  # noqa: S311  made-up figures
    for start in range(0, LINES, _CHUNK):
        lines = []
        for number in range(start, start + _CHUNK):
            at = now - (LINES - number) * (DAYS * DAY // LINES)
            level = "error" if rng.random() < 0.01 else "info"
            message = f"order {number} was taken" if number % 2 else f"customer {number} was greeted"
            needle = " needle-77" if number == LINES // 4 else ""
            lines.append(Line(at, level, "step", message + needle, {"n": 1}, f"exe_{number // 10}", "process-1"))
        db.write(partial(logs.write_lines, scope, lines))


def print_time(title: str, query: Callable[[], object]) -> None:
    """Print the median of a few rounds and the processor time of this process in it; the rest is waiting."""
    took, worked = [], []
    for _ in range(ROUNDS):
        began, busy = time.perf_counter(), time.process_time()
        query()
        took.append((time.perf_counter() - began) * 1000)
        worked.append((time.process_time() - busy) * 1000)
    print(f"{title:40} {sorted(took)[ROUNDS // 2]:9.1f} ms, {sorted(worked)[ROUNDS // 2]:9.1f} ms of work")


if __name__ == "__main__":
    main()
