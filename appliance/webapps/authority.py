"""What the routes of a version reach for its visitors; pure, but for the one verb that asks whether that is allowed."""

from collections.abc import Iterable, Mapping
from typing import Any

from appliance.core.scope import TenantScope
from appliance.tenants.grants import Reach, make_reach, require_grant

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


def require_routes(scope: TenantScope, app_id: str, settings: Mapping[str, Any]) -> None:
    """Inside a write: GrantRequired unless whoever serves or previews the version may reach what its routes do."""
    require_grant(scope, subject_of(app_id), reach_of(parse_routes(settings.get("routes", ()))))
