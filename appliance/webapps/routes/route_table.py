"""Finds the route of a version for a request; more specific paths take precedence, regardless of their order."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .routes import RESERVED, Route, endpoints_of, match_parts

RESERVED_PREFIX = f"{RESERVED}/"


@dataclass(frozen=True)
class Match:
    """The route for a request, its operation on entities (empty for a process), and the values of its placeholders."""

    route: Route
    operation: str
    values: Mapping[str, str]


class RouteTable:
    """The routes of one version."""

    def __init__(self, routes: Iterable[Route]) -> None:
        endpoints = [(parts, method, operation, route) for route in routes for method, parts, operation in endpoints_of(route)]
        self._endpoints = sorted(endpoints, key=lambda each: [part.startswith(":") for part in each[0]])

    def find(self, method: str, path: str) -> Match | None:
        """The route for this method and path; None where the appliance itself responds."""
        if path.startswith(RESERVED_PREFIX):
            return None
        parts = path.split("/")[1:]
        for pattern, route_method, operation, route in self._endpoints:
            if route_method == method and (values := match_parts(pattern, parts)) is not None:
                return Match(route, operation, values)
        return None

    def methods(self, path: str) -> list[str]:
        """The methods allowed for the path; empty when it has no route."""
        if path.startswith(RESERVED_PREFIX):
            return []
        parts = path.split("/")[1:]
        return sorted({route_method for pattern, route_method, _, _ in self._endpoints if match_parts(pattern, parts) is not None})
