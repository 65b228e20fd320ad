"""What an operation costs with 100, 10,000, 100,000 or a million stored executions, entities, documents and log lines.

    python -m tests.bench.growth [--count N]... [--only PART] [--statements]

The instructions of SQLite's virtual machine are the same on every machine; processor time is that of server and client together.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from appliance.core.database import db
from appliance.core.scheduling import PROMPT, PeriodicJob, Scheduler
from appliance.monitor import logs
from appliance.processes.executions import service as executions
from appliance.testing.running import Running, make_config, start
from tests.screenshots.furnishing import LOGIN

from .figures import Row, Section, show
from .filling import DAY
from .growth_operations import Operation, operations_of
from .growth_stock import Stock, fill_stock
from .statement_counts import StatementCounts, counting

COUNTS = (100, 10_000, 100_000)
ROUNDS = 1  # The instructions are the same in each round, and the report is to take a quarter of an hour in all.
REPORTED = (
    "execute and wait", "accept an execution", "execute without waiting", "entity by id", "create an entity", "change an entity",
    "delete an entity", "history of an entity", "GET /executions?", "GET /executions? deep", "GET /logs?text=order",
    "GET /processes/growth/versions", "page /console/", "page /console/executions", "page /console/monitor", "GET /metrics",
    "GET /readyz", "job sweeper", "job timers", "job heartbeat", "job alerts", "job retention",
)  # fmt: skip
GROWN, MANY_STEPS = 3.0, 20_000
_OF_EXECUTIONS = ("execution", "step_run", "journal", "execution_event", "execution_input", "log_line")


@dataclass(frozen=True)
class Cost:
    """What one operation took: instructions of SQLite, ms of processor time, and the most expensive statements."""

    steps: float
    cpu_ms: float
    statements: Sequence[tuple[str, int]]


@contextmanager
def listing_jobs(folder: Path) -> Iterator[tuple[Running, StatementCounts, list[PeriodicJob]]]:
    """An appliance whose statements are counted, and its periodic jobs."""
    jobs: list[PeriodicJob] = []

    class ListedScheduler(Scheduler):
        def add(self, job: PeriodicJob) -> Any:
            jobs.append(job)
            return super().add(job)

    with mock.patch("appliance.app.composition.Scheduler", ListedScheduler), counting() as counts:
        settings = {"demo__order_system": True, "egress__allow": ["127.0.0.0/8"], "console__administrators": [LOGIN]}
        running = start(make_config(folder, **settings))
        try:
            yield running, counts, jobs
        finally:
            running.stop()


def quiet(jobs: Sequence[PeriodicJob]) -> None:
    """End the regular calls of jobs that nobody waits for, so that they are not counted with an operation."""
    for job in jobs:
        if job.lane is not PROMPT:
            job.signal()


def measure(operation: Operation, counts: StatementCounts, rounds: int = ROUNDS) -> Cost:
    """The medians of some rounds, after one that is not counted."""
    steps, times, statements = [], [], []
    for number in range(rounds + 1):
        counts.reset()
        began = time.process_time()
        operation.run(number)
        times.append((time.process_time() - began) * 1000)
        steps.append(counts.total())
        statements = counts.most_expensive(3)
    return Cost(statistics.median(steps[1:]), statistics.median(times[1:]), statements)


def measure_all(count: int, only: str = "") -> tuple[dict[str, Cost], list[Row]]:
    """The cost of each operation by its name, with ids left out, and the rows about disk and retention."""
    with tempfile.TemporaryDirectory(prefix="gos-bench-") as folder, listing_jobs(Path(folder)) as (running, counts, jobs):
        stock = fill_stock(running, count)
        logs.index_older()
        quiet(jobs)
        costs = {each.name: measure(each, counts) for each in operations_of(stock, jobs) if only in each.name}
        return costs, [] if only else [*measure_disk(stock, count), measure_retention(count)]


def measure_disk(stock: Stock, count: int) -> Iterator[Row]:
    """Bytes of each table of executions and its indexes, divided by the executions."""
    sizes = db.rows(
        "SELECT m.tbl_name, SUM(CASE WHEN m.type = 'table' THEN s.pgsize ELSE 0 END), SUM(CASE WHEN m.type = 'index' THEN s.pgsize "
        "ELSE 0 END) FROM dbstat AS s JOIN sqlite_master AS m ON m.name = s.name WHERE s.aggregate = 1 GROUP BY m.tbl_name"
    )
    for table, in_table, in_indexes in sizes:
        if table in _OF_EXECUTIONS:
            figures = {"bytes": (in_table + in_indexes) / count, "in indexes": in_indexes / count}
            yield Row(f"disk per execution: `{table}`", figures)


def measure_retention(count: int) -> Row:
    """Delete the executions of the oldest day."""
    ((oldest,),) = db.rows("SELECT MIN(finished_at) FROM execution WHERE finished_at IS NOT NULL")
    took: list[float] = []
    submit = db.submit

    def timed(fn: Any, **options: Any) -> Any:
        began = time.perf_counter()
        future = submit(fn, **options)
        future.add_done_callback(lambda _: took.append((time.perf_counter() - began) * 1000))
        return future

    began, worked = time.perf_counter(), time.process_time()
    with mock.patch.object(db, "submit", timed):
        deleted = executions.purge(oldest + DAY)
    seconds = time.perf_counter() - began
    cpu_ms = (time.process_time() - worked) * 1000 / deleted
    figures = {"per second": deleted / seconds, "longest write ms": max(took), "CPU ms": cpu_ms}
    return Row(f"delete {deleted:,} executions of a day", figures)


def measure_section(counts: Sequence[int] = COUNTS) -> Section:
    """Compare the costs with these numbers of stored executions."""
    measured = {count: measure_all(count) for count in counts}
    least, most = counts[0], counts[-1]
    costs = {count: each[0] for count, each in measured.items()}
    grown = [name for name, cost in costs[most].items() if is_grown(costs[least].get(name), cost)]
    about = (
        f"instructions of SQLite for each operation, by the number of stored executions, entities and documents; the CPU time is "
        f"that with {most:,}. Of {len(costs[most])} operations, all pages of the console among them, {len(grown)} take more than "
        f"{GROWN:.0f} times as many with {most:,} as with {least:,}, and more than {MANY_STEPS:,}; they are listed last."
    )
    rows = [Row(name, _figures(name, costs, least, most)) for name in dict.fromkeys([*REPORTED, *sorted(grown)])]
    return Section("Growth", about, [*rows, *measured[most][1]], plot="growth")


def is_grown(before: Cost | None, after: Cost) -> bool:
    return before is not None and after.steps > MANY_STEPS and after.steps > GROWN * before.steps


def _figures(name: str, costs: Mapping[int, Mapping[str, Cost]], least: int, most: int) -> dict[str, float]:
    figures = {f"with {count:,}": each[name].steps for count, each in costs.items() if name in each}
    if name in costs[least]:
        figures["growth"] = costs[most][name].steps / max(1.0, costs[least][name].steps)
    return {**figures, "CPU ms": costs[most][name].cpu_ms}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.growth", description="What operations cost with much stored.")
    parser.add_argument("--count", type=int, action="append", help="stored executions; may be given again (default: 100 to 100000)")
    parser.add_argument("--only", help="print only operations whose name contains this, with their most expensive statements")
    options = parser.parse_args()
    counts = options.count or list(COUNTS)
    if options.only is None:
        show(measure_section(counts))
        return
    for count in counts:
        for name, cost in measure_all(count, options.only)[0].items():
            print(f"{count:,}: {name}: {cost.steps:,.0f} instructions, {cost.cpu_ms:.1f} ms")
            for sql, steps in cost.statements:
                print(f"    {steps:>10,}  {' '.join(sql.split())[:300]}")


if __name__ == "__main__":
    main()
