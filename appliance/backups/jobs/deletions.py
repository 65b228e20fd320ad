"""Deletes tenants as jobs of the appliance itself, which outlive the tenant and the process that was asked."""

from dataclasses import dataclass
from functools import partial

from appliance.core.database import db
from appliance.core.errors import ApplianceError
from appliance.core.scope import TenantScope
from appliance.tenants import appliance_scope, record_for_appliance, service

from . import records
from .records import Claim, NewJob, State, TenantJob
from .runner import JobRunner, Progress, Task

DELETION = "tenant-deletion"


@dataclass(frozen=True)
class Deletion:
    """The deletion of a tenant that is still there: in progress, or failed for the reason `problem`; `since` in epoch ms."""

    state: State
    since: int
    problem: str | None


class TenantDeletions:
    """The deletions of tenants; a tenant whose documents are retained stays, and the deletion says so."""

    def __init__(self, runner: JobRunner) -> None:
        self._runner = runner
        runner.declare(DELETION, Task(_perform, _fail))

    def start(self, scope: TenantScope, tenant_id: str) -> None:
        """Delete a tenant in the background; again, if that has failed before.  `scope` is of the appliance.  NotFound."""
        claim = db.write(partial(_insert, scope, tenant_id, self._runner.instance))
        if claim is not None:
            self._runner.submit(claim)


def find_deletion(tenant_id: str) -> Deletion | None:
    """The latest deletion of the tenant, of those that are remembered."""
    job = _find(tenant_id)
    return None if job is None else Deletion(job.state, job.since, None if job.problem is None else job.problem.message)


def _find(tenant_id: str) -> TenantJob | None:
    row = service.get_tenant(tenant_id)
    options = {"tenant": tenant_id, "created_at": row.created_at}
    return next((job for job in records.list_jobs(appliance_scope(), _kind_of(tenant_id)) if job.options == options), None)


def _kind_of(tenant_id: str) -> str:
    """A kind for each tenant, because one job of a kind runs at a time."""
    return f"{DELETION} {tenant_id}"


def _insert(scope: TenantScope, tenant_id: str, owner: str) -> Claim | None:
    """Inside a write: the claim of a new job; None while the tenant is being deleted already."""
    row, earlier = service.get_tenant(tenant_id), _find(tenant_id)
    if earlier is not None and earlier.is_busy:
        return None
    if earlier is not None:
        records.delete(scope, earlier.id)
    job = NewJob(_kind_of(tenant_id), options={"tenant": tenant_id, "created_at": row.created_at})
    records.insert(scope, job)
    return records.start(scope, job.id, DELETION, owner)


def _perform(claim: Claim, job: TenantJob, _: Progress) -> None:
    db.write(partial(_close, claim, job))
    service.delete_closed(str(job.options["tenant"]))
    db.write(partial(records.finish, claim, {}))


def _close(claim: Claim, job: TenantJob) -> None:
    """Inside a write: close the tenant, unless a process that was killed has done that.  LeaseLost."""
    records.save_progress(claim, "deleting", 0, 0)
    rows = [row for row in service.list_tenants() if row.id == job.options["tenant"]]
    if rows and rows[0].created_at == job.options["created_at"]:
        service.close_tenant(service.system_scope(rows[0].id, claim.scope.actor))


def _fail(claim: Claim, job: TenantJob, error: ApplianceError) -> None:
    """Inside a write: record why the tenant stays.  LeaseLost."""
    records.fail(claim, error)
    fields = {"code": error.code, "reason": error.message}
    record_for_appliance("tenant.delete_refused", str(job.options["tenant"]), fields, actor=claim.scope.actor)
