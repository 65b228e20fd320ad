"""Database rows of jobs on a whole tenant.  Every function but the readers and `delete_expired` runs inside a write.

A row names the file of its job by its place in the store of contents.  A function that drops a file from its row returns the place,
which the caller deletes after the commit; what a crash leaves in between is collected by the store.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from appliance.backups.models import TenantJobRow
from appliance.core import clock, ids
from appliance.core.database import db
from appliance.core.errors import ApplianceError, Conflict, Detail
from appliance.core.leases import Lease, LeaseTable
from appliance.core.leases.tenant_claims import TenantClaim, claim_lost
from appliance.core.scope import TenantScope

EXPORT, RESET, IMPORT = "export", "reset", "import"
SOLUTION = "reset-solution"
"""The row with the archive of a reset, whose `name` is the id of the job.  It is none of the job's own, which is written with each
short write: SQLite would write the archive again with it."""
OPEN = "open"
RETENTION_MS = 24 * 3_600_000
"""How long an export can be downloaded."""
EXPIRY_MS = 3_600_000
"""How long the result of a job is shown, and an uploaded file is kept after its last visit."""
ACCESS_STEP_MS = 300_000
"""Visits store their time this often, so that a page that polls does not write each time."""
LEASE_MS = 60_000
PLACE_TABLES = ("tenant_job",)
LEASES = LeaseTable(
    TenantJobRow, ("tenant_id", "id"), lease="lease_until", owner="owner", fence="fence", running="state = 'running'",
    on_claim="claims = claims + 1",
)  # fmt: skip
Claim = TenantClaim
_LISTED = tuple(field for name, field in TenantJobRow._meta.fields.items() if name != "archive")  # which may have megabytes
State = Literal["waiting", "running", "done", "failed"]


@dataclass(frozen=True)
class Problem:
    """Why a job failed."""

    message: str
    details: tuple[Detail, ...]


@dataclass(frozen=True)
class TenantJob:
    """A job at one moment; `of` is 0 if unknown, and `result` is complete once it is done.

    An import waits with its file until it is opened, and again until it is started; `task` says what runs or ran last.
    """

    id: str
    tenant_id: str
    kind: str
    task: str
    state: State
    options: Mapping[str, Any]
    sealed: bytes | None
    name: str
    place: str | None
    size: int
    stage: str
    done: int
    of: int
    result: Mapping[str, Any]
    problem: Problem | None
    since: int
    ended_at: int
    expires_at: int

    @property
    def is_busy(self) -> bool:
        return self.state == "running"


@dataclass(frozen=True)
class NewJob:
    """A job to insert; `sealed` is the passphrase of its file, sealed for `sealing_context(scope, id)`; `archive` is the solution
    of a reset."""

    kind: str
    id: str = field(default_factory=lambda: ids.new("wrk"))
    options: Mapping[str, Any] = field(default_factory=dict)
    sealed: bytes | None = None
    name: str = ""
    place: str | None = None
    size: int = 0
    archive: bytes | None = None


def sealing_context(scope: TenantScope, job_id: str) -> str:
    """What the sealed passphrase of a job is bound to."""
    return f"{scope.tenant_id}/job/{job_id}"


# -- reading


def _to_job(row: TenantJobRow) -> TenantJob:
    problem = None
    if row.problem is not None:
        problem = Problem(row.problem["message"], tuple(Detail(**each) for each in row.problem["details"]))
    return TenantJob(
        id=row.id, tenant_id=row.tenant_id, kind=row.kind, task=row.task, state=row.state, options=row.options,
        sealed=None if row.sealed is None else bytes(row.sealed), name=row.name, place=row.place, size=row.size, stage=row.stage,
        done=row.done, of=row.total, result=row.result, problem=problem, since=row.started_at, ended_at=row.ended_at,
        expires_at=row.expires_at,
    )  # fmt: skip


def _is_current(row: TenantJobRow) -> bool:
    return bool(row.state == "running" or row.expires_at > clock.now_ms())


def list_jobs(scope: TenantScope, kind: str) -> list[TenantJob]:
    """The tenant's jobs of a kind that have not expired, whoever started them, the newest first."""
    rows = scope.select(TenantJobRow, *_LISTED).where(TenantJobRow.kind == kind)
    rows = rows.order_by(TenantJobRow.started_at.desc(), TenantJobRow.id.desc())
    return [_to_job(row) for row in rows if _is_current(row)]


def find_own(scope: TenantScope, job_id: str) -> TenantJob | None:
    """The job, if this person started it and it has not expired."""
    row = scope.find(TenantJobRow, id=job_id, actor=scope.actor)
    return _to_job(row) if row is not None and _is_current(row) else None


def find_finished(scope: TenantScope, kind: str, name: str) -> TenantJob | None:
    """The finished job whose file has this name."""
    return next((job for job in list_jobs(scope, kind) if job.state == "done" and job.name == name), None)


def find_claimed(claim: Claim) -> TenantJob | None:
    """The job, while this claim is the current one and the job is running."""
    row = claim.scope.find(TenantJobRow, id=claim.id, fence=claim.fence)
    return _to_job(row) if row is not None and row.state == "running" else None


def read_archive_of_job(claim: Claim) -> bytes | None:
    """The archive of the solution that a reset applies; None for the starter."""
    row = claim.scope.find(TenantJobRow, kind=SOLUTION, name=claim.id)
    return None if row is None else bytes(row.archive)


def save_archive(claim: Claim, archive: bytes) -> None:
    """Store the archive of a reset that an earlier release has started, whose file no backup and no move has.  LeaseLost."""
    LEASES.check(claim.key, claim.fence)
    _insert(claim.scope, NewJob(SOLUTION, name=claim.id, archive=archive))


# -- starting


def insert(scope: TenantScope, job: NewJob) -> None:
    """Insert a job that waits."""
    if job.archive is not None:
        _insert(scope, NewJob(SOLUTION, name=job.id, archive=job.archive))
    _insert(scope, job)


def _insert(scope: TenantScope, job: NewJob) -> None:
    now = clock.now_ms()
    scope.insert(
        TenantJobRow, id=job.id, kind=job.kind, actor=scope.actor, scopes=sorted(scope.scopes), request_id=scope.request_id,
        state="waiting", task="", options=dict(job.options), sealed=job.sealed, name=job.name, place=job.place, size=job.size,
        archive=job.archive if job.kind == SOLUTION else None,
        stage="", done=0, total=0, result={}, problem=None, started_at=now, ended_at=0, expires_at=now + EXPIRY_MS, owner=None,
        fence=0, claims=0, lease_until=0,
    )  # fmt: skip


def insert_running(scope: TenantScope, job: NewJob, owner: str) -> tuple[Claim, list[str]]:
    """Insert and claim a job, one per kind and tenant, and delete its predecessors except an export that can be downloaded; also
    returns the places of their files.  Conflict while another is running."""
    if any(each.is_busy for each in list_jobs(scope, job.kind)):
        raise Conflict("this is already running; wait until it has finished, then start it again")
    ended: tuple[State, ...] = ("failed",) if job.kind == EXPORT else ("done", "failed")
    places = delete_ended(scope, job.kind, ended)
    insert(scope, job)
    return start(scope, job.id, job.kind, owner), places


def start(scope: TenantScope, job_id: str, task: str, owner: str, changes: Mapping[str, Any] | None = None) -> Claim:
    """Run a task of a job that waits or has failed."""
    started: dict[str, Any] = {
        "state": "running", "task": task, "stage": "", "done": 0, "total": 0, "problem": None, "claims": 0,
        "started_at": clock.now_ms(), "ended_at": 0, "scopes": sorted(scope.scopes), "request_id": scope.request_id,
        **(changes or {}),
    }  # fmt: skip
    scope.update(TenantJobRow, **started).where(TenantJobRow.id == job_id).execute()
    row = scope.get(TenantJobRow, id=job_id)
    LEASES.claim((scope.tenant_id, job_id), row.fence, until=clock.now_ms() + LEASE_MS, owner=owner)
    return Claim(scope, job_id, row.fence + 1, 1)


def claim(lost: Lease, owner: str) -> Claim | None:
    """Continue a job whose process is gone; None when another process was faster."""
    return claim_lost(LEASES, lost, owner, clock.now_ms() + LEASE_MS)


# -- running


def save_progress(claim: Claim, stage: str, done: int, of: int) -> None:
    """Store the progress, and extend the lease.  LeaseLost."""
    LEASES.renew(claim.key, claim.fence, clock.now_ms() + LEASE_MS, {"stage": stage, "done": done, "total": of})


def save_deleted(claim: Claim, rows: int) -> None:
    """Store how many rows a reset has deleted; that is progress, whatever became of earlier processes.  LeaseLost."""
    changes = {"stage": "deleting", "done": rows, "claims": 0}
    LEASES.renew(claim.key, claim.fence, clock.now_ms() + LEASE_MS, changes)


def save_result(claim: Claim, result: Mapping[str, Any]) -> None:
    """Store what a job has done in the same transaction, so that whoever continues it does not do that again.  LeaseLost."""
    LEASES.update(claim.key, claim.fence, {"result": dict(result)})


def finish(claim: Claim, result: Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> None:
    """Store the result, and drop the passphrase; `changes` are more columns.  LeaseLost."""
    now = clock.now_ms()
    LEASES.settle(claim.key, claim.fence, {
        "state": "done", "result": dict(result), "sealed": None, "ended_at": now, "expires_at": now + EXPIRY_MS, **(changes or {}),
    })  # fmt: skip
    _delete_archive(claim)


def fail(claim: Claim, error: ApplianceError, changes: Mapping[str, Any] | None = None) -> None:
    """Store why the job failed; `changes` are more columns.  LeaseLost."""
    now, details = clock.now_ms(), [vars(each) for each in error.details]
    LEASES.settle(claim.key, claim.fence, {
        "state": "failed", "problem": {"message": error.message, "details": details}, "ended_at": now,
        "expires_at": now + EXPIRY_MS, **(changes or {}),
    })  # fmt: skip
    _delete_archive(claim)


def _delete_archive(claim: Claim) -> None:
    claim.scope.delete(TenantJobRow).where(TenantJobRow.kind == SOLUTION, TenantJobRow.name == claim.id).execute()


# -- deleting


def note_access(scope: TenantScope, job_id: str) -> None:
    """Keep a file for another hour."""
    scope.update(TenantJobRow, expires_at=clock.now_ms() + EXPIRY_MS).where(TenantJobRow.id == job_id).execute()


def delete(scope: TenantScope, job_id: str) -> list[str]:
    """Delete a job; returns the place of its file.  NotFound; Conflict while it is running."""
    row = scope.get(TenantJobRow, id=job_id)
    if not scope.delete(TenantJobRow).where(TenantJobRow.id == job_id, TenantJobRow.state != "running").execute():
        raise Conflict("this file is being processed; wait until that is finished")
    return [row.place] if row.place else []


def delete_ended(scope: TenantScope, kind: str, states: Collection[State] = ("done", "failed")) -> list[str]:
    """Delete the tenant's jobs of a kind that have ended; returns the places of their files."""
    rows = list(scope.select(TenantJobRow, *_LISTED).where(TenantJobRow.kind == kind, TenantJobRow.state.in_(states)))
    scope.delete(TenantJobRow).where(TenantJobRow.id.in_([row.id for row in rows])).execute()
    return [row.place for row in rows if row.place]


def delete_expired() -> list[str]:
    """Delete the expired jobs of all tenants; returns the places of their files."""
    sql = "DELETE FROM tenant_job WHERE expires_at <= ? AND state <> 'running' AND kind <> ? RETURNING place"
    rows = db.write(partial(db.rows, sql, (clock.now_ms(), SOLUTION)))
    return [str(place) for (place,) in rows if place]


def delete_all() -> None:
    """Delete the jobs of all tenants: of a restored backup, which has none of their files.  Resets that have begun to delete stay,
    because only they complete their tenants, and so do those that have yet to publish WebApps."""
    tenants = "SELECT id FROM tenant WHERE reset_at > 0"
    own = f"(kind = ? AND state = 'running' AND (tenant_id IN ({tenants}) OR result <> ?))"
    solutions = f"(kind = ? AND tenant_id IN ({tenants}))"
    db.execute(f"DELETE FROM tenant_job WHERE NOT ({own} OR {solutions})", (RESET, db.dump_json({}), SOLUTION))  # noqa: S608
