"""Exports of a tenant started in the console: only the newest of each tenant is stored, for a day."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from appliance.backups.envelope import check_passphrase
from appliance.backups.tenant_exports import export_tenant
from appliance.blobs import Pieces, Places
from appliance.core import clock, ids
from appliance.core.database import db
from appliance.core.errors import NotFound
from appliance.core.leases import LeaseLost
from appliance.core.scope import TenantScope
from appliance.monitor import audit

from . import records
from .files import JobFiles
from .records import EXPORT, RETENTION_MS, Claim, NewJob, TenantJob
from .runner import JobRunner, Progress, Task


@dataclass(frozen=True)
class Export:
    """An export that can be downloaded until `ends_at` (epoch ms)."""

    name: str
    size: int
    made_at: int
    ends_at: int
    is_sealed: bool


class TenantExports:
    """The exports of all tenants."""

    def __init__(self, places: Places, files: JobFiles, runner: JobRunner) -> None:
        self._places, self._files, self._runner = places, files, runner
        runner.declare(EXPORT, Task(self._perform))

    def start(self, scope: TenantScope, passphrase: str | None) -> None:
        """Start an export.  Conflict while one is running, BackupInvalid for a short passphrase."""
        if passphrase is not None:
            check_passphrase(passphrase)
        job_id = ids.new("wrk")
        sealed = self._runner.seal(scope, job_id, passphrase)
        self._files.delete(self._runner.begin(scope, NewJob(EXPORT, job_id, {"encrypted": passphrase is not None}, sealed)))

    def latest(self, scope: TenantScope) -> TenantJob | None:
        """The tenant's last export, whoever started it; None without one."""
        return next(iter(records.list_jobs(scope, EXPORT)), None)

    def list_exports(self, scope: TenantScope) -> list[Export]:
        """The tenant's exports that can be downloaded, newest first."""
        return [_to_export(job) for job in records.list_jobs(scope, EXPORT) if job.state == "done"]

    def read(self, scope: TenantScope, name: str) -> tuple[Export, Pieces]:
        """An export and its bytes in pieces.  NotFound."""
        job = _find(scope, name)
        return _to_export(job), self._files.read(job.place or "", job.size)

    def delete(self, scope: TenantScope, name: str) -> None:
        """Delete an export before it expires.  NotFound."""

        def delete() -> list[str]:
            places = records.delete(scope, _find(scope, name).id)
            audit.record(scope, "tenant.delete-export", scope.tenant_id, {"file": name})
            return places

        self._files.delete(db.write(delete))

    def _perform(self, claim: Claim, job: TenantJob, progress: Progress) -> None:
        scope, now = claim.scope, clock.now_ms()
        name = f"{scope.tenant_id}-{clock.rfc3339(now)[:19].replace('-', '').replace(':', '')}Z.gost"
        with self._files.working_folder(claim.id) as folder:
            path = folder / name
            manifest = export_tenant(scope, self._places, path, self._runner.unseal(claim, job), progress.control())
            size = path.stat().st_size
            place = self._files.store(scope, path)
        changes = {"name": name, "place": place, "size": size, "expires_at": now + RETENTION_MS}
        try:
            replaced = db.write(partial(_finish, claim, manifest, changes))
        except LeaseLost:  # Only then it is certain that no row names the file.
            self._files.delete([place])
            raise
        self._files.delete(replaced)


def _finish(claim: Claim, manifest: dict[str, Any], changes: dict[str, Any]) -> list[str]:
    """Inside a write: store the result, and replace the previous export, whose place is returned.  LeaseLost."""
    replaced = records.delete_ended(claim.scope, EXPORT)
    records.finish(claim, {"damaged": len(manifest["contents"]["damaged"])}, changes)
    details = {"file": changes["name"], "rows": sum(manifest["tables"].values()), "encrypted": manifest["encrypted"]}
    audit.record(claim.scope, "tenant.export", claim.scope.tenant_id, details)
    return replaced


def _to_export(job: TenantJob) -> Export:
    return Export(job.name, job.size, job.expires_at - RETENTION_MS, job.expires_at, job.options["encrypted"])


def _find(scope: TenantScope, name: str) -> TenantJob:
    job = records.find_finished(scope, EXPORT, name)
    if job is None:
        raise NotFound("this export has expired or was deleted; create a new one")
    return job
