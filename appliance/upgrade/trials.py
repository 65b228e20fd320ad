"""Upgrades a copy of the database, and proves the result: compared, verified, and started cut off from everything."""

import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from appliance import migrations
from appliance.backups.copying import FileSource
from appliance.backups.creation import OPEN_FILES, files_of
from appliance.backups.rehearsal import ask, running_server
from appliance.blobs import read_installation, sample_contents, stored_sizes
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.crypto import KEY_FILE
from appliance.core.database import db
from appliance.core.errors import ApplianceError
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import verify_trails

from .checks import failing_as, opened_database
from .counts import Counts, compare_counts, count_rows, describe_counts
from .options import UpgradeOptions
from .problems import UpgradeFailed

SAMPLE, LARGEST = 200, 64 << 20
DATABASE = "gos.db"


@dataclass(frozen=True)
class Trial:
    """What a copy went through: its migrations, its rows, the times, and problems that no upgrade causes."""

    migrations: tuple[str, ...]
    rows: int
    migrate_ms: int
    start_ms: int
    total_ms: int
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Candidate:
    """A copy of the database in a temporary folder, which is thrown away; `is_live` while the appliance runs."""

    config: Config
    file: Path
    room: Path
    is_live: bool


def try_out(candidate: Candidate, options: UpgradeOptions) -> Trial:
    """Migrate the copy, then check all of it.  UpgradeFailed says what is wrong."""
    first = clock.monotonic()
    before, start = _count_file(candidate.file), clock.monotonic()
    with failing_as(Sentence("the migrations of a copy failed")):
        names = _migrate(candidate.file)
    migrate_ms = _elapsed(start)
    options.report("migrate", f"{len(names)} migrations of a copy took {migrate_ms / 1000:.1f} s")
    with failing_as(Sentence("the copy is not intact after the migrations")):
        counts = _check_file(candidate.file, before)
        problems = tuple(_check_store(candidate, options))
    options.report("compare", f"{describe_counts(counts)}, none lost; {len(problems)} problems with contents and audit trails")
    with failing_as(Sentence("this release does not start on the copy")):
        start_ms = _start(candidate)
    options.report("start", f"this release answered on a copy after {start_ms / 1000:.1f} s, cut off from everything")
    return Trial(
        tuple(names), sum(counts.values()), migrate_ms=migrate_ms, start_ms=start_ms, total_ms=_elapsed(first), problems=problems
    )


def _elapsed(start: float) -> int:
    return round((clock.monotonic() - start) * 1000)


def _migrate(file: Path) -> list[str]:
    """Migrate a copy, which is one file without a log afterwards."""
    db.open_database(f"sqlite:///{file}")
    try:
        names = migrations.migrate()
    finally:
        db.close_database()
    merge_log(file)
    return names


def merge_log(file: Path) -> None:
    """Move the write-ahead log of a closed SQLite file into it."""
    with closing(sqlite3.connect(file, isolation_level=None)) as own:
        own.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _count_file(file: Path) -> Counts:
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as own:
        return count_rows(FileSource(own.execute))


def _check_file(file: Path, before: Counts) -> Counts:
    """UpgradeFailed unless the file is intact, every foreign key has its row, and no row is missing; returns the counts."""
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as own:
        result = own.execute("PRAGMA integrity_check").fetchone()[0]
        if result != "ok":
            raise UpgradeFailed(
                Sentence("SQLite reports the copy as damaged after the migrations (%(result)s)", result=result[:200])
            )
        if lost := own.execute("PRAGMA foreign_key_check").fetchone():
            raise UpgradeFailed(Sentence("a row of %(table)s refers to a missing row after the migrations", table=lost[0]))
        source = FileSource(own.execute)
        after = count_rows(source)
        compare_counts(before, after, set(source.tables()))
    return after


def _check_store(candidate: Candidate, options: UpgradeOptions) -> list[str]:
    """Verify every audit trail and some contents, with this release; returns a sentence for each problem."""
    config = candidate.config
    places = options.places_of(config, read_installation(config) or "")
    db.open_database(f"sqlite:///{candidate.file}")
    try:
        broken = [tenant_id for tenant_id, status in verify_trails() if not status.intact]
        damaged = []
        for tenant_id, content in sample_contents(places, SAMPLE, LARGEST):
            try:
                for _ in content.pieces():
                    pass
            except ApplianceError:
                damaged.append((tenant_id, content.sha256))
    finally:
        db.close_database()
    merge_log(candidate.file)
    problems = [f"the audit trail of the tenant {each} is broken: see `gos audit verify`" for each in broken]
    if candidate.is_live and damaged:
        damaged = _still_stored(config, damaged)
    return problems + [f"a content of the tenant {each} is damaged or missing (sha256 {sha256})" for each, sha256 in damaged]


def _still_stored(config: Config, contents: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Those contents that the running appliance has not deleted since the copy was made."""
    with opened_database(config):
        return [(tenant_id, each) for tenant_id, each in contents if stored_sizes(TenantScope(tenant_id, "system"), [each])]


def _start(candidate: Candidate) -> int:
    """Start this release on the candidate, which is changed by that, and ask it; returns how many milliseconds it took.

    What is started does nothing to the outside.
    """
    config, data = candidate.config, candidate.room / "data"
    data.mkdir(mode=0o700)
    names = (*OPEN_FILES, *((KEY_FILE,) if config.master_key.source == "file" else ()))
    for path in files_of(config.data, names):
        target = data / path.relative_to(config.data)
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.copy2(path, target)
    candidate.file.rename(data / DATABASE)
    start = clock.monotonic()
    try:
        with running_server(config, data, candidate.room) as address:
            elapsed = _elapsed(start)
            status, _ = ask(f"{address}/console/sign-in")
        if status != 200:
            raise UpgradeFailed(Sentence("this release answers its sign-in page with %(status)s on the copy", status=status))
    finally:
        shutil.rmtree(data, ignore_errors=True)
    return elapsed
