"""Automatic backups: when the next one is due, the result of the last one, and where backups are."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from appliance.core import clock
from appliance.core.config import Config
from appliance.core.errors import ApplianceError

from .backup_folder import BackupFile, BackupResult, list_backups, list_unowned, load_last_result, open_bucket_folder
from .backup_jobs import SCHEDULED, BackupJob, this_machine
from .buckets.addresses import is_bucket

RETRY_MS = 10 * 60_000  # the delay after a failed backup


@dataclass(frozen=True)
class BackupStatus:
    """The status of backups: configuration, last attempt, next due time and stored backups.

    `files` are those in the folder or bucket, as this process sees it, `unreachable` says why those in the bucket are unknown;
    `elsewhere` were made on other machines in folders of their own.
    """

    folder: str
    every: str
    keep: int
    encrypts: bool
    last: BackupResult | None
    next_at: int | None
    files: tuple[BackupFile, ...]
    overdue: bool
    unreachable: str | None = None
    running: BackupJob | None = None
    last_machine: str = ""
    elsewhere: tuple[BackupJob, ...] = ()


def find_due(config: Config, jobs: Sequence[BackupJob] = ()) -> int | None:
    """When the next backup is due (epoch ms), 0 for at once; None when backups are not configured.

    `jobs` are those that are remembered, the latest first: a scheduled backup on another machine counts as one here does.
    """
    if not config.backup.to:
        return None
    backup_to, machine, every, now = config.backup.to, this_machine(), clock.parse_duration(config.backup.every), clock.now_ms()
    ours = (job for job in jobs if job.result is not None and (job.kind == SCHEDULED or job.machine == machine))
    latest = next(ours, None)
    last = latest.result if latest is not None else load_last_result(config)
    if last is not None and last.size == 0:  # it failed
        return last.at + min(RETRY_MS, every) if last.at <= now else 0
    files, unreachable = _list_reachable(config)
    times = [each.made_at for each in files]
    is_elsewhere = latest is not None and latest.machine != machine and not is_bucket(backup_to)
    if last is not None and (unreachable or is_elsewhere):
        times.append(last.at)
    return max((at for at in times if at <= now), default=-every) + every  # one made by a clock that was ahead does not count


def get_status(config: Config, jobs: Sequence[BackupJob] = ()) -> BackupStatus:
    """The current status of backups; `jobs` are those that are remembered, the latest first."""
    due, backup = find_due(config, jobs), config.backup
    latest = next((job for job in jobs if job.result is not None), None)
    last = latest.result if latest is not None else load_last_result(config)
    late = due is not None and clock.now_ms() > due + clock.parse_duration(backup.every)
    files, unreachable = _list_reachable(config)
    return BackupStatus(
        folder=backup.to, every=backup.every, keep=backup.keep, encrypts=bool(backup.passphrase), last=last, next_at=due or None,
        files=files, unreachable=unreachable, overdue=late and bool(files),
        running=next((job for job in jobs if job.result is None), None),
        last_machine=latest.machine if latest is not None else "", elsewhere=tuple(_list_elsewhere(jobs, files)),
    )  # fmt: skip


def _list_reachable(config: Config) -> tuple[tuple[BackupFile, ...], str | None]:
    """The backups, and the reason if the bucket cannot be reached."""
    try:
        return tuple(list_backups(config)), None
    except ApplianceError as error:
        return (), error.message


def _list_elsewhere(jobs: Sequence[BackupJob], files: Sequence[BackupFile]) -> Iterator[BackupJob]:
    """The backups of other machines whose files are not in the folder here."""
    names = {each.name for each in files}
    for job in jobs:
        if job.result is None or not job.result.size or job.machine == this_machine() or is_bucket(job.result.path):
            continue
        if Path(job.result.path).name not in names:
            yield job


def _is_missing(status: BackupStatus) -> bool:
    """Whether the last backup, which is complete, is no longer where it was stored, as far as this machine can tell."""
    if status.last is None:
        return False
    if is_bucket(status.last.path):
        is_listed = Path(status.last.path).name in {each.name for each in status.files}
        return status.unreachable is None and status.last.path.startswith(status.folder) and not is_listed
    return status.last_machine in ("", this_machine()) and not _is_there(Path(status.last.path))


def _is_there(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # the file is not accessible
        return False


def findings(config: Config, jobs: Sequence[BackupJob] = ()) -> Iterator[tuple[str, str]]:
    """The findings of `gos doctor` about backups: (level, text)."""
    status = get_status(config, jobs)
    if not status.folder:
        yield "note", "automatic backups are off (backup.to); set a folder on another disk, or run gos backup by cron"
        return
    if status.last is None:
        yield "note", f"no backup has been made in {status.folder} yet; the appliance makes one when it runs"
    elif status.last.problem is not None:
        yield "FAIL", f"the last backup failed at {clock.rfc3339(status.last.at)}: {status.last.problem}"
    elif status.overdue:
        at = clock.rfc3339(status.last.at)
        yield "FAIL", f"the last backup was made at {at}, and one is due every {status.every}: is the appliance running?"
    elif _is_missing(status):
        yield "FAIL", (
            f"the last backup, of {clock.rfc3339(status.last.at)}, is missing ({status.last.path}): is the disk mounted, was "
            "the file moved? Until the next one is made there may be no backup"
        )
    else:
        path, size = status.last.path, status.last.size >> 10
        on = f" on {status.last_machine}" if status.last_machine not in ("", this_machine()) else ""
        yield "ok", f"the last backup, of {clock.rfc3339(status.last.at)}, is complete: {path}{on}, {size} KiB"
    if is_bucket(status.folder):
        yield from _bucket_findings(config, status)
    elif not status.encrypts:
        yield (
            "note",
            "backups are not encrypted and therefore lack the key file (backup.passphrase); keep a copy of it on another machine",
        )
    if unclear := list_unowned(config):
        yield "note", (
            f"{len(unclear)} backups in {status.folder} have names of an earlier release without an installation: they are neither "
            "counted nor deleted; delete them yourself when you no longer need them"
        )
    folder = Path(status.folder)
    if not is_bucket(status.folder) and folder.is_dir() and folder.stat().st_dev == config.data.stat().st_dev:
        yield "note", f"backups are on the same disk as the data ({status.folder}); if it fails, both are lost"


def _bucket_findings(config: Config, status: BackupStatus) -> Iterator[tuple[str, str]]:
    """Whether the bucket can be written to and read from, how old its newest backup is, and what else it needs."""
    bucket = open_bucket_folder(config, retries=1)
    if bucket is None:
        return
    try:
        bucket.probe()
    except ApplianceError as error:
        cause = f" ({' '.join(str(error.__cause__).split())[:300]})" if error.__cause__ else ""
        yield "FAIL", f"{error.message}{cause}; check backup.to, backup.endpoint and its keys"
        return
    if status.unreachable is not None:
        yield "FAIL", f"the backups in {status.folder} cannot be listed: {status.unreachable}"
        return
    newest = max((each.made_at for each in status.files), default=None)
    hours = None if newest is None else max(0, clock.now_ms() - newest) // 3_600_000
    age = f"the newest of {len(status.files)} is {hours} hours old" if status.files else "it has none of this installation yet"
    yield "ok", f"backups can be written to, read from and deleted in {status.folder}; {age}"
    if not status.encrypts:
        yield "FAIL", "backups in a bucket must be encrypted, so none is made: set GOS_BACKUP_PASSPHRASE"
    if not bucket.finds_unfinished:
        yield "note", (
            "without backup.key_id, unfinished uploads of a killed process are not found: give the bucket a lifecycle rule that "
            "deletes incomplete multipart uploads after a day"
        )
    if config.backup.endpoint.startswith("http://"):
        yield "note", "backups are sent to backup.endpoint without TLS, although they are encrypted themselves; use https"
