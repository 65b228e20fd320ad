"""Upgrades a copy of the database, and proves the result: compared, verified, and started cut off from everything."""

import shutil
from dataclasses import dataclass

from appliance.backups.creation import OPEN_FILES, files_of
from appliance.backups.rehearsal import ask, running_server
from appliance.blobs import read_installation, sample_contents, stored_sizes
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.crypto import KEY_FILE
from appliance.core.errors import ApplianceError
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import verify_trails

from .candidates import Candidate
from .checks import failing_as, opened_database
from .counts import describe_counts
from .options import UpgradeOptions
from .problems import UpgradeFailed

SAMPLE, LARGEST = 200, 64 << 20


@dataclass(frozen=True)
class Trial:
    """What a copy went through: its migrations, its rows, the times, and problems that no upgrade causes."""

    migrations: tuple[str, ...]
    rows: int
    migrate_ms: int
    start_ms: int
    total_ms: int
    problems: tuple[str, ...]


def try_out(candidate: Candidate, options: UpgradeOptions) -> Trial:
    """Migrate the copy, then check all of it.  UpgradeFailed says what is wrong."""
    first = clock.monotonic()
    before, start = candidate.count(), clock.monotonic()
    with failing_as(Sentence("the migrations of a copy failed")):
        names = candidate.migrate()
    migrate_ms = _elapsed(start)
    options.report("migrate", f"{len(names)} migrations of a copy took {migrate_ms / 1000:.1f} s")
    with failing_as(Sentence("the copy is not intact after the migrations")):
        counts = candidate.check(before)
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


def _check_store(candidate: Candidate, options: UpgradeOptions) -> list[str]:
    """Verify every audit trail and some contents, with this release; returns a sentence for each problem."""
    config = candidate.config
    places = options.places_of(config, read_installation(config) or "")
    with candidate.opened():
        broken = [tenant_id for tenant_id, status in verify_trails() if not status.intact]
        damaged = []
        for tenant_id, content in sample_contents(places, SAMPLE, LARGEST):
            try:
                for _ in content.pieces():
                    pass
            except ApplianceError:
                damaged.append((tenant_id, content.sha256))
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
    database = candidate.place(data)
    start = clock.monotonic()
    try:
        with running_server(config, data, candidate.room, database) as address:
            elapsed = _elapsed(start)
            status, _ = ask(f"{address}/console/sign-in")
        if status != 200:
            raise UpgradeFailed(Sentence("this release answers its sign-in page with %(status)s on the copy", status=status))
    finally:
        shutil.rmtree(data, ignore_errors=True)
    return elapsed
