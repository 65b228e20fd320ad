"""Executions and entity writes of one and two `gos serve` on one PostgreSQL, also with a database that is 3 and 10 ms away.

    python -m tests.bench.scaling

The distance is made by `tests.store.proxy`, which holds back what is sent to the server.  All load comes from the same
machine, so without the distance two processes share the processors that one had: what they do more is limited by how busy the
processors are already.
"""

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import httpx
import psycopg

from appliance.connectors.testing import free_port
from tests.store.cluster import SAFE, Cluster, running_cluster
from tests.store.proxy import running_proxy

from .executions import COLLECTION, execute, headers_of, publish, raise_rate, running_server, set_up
from .figures import Row, Section, show
from .http_load import Load, run_load, to_request

SECONDS, CLIENTS, DISTANCES_MS, ENTITIES = 6.0, 16, (3.0, 10.0), 64
LOCKS = "SELECT count(*) FILTER (WHERE NOT granted) > 0 FROM pg_locks WHERE locktype = 'advisory'"


@dataclass(frozen=True)
class Case:
    """Some processes, with `writers` connections each (0: the default), on a database at a distance."""

    name: str
    processes: int
    distance_ms: float = 0.0
    writers: int = 0
    is_sqlite: bool = False


CASES = (
    Case("SQLite, one process", 1, is_sqlite=True),
    Case("one process", 1),
    Case("two processes", 2),
    *(
        Case(f"{distance_ms:.0f} ms away, 2 writers, {name}", processes, distance_ms, 2)
        for distance_ms in DISTANCES_MS
        for name, processes in (("one process", 1), ("two processes", 2))
    ),
)


@contextmanager
def at_distance(cluster: Cluster, milliseconds: float) -> Iterator[str]:
    """The URL of a new database, reached through the proxy if it is at a distance."""
    url = cluster.make_database()
    if not milliseconds:
        yield url
        return
    with running_proxy(cluster, milliseconds) as proxy:
        yield proxy.url(url)


def measure_locks(url: str, ended: Event) -> float:
    """The share of samples in % in which a write waited for the lock that exclusive writes hold."""
    samples: list[tuple[bool]] = []
    with psycopg.connect(url, autocommit=True) as watching:
        while not ended.wait(0.01):
            samples += watching.execute(LOCKS).fetchall()
    return 100 * sum(waiting for (waiting,) in samples) / max(1, len(samples))


def read_idle() -> tuple[int, int]:
    """The time that all processors of this machine have been idle, and all their time, in ticks; see proc_stat(5)."""
    ticks = [int(each) for each in Path("/proc/stat").read_text("ascii").split("\n", 1)[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


class Bench:
    """The running processes of a case, and their load."""

    def __init__(self, ports: Sequence[int], headers: dict[str, str], watched: str | None) -> None:
        self._ports, self._headers, self._watched = ports, headers, watched

    def measure(self, name: str, requests: Sequence[bytes], status: int = 200) -> Row:
        """The load of all clients, in equal parts on each process; several requests are divided among the processes."""
        processes = len(self._ports)

        def load(index: int) -> Load:
            return run_load(self._ports[index], requests[index::processes] or requests, CLIENTS // processes, SECONDS, status)

        ended, idle = Event(), read_idle()
        with ThreadPoolExecutor(processes + 1) as threads:
            locks = threads.submit(measure_locks, self._watched, ended) if self._watched else None
            loads = list(threads.map(load, range(processes)))
            ended.set()
        spent, passed = (after - before for before, after in zip(idle, read_idle(), strict=True))
        figures = {"per second": sum(each.requests / each.seconds for each in loads), "p50 ms": max(each.p50 for each in loads)}
        figures["processors busy, %"] = 100 - 100 * spent / passed
        return Row(name, figures | ({"samples with a wait for the lock, %": locks.result()} if locks else {}))

    def run(self, case: str) -> Iterator[Row]:
        with httpx.Client(base_url=f"http://127.0.0.1:{self._ports[0]}/api/v1", headers=self._headers, trust_env=False) as api:
            address = f"/datapool/{COLLECTION['name']}/entities"
            ids = [api.post(address, json={"total": number}).raise_for_status().json()["data"]["id"] for number in range(ENTITIES)]
        for process in ("one", "three"):
            self.measure("warm", [execute(process, self._headers)])
            yield self.measure(f"{case}: executions of {process} step{'s' * (process != 'one')}", [execute(process, self._headers)])
        create = to_request("POST", f"/api/v1{address}", self._headers, json.dumps({"total": 7}))
        yield self.measure(f"{case}: new entities", [create], 201)
        # Every change differs from the one before, so none is without effect.
        changes = [
            to_request("PATCH", f"/api/v1{address}/{id_}", self._headers, json.dumps({"total": value}))
            for value in range(2) for id_ in ids
        ]  # fmt: skip
        yield self.measure(f"{case}: changed entities", changes)


@contextmanager
def running(case: Case, cluster: Cluster) -> Iterator[Bench]:
    """The processes of a case, each ready."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = None if case.is_sqlite else stack.enter_context(at_distance(cluster, case.distance_ms))
        storage = ({"database": url} if url else {}) | ({"writers": case.writers} if case.writers else {})
        folder.joinpath("config.yaml").write_text(json.dumps({"storage": storage}))
        ports = [free_port() for _ in range(case.processes)]
        headers = headers_of(ports[0], *set_up(folder, ports[0]))
        if url:
            raise_rate(folder, url)
        for port in ports:
            stack.enter_context(running_server(folder, port))
        publish(ports[0], headers)
        yield Bench(ports, headers, url)


def measure_section(report: Callable[[Row], None] = lambda _: None) -> Section:
    about = f"{CLIENTS} clients for {SECONDS:.0f} s each, in equal parts on each process."
    section = Section("One and two processes on PostgreSQL", about)
    with running_cluster(SAFE) as cluster:
        for case in CASES:
            with running(case, cluster) as bench:
                for row in bench.run(case.name):
                    report(row)
                    section.rows.append(row)
    return section


if __name__ == "__main__":
    show(measure_section(lambda row: print(row, flush=True)))
