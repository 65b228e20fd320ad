"""The page that lists every route, written from the route table: `.venv/bin/python -m tests.api.reference`."""

from itertools import groupby
from pathlib import Path

from appliance.api import load_appliance_routes, load_routes
from appliance.api.frame.routing import PREFIX, Route

PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "routes.md"
HEAD = f"""# Routes

Every route below `{PREFIX}` with the scope it needs; generated from the route table, which also makes `/api-docs/`.
What the routes promise is in the [contract](../contract.md).
"""


def routes_page() -> str:
    """The page as it should be: a table for each first part of a path, sorted by path and method."""
    ordered = sorted([*load_routes(), *load_appliance_routes()], key=lambda route: (route.path, route.method))
    tables = [_table(family, list(routes)) for family, routes in groupby(ordered, key=lambda route: route.path.split("/")[1])]
    return "\n".join([HEAD, *tables])


def _table(family: str, routes: list[Route]) -> str:
    rows = [f"| `{route.method} {route.path}` | {_scope(route)} | {route.summary} |" for route in routes]
    return "\n".join([f"## {family}", "", "| route | scope | |", "|---|---|---|", *rows, ""])


def _scope(route: Route) -> str:
    return f"`{route.scope}`" if route.scope else "any key"


if __name__ == "__main__":
    PAGE.write_text(routes_page(), "utf-8")
