"""Resets of a tenant started in the console, as jobs that any process continues.

A reset is one transaction, after which WebApps with checks are published.  Whoever continues it does what is missing of the two.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import BinaryIO, cast

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
    save_result,
)
from appliance.blobs import ReceivedFile
from appliance.core.config import Config
from appliance.core.database import db
from appliance.core.errors import ApplianceError, ValidationFailed
from appliance.core.scope import TenantScope

from .archive import LARGEST_BYTES, ArchiveLimits, read_archive
from .definition import Solution, read_solution
from .planning import SolutionServices
from .resetting import WrittenReset, publish_reset, write_reset
from .starter import order_system_url, starter_solution


class TenantResets:
    """The resets of all tenants."""

    def __init__(self, config: Config, tools: SolutionServices, files: JobFiles, runner: JobRunner) -> None:
        self._config, self._tools, self._files, self._runner = config, tools, files, runner
        runner.declare(RESET, Task(self._perform, _fail))

    def start(self, scope: TenantScope, archive: ReceivedFile | None) -> None:
        """Start emptying the tenant and applying a solution to it, as a whole or not at all: that of an archive, which is consumed,
        or the starter.

        Conflict while another is running; ValidationFailed for an archive without a valid solution.
        """
        for name in ("keys.write", "solutions.apply"):
            scope.require(name)
        if archive is None:
            self._begin(scope, NewJob(RESET))
            return
        try:
            with archive.open() as file:
                self._read(file)
        except ApplianceError as error:
            raise ValidationFailed(error.message, pointer="/file") from error
        place = self._files.adopt(scope, archive)
        try:
            self._begin(scope, NewJob(RESET, place=place, size=archive.size))
        except ApplianceError:  # No row names the archive.
            self._files.delete([place])
            raise

    def _begin(self, scope: TenantScope, job: NewJob) -> None:
        self._files.delete(self._runner.begin(scope, job))

    def latest(self, scope: TenantScope) -> TenantJob | None:
        """The tenant's last reset, whoever started it; its result has `deleted` rows, and `failed` by app.  None without one."""
        return next(iter(list_jobs(scope, RESET)), None)

    def _read(self, archive: BinaryIO) -> Solution:
        limits = self._config.limits
        bounds = ArchiveLimits(limits.archive_files, min(limits.archive_mb << 20, LARGEST_BYTES))
        return read_solution(read_archive(archive, bounds))

    def _solution(self, job: TenantJob) -> Solution:
        if job.place is None:
            return starter_solution(order_system_url(self._config))
        with tempfile.SpooledTemporaryFile(max_size=1 << 20) as file:
            file.writelines(self._files.read(job.place, job.size))
            file.seek(0)
            return self._read(cast(BinaryIO, file))

    def _perform(self, claim: Claim, job: TenantJob, progress: Progress) -> None:
        if job.result:
            written = WrittenReset(**job.result)
        else:
            progress.report("writing", 0, 0)

            def save(written: WrittenReset) -> None:
                save_result(claim, asdict(written))

            written = write_reset(claim.scope, self._tools, self._solution(job), conclude=save)
        progress.report("publishing", 0, 0)
        reset = publish_reset(claim.scope, self._tools, written)
        db.write(partial(finish, claim, {"deleted": reset.deleted, "failed": dict(reset.failed)}, {"place": None}))
        self._files.delete([job.place] if job.place else [])


def _fail(claim: Claim, job: TenantJob, error: ApplianceError) -> None:
    """Inside a write: record a failure; after its write, the reset is done except for the WebApps that wait for their checks."""
    if job.result:
        failed: Mapping[str, str] = dict.fromkeys(job.result["to_check"], error.message)
        finish(claim, {"deleted": job.result["deleted"], "failed": failed})
    else:
        fail(claim, error)
