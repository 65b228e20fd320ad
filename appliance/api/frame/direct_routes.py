"""Answers routes at ASGI level, without Quart, which answers whatever is left: uploads, HEAD, unknown paths and methods."""

from functools import partial

from appliance.web import App, PathTable, Receive, Scope, Send, Services, respond

from .dispatch import rule_of, serve_route
from .routing import PREFIX, ROUTES, Route
from .spent_keys import refuse_spent_keys


def answer_routes(services: Services, app: App) -> App:
    """Wrap the application so that requests to declared routes are answered here; it sees all others."""
    table = direct_routes()
    direct = refuse_spent_keys(services, partial(_answer, services, table, app))

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        is_ours = scope["type"] == "http" and scope["path"].startswith(f"{PREFIX}/")
        await (direct if is_ours else app)(scope, receive, send)

    return serve


def direct_routes() -> PathTable[Route]:
    """The routes that are answered without Quart: those whose body is no stream, and whose path has a fixed number of parts."""
    table: PathTable[Route] = PathTable()
    for route in ROUTES:
        if not route.takes_upload and not route.takes_stream and "{path}" not in route.path:
            table.add(route.method, route.path, route)
    return table


async def _answer(services: Services, table: PathTable[Route], app: App, scope: Scope, receive: Receive, send: Send) -> None:
    match = table.find(scope["method"], scope["path"].removeprefix(PREFIX))
    if match is None:
        await app(scope, receive, send)
        return
    route, path_args = match
    scope["gos.route"] = f"{PREFIX}{rule_of(route)}"
    await respond(lambda request: serve_route(services, route, request, **path_args), scope, receive, send)
