"""/api/v1/appliance/backups, /rehearsals and /points: make backups, rehearse restores, and see how they stand."""

from typing import Annotated, Literal

from pydantic import Field

from appliance.api.frame.routing import Answer, Body, Call, View, route
from appliance.api.tenants.tenants import NoQuery
from appliance.backups import BackupInvalid, backup_jobs, list_jobs
from appliance.backups.points import PointReport, get_report
from appliance.backups.rehearsal import Rehearsal, list_rehearsals
from appliance.core import clock
from appliance.core.errors import Conflict, NotFound, ValidationFailed
from appliance.core.pages import Page
from appliance.core.sentences import Sentence

from .acting import actor_of

State = Annotated[
    Literal["running", "done", "failed"], Field(description="`running` from the request on, then `done`, or `failed`.")
]
Problem = Annotated[str | None, Field(description="Why it failed, as a sentence; absent otherwise.")]


class BackupView(View):
    """A backup of the whole appliance; the newest 50 are remembered."""

    number: Annotated[int, Field(description="Number of the backup, counted from 1.")]
    kind: Annotated[str, Field(description="`requested`, or `scheduled` by `backup.every`.")]
    state: State
    stage: Annotated[
        str | None,
        Field(description="What is being done: `asked`, `database`, `contents`, `checking` and others; absent once it has ended."),
    ] = None
    started_at: Annotated[str, Field(description="When it was requested or begun, RFC 3339 in UTC.")]
    path: Annotated[str | None, Field(description="The file, or its address in a bucket; absent before there is one.")] = None
    bytes: Annotated[int | None, Field(description="Size of the file; absent before there is one.")] = None
    encrypted: Annotated[bool | None, Field(description="Whether it is encrypted; absent while it is running.")] = None
    problem: Problem = None


class RehearsalView(View):
    """A rehearsal of a restore: a backup is restored beside the data, started, asked and deleted."""

    number: Annotated[int, Field(description="Number of the rehearsal, counted from 1.")]
    state: State
    started_at: Annotated[str, Field(description="When it was requested or begun, RFC 3339 in UTC.")]
    source: Annotated[str | None, Field(description="The backup; absent before it is chosen.")] = None
    restore_ms: Annotated[int | None, Field(description="How long the restore took, in milliseconds; absent without one.")] = None
    problem: Problem = None


class PointsView(View):
    """The points in time that are shipped to `backup.points_to`, from which the appliance is restored to any second."""

    state: Annotated[
        Literal["off", "server", "waiting", "shipped", "late", "failed"],
        Field(description=(
            "`off`; `server`: PostgreSQL restores by its own means; `waiting` for the first base; `shipped`; `late`: nothing was "
            "shipped for two minutes although the appliance is running; `failed`: see `problem`."
        )),
    ]  # fmt: skip
    place: Annotated[str | None, Field(description="Folder or address in a bucket; absent when it is off.")] = None
    encrypted: Annotated[bool | None, Field(description="Whether it is encrypted; absent when it is off.")] = None
    restore_from: Annotated[str | None, Field(description="From when on each moment can be restored; absent if none can.")] = None
    restore_until: Annotated[str | None, Field(description="Until when each moment can be restored; absent if none can.")] = None
    lag_seconds: Annotated[int | None, Field(description="Age of the last point, up to 15 s while all is well.")] = None
    base_at: Annotated[str | None, Field(description="When the last base was made; absent without one.")] = None
    problem: Problem = None
    problem_at: Annotated[str | None, Field(description="Since when it fails; absent otherwise.")] = None
    command: Annotated[str | None, Field(description="The command that restores the last point; absent if none can be.")] = None


class MakeBackup(Body):
    passphrase: Annotated[
        str | None, Field(max_length=1024, description="Passphrase of the file; by default that of `backup.passphrase`.")
    ] = None


def _backup_view(job: backup_jobs.BackupJob) -> BackupView:
    result = job.result
    if result is None:
        return BackupView(
            number=job.number, kind=job.kind, state="running", stage=job.stage, started_at=clock.rfc3339(job.since)
        )  # fmt: skip
    return BackupView(
        number=job.number, kind=job.kind, state="done" if result.problem is None else "failed", started_at=clock.rfc3339(job.since),
        path=result.path or None, bytes=result.size or None, encrypted=result.encrypted, problem=result.problem,
    )  # fmt: skip


def _rehearsal_view(each: Rehearsal) -> RehearsalView:
    ended: Literal["done", "failed"] = "done" if each.problem is None else "failed"
    return RehearsalView(
        number=each.number, state="running" if each.is_running else ended, started_at=clock.rfc3339(each.started_at),
        source=each.source or None, restore_ms=None if each.result is None else each.result.restore_ms, problem=each.problem,
    )  # fmt: skip


def _points_view(report: PointReport) -> PointsView:
    times = {
        "restore_from": report.first_at, "restore_until": report.last_at, "base_at": report.base_at,
        "problem_at": report.problem_at,
    }  # fmt: skip
    return PointsView.model_validate({
        "state": report.state, "place": report.place or None, "encrypted": report.is_encrypted if report.place else None,
        "lag_seconds": report.lag_seconds if report.last_at else None, "problem": report.problem or None,
        "command": report.command or None, **{name: clock.rfc3339(time) if time else None for name, time in times.items()},
    })  # fmt: skip


@route("GET", "/appliance/points", scope="appliance.read", returns=PointsView, query=NoQuery)
def get_points(call: Call) -> PointsView:
    """Show the points that can be restored.

    From when until when the appliance can be restored to a second, as of the last ten seconds. `late` and `failed` are what an
    alert should be about; `gos doctor` and `/appliance/health` say the same.
    """
    return _points_view(get_report(call.services.config))


@route("GET", "/appliance/backups", scope="appliance.read", returns=BackupView, listed=True, query=NoQuery)
def list_backups(call: Call) -> Page[BackupView]:
    """List the backups that are remembered.

    The latest first; the list is complete: it has no pages.
    """
    return Page([_backup_view(job) for job in list_jobs()])


@route(
    "POST", "/appliance/backups", scope="appliance.backups", body=MakeBackup, returns=BackupView, status=202, atomic=False,
    errors=(Conflict, BackupInvalid),
)  # fmt: skip
def make_backup(call: Call) -> Answer:
    """Make a backup of the whole appliance.

    Done in the background: read the backup until `state` is no longer `running`. 409 while another is being made.
    """
    passphrase = call.body.passphrase or call.services.config.backup.passphrase
    if not passphrase:
        raise ValidationFailed("send a passphrase to encrypt the file with, or set backup.passphrase", pointer="/passphrase")
    number = call.services.backups.request(passphrase, actor_of(call))
    return Answer(get_backup(call, str(number)), headers={"Location": f"/api/v1/appliance/backups/{number}"})


@route("GET", "/appliance/backups/{number}", scope="appliance.read", returns=BackupView)
def get_backup(call: Call, number: str) -> BackupView:
    """Show one backup.

    Its progress while it is running, and how it ended.
    """
    for job in list_jobs():
        if str(job.number) == number:
            return _backup_view(job)
    raise NotFound(Sentence("there is no backup %(number)s among those that are remembered", number=repr(number[:40])))


@route("GET", "/appliance/rehearsals", scope="appliance.read", returns=RehearsalView, listed=True, query=NoQuery)
def list_restore_rehearsals(call: Call) -> Page[RehearsalView]:
    """List the rehearsals of restores.

    The latest 20, the newest first; the list has no pages.
    """
    return Page([_rehearsal_view(each) for each in list_rehearsals()])


@route(
    "POST", "/appliance/rehearsals", scope="appliance.backups", returns=RehearsalView, status=202, atomic=False,
    errors=(Conflict,),
)  # fmt: skip
def rehearse_restore(call: Call) -> RehearsalView:
    """Rehearse the restore of the newest backup.

    Done in the background: read the list until `state` is no longer `running`. 409 while another is running.
    """
    number = call.services.rehearsals.request(actor_of(call))
    return next(_rehearsal_view(each) for each in list_rehearsals() if each.number == number)
