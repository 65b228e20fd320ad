"""The blueprint of every declared route, for what is not answered at ASGI level: uploads, HEAD, unknown paths and methods."""

import re
import threading
from collections.abc import Mapping

from quart import Blueprint
from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map, Rule

from appliance.core.errors import ApplianceError, MethodNotAllowed, NotFound
from appliance.core.sentences import Sentence
from appliance.web import Request, Response, Services, error_response, in_thread, view

from .dispatch import rule_of, serve_route, uncached
from .route_modules import FAMILIES, load_family
from .routing import PREFIX, Route

_ALL_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]


def make_blueprint(services: Services) -> Blueprint:
    """The blueprint of every declared route under /api/v1, with coded errors for unknown paths and methods."""
    blueprint = Blueprint("api", __name__, url_prefix=PREFIX)
    serve = view(_Families(services).serve)
    blueprint.add_url_rule("/", "root", serve, methods=_ALL_METHODS)
    blueprint.add_url_rule("/<path:rest>", "path", serve, methods=_ALL_METHODS)
    return blueprint


class _Families:
    """Finds routes with werkzeug's router. The first request to a family of routes loads its modules, in a thread: Quart's own
    router would need all of them before its first request."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._families: dict[str, tuple[Map, Mapping[str, Route]]] = {}
        self._loading = threading.Lock()

    async def serve(self, request: Request, rest: str = "") -> Response:
        path = request.path.removeprefix(PREFIX)
        family = path.strip("/").partition("/")[0]
        if family not in FAMILIES:
            return _unknown_path(request, family, rest)
        if family not in self._families:
            self._families[family] = await in_thread(self._services.threads, self._load, family)
        rules, routes = self._families[family]
        try:
            name, path_args = rules.bind("").match(path, request.method)
        except HTTPException:  # werkzeug's errors for an unknown path and for an unknown method
            return _unknown_path(request, family, rest)
        route = routes[name]
        request.scope["gos.route"] = f"{PREFIX}{rule_of(route)}"
        return await serve_route(self._services, route, request, **path_args)

    def _load(self, family: str) -> tuple[Map, Mapping[str, Route]]:
        """The rules of a family for werkzeug, and its routes by name.

        One family at a time: werkzeug's rules are built with syntax trees, of which Python 3.11 can fail to make two at once
        ("AST constructor recursion depth mismatch", cpython issue 106905).
        """
        with self._loading:
            routes = {each.name: each for each in load_family(family)}
            rules = [Rule(rule_of(each), endpoint=name, methods=[each.method]) for name, each in routes.items()]
            return Map(rules, strict_slashes=False, merge_slashes=False), routes


def _unknown_path(request: Request, family: str, rest: str) -> Response:
    routes = load_family(family)
    allowed = sorted({r.method for r in routes if re.fullmatch(re.sub(r"{\w+}", "[^/]+", r.path), f"/{rest.rstrip('/')}")})
    error: ApplianceError = NotFound(
        Sentence("there is no %(prefix)s/%(rest)s; GET /api-docs/ lists every path", prefix=PREFIX, rest=rest[:100])
    )
    if allowed:
        error = MethodNotAllowed(
            Sentence("%(method)s is not allowed here; use %(allowed)s", method=request.method, allowed=", ".join(allowed)),
            headers={"Allow": ", ".join(allowed)},
        )
    return uncached(error_response(error, request.request_id, request.accept))
