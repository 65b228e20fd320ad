"""Tenant exports that an administrator uploaded in the console: unpacked, inspected, and then imported as a tenant."""

import shutil
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from appliance.blobs import Places, ReceivedFile
from appliance.core import clock, ids
from appliance.core.config import Config
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import Conflict, NotFound, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import audit
from appliance.tenants import service

from .background_jobs import BackgroundJob, BackgroundJobs
from .import_cleanup import SecretReplacement
from .parts import is_sealed
from .problems import BackupInvalid, JobControl
from .tenant_imports import ImportRequest, ImportResult, UnpackedExport, check_new_id, unpack_export, write_tenant

FOLDER = "arriving"
EXPIRY_MS = 3_600_000
_FILE, _UNPACKED = "export.gost", "unpacked"


@dataclass
class UploadedExport:
    """An uploaded file and the state of its import; visible to its uploader only, for an hour after the last access."""

    id: str
    actor: str
    file_name: str
    size: int
    folder: Path
    is_sealed: bool
    touched_ms: int
    work: BackgroundJob | None = None
    unpacked: UnpackedExport | None = None
    imported: ImportResult | None = None

    @property
    def is_busy(self) -> bool:
        return self.work is not None and not self.work.is_over


class UploadedExports:
    """The files uploaded to this process."""

    def __init__(self, config: Config, places: Places, sealer: Sealer, jobs: BackgroundJobs) -> None:
        self._folder, self._places, self._sealer, self._jobs = config.data / FOLDER, places, sealer, jobs
        self._lock = threading.Lock()
        self._uploads: dict[str, UploadedExport] = {}

    def receive(self, scope: TenantScope, name: str, received: ReceivedFile) -> UploadedExport:
        """Takes over an uploaded export and, unless encrypted, starts to read it; raises ValidationFailed for other files."""
        try:
            sealed = is_sealed(received.path)
        except BackupInvalid as error:
            raise ValidationFailed(
                "this file is not a tenant export; choose a file that was created by exporting a tenant", pointer="/file"
            ) from error
        arrival_id = ids.new("arr")
        folder = self._folder / arrival_id
        self._folder.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(mode=0o700)
        shutil.move(received.path, folder / _FILE)
        upload = UploadedExport(
            id=arrival_id, actor=scope.actor, file_name=name[:200], size=received.size, folder=folder, is_sealed=sealed,
            touched_ms=clock.now_ms(),
        )
        with self._lock:
            self._uploads[arrival_id] = upload
        if not sealed:
            self.open(scope, arrival_id, None)
        return upload

    def get(self, scope: TenantScope, arrival_id: str) -> UploadedExport:
        """An upload of this person; raises NotFound after an hour or a restart of the appliance."""
        with self._lock:
            upload = self._uploads.get(arrival_id)
        if upload is None or upload.actor != scope.actor:
            raise NotFound("this upload has expired; see in the list of tenants whether it was imported, otherwise upload it again")
        upload.touched_ms = clock.now_ms()
        return upload

    def open(self, scope: TenantScope, arrival_id: str, passphrase: str | None) -> None:
        """Starts to read and check the whole file; raises Conflict when that is running or done."""
        upload = self.get(scope, arrival_id)
        if upload.unpacked is not None or upload.is_busy:
            raise Conflict("this file is already being read, or has been read")
        upload.work = self._jobs.begin(_job_scope(scope, upload), "open", partial(self._unpack, upload, passphrase))

    def _unpack(self, upload: UploadedExport, passphrase: str | None, course: JobControl) -> None:
        folder = upload.folder / _UNPACKED
        folder.mkdir(mode=0o700)
        try:
            course.report("reading", 0, 0)
            upload.unpacked = UnpackedExport(folder, unpack_export(upload.folder / _FILE, passphrase, folder, course))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        (upload.folder / _FILE).unlink(missing_ok=True)  # its unpacked contents are all that is needed

    def write(self, scope: TenantScope, arrival_id: str, request: ImportRequest) -> None:
        """Starts to import it as a tenant; raises ValidationFailed or AlreadyExists for an invalid or existing id or name."""
        upload = self.get(scope, arrival_id)
        if upload.unpacked is None or upload.is_busy or upload.imported is not None:
            raise Conflict("this file has not been read yet, or has already been imported")
        check_new_id(request.name or upload.unpacked.manifest["tenant"]["id"])
        if len(request.title) > service.MAX_NAME:
            raise ValidationFailed(
                Sentence("name must have 1 to %(longest_name)s characters", longest_name=service.MAX_NAME), pointer="/title"
            )
        own_request = replace(request, actor=scope.actor)
        write = partial(self._write, scope, upload, upload.unpacked, own_request)
        upload.work = self._jobs.begin(_job_scope(scope, upload), "import", write)

    def _write(
        self, scope: TenantScope, upload: UploadedExport, export: UnpackedExport, request: ImportRequest, course: JobControl
    ) -> None:
        imported = write_tenant(self._places, SecretReplacement(self._sealer), request, export, course)
        details = {"from": imported.manifest["tenant"]["id"], "file": upload.file_name}
        db.write(partial(audit.record, scope, "tenant.import", imported.tenant_id, details))
        upload.imported = imported
        shutil.rmtree(export.folder, ignore_errors=True)

    def delete(self, scope: TenantScope, arrival_id: str) -> None:
        """Deletes an upload; raises Conflict while it is being processed."""
        upload = self.get(scope, arrival_id)
        if upload.is_busy:
            raise Conflict("this file is being processed; wait until that is finished")
        with self._lock:
            self._uploads.pop(arrival_id, None)
        shutil.rmtree(upload.folder, ignore_errors=True)

    def delete_expired(self) -> None:
        """Deletes uploads that were not accessed for an hour, and the remains of killed processes."""
        now = clock.now_ms()
        with self._lock:
            old = [each for each in self._uploads.values() if not each.is_busy and each.touched_ms < now - EXPIRY_MS]
            for each in old:
                del self._uploads[each.id]
            folders = {each.folder for each in self._uploads.values()}
        for folder in self._folder.iterdir() if self._folder.is_dir() else ():
            with suppress(OSError):
                is_dead = folder not in folders and folder.stat().st_mtime * 1000 < now - 24 * EXPIRY_MS
                if is_dead or folder in {each.folder for each in old}:
                    shutil.rmtree(folder, ignore_errors=True)

    def stop(self) -> None:
        """Deletes all uploads, which nobody can access after a restart."""
        for each in self._uploads.values():
            shutil.rmtree(each.folder, ignore_errors=True)


def _job_scope(scope: TenantScope, upload: UploadedExport) -> TenantScope:
    """The scope of an upload's job; one per upload, so that several files can be read at once."""
    return TenantScope(upload.id, scope.actor)
