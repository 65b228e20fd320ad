"""Tenant exports that an administrator uploaded in the console: read and checked, and then imported as a tenant.

The uploaded file stays until it is imported, because whoever continues an import reads it anew.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from appliance.backups.parts import is_sealed
from appliance.backups.problems import BackupInvalid, JobControl
from appliance.blobs import Places, ReceivedFile
from appliance.core import clock, ids
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import ApplianceError, Conflict, NotFound, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import audit
from appliance.tenants import service

from . import records
from .files import JobFiles
from .records import ACCESS_STEP_MS, EXPIRY_MS, IMPORT, OPEN, Claim, NewJob, TenantJob
from .runner import JobRunner, Progress, Task

if TYPE_CHECKING:  # what an import needs is loaded by the first one
    from appliance.backups.importing import ImportRequest, ImportResult
    from appliance.backups.importing.requests import UnpackedExport


@dataclass(frozen=True)
class Imported:
    """What became of an import: `paused` counts processes, `unknown_logins` are logins without an account here."""

    tenant_id: str
    rows: int
    paused: int
    unknown_logins: tuple[str, ...]


@dataclass(frozen=True)
class UploadedExport:
    """An uploaded file and the state of its import; visible to its uploader only, for an hour after the last access.

    `manifest` is empty until the file has been read.
    """

    job: TenantJob
    manifest: Mapping[str, Any]
    imported: Imported | None

    @property
    def id(self) -> str:
        return self.job.id

    @property
    def is_sealed(self) -> bool:
        return bool(self.job.options["encrypted"])

    @property
    def is_busy(self) -> bool:
        return self.job.is_busy


class UploadedExports:
    """The uploaded files of all administrators."""

    def __init__(self, places: Places, sealer: Sealer, files: JobFiles, runner: JobRunner) -> None:
        self._places, self._sealer, self._files, self._runner = places, sealer, files, runner
        runner.declare(OPEN, Task(self._open))
        runner.declare(IMPORT, Task(self._import, _keep_passphrase))

    def receive(self, scope: TenantScope, name: str, received: ReceivedFile) -> UploadedExport:
        """Takes over an uploaded export and, unless encrypted, starts to read it; raises ValidationFailed for other files."""
        try:
            sealed = is_sealed(received.path)
        except BackupInvalid as error:
            raise ValidationFailed(
                "this file is not a tenant export; choose a file that was created by exporting a tenant", pointer="/file"
            ) from error
        job = NewJob(
            IMPORT, ids.new("arr"), {"encrypted": sealed}, name=name[:200], place=self._files.adopt(scope, received),
            size=received.size,
        )  # fmt: skip
        db.write(partial(records.insert, scope, job))
        if not sealed:
            self.open(scope, job.id, None)
        return self.get(scope, job.id)

    def get(self, scope: TenantScope, job_id: str) -> UploadedExport:
        """An upload of this person; raises NotFound an hour after the last access."""
        job = records.find_own(scope, job_id)
        if job is None or job.kind != IMPORT:
            raise NotFound("this upload has expired; see in the list of tenants whether it was imported, otherwise upload it again")
        if not job.is_busy and job.expires_at < clock.now_ms() + EXPIRY_MS - ACCESS_STEP_MS:
            db.write(partial(records.note_access, scope, job_id))
        imported = job.result.get("imported")
        return UploadedExport(
            job, job.result.get("manifest", {}),
            Imported(**{**imported, "unknown_logins": tuple(imported["unknown_logins"])}) if imported else None,
        )  # fmt: skip

    def open(self, scope: TenantScope, job_id: str, passphrase: str | None) -> None:
        """Starts to read and check the whole file; raises Conflict when that is running or done."""
        sealed = self._runner.seal(scope, job_id, passphrase)

        def start() -> Claim:
            upload = self.get(scope, job_id)
            if upload.manifest or upload.is_busy:
                raise Conflict("this file is already being read, or has been read")
            return records.start(scope, job_id, OPEN, self._runner.instance, {"sealed": sealed})

        self._runner.submit(db.write(start))

    def write(self, scope: TenantScope, job_id: str, request: "ImportRequest") -> None:
        """Starts to import it as a tenant; raises ValidationFailed or AlreadyExists for an invalid or existing id or name."""
        from appliance.backups.tenant_imports import check_new_id

        def start() -> Claim:
            upload = self.get(scope, job_id)
            if not upload.manifest or upload.is_busy or upload.imported is not None:
                raise Conflict("this file has not been read yet, or has already been imported")
            check_new_id(request.name or upload.manifest["tenant"]["id"])
            if len(request.title) > service.MAX_NAME:
                raise ValidationFailed(
                    Sentence("name must have 1 to %(longest_name)s characters", longest_name=service.MAX_NAME), pointer="/title"
                )
            # The passphrase is in the row, sealed, and nowhere else.
            own_request = asdict(replace(request, actor=scope.actor, passphrase=None, path=Path(upload.job.name)))
            options = {**upload.job.options, "request": {**own_request, "path": upload.job.name}}
            return records.start(scope, job_id, IMPORT, self._runner.instance, {"options": options})

        self._runner.submit(db.write(start))

    def delete(self, scope: TenantScope, job_id: str) -> None:
        """Deletes an upload; raises Conflict while it is being processed."""
        self.get(scope, job_id)
        self._files.delete(db.write(partial(records.delete, scope, job_id)))

    # -- in the background

    def _open(self, claim: Claim, job: TenantJob, progress: Progress) -> None:
        from appliance.backups.importing import ImportRequest

        progress.report("reading", 0, 0)
        with self._unpacked(claim, job, ImportRequest(Path(job.name)), progress.control()) as export:
            result = {"manifest": export.manifest}
        # It waits for its import, which needs the passphrase again.
        db.write(partial(records.finish, claim, result, {"state": "waiting", "sealed": job.sealed}))

    def _import(self, claim: Claim, job: TenantJob, progress: Progress) -> None:
        from appliance.backups.importing import ImportRequest, SecretReplacement
        from appliance.backups.tenant_imports import write_tenant

        control = progress.control(partial(_finish, claim, job))
        values = job.options["request"]
        request = ImportRequest(**{**values, "path": Path(values["path"])})
        progress.report("reading", 0, 0)
        with self._unpacked(claim, job, request, control) as export:
            write_tenant(self._places, SecretReplacement(self._sealer), request, export, control)
        self._files.delete([job.place] if job.place else [])

    @contextmanager
    def _unpacked(self, claim: Claim, job: TenantJob, request: "ImportRequest", control: JobControl) -> Iterator["UnpackedExport"]:
        """The file of a job, unpacked and checked in a temporary folder."""
        from appliance.backups.importing.requests import UnpackedExport
        from appliance.backups.importing.unpacking import unpack_export

        opened = replace(request, passphrase=self._runner.unseal(claim, job))
        with (
            self._files.working_folder(claim.id) as folder,
            self._files.open(job.place or "", job.size) as file,
        ):
            yield UnpackedExport(folder, unpack_export(file, opened, folder, control))


def _finish(claim: Claim, job: TenantJob, result: "ImportResult") -> None:
    """Inside the write of the import: store its result; the file is no longer needed.  LeaseLost undoes the import."""
    imported = Imported(result.tenant_id, result.rows, result.paused, result.unknown_logins)
    records.finish(claim, {"manifest": result.manifest, "imported": asdict(imported)}, {"place": None})
    audit.record(
        claim.scope, "tenant.import", result.tenant_id, {"from": result.manifest["tenant"]["id"], "file": job.name}
    )


def _keep_passphrase(claim: Claim, _: TenantJob, error: ApplianceError) -> None:
    """Inside a write: record why an import failed; it can be started again, so its file and passphrase stay.  LeaseLost."""
    records.fail(claim, error)

