"""The grant under which a WebApp is served: assessed after publishing, and revocable by an owner.

`webapp.grant_digest` identifies what the published version needs access to, and is null until that is assessed. `allowed_until`
(epoch ms) is when its routes stop responding; null means never.
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
from appliance.tenants.grants import (
    AccessSpec,
    Assessor,
    GracePeriods,
    Grant,
    PublishedVersion,
    confirmations,
    grant_assessment,
    grants,
)
from appliance.webapps import changes, versions
from appliance.webapps.models import VersionRow, WebAppRow
from appliance.webapps.routes.authority import required_access_of_settings, resume_routes, subject_of
from appliance.webapps.service import WebApps

_LATEST = PageRequest(50)


def required_access_of_published(scope: TenantScope, app_id: str) -> AccessSpec | None:
    """What the published version needs access to; None while nothing is published."""
    app = scope.get(WebAppRow, id=app_id)
    if app.published_version is None:
        return None
    return required_access_of_settings(versions.get_row(scope, app_id, app.published_version).settings)


@dataclass(frozen=True)
class ServedState:
    """The version that is served (0: none, None: no such app), until when its routes respond (epoch ms; None: indefinitely),
    how often encoded forms were added, and when the app was created: another one may have its id, and a version of that number."""

    number: int | None = None
    allowed_until: int | None = None
    forms: int = 0
    created_at: int = 0


def find_served(scope: TenantScope, app_id: str) -> ServedState:
    """What an app serves now."""
    row = scope.find(WebAppRow, id=app_id)
    if row is None:
        return ServedState()
    return ServedState(row.published_version or 0, row.allowed_until, row.forms, row.created_at)


def is_allowed(scope: TenantScope, app_id: str, number: int) -> bool:
    """Whether a grant covers what the routes of a version need; a deleted version needs nothing."""
    row = scope.find(VersionRow, app_id=app_id, number=number)
    return row is None or grants.is_granted(scope, subject_of(app_id), required_access_of_settings(row.settings))


def find_served_grant(scope: TenantScope, app_id: str) -> Grant | None:
    """The grant under which the app is served, or None."""
    required = required_access_of_published(scope, app_id)
    return None if required is None else grants.find_grant(scope, subject_of(app_id), required.digest)


def apply_decision(scope: TenantScope, webapps: WebApps, app_id: str, confirmation: confirmations.Confirmation) -> None:
    """Inside the write that decides about the grant of a WebApp: resume its routes, or unpublish it."""
    revoked = grants.apply_decision(scope, confirmation)
    if confirmation.state == "confirmed":
        resume_routes(scope, app_id, confirmation.digest)
        changes.notify_after_commit(scope, app_id)
    else:
        _unpublish(scope, webapps, app_id, revoked)


def revoke(scope: TenantScope, webapps: WebApps, app_id: str, digest: str) -> None:
    """Revoke a grant of a WebApp, and unpublish the app if it is served under it."""

    def write() -> None:
        _unpublish(scope, webapps, app_id, grants.withdraw_grant(scope, subject_of(app_id), digest))

    db.write(write)


def _unpublish(scope: TenantScope, webapps: WebApps, app_id: str, digests: list[str]) -> None:
    """Unpublish the app if it is served under one of these grants. The app may have been deleted since the owner was asked."""
    if scope.find(WebAppRow, id=app_id) is None:
        return
    required = required_access_of_published(scope, app_id)
    if required is not None and required.digest in digests:
        webapps.unpublish_app(scope, app_id)


def build_assessor(grace: GracePeriods) -> Assessor[tuple[str, str]]:
    """Assesses every app that was published before grants were recorded, or whose version changed."""

    def find() -> list[tuple[str, str]]:
        rows = db.rows("SELECT tenant_id, id FROM webapp WHERE published_version IS NOT NULL AND grant_digest IS NULL")
        return [(str(tenant_id), str(app_id)) for tenant_id, app_id in rows]

    return Assessor(find, lambda key: assess(tenants.system_scope(key[0]), key[1], grace))


def assess(scope: TenantScope, app_id: str, grace: GracePeriods) -> None:
    """Record what the published version needs access to, and until when its routes respond."""
    db.write(partial(_assess, scope, app_id, grace))


def _assess(scope: TenantScope, app_id: str, grace: GracePeriods) -> None:
    app = scope.find(WebAppRow, id=app_id)
    if app is None or app.published_version is None or app.grant_digest is not None:  # another process was faster
        return
    row = versions.get_row(scope, app_id, app.published_version)
    required = required_access_of_settings(row.settings)
    at = row.published_at or row.created_at
    published = PublishedVersion(subject_of(app_id), row.number, required, _publisher_of(scope, row), at)
    until = grant_assessment.assess(scope, published, grace)
    scope.update(WebAppRow, grant_digest=required.digest, allowed_until=until).where(WebAppRow.id == app_id).execute()


def _publisher_of(scope: TenantScope, row: VersionRow) -> str:
    """Who last published the version, according to the audit trail; empty when unknown."""
    entries = audit.list_entries(scope, audit.AuditFilter(action="webapp.publish", subject=row.app_id), _LATEST).items
    return next((entry.actor for entry in entries if json.loads(entry.fields).get("version") == row.number), "")


def is_suspended(allowed_until: int | None) -> bool:
    """Whether the routes of an app have stopped responding."""
    return allowed_until is not None and allowed_until <= clock.now_ms()
