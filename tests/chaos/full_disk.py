"""Fills the disk again and again under load: reads go on, writes are refused with 507, and all goes on once there is space.

.venv/bin/python -m tests.chaos.full_disk --results FILE [--batches 10] [--rounds 10] [--seed 1] [--database tables|server]

A batch has an appliance whose data folder is on a tmpfs of its own.  In each of its rounds, a file fills that disk to the last byte
or nearly so, until forty writes have been refused, and is then deleted.  `--database tables` puts the tables of a PostgreSQL server
on the small disk, `--database server` all of the server, which then ends for want of space and is started again, as a supervisor
would.  A line of FILE keeps the figures of a batch; those that it has are not run again.  Ends with 1 if anything that was
acknowledged is missing, a file is incomplete, a read fails, a write is refused otherwise, or the appliance does not recover by
itself.

Mounting needs root; without, SQLite's run starts in a namespace of its own: `unshare --user --map-root-user --mount` before the
command.  `--control full` and `--control room` take a defence away.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.store.cluster import SAFE, Cluster, running_cluster

from .batches import Batches, commit
from .harness import Chaos
from .ledger import Ledger, find_damage, find_losses, find_unfinished, publish, read_content

SIZE_MB = 512
REFUSALS, ACKNOWLEDGEMENTS = 40, 30
PATIENCE_SECONDS = 60.0
SPARE = (0, 0, 0, 4096, 65_536, 1 << 20)
"""Bytes that are left free at first, by lot: more than a page, or a write, or an upload needs, or less."""


@dataclass
class Report:
    """The figures of a batch; `recovery_s` are the seconds from free space to the first acknowledged write of each round."""

    seed: int
    database: str
    commit: str
    control: str = "none"
    rounds: int = 0
    acknowledged: dict[str, int] = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)
    reads: int = 0
    recovery_s: list[float] = field(default_factory=list)
    restarts: int = 0
    failed_reads: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not any((self.failed_reads, self.unexpected, self.losses, self.damage, self.unfinished, self.problems))


@contextmanager
def small_disk(folder: Path, megabytes: int = SIZE_MB) -> Iterator[Path]:
    """A disk of that size at `folder`."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=755", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


class Ballast:
    """A file that fills a disk."""

    def __init__(self, disk: Path) -> None:
        self._disk, self._path = disk, disk / "ballast"

    def fill(self, spare: int = 0) -> None:
        """Take all that is free but `spare` bytes; again and again, it takes what was freed meanwhile."""
        with self._path.open("ab") as file:
            free = os.statvfs(self._disk)
            size = free.f_bavail * free.f_frsize - spare
            with suppress(OSError):  # somebody else was quicker
                if size > 0:
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), size)

    def remove(self) -> None:
        self._path.unlink()


class Reader:
    """Reads what was acknowledged, all the time."""

    def __init__(self, chaos: Chaos, ledger: Ledger, report: Report) -> None:
        self._chaos, self._ledger, self._report = chaos, ledger, report
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.may_fail = False

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        chance = random.Random(1)  # noqa: S311
        with self._chaos.client() as client:
            while not self._stopping.wait(0.02):
                paths = ["/api/v1/executions?limit=20", "/api/v1/datapool/marks/entities?limit=20", "/api/v1/documents?limit=20"]
                documents = list(self._ledger.acknowledged.documents)
                path = chance.choice([*paths, *(f"/api/v1/documents/{each}/content" for each in documents[-3:])])
                response = client.get(path)
                self._report.reads += 1
                if response.status_code != 200 and not self.may_fail:
                    self._report.failed_reads.append(f"{path}: {response.status_code} {response.text[:200]}")


class Experiment:
    """One appliance whose disk is filled round after round."""

    def __init__(self, chaos: Chaos, disk: Path, report: Report, cluster: Cluster | None) -> None:
        self.chaos, self.report, self._cluster = chaos, report, cluster
        self._ballast, self._random = Ballast(disk), random.Random(report.seed)  # noqa: S311
        excused = ("storage_full", "overloaded") if cluster else ("storage_full",)
        self._ledger = Ledger(chaos.client, report.seed, excused)
        self._reader = Reader(chaos, self._ledger, report)
        self._reader.may_fail = cluster is not None

    def run(self, rounds: int) -> None:
        """All rounds, and the check of what they leave."""
        with self.chaos.client() as client:
            publish(client)
        self._ledger.start()
        self._reader.start()
        try:
            for _ in range(rounds):
                if not self._run_round():
                    break
                self.report.rounds += 1
        finally:
            self._ledger.stop()
            self._reader.stop()
        self._check()

    def _run_round(self) -> bool:
        """Whether the appliance recovered."""
        acknowledged, refused = self._acknowledged(), self._refused()
        if not self._wait(lambda: self._acknowledged() > acknowledged + ACKNOWLEDGEMENTS, "nothing is written"):
            return False
        self._ballast.fill(self._random.choice(SPARE))
        time.sleep(self._random.uniform(0, 0.3))  # how long little space is left: the experiment itself
        if not self._wait(self._is_refusing(refused), "writes are not refused"):
            return False
        if self._cluster is None and not self._wait(self._is_full, "/readyz does not say that the disk is full"):
            return False
        self._ballast.remove()
        began, acknowledged = time.monotonic(), self._acknowledged()
        if not self._wait(lambda: self._is_ready() and self._acknowledged() > acknowledged, "no recovery"):
            return False
        self.report.recovery_s.append(round(time.monotonic() - began, 2))
        return True

    def _is_refusing(self, before: int) -> Callable[[], bool]:
        def look() -> bool:
            self._ballast.fill()
            return self._refused() >= before + REFUSALS

        return look

    def _wait(self, condition: Callable[[], bool], problem: str) -> bool:
        ends = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if time.monotonic() > ends:
                self.report.problems.append(f"round {self.report.rounds}: {problem} after {PATIENCE_SECONDS:.0f} s")
                return False
            self._supervise()
            time.sleep(0.01)  # between two looks
        return True

    def _supervise(self) -> None:
        """Start the server of the database again when it has ended."""
        if self._cluster is not None and not self._cluster.is_running():
            with suppress(RuntimeError):  # there is no space yet
                self._cluster.start()
                self.report.restarts += 1

    def _acknowledged(self) -> int:
        return self._ledger.acknowledged.total

    def _refused(self) -> int:
        codes = ("507 storage_full", "503 overloaded") if self._cluster else ("507 storage_full",)
        return sum(map(self._ledger.count, codes))

    def _is_ready(self) -> bool:
        with self.chaos.client() as client:
            return client.get("/readyz").status_code == 200

    def _is_full(self) -> bool:
        self._ballast.fill()
        with self.chaos.client() as client:
            response = client.get("/readyz")
        return (response.status_code, response.json()["status"]) == (503, "storage_full")

    def _check(self) -> None:
        acknowledged, blobs = self._ledger.acknowledged, self.chaos.folder / "blobs"
        self.chaos._wait_finished(set(acknowledged.executions), PATIENCE_SECONDS)
        content = read_content(self.chaos._rows)
        self.report.statuses = dict(sorted(self._ledger.statuses.items()))
        self.report.acknowledged = {
            "executions": len(acknowledged.executions), "documents": len(acknowledged.documents),
            "entities": len(acknowledged.entities), "changes": sum(acknowledged.changes.values()),
        }  # fmt: skip
        self.report.unexpected = self._ledger.unexpected
        self.report.losses = find_losses(acknowledged, content, blobs)
        self.report.damage = find_damage(content, blobs)
        self.report.unfinished = find_unfinished(acknowledged, content)
        leftovers = [each.name for each in (blobs / "incoming").iterdir()]
        self.report.problems += [f"left over: {each}" for each in leftovers]
        if any(each.poll() is not None for each in self.chaos._processes):
            self.report.problems.append("a process of the appliance has ended")
        self.report.problems += check_database(self.chaos)


def check_database(chaos: Chaos) -> list[str]:
    """What is wrong with the history's hashes, or with the file of SQLite."""
    with chaos.client() as client:
        verdict = client.get("/api/v1/logs/audit/verify").raise_for_status().json()["data"]
    problems = [] if verdict["intact"] else [f"audit: {verdict}"]
    if not chaos.database and (rows := chaos._rows("PRAGMA integrity_check")) != [("ok",)]:
        problems.append(f"integrity_check: {rows}")
    return problems


def run_batch(seed: int, database: str, control: str, rounds: int) -> Report:
    """One appliance, with all of its rounds."""
    report = Report(seed, database or "sqlite", commit(), control)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        data, url, cluster = folder / "data", "", None
        if database:
            data.mkdir()
            disk, url, cluster = stack.enter_context(_small_server(whole=database == "server"))
        else:
            disk = stack.enter_context(small_disk(data))
        (data / "appliance.log").symlink_to(folder / "appliance.log")
        chaos = Chaos(data, control, seed, url, worker=False)
        chaos.prepare()
        chaos.start()
        try:
            Experiment(chaos, disk, report, cluster if database == "server" else None).run(rounds)
        finally:
            chaos.stop()
            if not report.holds:
                print((folder / "appliance.log").read_text()[-4000:], file=sys.stderr)
    return report


@contextmanager
def _small_server(*, whole: bool) -> Iterator[tuple[Path, str, Cluster]]:
    """A PostgreSQL server on a small disk, or only the tables of a database: the disk, the URL and the server."""
    if whole:
        with tempfile.TemporaryDirectory(prefix="gos-pg-") as name, small_disk(Path(name)) as disk:
            cluster = Cluster(disk, SAFE)
            cluster.start()
            try:
                yield disk, cluster.make_database(), cluster
            finally:
                cluster.stop()
        return
    with tempfile.TemporaryDirectory(prefix="gos-pg-") as name, small_disk(Path(name)) as disk, running_cluster(SAFE) as cluster:
        tables = disk / "tables"
        tables.mkdir(mode=0o700)
        shutil.chown(tables, "nobody")
        cluster.execute(f"CREATE TABLESPACE small LOCATION '{tables}'")
        yield disk, cluster.make_database("TABLESPACE small"), cluster


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    batches = Batches(parser, "tests.chaos.full_disk", batches=10)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--database", choices=["", "tables", "server"], default="")
    parser.add_argument("--control", choices=["none", "full", "room"], default="none")
    return batches.run(lambda args: asdict_with(run_batch(args.seed, args.database, args.control, args.rounds)))


def asdict_with(report: Report) -> dict[str, object]:
    return {**asdict(report), "holds": report.holds}


if __name__ == "__main__":
    sys.exit(main())
