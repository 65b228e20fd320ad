"""Checks of every answer of a client that an error is one the OpenAPI document lists for its operation."""

import re

import httpx

from appliance.api import load_routes
from appliance.api.frame.error_responses import declared_codes
from appliance.api.frame.routing import PREFIX, Route

_ROUTES = [
    (re.compile(PREFIX + re.sub(r"{\w+}", "[^/]+", route.path)), route)
    for route in sorted(load_routes(), key=lambda route: len(route.parameters))
]


def find_route(method: str, path: str) -> Route | None:
    return next((route for pattern, route in _ROUTES if route.method == method and pattern.fullmatch(path)), None)


def check_error(answer: httpx.Response) -> None:
    """Fail the test that got an error which the operation does not list; a hook of httpx for responses."""
    if not answer.is_error:
        return
    route = find_route(answer.request.method, answer.request.url.path)
    if route is None:
        return
    answer.read()
    body = answer.json()
    code = (body.get("error") or body)["code"]
    assert code in declared_codes(route).get(answer.status_code, []), (
        f"{route.method} {route.path} answers {answer.status_code} {code}; add the error to `errors` of {route.name}"
    )
