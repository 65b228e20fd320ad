"""Kills a whole appliance (server, worker and their children) at random instants and counts what was lost or done twice."""

import json
import os
import random
import signal
import sqlite3
import ssl
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, LiteralString

import httpx
import psycopg

from appliance.connectors.testing import free_port
from appliance.core.config import load_config
from tests.chaos.launcher import launch  # as whoever begins it names it
from tests.forking import Forked
from tests.readiness import wait_ready

ROOT = Path(__file__).parent.parent.parent
ITEMS = 3
RUN = {"run": "= input.run"}
ITEM = {"run": "= input.run", "what": "item {{ n }}"}
PROCESS = {
    "id": "chaos",
    "grants": {"datapool": {"marks": ["read", "write"]}},
    "steps": [
        {
            "id": "write",
            "code": {
                "language": "typescript",
                "source": """
export default async function (input: {run: string}, api: any) {
  await api.datapool.create("marks", {run: input.run, what: "first"});
  await api.wait.for("20ms");
  const seen = await api.datapool.query("marks", {filter: {run: {_eq: input.run}}});
  await api.datapool.create("marks", {run: input.run, what: "second", note: String(seen.items.length) + ":" + Math.random()});
  return {run: input.run};
}""",
            },
        },
        {
            "id": "each",
            "for_each": {
                "items": [1, 2, 3],
                "as": "n",
                "concurrency": 2,
                "steps": [{"id": "mark", "datapool": {"collection": "marks", "create": {"values": ITEM}}}],
            },
        },
        {
            "id": "again",
            "retry": {"max_attempts": 5, "initial": "10ms", "classes": ["user_code"]},
            "code": {
                "language": "typescript",
                "source": """
export default async function (input: {run: string}, api: any) {
  const tried = await api.datapool.query("marks", {filter: {run: {_eq: input.run}, what: {_eq: "tried"}}});
  if (tried.items.length) return tried.items.length;
  await api.datapool.create("marks", {run: input.run, what: "tried"});
  throw new Error("not at the first attempt");
}""",
            },
        },
        {
            "id": "both",
            "parallel": {
                side: [{"id": side, "datapool": {"collection": "marks", "create": {"values": {**RUN, "what": side}}}}]
                for side in ("left", "right")
            },
        },
        {"id": "child", "process": {"use": "chaos-child", "input": {"run": "= input.run"}}},
        {"id": "pause", "wait": {"for": "30ms"}},
        {"id": "last", "datapool": {"collection": "marks", "create": {"values": {"run": "= input.run", "what": "last"}}}},
    ],
}
CHILD = {
    "id": "chaos-child",
    "steps": [
        {"id": "mark", "datapool": {"collection": "marks", "create": {"values": {"run": "= input.run", "what": "child"}}}},
        {"id": "pause", "wait": {"for": "10ms"}},
    ],
}
# first, second, the items, tried, left, right, child, last
MARKS_PER_RUN = 2 + ITEMS + 1 + 2 + 1 + 1
SHORT = {
    "id": "chaos-short",
    "grants": {"datapool": {"marks": ["read", "write"]}},
    "steps": [
        {"id": "one", "rule": {"expression": "= input.run"}},
        {
            "id": "two",
            "code": {
                "language": "javascript",
                "source": "export default (input, api) => api.datapool.create('marks', {run: input.run, what: 'short'})",
            },
        },
        {"id": "three", "rule": {"expression": "= steps.two.what"}},
    ],
}
SHORT_NAME = "short"  # how names of requests begin that execute it, once an attempt, because they have no Idempotency-Key


@dataclass
class Report:
    """The result of a run: `accepted` executions, those `lost`, runs whose marks are too few or too many.

    `answered` and `unanswered` are requests without an Idempotency-Key that waited for a short execution.
    """

    rounds: int = 0
    accepted: int = 0
    answered: int = 0
    unanswered: int = 0
    lost: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    kills: int = 0
    reclaimed: int = 0
    slowest_start_s: float = 0.0


# Made once: the certificates it reads cost more than the requests of a sender that finds nobody there.
TRUST = ssl.create_default_context()


def prepare_store(folder: Path) -> str:
    """The tenant acme and the collection of marks, in the store that `folder` is configured for; answers a key with every scope."""
    from appliance.app.store import open_store
    from appliance.core.database import db
    from appliance.datapool import service as datapool
    from appliance.tenants import service
    from appliance.tenants.keys import keys

    sealer = open_store(load_config(folder / "config.yaml", environment={}, flags={"storage.data": str(folder)}))
    service.create_tenant("acme", "Acme")
    scope = service.system_scope("acme")
    spec = keys.KeySpec("chaos", sorted(scope.scopes), rate_requests=1_000_000)
    key = keys.issue_key(scope, sealer, spec)[1]
    fields = [{"name": name, "type": "text"} for name in ("run", "what", "note")]
    datapool.create_collection(scope, {"name": "marks", "fields": fields, "indexes": [{"fields": ["run"]}]})
    db.close_database()
    return key


class Chaos:
    """One data folder, and a database beside it or on a server, started and killed again and again.

    With `worker` a further process without edges works the queue off beside the server.
    """

    def __init__(self, folder: Path, control: str, seed: int, database: str = "", *, worker: bool = True) -> None:
        self.folder = folder
        self.database = database
        self.control = control
        self.commands = ("serve", "worker") if worker else ("serve",)
        self.random = random.Random(seed)  # noqa: S311
        self.port = free_port()
        self.report = Report()
        self._processes: list[Forked] = []
        settings = {
            "server": {"port": self.port}, "logs": {"level": "warning"}, "queue": {"workers": 4}, "storage": {"database": database},
        }  # fmt: skip
        folder.joinpath("config.yaml").write_text(json.dumps(settings))
        self.key = ""

    # -- life and death

    def start(self) -> None:
        """Start server and worker, if there is one, each in a process group of its own, and wait until the port answers."""
        began = time.monotonic()
        self._processes = [self._spawn(each) for each in self.commands]
        wait_ready(self.port, check=self._is_running)
        self.report.slowest_start_s = max(self.report.slowest_start_s, time.monotonic() - began)

    def _is_running(self) -> bool:
        """True; a process that has ended is an error with its log."""
        if any(process.poll() is not None for process in self._processes):
            raise AssertionError((self.folder / "appliance.log").read_text()[-3000:])
        return True

    def _spawn(self, command: str) -> Forked:
        return Forked(launch, self.control, ["--data", str(self.folder), command], log=self.folder / "appliance.log")

    def kill(self) -> None:
        """kill -9 of every process group."""
        for process in self._processes:
            os.killpg(process.pid, signal.SIGKILL)
        for process in self._processes:
            process.wait()
        self.report.kills += 1

    def kill_all(self) -> None:
        """kill -9 of whatever still lives."""
        for process in self._processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def stop(self) -> None:
        """SIGTERM, as an administrator would."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(60)

    # -- the work

    def prepare(self) -> None:
        """Tenant, key, collection and process; the appliance must not run yet."""
        self.key = prepare_store(self.folder)

    def publish(self) -> None:
        with self.client() as client:
            for process in (CHILD, PROCESS, SHORT):
                client.put(f"/api/v1/processes/{process['id']}", json=process).raise_for_status()
                client.post(f"/api/v1/processes/{process['id']}/publish", json={}).raise_for_status()

    def client(self) -> httpx.Client:
        return httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}",
            headers={"Host": f"acme.localhost:{self.port}", "X-API-Key": self.key},
            timeout=30,
            trust_env=False,
            verify=TRUST,
        )

    def run_round(self, number: int, count: int) -> None:
        """Send `count` executions while the appliance is killed once; every one is sent until it is accepted."""
        stopped = threading.Event()
        names = [f"r{number}-{index}" for index in range(count)]
        short = [f"{SHORT_NAME}{number}-{index}" for index in range(count // 4)]
        delay = self.random.uniform(0.05, 1.5)

        with ThreadPoolExecutor(8) as senders, ThreadPoolExecutor(4) as short_senders:
            sent = [senders.submit(self._send, stopped, name) for name in names]
            sent_short = [short_senders.submit(self._send_short, stopped, name) for name in short]
            try:
                time.sleep(delay)  # the instant of the kill, drawn by lot: the experiment itself, not a wait for something
                self.kill()
                self.start()
                accepted = [future.result() for future in sent]
                attempts = {run: answered for future in sent_short for run, answered in future.result().items()}
            finally:
                stopped.set()  # or an appliance that does not start again would be asked for ever
        self.report.rounds += 1
        self.report.accepted += len(set(accepted))
        self._check(names, accepted)
        self._check_short(f"{SHORT_NAME}{number}-", attempts)

    def _send(self, stopped: threading.Event, name: str) -> str:
        """Send one until it is accepted; its execution."""
        wait = "?wait=5" if hash(name) % 3 == 0 else ""
        with self.client() as client:
            while not stopped.is_set():
                try:
                    answer = client.post(
                        f"/api/v1/processes/chaos/execute{wait}", json={"run": name}, headers={"Idempotency-Key": name}
                    )
                    if answer.status_code in (200, 202):
                        return str(answer.json()["data"]["execution_id"])
                    assert answer.status_code in (409, 503), answer.text
                except httpx.TransportError:
                    pass
                stopped.wait(0.05)
        raise AssertionError("stopped before it was accepted")

    def _send_short(self, stopped: threading.Event, name: str) -> dict[str, bool]:
        """Each attempt by the name of its run, and whether it was answered; the last one was."""
        attempts: dict[str, bool] = {}
        with self.client() as client:
            while not stopped.is_set():
                run = f"{name}.{len(attempts)}"
                attempts[run] = False
                try:
                    answer = client.post("/api/v1/processes/chaos-short/execute?wait=20", json={"run": run})
                    if answer.status_code == 200:
                        return {**attempts, run: True}
                    assert answer.status_code in (202, 409, 503), answer.text
                except httpx.ConnectError:
                    del attempts[run]  # nobody was there
                except httpx.TransportError:
                    pass
                stopped.wait(0.05)
        raise AssertionError("stopped before it was answered")

    def _check_short(self, prefix: str, attempts: dict[str, bool]) -> None:
        """Answered attempts have their one mark; the others have it, too, or never were."""
        self._wait_finished({row[0] for row in self._rows("SELECT id FROM execution WHERE process_id = 'chaos-short'")})
        counted = self._marks(prefix)
        self.report.answered += sum(attempts.values())
        self.report.unanswered += len(attempts) - sum(attempts.values())
        self.report.duplicated += [run for run in attempts if counted[run] > 1]
        self.report.missing += [run for run, answered in attempts.items() if answered and counted[run] < 1]

    def _check(self, names: list[str], accepted: list[str]) -> None:
        unfinished = self._wait_finished(set(accepted))
        self.report.lost += sorted(unfinished)
        counted = self._marks(names[0].split("-")[0] + "-")
        self.report.duplicated += [name for name in names if counted[name] > MARKS_PER_RUN]
        self.report.missing += [name for name in names if counted[name] < MARKS_PER_RUN]
        self.report.reclaimed = int(str(self._rows("SELECT count(*) FROM execution WHERE fence > 2")[0][0]))

    def _marks(self, prefix: str) -> Counter[str]:
        """How many marks each run of a round has left in DataPool."""
        counted: Counter[str] = Counter()
        query = {
            "filter": {"run": {"_starts_with": prefix}},
            "group": ["run"],
            "aggregate": {"marks": {"fn": "count"}},
            "sort": "run",
            "limit": 500,
        }
        with self.client() as client:
            answer = client.post("/api/v1/datapool/marks/query", json=query)
            answer.raise_for_status()
        for row in answer.json()["data"]:
            counted[row["run"]] = row["marks"]
        return counted

    def _wait_finished(self, ids: set[str], seconds: float = 60.0) -> set[str]:
        """Those of `ids` that have not succeeded after at most `seconds` without a person's help."""
        ends = time.monotonic() + seconds
        left = ids
        while left and time.monotonic() < ends:
            done = {row[0] for row in self._rows("SELECT id FROM execution WHERE status = 'succeeded'")}
            left = ids - done
            time.sleep(0.1)  # between two looks at the database, until all are done or the time is up
        return left

    def _rows(self, sql: LiteralString) -> list[tuple[Any, ...]]:
        if self.database:
            with psycopg.connect(self.database) as server:
                return server.execute(sql).fetchall()
        with sqlite3.connect(f"file:{self.folder / 'gos.db'}?mode=ro", uri=True, timeout=20) as connection:
            return connection.execute(sql).fetchall()


def _line(report: Report) -> str:
    """The progress of a long run, so that an interrupted one leaves its results."""
    failures = f"{len(report.lost)} lost, {len(report.duplicated)} duplicated, {len(report.missing)} missing"
    short = f"{report.answered} short ones answered, {report.unanswered} not"
    return f"{report.kills} kills, {report.accepted} executions, {report.reclaimed} reclaimed, {short}, {failures}"


def run_chaos(
    folder: Path, *, control: str = "none", rounds: int = 20, count: int = 200, seed: int = 1, database: str = ""
) -> Report:
    """`rounds` kills while `count` executions each are accepted and run; `database` is a server's URL, or empty for SQLite."""
    chaos = Chaos(folder, control, seed, database)
    chaos.prepare()
    chaos.start()
    try:
        chaos.publish()
        for number in range(rounds):
            chaos.run_round(number, count)
            if chaos.report.rounds % 50 == 0:
                print(_line(chaos.report), file=sys.stderr, flush=True)
            if control != "none" and (chaos.report.lost or chaos.report.duplicated):
                break
    finally:
        chaos.stop()
    return chaos.report


if __name__ == "__main__":
    import dataclasses
    import tempfile

    options = dict(part.split("=", 1) for part in sys.argv[1:])
    with tempfile.TemporaryDirectory() as where:
        report = run_chaos(
            Path(where),
            control=options.get("control", "none"),
            rounds=int(options.get("rounds", "20")),
            count=int(options.get("count", "200")),
            seed=int(options.get("seed", "1")),
            database=options.get("database", ""),
        )
        print(json.dumps(dataclasses.asdict(report), indent=1))
        if options.get("log"):
            print(Path(where, "appliance.log").read_text()[-4000:])
