"""Pages for administrators: the state of backups, starting one, and downloading one."""

from collections.abc import Iterator

from appliance.backups import BackupSource, get_status, list_backups, list_jobs, open_backup, place_of
from appliance.backups.points import get_report
from appliance.backups.rehearsal import get_status as get_rehearsal_status
from appliance.backups.rehearsal import list_rehearsals
from appliance.console.frame.routing import Answer, File, Page, Redirect, Visit, page
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ApplianceError, NotFound, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.core.texts import mark
from appliance.tenants import record_for_appliance

from .appliance import require_administrator

HERE = "/console/appliance/backups"
EVERY_MS = 1000
STAGES = {
    "asked": mark("Waiting for a process with workers to begin."),
    "database": mark("Copying the database."), "contents": mark("Adding contents of documents and WebApps."),
    "checking": mark("Verifying it by reading it back."), "uploading": mark("Uploading it to the bucket (MiB)."),
    "reading": mark("Reading it back from the bucket (MiB)."),
}  # fmt: skip


@page("GET", "/appliance/backups", scope=None)
def show_backups(visit: Visit) -> Answer:
    """The state of backups, the progress of a running one, and instructions to restore one."""
    require_administrator(visit)
    return _page(visit, part=visit.request.is_fragment)


def _page(visit: Visit, problem: ApplianceError | None = None, *, part: bool = False) -> Page:
    config = visit.services.config
    status, rehearsal = get_status(config, list_jobs()), get_rehearsal_status(config, list_rehearsals())
    points = get_report(config)
    values = {
        "now": status, "progress": status.running, "stages": STAGES, "rehearsal": rehearsal,
        "every": EVERY_MS if status.running or rehearsal.running else 0,
        "live_url": f"{HERE}?part=live", "folder": place_of(config), "problem": problem,
        "points": points, "points_from": clock.rfc3339(points.first_at), "points_until": clock.rfc3339(points.last_at),
    }  # fmt: skip
    template = "backups_live.html" if part else "backups.html"
    return Page(template, values, problem.status if problem else 200)


@page("POST", "/appliance/backups", scope=None)
def make_backup(visit: Visit) -> Answer:
    """Start a backup in the background; the page shows its progress."""
    require_administrator(visit)
    passphrase, request = visit.services.config.backup.passphrase, visit.request
    try:
        if not passphrase:
            passphrase = request.field("passphrase")
            if passphrase != request.field("again"):
                raise ValidationFailed("the two passphrases differ; enter the same one twice", pointer="/again")
            if not passphrase:
                raise ValidationFailed("enter a passphrase to encrypt the file with", pointer="/passphrase")
        visit.services.backups.request(passphrase, visit.scope.actor)
    except ApplianceError as error:
        return _page(visit, error)
    return Redirect(HERE)


@page("POST", "/appliance/backups/rehearsal", scope=None)
def start_rehearsal(visit: Visit) -> Answer:
    """Rehearse the restore of the newest backup in the background; the page shows its result."""
    require_administrator(visit)
    try:
        visit.services.rehearsals.request(visit.scope.actor)
    except ApplianceError as error:
        return _page(visit, error)
    return Redirect(HERE)


@page("GET", "/appliance/backups/<name>", scope=None)
def download_backup(visit: Visit, name: str) -> Answer:
    """Download an encrypted backup; unencrypted ones are not offered, because a backup contains every tenant."""
    require_administrator(visit)
    config = visit.services.config
    backup = next((each for each in list_backups(config) if each.name == name), None)
    source = open_backup(config, name) if backup is not None and backup.is_sealed else None
    if backup is None or source is None:
        raise NotFound(Sentence("there is no encrypted backup %(name)s", name=repr(name[:80])))
    db.write(lambda: record_for_appliance("backup.download", backup.name, actor=visit.scope.actor))
    return File(backup.name, "application/octet-stream", _pieces(source), backup.size)


def _pieces(source: BackupSource) -> Iterator[bytes]:
    with source.open("rb") as file:
        yield from iter(lambda: file.read(1 << 20), b"")
