"""Answers routes at ASGI level, without Quart, which answers whatever is left: uploads, HEAD, unknown paths and methods."""

from appliance.web import App, PathTable, Receive, Scope, Send, Services, in_thread, respond

from .dispatch import rule_of, serve_route
from .route_modules import FAMILIES, load_family
from .routing import PREFIX, Route
from .spent_keys import refuse_spent_keys


def answer_routes(services: Services, app: App) -> App:
    """Wrap the application so that requests to declared routes are answered here; it sees all others."""
    direct = refuse_spent_keys(services, DirectRoutes(services, app))

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        is_ours = scope["type"] == "http" and scope["path"].startswith(f"{PREFIX}/")
        await (direct if is_ours else app)(scope, receive, send)

    return serve


def direct_table(family: str) -> PathTable[Route]:
    """The routes of a family that are answered without Quart: those whose body is no stream, and whose path has a fixed number of
    parts."""
    table: PathTable[Route] = PathTable()
    for route in load_family(family):
        if not route.takes_upload and not route.takes_stream and "{path}" not in route.path:
            table.add(route.method, route.path, route)
    return table


class DirectRoutes:
    """Answers the requests to declared routes that need no Quart, and passes on the others. The first request to a family of
    routes loads its modules, in a thread."""

    def __init__(self, services: Services, app: App) -> None:
        self._services, self._app = services, app
        self._tables: dict[str, PathTable[Route]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix(PREFIX)
        family = path.strip("/").partition("/")[0]
        table = self._tables.get(family)
        if table is None and family in FAMILIES:
            table = self._tables[family] = await in_thread(self._services.threads, direct_table, family)
        match = table.find(scope["method"], path) if table is not None else None
        if match is None:
            await self._app(scope, receive, send)
            return
        route, path_args = match
        scope["gos.route"] = f"{PREFIX}{rule_of(route)}"
        await respond(lambda request: serve_route(self._services, route, request, **path_args), scope, receive, send)
