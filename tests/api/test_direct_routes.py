"""Routes that are answered at ASGI level give the same bytes as through Quart, over the whole route table, and load their family
only."""

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from appliance import api
from appliance.api.frame.direct_routes import direct_table
from appliance.api.frame.route_modules import FAMILIES, load_family
from appliance.api.frame.routing import PREFIX, Route
from appliance.api.frame.routing import ROUTES as LOADED
from appliance.core.interface import ui_folder
from appliance.sites.front import Front, Readiness
from appliance.web import App, make_quart
from tests import matrices
from tests.api.examples import EXAMPLES
from tests.api.resources import Resources

ROUTES = [route for route in api.load_routes() if direct_table(route.family).find(route.method, route.path)]
STREAMS = "text/event-stream"
FOLDER = Path(api.__file__).parent
ANY_OBJECT = {"execute_process", "put_process"}
"""Routes that accept an object with any members."""
LARGE = {"create_entity", "execute_process", "create_webhook"}
"""Routes that are also sent a body above the limit."""
VOLATILE = {"date", "ratelimit", "ratelimit-policy"}
NOW = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
Answer = tuple[int, dict[str, str], str]
Clients = tuple[httpx.AsyncClient, httpx.AsyncClient]


@asynccontextmanager
async def open_clients(tenant: Resources) -> AsyncIterator[Clients]:
    """Clients of two applications: one answers at ASGI level what it can, the other leaves everything to Quart."""
    services = tenant.running.services
    quart = make_quart(ui_folder() / "templates")
    quart.register_blueprint(api.make_blueprint(services))
    headers = {**tenant.client.headers, "Host": f"{tenant.tenant}.localhost", "X-Request-Id": "same"}
    clients = []
    for app in (api.answer_routes(services, cast(App, quart)), cast(App, quart)):
        front = Front(app, {}, services.config, lambda: Readiness("ok"))
        clients.append(
            httpx.AsyncClient(transport=httpx.ASGITransport(cast(Any, front)), base_url="http://127.0.0.1", headers=headers)
        )
    async with clients[0], clients[1]:
        yield clients[0], clients[1]


async def ask(client: httpx.AsyncClient, method: str, path: str, **options: Any) -> Answer:
    """The status, the headers and the body of an answer, without what changes from one request to the next."""
    answer = await client.request(method, path, **options)
    headers = {name: value for name, value in answer.headers.items() if name not in VOLATILE}
    if NOW.search(answer.text):
        headers.pop("etag", None)
    return answer.status_code, headers, NOW.sub("NOW", answer.text)


def path_of(route: Route, tenant: Resources) -> str:
    return PREFIX + route.path.format(**EXAMPLES[route.name](tenant).path)


def requests_to(route: Route, tenant: Resources) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Requests that change nothing: what a route reads, and everything that is refused before its handler is called."""
    path = path_of(route, tenant)
    if route.method == "GET" and STREAMS not in route.media:
        yield "GET", path, {"params": EXAMPLES[route.name](tenant).query}
        yield "GET", f"{path}/", {}
        yield "HEAD", path, {}
    yield route.method, path, {"headers": {"X-API-Key": "gos_live_wrong"}}
    yield route.method, path, {"headers": {"X-API-Key": ""}}
    yield route.method, path, {"headers": {"X-API-Key": "", "Accept": "application/problem+json"}}
    yield route.method, path, {"headers": {"Origin": "https://elsewhere.example", "Sec-Fetch-Site": "cross-site"}}
    yield route.method, path, {"params": {"there-is-no-such-parameter": "1"}}
    yield route.method, f"/{path}", {"headers": {"X-API-Key": ""}}
    yield route.method, re.sub(r"^/api/v1/(\w)", r"/api/v1//\1", path), {"headers": {"X-API-Key": ""}}
    yield "OPTIONS", path, {}
    if route.body is not None:
        yield route.method, path, {"content": b"{", "headers": {"Content-Type": "application/json"}}
        yield route.method, path, {"content": b"{}", "headers": {"Content-Type": "text/plain; charset=utf-8", "X-API-Key": ""}}
        if route.name not in ANY_OBJECT:
            yield route.method, path, {"json": {"there-is-no-such-member": 1}}
    if route.name in LARGE:
        yield route.method, path, {"content": json.dumps("x" * (2 << 20)).encode(), "headers": {"Content-Type": "application/json"}}


def test_the_answers_are_the_same_as_through_quart(ours: Resources, request: pytest.FixtureRequest) -> None:
    """Every request to the routes sampled for this run, and to all routes with `--all`; of the others, what they read."""
    options = request.config.option
    sampled = {route.name for route in ROUTES}
    if not options.all:
        sampled = LARGE | set(matrices.sample(sorted(sampled), options.seed))
    tried = [list(requests_to(route, ours))[: None if route.name in sampled else 1] for route in ROUTES]
    requests = [each for of_route in tried for each in of_route]

    async def compare() -> list[Any]:
        async with open_clients(ours) as (direct, through_quart):
            return [
                (each, first, second)
                for each in requests
                if (first := await ask(direct, each[0], each[1], **each[2]))
                != (second := await ask(through_quart, each[0], each[1], **each[2]))
            ]

    different = asyncio.run(compare())
    assert not different, "\n\n".join(f"{each}\n{first}\n{second}"[:1500] for each, first, second in different[:8])
    assert len(requests) > len(ROUTES) + 8 * len(sampled)


def test_most_routes_are_answered_at_asgi_level() -> None:
    left = {route.name for route in api.load_routes()} - {route.name for route in ROUTES}
    assert len(left) < 20
    assert {"execute_process", "get_entity", "create_entity"}.isdisjoint(left)


def test_each_family_lists_the_modules_that_declare_its_routes() -> None:
    for path in FOLDER.rglob("*.py"):
        if "\n@route(" in path.read_text("utf-8"):
            import_module(".".join(("appliance.api", *path.relative_to(FOLDER).with_suffix("").parts)))
    declared: dict[str, set[str]] = defaultdict(set)
    for route in LOADED:
        declared[route.family].add(route.handler.__module__.removeprefix("appliance.api."))
    assert {family: set(modules) for family, modules in FAMILIES.items()} == declared


def test_every_route_is_of_one_family() -> None:
    routes = [*api.load_routes(), *api.load_appliance_routes()]
    assert len(routes) == len(LOADED) == len({(route.method, route.path) for route in routes}) > 200
    assert not load_family("no-such-family")
