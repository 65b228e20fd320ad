"""Database rows of rehearsals.  Every function but the readers runs inside an exclusive write.

A row is `running` from the request on, without an owner until a process with workers claims it; at most one is.
"""

from dataclasses import dataclass

from appliance.backups.backup_jobs import this_machine
from appliance.backups.models import BackupRehearsalRow
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import Conflict
from appliance.core.leases import Lease, LeaseTable

from .results import RehearsalResult

REMEMBERED = 20
LEASE_MS = 60_000
LEASES = LeaseTable(
    BackupRehearsalRow, ("number",), lease="lease_until", owner="owner", fence="fence", running="state = 'running'",
    on_claim="claims = claims + 1",
)  # fmt: skip


@dataclass(frozen=True)
class Rehearsal:
    """A rehearsal; `result` is None while it is running and when it failed, for the reason `problem`."""

    number: int
    source: str
    machine: str
    started_at: int
    is_running: bool
    result: RehearsalResult | None
    problem: str | None


@dataclass(frozen=True)
class Claim:
    """The right to make a rehearsal until another process claims it; `claims` counts those since it was last left."""

    number: int
    fence: int
    claims: int

    @property
    def id(self) -> str:
        return str(self.number)

    @property
    def key(self) -> tuple[int]:
        return (self.number,)


def _to_rehearsal(row: BackupRehearsalRow) -> Rehearsal:
    result = None
    if row.state == "ended" and row.problem is None:
        result = RehearsalResult(
            row.made_at, row.row_count, row.contents, sampled=row.sampled, trails=row.trails, restore_ms=row.restore_ms,
            start_ms=row.start_ms,
        )  # fmt: skip
    return Rehearsal(
        row.number, row.source, row.machine, started_at=row.started_at, is_running=row.state == "running", result=result,
        problem=row.problem,
    )  # fmt: skip


def list_rehearsals() -> list[Rehearsal]:
    """The rehearsals that are remembered, the latest first."""
    return [_to_rehearsal(row) for row in BackupRehearsalRow.select().order_by(BackupRehearsalRow.number.desc())]


def has_failed() -> bool:
    """Whether the latest rehearsal that ended failed."""
    rows = db.rows("SELECT problem FROM backup_rehearsal WHERE state = 'ended' ORDER BY number DESC LIMIT 1")
    return bool(rows and rows[0][0] is not None)


def last_number() -> int:
    """The number of the latest rehearsal; 0 without one."""
    return int(db.rows("SELECT COALESCE(MAX(number), 0) FROM backup_rehearsal")[0][0])


def insert() -> int:
    """Insert a rehearsal that any process with workers may make; returns its number.  Conflict while another is running."""
    if BackupRehearsalRow.get_or_none(BackupRehearsalRow.state == "running") is not None:
        raise Conflict("a restore is already being rehearsed; wait for its result, then try again")
    number = last_number() + 1
    BackupRehearsalRow.insert(
        number=number, state="running", source="", made_at="", machine="", row_count=0, contents=0, sampled=0, trails=0,
        restore_ms=0, start_ms=0, problem=None, started_at=clock.now_ms(), owner=None, fence=0, claims=0, lease_until=0,
    ).execute()  # fmt: skip
    BackupRehearsalRow.delete().where(BackupRehearsalRow.number <= number - REMEMBERED).execute()
    return number


def insert_due(last: int, owner: str) -> Claim | None:
    """Insert and claim a rehearsal, unless any was started after the one with the number `last`."""
    if last_number() != last or any(each.is_running for each in list_rehearsals()):
        return None
    return claim(Lease((insert(),), 0, None, 0), owner)


def claim(lost: Lease, owner: str) -> Claim | None:
    """Make a rehearsal that has no process, or whose process is gone; None when another process was faster."""
    row = BackupRehearsalRow.get_or_none(number=lost.key[0], fence=lost.guard, lease_until=lost.until, state="running")
    if row is None or not LEASES.claim(lost.key, lost.guard, owner=owner, until=clock.now_ms() + LEASE_MS):
        return None
    return Claim(row.number, row.fence + 1, row.claims + 1)


def begin(claim: Claim, source: str) -> None:
    """Record which backup is rehearsed, and where.  LeaseLost."""
    LEASES.update(claim.key, claim.fence, {"source": source, "machine": this_machine(), "started_at": clock.now_ms()})


def finish(claim: Claim, result: RehearsalResult | None, problem: str | None) -> None:
    """Store the result, or why it failed.  LeaseLost."""
    changes: dict[str, object] = {"state": "ended", "problem": problem}
    if result is not None:
        changes |= {
            "made_at": result.made_at, "row_count": result.rows, "contents": result.contents, "sampled": result.sampled,
            "trails": result.trails, "restore_ms": result.restore_ms, "start_ms": result.start_ms,
        }  # fmt: skip
    LEASES.settle(claim.key, claim.fence, changes)


def delete_all() -> None:
    """Delete all rows: of a restored backup, which are about another appliance."""
    db.execute("DELETE FROM backup_rehearsal")
