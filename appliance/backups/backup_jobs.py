"""Database rows of backups of the whole appliance.  Every function but the readers runs inside an exclusive write.

A row is `running` from the request on, without an owner until a process with workers claims it; at most one is.
"""

import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from appliance.backups.models import BackupJobRow
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import Conflict
from appliance.core.leases import Lease, LeaseTable

from .backup_folder import BackupResult
from .buckets.addresses import SCHEME

SCHEDULED, REQUESTED = "scheduled", "requested"
REMEMBERED = 50
"""How many backups are remembered, failed ones included."""
LEASE_MS = 60_000
LEASES = LeaseTable(
    BackupJobRow, ("number",), lease="lease_until", owner="owner", fence="fence", running="state = 'running'",
    on_claim="claims = claims + 1",
)  # fmt: skip


@dataclass(frozen=True)
class BackupJob:
    """A backup at one moment; stages are `asked`, `database`, `contents` and `checking`, and `of` is 0 if unknown.

    `result` is None while it is running; `machine` is where it was made, empty before.
    """

    number: int
    kind: Literal["scheduled", "requested"]
    stage: str
    done: int
    of: int
    since: int
    sealed: bytes | None
    machine: str
    result: BackupResult | None


@dataclass(frozen=True)
class Claim:
    """The right to make a backup until another process claims it; `claims` counts those since it was last left to any process."""

    number: int
    fence: int
    claims: int

    @property
    def id(self) -> str:
        return str(self.number)

    @property
    def key(self) -> tuple[int]:
        return (self.number,)


def this_machine() -> str:
    """The name of this machine, or container."""
    return os.uname().nodename


def sealing_context(number: int) -> str:
    """What the sealed passphrase of a backup is bound to."""
    return f"appliance/backup/{number}"


# -- reading


def _to_job(row: BackupJobRow) -> BackupJob:
    result = None
    if row.state == "ended":
        result = BackupResult(
            at=row.started_at, path=row.path, size=row.size, rows=row.row_count, contents=row.contents,
            encrypted=bool(row.encrypted), problem=row.problem,
        )  # fmt: skip
    return BackupJob(
        number=row.number, kind=row.kind, stage=row.stage, done=row.done, of=row.total, since=row.started_at,
        sealed=None if row.sealed is None else bytes(row.sealed), machine=row.machine, result=result,
    )  # fmt: skip


def list_jobs() -> list[BackupJob]:
    """The backups that are remembered, the latest first."""
    return [_to_job(row) for row in BackupJobRow.select().order_by(BackupJobRow.number.desc())]


def find_running() -> BackupJob | None:
    """The backup that was requested or is being made, by whichever process."""
    row = BackupJobRow.get_or_none(BackupJobRow.state == "running")
    return None if row is None else _to_job(row)


def find_claimed(claim: Claim) -> BackupJob | None:
    """The backup, while this claim is the current one."""
    row = BackupJobRow.get_or_none(number=claim.number, fence=claim.fence, state="running")
    return None if row is None else _to_job(row)


# -- starting


def _last_number() -> int:
    return int(db.rows("SELECT COALESCE(MAX(number), 0) FROM backup_job")[0][0])


def insert(kind: str) -> int:
    """Insert a backup that any process with workers may make; returns its number.  Conflict while another is running."""
    if find_running() is not None:
        raise Conflict("a backup is already being made; wait until it is listed, then try again")
    number = _last_number() + 1
    BackupJobRow.insert(
        number=number, kind=kind, state="running", sealed=None, stage="asked", done=0, total=0, machine="", path="", size=0,
        row_count=0, contents=0, encrypted=0, problem=None, started_at=clock.now_ms(), owner=None, fence=0, claims=0, lease_until=0,
    ).execute()  # fmt: skip
    BackupJobRow.delete().where(BackupJobRow.number <= number - REMEMBERED).execute()
    return number


def seal(number: int, sealed: bytes) -> None:
    """Store the passphrase of a backup that was just inserted."""
    BackupJobRow.update(sealed=sealed).where(BackupJobRow.number == number).execute()


def insert_due(last: int, owner: str) -> Claim | None:
    """Insert and claim a scheduled backup, unless any was started after the one with the number `last`."""
    if _last_number() != last or find_running() is not None:
        return None
    number = insert(SCHEDULED)
    return claim(Lease((number,), 0, None, 0), owner)


def claim(lost: Lease, owner: str) -> Claim | None:
    """Make a backup that has no process, or whose process is gone; None when another process was faster."""
    row = BackupJobRow.get_or_none(number=lost.key[0], fence=lost.guard, lease_until=lost.until, state="running")
    if row is None or not LEASES.claim(lost.key, lost.guard, owner=owner, until=clock.now_ms() + LEASE_MS):
        return None
    return Claim(row.number, row.fence + 1, row.claims + 1)


# -- making


def begin(claim: Claim) -> None:
    """Record that the backup is made from the start.  LeaseLost."""
    LEASES.update(claim.key, claim.fence, {"stage": "asked", "done": 0, "total": 0, "started_at": clock.now_ms()})


def save_progress(claim: Claim, stage: str, done: int, of: int) -> None:
    """Store the progress, and extend the lease.  LeaseLost."""
    LEASES.renew(claim.key, claim.fence, clock.now_ms() + LEASE_MS, {"stage": stage, "done": done, "total": of})


def finish(claim: Claim, result: BackupResult) -> None:
    """Store the result, and drop the passphrase.  LeaseLost."""
    changes: dict[str, Any] = {
        "state": "ended", "sealed": None, "machine": this_machine(), "path": result.path, "size": result.size,
        "row_count": result.rows, "contents": result.contents, "encrypted": int(result.encrypted), "problem": result.problem,
        "started_at": result.at,
    }  # fmt: skip
    LEASES.settle(claim.key, claim.fence, changes)


# -- deleting


def forget_deleted(paths: Collection[str]) -> None:
    """Delete the rows of backups that were made on this machine, or in a bucket, under these paths, which were deleted."""
    here = (BackupJobRow.machine == this_machine()) | BackupJobRow.path.startswith(SCHEME)
    BackupJobRow.delete().where(here, BackupJobRow.path.in_(sorted(paths))).execute()


def delete_all() -> None:
    """Delete all rows: of a restored backup, which was running when its snapshot was taken."""
    db.execute("DELETE FROM backup_job")
