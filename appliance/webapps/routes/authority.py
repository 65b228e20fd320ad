"""What the routes of a version access on behalf of visitors, and whether that is granted."""

from collections.abc import Iterable, Mapping
from typing import Any

from appliance.core.scope import TenantScope
from appliance.tenants.grants import Reach, make_reach, require_grant
from appliance.webapps.models import WebAppRow

from .routes import Route, parse_routes

READING = frozenset({"list", "view"})


def subject_of(app_id: str) -> str:
    """The name of a WebApp in grants."""
    return f"webapp:{app_id}"


def reach_of(routes: Iterable[Route]) -> Reach:
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
    return make_reach({"processes": processes, "datapool": datapool, "documents": documents})


def reach_of_settings(settings: Mapping[str, Any]) -> Reach:
    """The same for the settings of a stored version."""
    return reach_of(parse_routes(settings.get("routes", ())))


def require_routes(scope: TenantScope, app_id: str, settings: Mapping[str, Any]) -> None:
    """Inside a write: GrantRequired unless the access that the version's routes need is granted."""
    required = reach_of_settings(settings)
    require_grant(scope, subject_of(app_id), required)
    lift_suspension(scope, app_id, required.digest)


def lift_suspension(scope: TenantScope, app_id: str, digest: str) -> None:
    """Inside a write: the access is granted now, so the routes of a version served with it respond again."""
    served = (WebAppRow.id == app_id) & (WebAppRow.grant_digest == digest)
    scope.update(WebAppRow, allowed_until=None).where(served).execute()
