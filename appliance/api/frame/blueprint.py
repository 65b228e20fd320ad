"""The blueprint of every declared route, for what is not answered at ASGI level: uploads, HEAD, unknown paths and methods."""

import re
from functools import partial

from quart import Blueprint

from appliance.core.errors import ApplianceError, MethodNotAllowed, NotFound
from appliance.core.sentences import Sentence
from appliance.web import Request, Response, Services, error_response, view

from .dispatch import rule_of, serve_route, uncached
from .route_modules import load_routes
from .routing import PREFIX


def make_blueprint(services: Services) -> Blueprint:
    """The blueprint of every declared route under /api/v1, with coded errors for unknown paths and methods."""
    blueprint = Blueprint("api", __name__, url_prefix=PREFIX)
    for declared in load_routes():
        serve = view(partial(serve_route, services, declared))
        blueprint.add_url_rule(rule_of(declared), declared.name, serve, methods=[declared.method], strict_slashes=False)
    unknown_path = view(_unknown_path)
    blueprint.add_url_rule("/", "unknown_root", unknown_path, methods=_ALL_METHODS)
    blueprint.add_url_rule("/<path:rest>", "unknown_path", unknown_path, methods=_ALL_METHODS)
    return blueprint


_ALL_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]


async def _unknown_path(request: Request, rest: str = "") -> Response:
    allowed = sorted({r.method for r in load_routes() if re.fullmatch(re.sub(r"{\w+}", "[^/]+", r.path), f"/{rest.rstrip('/')}")})
    error: ApplianceError = NotFound(
        Sentence("there is no %(prefix)s/%(rest)s; GET /api-docs/ lists every path", prefix=PREFIX, rest=rest[:100])
    )
    if allowed:
        error = MethodNotAllowed(
            Sentence("%(method)s is not allowed here; use %(allowed)s", method=request.method, allowed=", ".join(allowed)),
            headers={"Allow": ", ".join(allowed)},
        )
    return uncached(error_response(error, request.request_id, request.accept))
