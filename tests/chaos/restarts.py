"""Two servers and two workers on one PostgreSQL and one S3 store; one of each is killed again and again, and restarted at once.

    python -m tests.chaos.restarts seed=1 count=2000 kills=10 [rate=5] [busy=2] [cuts=3] [outages=1]
    python -m tests.chaos.restarts batches=20 results=FILE count=500 kills=25 cuts=5 outages=1

Prints what was lost or done twice, how long after the last acceptance all was settled, how much was not over time, by state
and by what it waited for, and how soon after each kill nothing belonged to the dead any more.  `rate` executions a second
are sent at most; without it as many as eight senders get accepted.  `busy` processes that only take processor time load the
machine beside it.  Besides the kills, all connections to the database are cut `cuts` times, and PostgreSQL crashes and is started
again `outages` times; a process that `ended` by itself, because that came while it started, is started again.

`batches` runs follow each other with seeds from `seed` on, each over a database of its own; a line of `results` keeps the figures
of each, and those that it has already are not run again, so that a long experiment can be interrupted.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path

import httpx
import psycopg

from appliance.connectors.testing import free_port
from appliance.core.config.sections import Blobs
from tests.blobs.bucket import running_bucket
from tests.forking import Forked
from tests.readiness import wait_ready
from tests.store.cluster import Cluster, running_cluster
from tests.store.proxy import Proxy, running_proxy

from .harness import TRUST, prepare_store
from .launcher import launch
from .mix import CHILD, MARKS_PER_RUN, PROCESS
from .observing import LOCKS, LOOK_SECONDS, Observer

SERVERS, WORKERS, SENDERS = 2, 2, 8
PATIENCE_SECONDS = 900.0  # beside other work, 500 executions have taken five minutes


@dataclass
class Report:
    """The result of a run: `settled_s` after the last acceptance, or what was `unsettled` when patience ended; `over_time` are
    pairs of seconds and what was not settled then."""

    seed: int
    load: float = 0.0
    accepted: int = 0
    acceptance_s: float = 0.0
    settled_s: float | None = None
    unsettled: dict[str, int] = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)
    duplicated: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    marks: int = 0
    documents: int = 0
    kills: int = 0
    cuts: int = 0
    outages: int = 0
    ended: int = 0
    recovery_s: list[float] = field(default_factory=list)
    restart_s: list[float] = field(default_factory=list)
    most_overdue_s: float = 0.0
    over_time: list[tuple[float, dict[str, int]]] = field(default_factory=list)


class Restarts:
    """The processes of one run over one database and one bucket."""

    def __init__(self, folder: Path, cluster: Cluster, proxy: Proxy, bucket: Blobs, seed: int) -> None:
        self.folder, self.database = folder, cluster.make_database()
        self._cluster, self._proxy = cluster, proxy
        self.random = random.Random(seed)  # noqa: S311
        self.report = Report(seed)
        self.ports = [free_port() for _ in range(SERVERS)]
        storage = {"database": proxy.url(self.database)}
        settings = {
            "server": {"port": self.ports[0]}, "logs": {"level": "warning"}, "storage": storage, "blobs": asdict(bucket),
        }  # fmt: skip
        folder.joinpath("config.yaml").write_text(json.dumps(settings))
        self.key = prepare_store(folder)
        self.log = folder / "appliance.log"
        self._processes: dict[str, Forked] = {}
        self._accepted: dict[str, float] = {}
        self._killed: list[float] = []

    # -- life and death

    def start(self) -> None:
        for name in [f"serve{n}" for n in range(SERVERS)] + [f"worker{n}" for n in range(WORKERS)]:
            self._spawn(name)
        self._wait_ready()

    def _spawn(self, name: str) -> None:
        line = ["serve", "--port", str(self.ports[int(name[-1])])] if name.startswith("serve") else ["worker"]
        self._processes[name] = Forked(launch, "none", ["--data", str(self.folder), *line], log=self.log)

    def _start_ended(self) -> None:
        """Start those again that ended by themselves, as a supervisor would: without its database, a process does not start."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                self.report.ended += 1
                if self.report.ended > self.report.cuts + self.report.outages:
                    raise AssertionError(f"{name} ended: {self.log.read_text()[-6000:]}")
                self._spawn(name)

    def _wait_ready(self) -> None:
        """Return when every server answers and every process holds its lock."""
        with psycopg.connect(self.database, autocommit=True) as server:

            def has_all_locks() -> bool:
                self._start_ended()
                return len(server.execute(LOCKS).fetchall()) >= SERVERS + WORKERS

            wait_ready(*self.ports, check=has_all_locks)

    def kill_and_restart(self) -> None:
        """kill -9 of one server and one worker, drawn by lot; as a supervisor would, start them again at once."""
        names = [f"serve{self.random.randrange(SERVERS)}", f"worker{self.random.randrange(WORKERS)}"]
        self._start_ended()
        for name in names:
            os.kill(self._processes[name].pid, signal.SIGKILL)
        began = time.monotonic()
        for name in names:
            self._processes[name].wait()
            self._spawn(name)
        self._wait_ready()
        self.report.restart_s.append(round(time.monotonic() - began, 2))
        self.report.kills += 1

    def crash_database(self) -> None:
        """PostgreSQL ends as in a crash, and is started again at once."""
        self._cluster.stop("immediate")
        self._cluster.start()
        self.report.outages += 1

    def cut_connections(self) -> None:
        self._proxy.cut()
        self.report.cuts += 1

    def stop(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.wait(60)

    # -- the work

    def client(self, server: int = 0) -> httpx.Client:
        return httpx.Client(
            base_url=f"http://127.0.0.1:{self.ports[server]}",
            headers={"Host": f"acme.localhost:{self.ports[0]}", "X-API-Key": self.key},
            timeout=30,
            trust_env=False,
            verify=TRUST,
        )

    def publish(self) -> None:
        with self.client() as client:
            for process in (CHILD, PROCESS):
                client.put(f"/api/v1/processes/{process['id']}", json=process).raise_for_status()
                client.post(f"/api/v1/processes/{process['id']}/publish", json={}).raise_for_status()

    def run(self, count: int, troubles: Mapping[str, int], rate: float) -> None:
        """Send `count` executions while the processes die and come back; then wait until all is settled."""
        names = [f"r{index:05}" for index in range(count)]
        kinds = [kind for kind, times in troubles.items() for _ in range(times)]
        plan = sorted((self.random.randrange(count // 20, count), kind) for kind in kinds)
        observer = Observer(self.database)
        observer.start()
        try:
            self._send_all(names, plan, rate, observer)
            last = observer.now() - (time.monotonic() - max(self._accepted.values()))
            self.report.acceptance_s, self.report.accepted = round(last, 1), len(self._accepted)
            self._wait_settled(observer, last)
        finally:
            observer.stop()
        self.report.load = os.getloadavg()[0]
        self.report.recovery_s = [observer.recovery(*each) for each in pairwise((*self._killed, float("inf")))]
        self.report.most_overdue_s = round(max(look.overdue_s for look in observer.looks), 1)
        self.report.over_time = [(round(look.at, 1), look.unsettled) for look in observer.looks[:: int(5 / LOOK_SECONDS)]]
        self._count_marks(names)

    def _send_all(self, names: list[str], plan: list[tuple[int, str]], rate: float, observer: Observer) -> None:
        """Every one is sent until it is accepted; after so many acceptances the next trouble comes."""
        causes = {"kills": self.kill_and_restart, "cuts": self.cut_connections, "outages": self.crash_database}
        began, stopped = time.monotonic(), threading.Event()
        with ThreadPoolExecutor(SENDERS) as senders:
            sent = []
            for index, name in enumerate(names):
                not_before = began + index / rate if rate else began
                sent.append(senders.submit(self._send, name, index % SERVERS, not_before, stopped))
            try:
                for number, kind in plan:
                    while len(self._accepted) < number:
                        self._raise_failed(sent)
                        self._start_ended()
                        time.sleep(0.01)  # the instant of the trouble, drawn by lot: the experiment itself
                    if kind == "kills":
                        self._killed.append(observer.now())
                    causes[kind]()
                for future in sent:
                    future.result()
            finally:
                stopped.set()

    @staticmethod
    def _raise_failed(sent: "list[Future[None]]") -> None:
        for future in sent:
            if future.done():
                future.result()

    def _send(self, name: str, server: int, not_before: float, stopped: threading.Event) -> None:
        stopped.wait(max(0.0, not_before - time.monotonic()))
        while not stopped.is_set():
            try:
                with self.client(server) as client:
                    answer = client.post("/api/v1/processes/mix/execute", json={"run": name}, headers={"Idempotency-Key": name})
                if answer.status_code in (200, 202):
                    self._accepted[str(answer.json()["data"]["execution_id"])] = time.monotonic()
                    return
                if answer.status_code not in (409, 503):
                    raise AssertionError(answer.text + self._log_of(answer.headers.get("X-Request-Id", "?")))
            except httpx.TransportError:
                server = (server + 1) % SERVERS  # as whoever balances the load would
            stopped.wait(0.05)

    def _log_of(self, request_id: str) -> str:
        """What the appliance logged about a request."""
        return "".join(f"\n{line}" for line in self.log.read_text().splitlines() if request_id in line)

    def _wait_settled(self, observer: Observer, last: float) -> None:
        while observer.now() - last < PATIENCE_SECONDS:
            settled = next((look for look in list(observer.looks) if look.at > last and look.total == 0), None)
            if settled is not None:
                self.report.settled_s = round(settled.at - last, 1)
                return
            time.sleep(LOOK_SECONDS)  # between two looks, until all are done or the time is up
        self.report.unsettled = observer.looks[-1].unsettled

    def _count_marks(self, names: list[str]) -> None:
        """What each run has left in DataPool, by groups of a hundred runs."""
        counted: Counter[str] = Counter()
        query = {"group": ["run"], "aggregate": {"marks": {"fn": "count"}}, "sort": "run", "limit": 500}
        with self.client() as client:
            for prefix in sorted({name[:4] for name in names}):
                page_query = {**query, "filter": {"run": {"_starts_with": prefix}}}
                answer = client.post("/api/v1/datapool/marks/query", json=page_query)
                answer.raise_for_status()
                counted.update({row["run"]: row["marks"] for row in answer.json()["data"]})
        self.report.marks = counted.total()
        self.report.duplicated = [name for name in names if counted[name] > MARKS_PER_RUN]
        self.report.missing = [name for name in names if counted[name] < MARKS_PER_RUN]
        self._count_documents(names)
        with psycopg.connect(self.database) as server:
            self.report.statuses = dict(server.execute("SELECT status, count(*) FROM execution GROUP BY status").fetchall())


    def _count_documents(self, names: list[str]) -> None:
        """One document of each run, as each has one mark that its content was read."""
        with psycopg.connect(self.database) as server:
            stored = Counter(name for (name,) in server.execute("SELECT name FROM document").fetchall())
        self.report.documents = stored.total()
        self.report.duplicated += [name for name in names if stored[f"{name}.txt"] > 1]
        self.report.missing += [name for name in names if not stored[f"{name}.txt"]]


def run_restarts(
    folder: Path, cluster: Cluster, troubles: Mapping[str, int], *, seed: int = 1, count: int = 2000, rate: float = 0.0
) -> Report:
    """`kills` of one server and one worker, `cuts` and `outages`, while `count` executions are accepted and run.

    `rate` a second at most, or 0.
    """
    with running_proxy(cluster) as proxy, running_bucket() as bucket:
        run = Restarts(folder, cluster, proxy, bucket, seed)
        try:
            run.start()
            run.publish()
            run.run(count, troubles, rate)
        finally:
            run.stop()
        return run.report


def main(options: dict[str, str]) -> None:
    """The command."""
    troubles = {name: int(options.get(name, default)) for name, default in (("kills", "10"), ("cuts", "0"), ("outages", "0"))}
    results = Path(options["results"]) if "results" in options else None
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(int(options.get("busy", "0")))]
    try:
        first = int(options.get("seed", "1"))
        for seed in range(first, first + int(options.get("batches", "1"))):
            if results is None or not _has_seed(results, seed):
                run_batch(options, troubles, seed, results)
    finally:
        for process in busy:
            process.kill()
            process.wait()


def run_batch(options: dict[str, str], troubles: Mapping[str, int], seed: int, results: Path | None) -> None:
    """One run, printed, and its figures added to the file of results."""
    count, rate = int(options.get("count", "2000")), float(options.get("rate", "0"))
    with tempfile.TemporaryDirectory() as folder, running_cluster() as cluster:
        report = asdict(run_restarts(Path(folder), cluster, troubles, seed=seed, count=count, rate=rate))
        if results is None:
            print(json.dumps(report, indent=1))
            print(Path(folder, "appliance.log").read_text()[-4000:])
            return
        del report["over_time"]
        with results.open("a") as file:
            file.write(json.dumps(report) + "\n")
        print(json.dumps(report), flush=True)


def _has_seed(results: Path, seed: int) -> bool:
    lines = results.read_text().splitlines() if results.exists() else []
    return any(json.loads(line)["seed"] == seed for line in lines)


if __name__ == "__main__":
    main(dict(part.split("=", 1) for part in sys.argv[1:]))
