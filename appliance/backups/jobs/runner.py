"""Runs jobs on whole tenants on background threads, and continues those of processes that are gone.

An export is made anew, a file is read anew, and an import, which only its last write reveals, is written anew unless that was
committed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from appliance.backups.problems import JobControl, Stopped
from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import ApplianceError
from appliance.core.leases import Lease, LeaseLost
from appliance.core.leases.claims import ClaimRunner, Stopping
from appliance.core.pools import TRANSFER
from appliance.core.scope import TenantScope

from . import records
from .records import Claim, NewJob, TenantJob

PROGRESS_SECONDS = 0.5
Perform = Callable[[Claim, TenantJob, "Progress"], None]
Fail = Callable[[Claim, TenantJob, ApplianceError], None]


class Progress:
    """The progress of a running job, stored twice a second and at each new stage."""

    def __init__(self, claim: Claim, runner: "JobRunner") -> None:
        self._claim, self._runner = claim, runner
        self._stage, self._next = "", 0.0

    def report(self, stage: str, done: int, of: int) -> None:
        """Store the progress.  LeaseLost: another process runs the job, so nothing of this may be stored."""
        now = clock.monotonic()
        if stage != self._stage or now >= self._next:
            self._stage, self._next = stage, now + PROGRESS_SECONDS
            db.write(partial(records.save_progress, self._claim, stage, done, of), is_shared=True)

    def control(self, conclude: Callable[[Any], None] = lambda _: None) -> JobControl:
        """This progress as the control of an export or import; `conclude` stores its result in the transaction of an import."""
        return JobControl(lambda: self._runner.is_stopping, self.report, conclude)


def fail(claim: Claim, _: TenantJob, error: ApplianceError) -> None:
    """Inside a write: record why a job failed, and drop the passphrase.  LeaseLost."""
    records.fail(claim, error, {"sealed": None})


@dataclass(frozen=True)
class Task:
    """What performs a task and stores its result under the claim, and what records its failure inside a write."""

    perform: Perform
    fail: Fail = fail


class JobRunner(ClaimRunner[Claim]):
    """The jobs that this process runs."""

    leases, lease_ms, pool, label = records.LEASES, records.LEASE_MS, TRANSFER, "job"

    def __init__(self, sealer: Sealer, instance: str, is_alive: Callable[[str], bool]) -> None:
        super().__init__(instance, is_alive)
        self._sealer = sealer
        self._tasks: dict[str, Task] = {}

    def declare(self, name: str, task: Task) -> None:
        """Perform tasks of this name."""
        self._tasks[name] = task

    def begin(self, scope: TenantScope, job: NewJob) -> list[str]:
        """Start a new job; returns the places of files that are no longer needed.  Conflict while one of its kind is running."""
        claim, places = db.write(partial(records.insert_running, scope, job, self.instance))
        self.submit(claim)
        return places

    def seal(self, scope: TenantScope, job_id: str, passphrase: str | None) -> bytes | None:
        """The passphrase as it is stored in the row of the job."""
        if passphrase is None:
            return None
        return self._sealer.seal(passphrase.encode(), records.sealing_context(scope, job_id))

    def unseal(self, claim: Claim, job: TenantJob) -> str | None:
        """The passphrase of the job's file; None without one."""
        if job.sealed is None:
            return None
        return self._sealer.open(job.sealed, records.sealing_context(claim.scope, claim.id)).decode()

    def claim(self, lost: Lease) -> Claim | None:
        return records.claim(lost, self.instance)

    def work(self, claim: Claim) -> None:
        job = records.find_claimed(claim)
        if job is None:
            raise LeaseLost(claim.id)
        try:
            self._tasks[job.task].perform(claim, job, Progress(claim, self))
        except Stopped as error:
            raise Stopping from error

    def record_failure(self, claim: Claim, error: ApplianceError) -> None:
        job = records.find_claimed(claim)
        if job is None:
            raise LeaseLost(claim.id)
        self._tasks[job.task].fail(claim, job, error)

