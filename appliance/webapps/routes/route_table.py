"""Which route of a version answers a request; the path that says more comes first, whatever the order it was written in."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .routes import RESERVED, Route, endpoints_of, fits

OURS = f"{RESERVED}/"


@dataclass(frozen=True)
class Match:
    """A route that answers: by which operation on entities (empty for a process), and what its placeholders stand for."""

    route: Route
    operation: str
    values: Mapping[str, str]


class RouteTable:
    """The routes of one version."""

    def __init__(self, routes: Iterable[Route]) -> None:
        found = [(parts, method, operation, route) for route in routes for method, parts, operation in endpoints_of(route)]
        self._endpoints = sorted(found, key=lambda each: [part.startswith(":") for part in each[0]])

    def find(self, method: str, path: str) -> Match | None:
        """The route that answers this method there; none does where the appliance itself answers."""
        if path.startswith(OURS):
            return None
        parts = path.split("/")[1:]
        for wanted, offered, operation, route in self._endpoints:
            if offered == method and (values := fits(wanted, parts)) is not None:
                return Match(route, operation, values)
        return None

    def methods(self, path: str) -> list[str]:
        """What may be asked of the path; empty when no route is there."""
        if path.startswith(OURS):
            return []
        parts = path.split("/")[1:]
        return sorted({offered for wanted, offered, _, _ in self._endpoints if fits(wanted, parts) is not None})
