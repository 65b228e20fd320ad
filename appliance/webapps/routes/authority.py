"""What the routes of a version access on behalf of visitors, and whether that is granted."""

from collections.abc import Iterable, Mapping
from typing import Any

from appliance.core.scope import TenantScope
from appliance.tenants.grants import AccessSpec, build_access_spec, require_grant
from appliance.webapps.models import WebAppRow

from .routes import Route, parse_routes

READING = frozenset({"list", "view"})


def subject_of(app_id: str) -> str:
    """The name of a WebApp in grants."""
    return f"webapp:{app_id}"


def required_access(routes: Iterable[Route]) -> AccessSpec:
    """The processes, collections and documents that visitors access through these routes."""
    processes: set[str] = set()
    datapool: dict[str, set[str]] = {}
    documents: set[str] = set()
    for route in routes:
        if route.process:
            processes.add(route.process)
        else:
            access = {"read" if operation in READING else "write" for operation in route.operations}
            datapool.setdefault(route.entities, set()).update(access)
        if route.upload is not None:
            documents.add("write")
    return build_access_spec({"processes": processes, "datapool": datapool, "documents": documents})


def required_access_of_settings(settings: Mapping[str, Any]) -> AccessSpec:
    """The same for the settings of a stored version."""
    return required_access(parse_routes(settings.get("routes", ())))


def require_routes(scope: TenantScope, app_id: str, settings: Mapping[str, Any]) -> None:
    """Inside a write: GrantRequired unless the access that the version's routes need is granted."""
    required = required_access_of_settings(settings)
    require_grant(scope, subject_of(app_id), required)
    resume_routes(scope, app_id, required.digest)


def resume_routes(scope: TenantScope, app_id: str, digest: str) -> None:
    """Inside a write: the access is granted now, so the routes of a version served with it respond again."""
    served = (WebAppRow.id == app_id) & (WebAppRow.grant_digest == digest)
    scope.update(WebAppRow, allowed_until=None).where(served).execute()
