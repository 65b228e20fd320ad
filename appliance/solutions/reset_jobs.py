"""Resets of a tenant, as jobs that any process continues.

A reset is checked and begun, the tenant is emptied, it is filled, and WebApps with checks are published.  Whoever continues a reset
does what is missing of these.
"""

import io
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import BinaryIO, cast

from appliance.backups import Stopped, clear_tenant, empty_for_reset
from appliance.backups.jobs import (
    RESET,
    Claim,
    JobFiles,
    JobRunner,
    NewJob,
    Progress,
    Task,
    TenantJob,
    fail,
    finish,
    list_jobs,
    read_archive_of_job,
    save_archive,
    save_result,
)
from appliance.blobs import ReceivedFile
from appliance.core.config import Config
from appliance.core.database import db
from appliance.core.database.losses import ConnectionLost
from appliance.core.errors import ApplianceError, Conflict, OutcomeUnknown, Overloaded, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.tenants import service as tenants

from .archive import LARGEST_BYTES, ArchiveLimits, read_archive, write_zip
from .definition import Solution, read_solution
from .planning import SolutionServices
from .resetting import (
    Reset,
    WrittenReset,
    decide_reset,
    fill_tenant,
    prepare_again,
    prepare_reset,
    publish_reset,
    refuse_over_quota,
)
from .starter import order_system_url, starter_solution

_LOOK_SECONDS = 0.1
_PASSING = (Overloaded, OutcomeUnknown, ConnectionLost)
"""Errors of a database that is away for a moment."""


class TenantResets:
    """The resets of all tenants."""

    def __init__(self, config: Config, tools: SolutionServices, files: JobFiles, runner: JobRunner) -> None:
        self._config, self._tools, self._files, self._runner = config, tools, files, runner
        runner.declare(RESET, Task(self._perform, _fail))

    def start(self, scope: TenantScope, archive: ReceivedFile | None) -> None:
        """Start emptying the tenant and applying a solution to it: that of an archive, which is consumed, or the starter.

        Conflict while another is running; ValidationFailed for an archive without a valid solution; StorageFull.
        """
        for name in ("keys.write", "solutions.apply"):
            scope.require(name)
        if archive is None:
            self._begin(scope, NewJob(RESET))
            return
        try:
            with archive.open() as file:
                files = self._read_files(file)
            solution = read_solution(files)
        except ApplianceError as error:
            raise ValidationFailed(error.message, pointer="/file") from error
        finally:
            archive.discard()
        refuse_over_quota(scope, solution)
        self._begin(scope, NewJob(RESET, archive=write_zip(files)))

    def reset(self, scope: TenantScope, files: Mapping[str, bytes], *, force: bool = False) -> Reset:
        """Reset the tenant to the solution in these files, whatever process does it, and wait for that.

        Conflict while another is running, and with whatever refuses the reset; StorageFull.
        """
        refuse_over_quota(scope, read_solution(files))
        own = NewJob(RESET, options={"force": force}, archive=write_zip(files))
        self._begin(scope, own)
        while (job := self.latest(scope)) is not None and job.id == own.id and job.is_busy:
            threading.Event().wait(_LOOK_SECONDS)
            self._runner.resume()
        if job is None:
            raise Conflict("the tenant was deleted while it was being reset")
        if job.id != own.id:
            raise Conflict("this reset has ended, and another one has begun; check the tenant when that is done")
        if job.problem is not None:
            raise Conflict(job.problem.message, details=job.problem.details)
        return Reset(job.result["deleted"], job.result["failed"])

    def _begin(self, scope: TenantScope, job: NewJob) -> None:
        self._files.delete(self._runner.begin(scope, job))

    def latest(self, scope: TenantScope) -> TenantJob | None:
        """The tenant's last reset, whoever started it; its result has `deleted` rows, and `failed` by app.  None without one."""
        return next(iter(list_jobs(scope, RESET)), None)

    def _read_files(self, archive: BinaryIO) -> dict[str, bytes]:
        limits = self._config.limits
        return read_archive(archive, ArchiveLimits(limits.archive_files, min(limits.archive_mb << 20, LARGEST_BYTES)))

    def _solution(self, claim: Claim, job: TenantJob) -> Solution:
        if (archive := read_archive_of_job(claim)) is not None:
            return read_solution(self._read_files(io.BytesIO(archive)))
        if job.place is None:
            return starter_solution(order_system_url(self._config))
        with tempfile.SpooledTemporaryFile(max_size=1 << 20) as file:  # of a job that an earlier release has started
            file.writelines(self._files.read(job.place, job.size))
            file.seek(0)
            files = self._read_files(cast(BinaryIO, file))
        db.write(partial(save_archive, claim, write_zip(files)))
        return read_solution(files)

    def _perform(self, claim: Claim, job: TenantJob, progress: Progress) -> None:
        written = WrittenReset(**job.result) if job.result else self._write(claim, job, progress)
        progress.report("publishing", 0, 0)
        reset = publish_reset(claim.scope, self._tools, written)
        db.write(partial(finish, claim, {"deleted": reset.deleted, "failed": dict(reset.failed)}, {"place": None}))
        self._files.delete([job.place] if job.place else [])

    def _write(self, claim: Claim, job: TenantJob, progress: Progress) -> WrittenReset:
        """Everything before the publication.  Stopped if the database is away: then the job is continued in a moment.

        A solution that cannot be prepared now, because a runtime is not ready, fails the reset as long as it has not begun.
        """
        progress.report("writing", job.done, 0)
        application, deleted = None, job.done
        if not tenants.is_being_reset(claim.scope.tenant_id):
            application = prepare_reset(claim.scope, self._tools, self._solution(claim, job))
        try:
            if application is not None:
                deleted = decide_reset(claim, application, force=bool(job.options.get("force")))
            deleted = empty_for_reset(claim, deleted, progress.control())
            if application is None:
                application = prepare_again(claim.scope, self._tools, self._solution(claim, job))
            return fill_tenant(claim, application, deleted, partial(_save, claim))
        except _PASSING as error:
            raise Stopped("the database is not available; the reset goes on when it is") from error


def _save(claim: Claim, written: WrittenReset) -> None:
    save_result(claim, asdict(written))


def _fail(claim: Claim, job: TenantJob, error: ApplianceError) -> None:
    """Inside a write: record a failure.

    Before the reset has begun, the tenant is unchanged; after its last write, it is done except for the WebApps that wait for their
    checks.  In between, where only what was not foreseen fails, the tenant is emptied and opened, and the failure says so.
    """
    if job.result:
        failed: Mapping[str, str] = dict.fromkeys(job.result["to_check"], error.message)
        finish(claim, {"deleted": job.result["deleted"], "failed": failed})
    elif tenants.is_being_reset(claim.scope.tenant_id):
        deleted = clear_tenant(claim.scope, force=True, before=job.done)
        save_result(claim, {"emptied": deleted})
        problem = Sentence(
            "the tenant was emptied, but the solution could not be applied: %(reason)s; apply it again", reason=error.message
        )
        fail(claim, Conflict(problem, details=error.details))
    else:
        fail(claim, error)
