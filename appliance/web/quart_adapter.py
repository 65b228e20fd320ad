"""Between Quart, which finds the route of a request, and the edges, which know neither its requests nor its responses."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import quart
from werkzeug.exceptions import HTTPException

from appliance.core.errors import ApplianceError, InvalidRequest, MethodNotAllowed, NotFound, PayloadTooLarge

from .asgi import Scope
from .quart_bodies import PacedConnection, PacedRequest
from .refusals import error_response
from .requests import Request
from .responses import Response

_ERRORS: dict[int | None, type[ApplianceError]] = {404: NotFound, 405: MethodNotAllowed, 413: PayloadTooLarge}


def make_quart(templates: Path) -> quart.Quart:
    """An application without routes, whose errors are rendered like those of the edges."""
    app = quart.Quart(__name__, template_folder=str(templates), static_folder=None)
    app.request_class, app.asgi_http_class = PacedRequest, PacedConnection
    # The front limits the duration of bodies and responses by their size.
    unbounded = dict.fromkeys(("MAX_CONTENT_LENGTH", "BODY_TIMEOUT", "RESPONSE_TIMEOUT"))
    app.config.update({**unbounded, "PROVIDE_AUTOMATIC_OPTIONS": False})
    app.register_error_handler(Exception, _render_error)
    return app


def view(handler: Callable[..., Awaitable[Response]]) -> Callable[..., Awaitable[quart.Response]]:
    """The view function for a handler that is called with the request and the path's parameters."""

    async def serve(**path_args: Any) -> quart.Response:
        return _to_quart(await handler(_current_request(), **path_args))

    return serve


def _current_request() -> Request:
    """The request that Quart is handling."""
    scope = cast(Scope, quart.request.scope)
    if scope["path"] != quart.request.path:  # Quart takes several slashes at the beginning for one.
        scope = {**scope, "path": quart.request.path}
    return Request(scope, aiter(quart.request.body))


def _to_quart(response: Response) -> quart.Response:
    is_streamed = response.pieces is not None and quart.request.method != "HEAD"
    quart_response = quart.Response(response.pieces if is_streamed else response.body, response.status)
    for name, value in response.headers.items():
        quart_response.headers[name] = value
    for cookie in response.cookies:
        quart_response.headers.add("Set-Cookie", cookie)
    return quart_response


async def _render_error(error: Exception) -> quart.Response:
    """The response for an error that no edge has handled, or for a request that no route takes."""
    request = _current_request()
    if isinstance(error, HTTPException):
        kind = _ERRORS.get(error.code, InvalidRequest)
        error = kind(f"{request.method} {request.path[:100]} is not possible here: {error.name.lower()}")
    return _to_quart(error_response(error, request.request_id, request.accept))
