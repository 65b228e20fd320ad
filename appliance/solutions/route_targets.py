"""Checks the targets of a WebApp's routes: that the process is published, or that the collection exists."""

from collections.abc import Sequence

from appliance.core.errors import Detail, NotFound, NotPublished
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.datapool import service as datapool
from appliance.processes.executions import service as executions
from appliance.webapps.routes import Route


def find_broken_routes(scope: TenantScope, routes: Sequence[Route]) -> list[Detail]:
    """A detail for every route whose process has no published version, or whose collection does not exist."""
    details = []
    for index, route in enumerate(routes):
        try:
            if route.process:
                executions.resolve_version(scope, route.process, None)
            else:
                datapool.get_collection(scope, route.entities)
        except (NotFound, NotPublished):
            problem = (
                Sentence("the %(target)s is not published", target=route.target)
                if route.process
                else Sentence("there is no %(target)s", target=route.target)
            )
            details.append(
                Detail(
                    f"/routes/{index}",
                    "route_lost",
                    Sentence("%(what)s, which the route %(path)s leads to", what=problem, path=route.path),
                )
            )
    return details
