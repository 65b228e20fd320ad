"""What the routes of a version reach for its visitors, and whether that is allowed."""

from collections.abc import Iterable, Mapping
from typing import Any

from appliance.core.scope import TenantScope
from appliance.tenants.grants import Reach, make_reach, require_grant
from appliance.webapps.models import WebAppRow

from .routes import Route, parse_routes

READING = frozenset({"list", "view"})


def subject_of(app_id: str) -> str:
    """How a grant names a WebApp."""
    return f"webapp:{app_id}"


def reach_of(routes: Iterable[Route]) -> Reach:
    """The processes, collections and documents that visitors reach through these routes."""
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
    """The same of a stored version."""
    return reach_of(parse_routes(settings.get("routes", ())))


def require_routes(scope: TenantScope, app_id: str, settings: Mapping[str, Any]) -> None:
    """Inside a write: GrantRequired unless whoever serves or previews the version may reach what its routes do."""
    reach = reach_of_settings(settings)
    require_grant(scope, subject_of(app_id), reach)
    lift_suspension(scope, app_id, reach.digest)


def lift_suspension(scope: TenantScope, app_id: str, digest: str) -> None:
    """Inside a write: what is served with this reach is granted now, so its routes answer."""
    served = (WebAppRow.id == app_id) & (WebAppRow.grant_digest == digest)
    scope.update(WebAppRow, allowed_until=None).where(served).execute()
