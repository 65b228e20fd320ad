"""Imports a tenant export: checks all of it first, then fills a tenant that nobody sees until everything is there."""

import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from appliance.blobs import Places
from appliance.core import clock, ids
from appliance.core.database import db
from appliance.core.errors import Conflict
from appliance.core.scope import TenantScope
from appliance.monitor import audit
from appliance.tenants import closed_tenants, people, quota_settings, record_for_appliance, service

from .copying import FileSource
from .importing import ImportRequest, ImportResult, SecretReplacement
from .importing.contents import store_contents
from .importing.filling import Filling
from .importing.preparation import Prepared, prepare_file
from .importing.quota_check import refuse_over_quota
from .importing.requests import UnpackedExport
from .importing.unpacking import unpack_export
from .problems import UNCONTROLLED, JobControl, Stopped, full_disks
from .snapshots import open_snapshot
from .tenant_exports import TENANT_DATABASE

_LOOK_SECONDS = 0.2


def import_tenant(places: Places, resealing: SecretReplacement, request: ImportRequest, room: Path) -> ImportResult:
    """Imports an export into the open database, as a whole or not at all.

    Ids are kept.  Unfinished work is cancelled, because it may continue in the original tenant; triggers are paused unless the
    request is `active`.  Raises AlreadyExists, BackupInvalid or StorageFull.
    """
    with tempfile.TemporaryDirectory(prefix=".gos-import-", dir=room) as folder:
        with request.path.open("rb") as file:
            manifest = unpack_export(file, request, Path(folder))
        return write_tenant(places, resealing, request, UnpackedExport(Path(folder), manifest))


def write_tenant(
    places: Places, resealing: SecretReplacement, request: ImportRequest, export: UnpackedExport, course: JobControl = UNCONTROLLED
) -> ImportResult:
    """Imports an unpacked export, like `import_tenant`; its file is changed.

    The tenant is filled in short writes and revealed by the last one, in which `course.conclude` gets the result.  Whatever
    a process that is gone has left of an earlier try is deleted first.  StorageFull if it has more than its quotas would allow.
    """
    tenant_id, database = request.name or export.manifest["tenant"]["id"], export.folder / TENANT_DATABASE
    scope = service.system_scope(tenant_id, request.actor)
    with full_disks():
        _wait_until_free(tenant_id, course)
        check_new_id(tenant_id)
        with open_snapshot(database) as file:
            refuse_over_quota(file, quota_settings.parse_quotas(request.quotas))
        new_places = store_contents(places, database, export.folder / "contents", tenant_id, course)
        prepared = prepare_file(database, scope, resealing, course, active=request.active)
        with open_snapshot(database) as file:
            source, total = FileSource(file.execute), sum(export.manifest["tables"].values())
            closed_at = db.write(partial(_insert_closed, scope, request, export.manifest))
            filling = Filling(scope, source, new_places, course, total, closed_at)
            with _deleted_unless_complete(filling):
                complete = filling.fill()
                course.refuse_stopping()

                def reveal() -> ImportResult:
                    closed_tenants.reveal(tenant_id, filling.closed_at)
                    complete()
                    result = _add_members(scope, request, export.manifest, prepared)
                    course.conclude(result)
                    return result

                return db.write(reveal)


def _wait_until_free(tenant_id: str, course: JobControl) -> None:
    """Delete what an interrupted import has left, once it is certain that nobody works on it; wait that long at most."""
    until = clock.monotonic() + closed_tenants.LEFT_MS / 1000 + 1
    while not closed_tenants.delete_if_left(tenant_id) and clock.monotonic() < until:
        course.refuse_stopping()
        threading.Event().wait(_LOOK_SECONDS)


def check_new_id(tenant_id: str) -> str:
    """Returns the id; raises ValidationFailed when it is invalid, AlreadyExists when it is in use."""
    ids.check_slug(tenant_id, pointer="/name", longest=24)
    service.check_free(tenant_id, pointer="/name")
    return tenant_id


def _insert_closed(scope: TenantScope, request: ImportRequest, manifest: dict[str, Any]) -> int:
    """Inside a write: the tenant, which nobody sees yet; returns the time for its filling."""
    check_new_id(scope.tenant_id)
    tenant = manifest["tenant"]
    own = tenant["name"] if scope.tenant_id == tenant["id"] else f"{tenant['name']} ({scope.tenant_id})"
    return closed_tenants.insert_closed(scope.tenant_id, (request.title or own)[: service.MAX_NAME], tenant["kind"])


@contextmanager
def _deleted_unless_complete(filling: Filling) -> Iterator[None]:
    """If the block fails, nothing is left: deleted at once, or by whoever comes next when the appliance is stopping."""
    tenant_id = filling.scope.tenant_id
    try:
        yield
    except BaseException as error:
        try:
            db.write(lambda: closed_tenants.let_go(tenant_id, filling.closed_at))
        except Conflict:  # another process deletes it already
            raise error from None
        if not isinstance(error, Stopped):
            closed_tenants.delete_if_left(tenant_id)
        raise


def _add_members(scope: TenantScope, request: ImportRequest, manifest: dict[str, Any], prepared: Prepared) -> ImportResult:
    """Inside the write that reveals the tenant: give it its members, and record the import."""
    tenant = manifest["tenant"]
    quota_settings.store_quotas(scope, request.quotas)
    unknown_logins = tuple(each["login"] for each in manifest["people"] if not _add_member(scope, each))
    if request.owner:
        people.store_member(scope, request.owner, "owner", approver=False)
    details = {"from": tenant["id"], "made_at": manifest["made_at"], **_trail_details(prepared.trail)}
    audit.record(scope, "tenant.import", scope.tenant_id, details)
    record_for_appliance("tenant.import", scope.tenant_id, details, actor=request.actor)
    return ImportResult(scope.tenant_id, manifest, prepared.paused, unknown_logins)


def _trail_details(trail: audit.ChainStatus) -> dict[str, Any]:
    """The audit details of a broken imported trail, whose hashes fit again after the import; empty for an intact one."""
    return {} if trail.intact else {"trail_broken_at": trail.broken_seq, "trail_broken": trail.reason}


def has_account(login: str) -> bool:
    """Whether an account with that login exists here."""
    return bool(db.rows("SELECT 1 FROM person WHERE login = ?", (login,)))


def _add_member(scope: TenantScope, person: Mapping[str, Any]) -> bool:
    """Makes the person a member if the login has an account here; whether it has."""
    if not has_account(person["login"]):
        return False
    people.store_member(scope, person["login"], person["role"], approver=person["approver"])
    return True
