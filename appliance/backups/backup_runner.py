"""Makes backups of the whole appliance on a background thread, and those of processes that are gone anew from the start."""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

from appliance.blobs import Places
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import ApplianceError
from appliance.core.leases import Lease, LeaseLost
from appliance.core.leases.claims import ClaimRunner, Stopping
from appliance.core.pools import BACKUP
from appliance.core.sentences import Sentence
from appliance.tenants import record_for_appliance

from . import backup_jobs
from .backup_folder import (
    BackupResult,
    address_of,
    delete_leftovers,
    delete_old,
    describe_error,
    new_path,
    open_bucket_folder,
    save_result,
    temporary_folder,
)
from .backup_jobs import Claim
from .creation import Backup, make_backup
from .envelope import check_passphrase, refuse_unencrypted
from .parts import name_file
from .problems import JobControl, Stopped
from .schedule import find_due
from .verification import verify_backup

log = logging.getLogger(__name__)
PROGRESS_SECONDS = 0.5


class BackupRunner(ClaimRunner[Claim]):
    """The backups of the appliance, of which all processes together make one at a time.

    A process with workers makes what is due, what it was asked for, and what nobody makes; without, it only stores requests.
    """

    leases, lease_ms, pool, label = backup_jobs.LEASES, backup_jobs.LEASE_MS, BACKUP, "backup"

    def __init__(
        self, config: Config, places: Places, sealer: Sealer, instance: str, is_alive: Callable[[str], bool]
    ) -> None:  # fmt: skip
        super().__init__(instance, is_alive)
        self._config, self._places, self._sealer = config, places, sealer

    def request(self, passphrase: str, actor: str = "system") -> int:
        """Request a backup and return its number.  Conflict while one is being made, BackupInvalid for a short passphrase."""
        check_passphrase(passphrase)
        number, claim = db.write(partial(self._insert, passphrase, actor))
        if claim is not None:
            self.submit(claim)
        return number

    def _insert(self, passphrase: str, actor: str) -> tuple[int, Claim | None]:
        number = backup_jobs.insert(backup_jobs.REQUESTED)
        record_for_appliance("backup.make", str(number), actor=actor)
        backup_jobs.seal(number, self._sealer.seal(passphrase.encode(), backup_jobs.sealing_context(number)))
        return number, self.claim(Lease((number,), 0, None, 0)) if self._config.server.run_workers else None

    def start_due(self) -> None:
        """Start a backup if one is due.  Called periodically in processes with workers."""
        jobs = backup_jobs.list_jobs()
        due = find_due(self._config, jobs)
        if due is None or due > clock.now_ms() or self.is_stopping:
            return
        last = jobs[0].number if jobs else 0
        claim = db.write(partial(backup_jobs.insert_due, last, self.instance))
        if claim is not None:
            self.submit(claim)

    # -- making a backup

    def claim(self, lost: Lease) -> Claim | None:
        return backup_jobs.claim(lost, self.instance)

    def work(self, claim: Claim) -> None:
        job = backup_jobs.find_claimed(claim)
        if job is None:
            raise LeaseLost(claim.id)
        db.write(partial(backup_jobs.begin, claim))
        passphrase = self._config.backup.passphrase or None
        if job.sealed is not None:
            passphrase = self._sealer.open(job.sealed, backup_jobs.sealing_context(job.number)).decode()
        try:
            self._finish(claim, self._make(claim, passphrase))
        except Stopped as error:
            raise Stopping from error

    def record_failure(self, claim: Claim, error: ApplianceError) -> None:
        backup_jobs.finish(claim, BackupResult(clock.now_ms(), "", 0, 0, 0, encrypted=False, problem=error.message))

    def _finish(self, claim: Claim, result: BackupResult) -> None:
        db.write(partial(backup_jobs.finish, claim, result))
        save_result(self._config, result)

    def _make(self, claim: Claim, passphrase: str | None) -> BackupResult:
        now, path, is_encrypted = clock.now_ms(), new_path(self._config), passphrase is not None
        address = address_of(self._config, path.name)
        try:
            backup = self._make_verified(claim, path, passphrase)
        except (Stopped, LeaseLost):
            raise
        except Exception as error:  # `gos doctor` must report every failure
            reason = describe_error(error, path.parent)
            log.exception("The backup failed.", extra={"fields": {"path": address, "reason": reason}})
            return BackupResult(at=now, path=address, size=0, rows=0, contents=0, encrypted=is_encrypted, problem=reason)
        log.info("The backup is complete.", extra={"fields": {"path": address, "bytes": backup.size}})
        return BackupResult(
            at=now, path=address, size=backup.size, rows=backup.rows, contents=backup.contents, encrypted=backup.encrypted,
            problem=_damage(backup) or self._delete_old(),
        )  # fmt: skip

    def _delete_old(self) -> str | None:
        paths, problem = delete_old(self._config)
        db.write(partial(backup_jobs.forget_deleted, paths))
        return problem

    def _make_verified(self, claim: Claim, path: Path, passphrase: str | None) -> Backup:
        """Make a backup and give it its final name only after it was verified by reading it again."""
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        bucket = open_bucket_folder(self._config)
        if bucket is not None:
            refuse_unencrypted(passphrase)
            bucket.probe()  # before a snapshot is made in vain
        delete_leftovers(self._config)
        course = JobControl(lambda: self.is_stopping, Progress(claim).report)
        with temporary_folder(self._config) as room:
            draft = room / path.name
            backup = make_backup(self._config, self._places, draft, passphrase, course)
            verify_backup(draft, passphrase, room, course)
            if bucket is not None:
                bucket.store(draft, path.name, partial(self._check_lease, claim), course)
            else:
                self._check_lease(claim)
                name_file(draft, path)
        return backup

    def _check_lease(self, claim: Claim) -> None:
        db.write(partial(self.leases.check, claim.key, claim.fence))


class Progress:
    """The progress of a backup, stored twice a second and at each new stage."""

    def __init__(self, claim: Claim) -> None:
        self._claim, self._stage, self._next = claim, "", 0.0
        self.of = 0

    def report(self, stage: str, done: int, of: int) -> None:
        """Store the progress.  LeaseLost: another process makes the backup."""
        self.of = of or (self.of if self.of >= done else 0)  # what is verified are the contents that were counted before
        now = clock.monotonic()
        if stage != self._stage or now >= self._next:
            self._stage, self._next = stage, now + PROGRESS_SECONDS
            db.write(partial(backup_jobs.save_progress, self._claim, stage, done, self.of), is_shared=True)


def _damage(backup: Backup) -> str | None:
    if not backup.damaged:
        return None
    return Sentence(
        "%(count)s contents are damaged or missing in the appliance and not in the backup: %(first)s …",
        count=len(backup.damaged), first=backup.damaged[0],
    )
