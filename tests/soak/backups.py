"""Makes backups under load: how long writes wait because of them, and whether what is restored, or imported, is what there was.

.venv/bin/python -m tests.soak.backups --results FILE [--batches 3] [--rounds 3] [--seed 1] [--database postgresql]

A batch fills an appliance's data, and lets three threads write without a pause: rows with consecutive numbers, and documents.  In
each round they write as long without a backup as beside one.  The stall is by how much the longest wait of a write beside the
backup exceeds the longest without; a batch holds when the median of its rounds is below 100 ms.

Every backup is restored into new data: it has to have all that was acknowledged when it began, no gap in the numbers, and each
document's content.  The last one, made without load, and the export of a tenant have to give the same rows, by count and sha256 of
each table.  A line of FILE keeps the figures of a batch; those that it has are not run again.  `--control lock` makes the backups
while long writes hold the database.
"""

import argparse
import hashlib
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from appliance.backups.creation import Backup
from appliance.core.database import db
from appliance.documents import service as documents
from appliance.documents.models import DocumentRow
from appliance.tenants import service
from tests.backups.conftest import World, digests, make_world, restore
from tests.backups.test_transfer import export, import_copy, tenant_rows
from tests.chaos.batches import Batches, commit
from tests.store.cluster import SAFE, Cluster, running_cluster

ROWS, TEXT_BYTES, STORED = 60_000, 1_000, 100
QUIET_SECONDS, MOST_STALL, LOCK_SECONDS = 5.0, 0.1, 0.5
TENANT = "initech"
_INSERT = "INSERT INTO log_line (tenant_id, at, level, source, message, fields) VALUES (?, ?, 20, 'soak', ?, '{}')"


@dataclass
class Report:
    """The figures of a batch, in milliseconds by round; `checked` rows and documents that were acknowledged before a backup."""

    seed: int
    database: str
    commit: str
    control: str = "none"
    load: float = 0.0
    backup_mb: float = 0.0
    backup_seconds: list[float] = field(default_factory=list)
    writes: int = 0
    quiet_p99: list[float] = field(default_factory=list)
    backup_p99: list[float] = field(default_factory=list)
    quiet_longest: list[float] = field(default_factory=list)
    backup_longest: list[float] = field(default_factory=list)
    stalls: list[float] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not self.problems and bool(self.stalls) and statistics.median(self.stalls) < MOST_STALL * 1000


@dataclass
class State:
    """What was acknowledged when a backup began: the last number of each thread, and the documents."""

    numbers: dict[int, int]
    documents: dict[str, str]


class Writers:
    """Threads that write without a pause, and note how long each write took."""

    def __init__(self, world: World, seed: int) -> None:
        self._world, self._random = world, random.Random(seed)  # noqa: S311
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(n,)) for n in (1, 2)] + [threading.Thread(target=self._upload)]
        self.waits: list[tuple[float, float]] = []
        self.state = State({1: 0, 2: 0}, {})

    def copy_state(self) -> State:
        return State(dict(self.state.numbers), dict(self.state.documents))

    @contextmanager
    def running(self) -> Iterator[None]:
        for each in self._threads:
            each.start()
        try:
            yield
        finally:
            self._stopping.set()
            for each in self._threads:
                each.join()

    def _timed(self, write: Callable[[], Any]) -> Any:
        began = time.monotonic()
        result = write()
        self.waits.append((began, time.monotonic() - began))
        return result

    def _write(self, thread: int) -> None:
        while not self._stopping.is_set():
            number = self.state.numbers[thread] + 1
            self._timed(partial(db.write, partial(db.execute, _INSERT, ("hooli", thread, str(number)))))
            self.state.numbers[thread] = number

    def _upload(self) -> None:
        scope, store = service.system_scope(TENANT), documents.Documents(self._world.incoming)
        while not self._stopping.wait(0.05):
            content = self._random.randbytes(50_000)
            blob = self._world.blobs.put(scope, content)
            new = self._timed(partial(store.create_document, scope, documents.NewDocument("soak.bin"), blob))
            self.state.documents[new.id] = hashlib.sha256(content).hexdigest()


def fill(world: World, seed: int) -> None:
    """A database of some size, and contents."""
    scope, chance = world.fill(), random.Random(seed)  # noqa: S311
    for start in range(0, ROWS, 1000):
        db.write(partial(_insert_many, [chance.randbytes(TEXT_BYTES // 2).hex() for _ in range(start, start + 1000)]))
    for _ in range(STORED):
        blob = world.blobs.put(scope, chance.randbytes(100_000))
        documents.Documents(world.incoming).create_document(scope, documents.NewDocument("filler.bin"), blob)


def _insert_many(texts: list[str]) -> None:
    for text in texts:
        db.execute(_INSERT, ("hooli", 0, text))


@contextmanager
def _lock(control: str) -> Iterator[None]:
    """With the control, writes of LOCK_SECONDS follow each other until the block ends: a backup writes, too, in between."""
    if control != "lock":
        yield
        return
    done = threading.Event()

    def hold() -> None:
        while not done.is_set():
            db.write(lambda: db.execute(_INSERT, ("hooli", 0, "held")) and done.wait(LOCK_SECONDS))

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        yield
    finally:
        done.set()
        holder.join()


def measure(world: World, writers: Writers, report: Report, folder: Path, rounds: int) -> list[tuple[Backup, State]]:
    """Backups under load, with what was acknowledged before each."""
    backups, seconds = [], QUIET_SECONDS
    with writers.running():
        for number in range(rounds):
            quiet_from = time.monotonic()
            time.sleep(seconds)  # the load without a backup
            state, began = writers.copy_state(), time.monotonic()
            with _lock(report.control):
                backup = world.backup(folder / f"round{number}.gosb")
            ended = time.monotonic()
            backups.append((backup, state))
            seconds = max(QUIET_SECONDS, ended - began)
            report.backup_seconds.append(round(ended - began, 2))
            report.backup_mb = round(backup.size / (1 << 20), 1)
            waits = list(writers.waits)
            quiet = sorted(wait for at, wait in waits if quiet_from <= at and at + wait < began)
            busy = sorted(wait for at, wait in waits if at + wait >= began and at < ended)
            for name, times in (("quiet", quiet), ("backup", busy)):
                getattr(report, f"{name}_p99").append(round(times[int(len(times) * 0.99)] * 1000, 1))
                getattr(report, f"{name}_longest").append(round(times[-1] * 1000, 1))
            report.stalls.append(round((busy[-1] - quiet[-1]) * 1000, 1))
    report.writes = len(writers.waits)
    return backups


def check_restored(world: World, state: State, report: Report) -> None:
    """Inside the restored data: all that was acknowledged before the backup began, and no gap."""
    for thread, acknowledged in state.numbers.items():
        sql = "SELECT message FROM log_line WHERE tenant_id = 'hooli' AND source = 'soak' AND at = ?"
        numbers = {int(message) for (message,) in db.rows(sql, (thread,))}
        if numbers != set(range(1, len(numbers) + 1)) or len(numbers) < acknowledged:
            report.problems.append(f"thread {thread}: {len(numbers)} numbers up to {max(numbers)}, {acknowledged} acknowledged")
        report.checked["rows"] = report.checked.get("rows", 0) + acknowledged
    scope = service.system_scope(TENANT)
    rows = {row.id: row.sha256 for row in scope.select(DocumentRow)}
    report.problems += [f"document {each} is missing" for each in state.documents if each not in rows]
    for each, digest in rows.items():
        content = hashlib.sha256(b"".join(world.blobs.read_checked(scope, digest))).hexdigest()
        if content != state.documents.get(each, content):
            report.problems.append(f"document {each} has other content")
    report.checked["documents"] = report.checked.get("documents", 0) + len(state.documents)


def run(report: Report, rounds: int, folder: Path, cluster: Cluster | None) -> None:
    """All of a batch."""

    def new_world(name: str) -> World:
        return make_world(folder / name, cluster.make_database() if cluster else "")

    source = new_world("data")
    with source.opened():
        fill(source, report.seed)
        backups = measure(source, Writers(source, report.seed), report, folder, rounds)
        report.load = round(os.getloadavg()[0], 1)
        whole, rows = digests(), tenant_rows(TENANT)
        last = source.backup(folder / "last.gosb")
        exported = export(source, service.system_scope(TENANT), folder / "tenant.gost")
    for number, (backup, state) in enumerate(backups):
        target = new_world(f"restored{number}")
        if restore(backup.path, target).manifest["tables"] != backup.tables:
            report.problems.append(f"round {number}: other counts than in the backup")
        with target.opened():
            check_restored(target, state, report)
    target = new_world("last")
    restore(last.path, target)
    with target.opened():
        again = digests()
        report.problems += [f"the restored table {each} differs" for each in whole | again if again.get(each) != whole.get(each)]
        report.checked["tables restored"] = len(whole)
    target = new_world("imported")
    with target.opened() as sealer:
        import_copy(target, sealer, exported)
        imported = tenant_rows(TENANT)
        differing = [each for each in rows | imported if imported.get(each) != rows.get(each)]
        report.problems += [f"the imported tenant's {each} differs" for each in differing]
        report.checked["tables imported"] = len(rows)


def run_batch(args: argparse.Namespace) -> dict[str, object]:
    report = Report(args.seed, args.database or "sqlite", commit(), args.control)
    with ExitStack() as stack:
        cluster = stack.enter_context(running_cluster(SAFE)) if args.database else None
        run(report, args.rounds, Path(stack.enter_context(tempfile.TemporaryDirectory())), cluster)
    return {**asdict(report), "holds": report.holds}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    batches = Batches(parser, "tests.soak.backups", batches=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--database", choices=["", "postgresql"], default="")
    parser.add_argument("--control", choices=["none", "lock"], default="none")
    return batches.run(run_batch)


if __name__ == "__main__":
    sys.exit(main())
