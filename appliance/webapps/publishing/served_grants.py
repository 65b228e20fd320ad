"""Under which grant a WebApp is served: looked at once it is published, taken back by an owner.

`webapp.grant_digest` names what the published version reaches and is null until that was looked at; `allowed_until` (epoch ms)
is when its routes answer no more, null: they do.
"""

import json
from dataclasses import dataclass
from functools import partial

from appliance.core import clock
from appliance.core.database import db
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.monitor import audit
from appliance.tenants import service as tenants
from appliance.tenants.grants import Assessor, Grace, Grant, Published, Reach, confirmations, grant_assessment, grants
from appliance.webapps import versions
from appliance.webapps.models import VersionRow, WebAppRow
from appliance.webapps.routes.authority import lift_suspension, reach_of_settings, subject_of
from appliance.webapps.service import WebApps

_LATEST = PageRequest(50)


def reach_of_published(scope: TenantScope, app_id: str) -> Reach | None:
    """What the version that is served reaches; None while nothing is published."""
    app = scope.get(WebAppRow, id=app_id)
    if app.published_version is None:
        return None
    return reach_of_settings(versions.get_row(scope, app_id, app.published_version).settings)


@dataclass(frozen=True)
class Served:
    """The version that is served (0: none, None: no such app), until when its routes answer (epoch ms; None: for good), and how
    often further forms of the app's contents came."""

    number: int | None = None
    allowed_until: int | None = None
    forms: int = 0


def find_served(scope: TenantScope, app_id: str) -> Served:
    """What is served of an app now."""
    row = scope.find(WebAppRow, id=app_id)
    return Served() if row is None else Served(row.published_version or 0, row.allowed_until, row.forms)


def is_allowed(scope: TenantScope, app_id: str, number: int) -> bool:
    """Whether a grant covers what the routes of a version reach; a version that is gone reaches nothing."""
    row = scope.find(VersionRow, app_id=app_id, number=number)
    return row is None or grants.is_granted(scope, subject_of(app_id), reach_of_settings(row.settings))


def find_served_grant(scope: TenantScope, app_id: str) -> Grant | None:
    """The grant under which the app is served; None when there is none."""
    reach = reach_of_published(scope, app_id)
    return None if reach is None else grants.find_grant(scope, subject_of(app_id), reach.digest)


def carry_out(scope: TenantScope, webapps: WebApps, app_id: str, decided: confirmations.Confirmation) -> None:
    """Inside the write that decides about the grant of a WebApp: its routes answer again, or it is unpublished."""
    stopped = grants.carry_out(scope, decided)
    if decided.state == "confirmed":
        lift_suspension(scope, app_id, decided.digest)
        webapps.tell_after_commit(scope, app_id)
    else:
        _unpublish(scope, webapps, app_id, stopped)


def withdraw(scope: TenantScope, webapps: WebApps, app_id: str, digest: str) -> None:
    """Take back what a WebApp may reach: where it is served with that, it is unpublished."""

    def write() -> None:
        _unpublish(scope, webapps, app_id, grants.withdraw_grant(scope, subject_of(app_id), digest))

    db.write(write)


def _unpublish(scope: TenantScope, webapps: WebApps, app_id: str, digests: list[str]) -> None:
    """An app may have been deleted since an owner was asked about it."""
    if scope.find(WebAppRow, id=app_id) is None:
        return
    reach = reach_of_published(scope, app_id)
    if reach is not None and reach.digest in digests:
        webapps.unpublish_app(scope, app_id)


def make_assessor(grace: Grace) -> Assessor[tuple[str, str]]:
    """Looks at every app that was published before grants were recorded, or whose version has changed."""

    def find() -> list[tuple[str, str]]:
        rows = db.rows("SELECT tenant_id, id FROM webapp WHERE published_version IS NOT NULL AND grant_digest IS NULL")
        return [(str(tenant_id), str(app_id)) for tenant_id, app_id in rows]

    return Assessor(find, lambda key: assess(tenants.system_scope(key[0]), key[1], grace))


def assess(scope: TenantScope, app_id: str, grace: Grace) -> None:
    """Note what the published version reaches, and until when its routes answer."""
    db.write(partial(_assess, scope, app_id, grace))


def _assess(scope: TenantScope, app_id: str, grace: Grace) -> None:
    app = scope.find(WebAppRow, id=app_id)
    if app is None or app.published_version is None or app.grant_digest is not None:  # somebody was quicker
        return
    row = versions.get_row(scope, app_id, app.published_version)
    reach = reach_of_settings(row.settings)
    at = row.published_at or row.created_at
    published = Published(subject_of(app_id), row.number, reach, _publisher_of(scope, row), at)
    until = grant_assessment.assess(scope, published, grace)
    scope.update(WebAppRow, grant_digest=reach.digest, allowed_until=until).where(WebAppRow.id == app_id).execute()


def _publisher_of(scope: TenantScope, row: VersionRow) -> str:
    """Who published the version last, as the audit trail has it; empty when nobody knows any more."""
    entries = audit.list_entries(scope, audit.AuditFilter(action="webapp.publish", subject=row.app_id), _LATEST).items
    return next((entry.actor for entry in entries if json.loads(entry.fields).get("version") == row.number), "")


def is_suspended(allowed_until: int | None) -> bool:
    """Whether the routes of an app answer no more."""
    return allowed_until is not None and allowed_until <= clock.now_ms()
