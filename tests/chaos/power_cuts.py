"""Cuts the power a thousand times, or kills PostgreSQL: everything that was acknowledged is there afterwards.

.venv/bin/python -m tests.chaos.power_cuts --results FILE [--batches 4] [--cuts 250] [--seed 1] [--database postgresql]

On SQLite, a batch traces the system calls of an appliance (`strace`) while clients write.  At so many calls, by lot, it
makes the data folder as a power cut would have left it (`disk_trace.py`), opens it with the code of the appliance, and looks for
all whose response had begun to be sent by then; on each fiftieth, the whole appliance starts and finishes all executions.

On PostgreSQL, a batch kills the server, all its processes at once, so many times under load, starts it again, and looks in the end.
A line of FILE keeps the figures of a batch; those that it has are not run again.  Ends with 1 if anything is lost or damaged.
`--control syncs` and `--control folders` take a defence away on SQLite, `--control commits` on PostgreSQL.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from appliance.app.store import open_store
from appliance.core.config import load_config
from appliance.core.database import db
from appliance.monitor import audit
from appliance.tenants import service
from tests.readiness import wait_ready
from tests.store.cluster import SAFE, Cluster, running_cluster

from .batches import Batches, commit
from .disk_trace import TRACE, Call, Disk, read_trace
from .full_disk import check_database
from .harness import ROOT, Chaos
from .ledger import Acknowledged, Ledger, find_damage, find_losses, find_unfinished, publish, read_content

LARGEST = 20_000
LOAD_SECONDS = 20.0
FULL_START_EVERY = 50
REQUEST_ID = b"req-"


@dataclass
class Report:
    """The figures of a batch: `checked` is how many acknowledgements were looked for, over all cuts."""

    seed: int
    database: str
    commit: str
    control: str = "none"
    cuts: int = 0
    full_starts: int = 0
    acknowledged: int = 0
    checked: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    cuts_with_losses: int = 0
    losses: list[str] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not any((self.losses, self.damage, self.unfinished, self.problems))


# -- SQLite


class TracedChaos(Chaos):
    """An appliance whose system calls are traced."""

    def start(self) -> None:
        shell = "import sys; from tests.chaos.launcher import launch; sys.exit(launch(sys.argv[1], sys.argv[2:]))"
        line: list[str | Path] = [*TRACE, "-o", self.trace, sys.executable, "-c", shell]
        line += [self.control, "--data", self.folder, "serve"]
        with (self.folder.parent / "appliance.log").open("ab") as log:
            self._traced = subprocess.Popen(line, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
        wait_ready(self.port, seconds=240, check=self._is_running)

    @property
    def trace(self) -> Path:
        return self.folder.parent / "trace"

    def _is_running(self) -> bool:
        if self._traced.poll() is not None:
            raise AssertionError((self.folder.parent / "appliance.log").read_text()[-3000:])
        return True

    def kill(self) -> None:
        """End the traced processes, and the tracer with them."""
        os.killpg(self._traced.pid, signal.SIGKILL)
        self._traced.wait()


def run_sqlite(report: Report, cuts: int) -> None:
    """Trace an appliance under load, then cut the power at calls of the trace."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:  # noqa: S108
        data = Path(name, "data")
        data.mkdir()
        chaos = TracedChaos(data, report.control, report.seed, worker=False)
        chaos.prepare()
        before = Path(name, "before")
        shutil.copytree(data, before)
        ledger = Ledger(chaos.client, report.seed, ("overloaded",), largest=LARGEST)
        chaos.start()
        try:
            with chaos.client() as client:
                publish(client)
            ledger.start()
            time.sleep(LOAD_SECONDS)  # the load itself
            ledger.stop()
        finally:
            chaos.kill()
        report.statuses, report.acknowledged = dict(ledger.statuses), ledger.acknowledged.total
        report.problems += ledger.unexpected
        shutil.rmtree(data)
        shutil.copytree(before, data)
        Cuts(chaos, ledger, report, Path(name, "image")).run(cuts)


class Cuts:
    """Replays a trace, and checks what each cut leaves."""

    def __init__(self, chaos: TracedChaos, ledger: Ledger, report: Report, image: Path) -> None:
        self._chaos, self._ledger, self._report, self._image = chaos, ledger, report, image
        self._random = random.Random(report.seed)  # noqa: S311
        self._acknowledged = Acknowledged()

    def run(self, cuts: int) -> None:
        first = count = 0
        for count, (kind, call) in enumerate(read_trace(self._chaos.trace)):
            first = first or (count if kind == "begin" and self._responses(call) else 0)
        instants = set(self._random.sample(range(first, count), cuts))
        disk = Disk(self._chaos.folder)
        for number, (kind, call) in enumerate(read_trace(self._chaos.trace)):
            if number in instants:
                self._cut(disk)
            if kind == "begin":
                disk.begin(call)
                for request in self._responses(call):
                    self._ledger.acknowledge(request, self._acknowledged)
            else:
                disk.end(call)

    def _responses(self, call: Call) -> list[str]:
        """The requests whose success a call begins to answer."""
        if call.name not in ("write", "writev", "sendto", "sendmsg") or not call.path.startswith(("socket", "TCP")):
            return []
        data = b"".join(call.strings)
        if not data.startswith(b"HTTP/1.1 2") or REQUEST_ID not in data:
            return []
        return [data.partition(REQUEST_ID)[2].partition(b"\r")[0].decode()]

    def _cut(self, disk: Disk) -> None:
        """One power cut; the image is opened as the next start would."""
        report = self._report
        disk.cut(self._image, self._random)
        try:
            losses, damage = self._open()
            report.losses += losses[:5]
            report.damage += damage[:5]
            report.cuts_with_losses += bool(losses)
            report.cuts += 1
            report.checked += self._acknowledged.total
            if report.cuts % FULL_START_EVERY == 0:
                self._start()
        except Exception as error:  # noqa: BLE001  a folder that cannot be opened is a result
            report.problems.append(f"cut {report.cuts}: {type(error).__name__}: {error}"[:500])
            report.cuts += 1
        finally:
            shutil.rmtree(self._image)

    def _open(self) -> tuple[list[str], list[str]]:
        config = load_config(self._chaos.folder / "config.yaml", environment={}, flags={"storage.data": str(self._image)})
        open_store(config)
        try:
            content = read_content(db.rows)
            damage = find_damage(content, self._image / "blobs")
            damage += [f"{sql}: {rows}" for sql, rows in _inspect().items() if rows]
            if not (verdict := audit.verify(service.system_scope("acme"))).intact:
                damage.append(f"audit: {verdict}")
            return find_losses(self._acknowledged, content, self._image / "blobs"), damage
        finally:
            db.close_database()

    def _start(self) -> None:
        """The whole appliance starts, and finishes every execution."""
        chaos = Chaos(self._image, "none", 1, worker=False)
        chaos.start()
        try:
            everything = {row[0] for row in chaos._rows("SELECT id FROM execution")}
            chaos._wait_finished(everything)
            content = read_content(chaos._rows)
            self._report.unfinished += find_unfinished(self._acknowledged, content)
            self._report.full_starts += 1
        finally:
            chaos.kill()


def _inspect() -> dict[str, list[tuple[object, ...]]]:
    """What SQLite itself finds wrong."""
    checks = {sql: db.rows(sql) for sql in ("PRAGMA integrity_check", "PRAGMA foreign_key_check")}
    return {sql: [row for row in rows if row != ("ok",)] for sql, rows in checks.items()}


# -- PostgreSQL


@contextmanager
def server(control: str) -> Iterator[Cluster]:
    """A server that syncs; beside an appliance that does not wait for that, it does so every two seconds only."""
    with running_cluster((*SAFE, "wal_writer_delay=2s") if control == "commits" else SAFE) as cluster:
        yield cluster


def run_postgresql(report: Report, cuts: int) -> None:
    """Kill the server under load, again and again."""
    chance = random.Random(report.seed)  # noqa: S311
    with server(report.control) as cluster, tempfile.TemporaryDirectory() as folder:
        chaos = Chaos(Path(folder), report.control, report.seed, cluster.make_database(), worker=False)
        chaos.prepare()
        chaos.start()
        excused = ("overloaded", "outcome_unknown", "idempotency_in_progress")
        ledger = Ledger(chaos.client, report.seed, excused, may_break=True, largest=LARGEST)
        try:
            with chaos.client() as client:
                publish(client)
            ledger.start()
            for _ in range(cuts):
                before = ledger.acknowledged.total
                while ledger.acknowledged.total < before + 5:
                    time.sleep(0.005)  # until something was acknowledged that can be lost
                time.sleep(chance.uniform(0, 0.2))  # the instant of the kill, by lot: the experiment itself
                cluster.kill()
                cluster.start()
                report.cuts += 1
            ledger.stop()
            acknowledged = ledger.acknowledged
            chaos._wait_finished(set(acknowledged.executions), 120)
            content = read_content(chaos._rows)
            report.statuses, report.acknowledged = dict(ledger.statuses), acknowledged.total
            report.checked = acknowledged.total
            report.problems = [each + _log_of(chaos.folder, each) for each in ledger.unexpected] + check_database(chaos)
            report.losses = find_losses(acknowledged, content, chaos.folder / "blobs")
            report.damage = find_damage(content, chaos.folder / "blobs")
            report.unfinished = find_unfinished(acknowledged, content)
        finally:
            chaos.stop()


def _log_of(folder: Path, answer: str) -> str:
    """What the appliance logged about the request that got this answer."""
    request_id = answer.partition('"request_id": "')[2].partition('"')[0]
    return "".join(f"\n{line}" for line in (folder / "appliance.log").read_text().splitlines() if request_id and request_id in line)


def run_batch(args: argparse.Namespace) -> dict[str, object]:
    report = Report(args.seed, args.database or "sqlite", commit(), args.control)
    (run_postgresql if args.database else run_sqlite)(report, args.cuts)
    return {**asdict(report), "holds": report.holds}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    batches = Batches(parser, "tests.chaos.power_cuts", batches=4)
    parser.add_argument("--cuts", type=int, default=250)
    parser.add_argument("--database", choices=["", "postgresql"], default="")
    parser.add_argument("--control", choices=["none", "syncs", "folders", "commits"], default="none")
    return batches.run(run_batch)


if __name__ == "__main__":
    sys.exit(main())
