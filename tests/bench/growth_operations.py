"""The operations whose cost must not grow with what is stored."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import quote

import httpx

from appliance.core.scheduling import PeriodicJob
from tests.bench.console import FILLED
from tests.bench.entities import PURCHASES
from tests.console.browser import Browser
from tests.screenshots.furnishing import LOGIN, PASSWORD, TENANT
from tests.screenshots.pages import Screen, screens

from .growth_stock import Stock

PREFIX = "/api/v1"
SHORTEST_ID = 15
DEPTH = 5  # Pages before the one that is measured.
EXECUTION_FILTERS = (
    "", "status=succeeded", "status=failed", "status=waiting", "status=queued", "label=batch+1", "failure_class=user_code",
    "failure_class=timeout", "q=order.number%3D10007", "q=C-7", "version=2", "text=batch+1", "text=nowhere", "text=step_failed",
    "failed_step=enrich", "failed_step=nowhere", "took_at_least=10s", "took_at_least=10h", "started_by=trigger",
    "started_by=execution", "process_id=bench-03", "process_id=bench-03&version=2", "process_id=bench-03&status=failed",
    "since=2020-01-01T00:00:00Z&until=2020-02-01T00:00:00Z", "sort=created_at", "sort=id", "sort=-id",
)  # fmt: skip
DOCUMENT_FILTERS = (
    "search=contract", "search=nowhere", "search=000007", "name=nowhere", "name=000007", "under=customers%2F00007",
    "under=customers%2F00007&search=offer", "under=customers&search=000007", "under=nowhere", "media_type=audio%2F*",
    "media_type=image%2F*",
)  # fmt: skip
LOG_FILTERS = ("", "level=error", "text=order", "text=nowhere", "text=order+enrich", "process=bench-03", "source=step",
               "source=nowhere", "sort=at")  # fmt: skip
LISTS = (
    "/processes", "/processes/growth/versions", "/processes/growth/versions/1", "/processes/bench-01/executions",
    "/datapool", "/documents", "/documents/folders", "/documents?search=contract", "/documents?folder=archive%2Fscans",
    "/logs/queues", "/logs/failures", "/logs/audit", "/logs/analytics", "/logs/calls", "/logs/calls?status=failed",
    "/integrations/order-system/executions", "/approvals", "/agents/clerk/runs", "/webapps/shop/requests",
    "/webapps/shop/analytics", "/webapps/shop/versions", "/keys", "/llm-profiles/default/usage", "/documents/{document}/downloads",
)  # fmt: skip


@dataclass(frozen=True)
class Operation:
    """One operation; `run` performs it, and is called with 0, 1, 2 …"""

    name: str
    run: Callable[[int], object]


def operations_of(stock: Stock, jobs: Sequence[PeriodicJob]) -> Iterator[Operation]:
    """Every operation of a stocked tenant."""
    yield from hot_operations(stock, jobs)
    for path in LISTS:
        yield Operation(f"GET {path}", partial(_get, stock.house.api, path.format_map(stock.house.things)))
    for path in ("/documents", "/logs/calls", "/logs/audit", "/processes/growth/versions", "/webapps/shop/requests"):
        yield _deep(stock.house.api, path, "", 500)
    for path in ("/healthz", "/readyz", "/metrics"):
        yield Operation(f"GET {path}", partial(_get_base, stock, path))
    yield from _pages(stock)


def hot_operations(stock: Stock, jobs: Sequence[PeriodicJob], page_size: int = 500) -> Iterator[Operation]:
    """Executions, entities, the lists of executions and log lines by every filter and, `DEPTH` pages of this size further down, by
    cursor; and the periodic jobs."""
    yield from _executions(stock)
    yield from _entities(stock)
    yield from _lists(stock.house.api, page_size)
    seen: set[str] = set()
    for job in jobs:
        if job.name not in seen:
            seen.add(job.name)
            yield Operation(f"job {job.name}", partial(_perform, job))


def _perform(job: PeriodicJob, _: int) -> None:
    if not job.perform():
        raise RuntimeError(f"the job {job.name} failed")


def _get(api: httpx.Client, path: str, _: int = 0) -> httpx.Response:
    return api.get(PREFIX + path).raise_for_status()


def _get_base(stock: Stock, path: str, _: int) -> None:
    with stock.house.running.client(stock.house.running.config.domains.base) as client:
        client.get(path).raise_for_status()


def _executions(stock: Stock) -> Iterator[Operation]:
    house, api = stock.house, stock.house.api
    started: list[str] = []

    def start(number: int) -> None:
        started.append(house.execute("growth", {"n": number}, wait=0))

    def start_and_finish(number: int) -> None:
        house.until(f"/processes/growth/executions/{house.execute('growth', {'n': number}, wait=0)}", "succeeded")

    yield Operation("execute and wait", lambda number: house.execute("growth", {"n": number}))
    yield Operation("accept an execution", start)
    yield Operation("execute without waiting", start_and_finish)
    failed = stock.executions["failed"]
    process = api.get(f"{PREFIX}/executions", params={"execution_id": failed}).json()["data"][0]["process_id"]
    base = f"/processes/{process}/executions/{failed}"
    for path in ("", "/steps", "/logs", "/journal", "/retry-plan"):
        yield Operation(f"GET execution{path}", partial(_get, api, base + path))


def _entities(stock: Stock) -> Iterator[Operation]:
    api, base = stock.house.api, f"{PREFIX}/datapool/purchases/entities"
    chosen = stock.entities[len(stock.entities) // 2]

    def create(number: int) -> None:
        api.post(base, json={**PURCHASES.values(number), "number": f"N-{number}"}).raise_for_status()

    def change(number: int) -> None:
        api.patch(f"{base}/{chosen}", json={"lines": number + 100}).raise_for_status()

    yield Operation("entity by id", lambda _: api.get(f"{base}/{chosen}").raise_for_status())
    yield Operation("create an entity", create)
    yield Operation("change an entity", change)
    yield Operation("delete an entity", lambda number: api.delete(f"{base}/{stock.entities[number]}").raise_for_status())
    yield Operation("history of an entity", lambda _: api.get(f"{base}/{chosen}/history").raise_for_status())
    one = quote(json.dumps({"number": "A-0000077"}))
    for query in ("limit=10", "limit=10&sort=created_at", f"filter={one}", PURCHASES.list_query(7), "limit=10&sort=-total"):
        yield Operation(f"entities?{query}", partial(_get, api, f"/datapool/purchases/entities?{query}"))


def _lists(api: httpx.Client, page_size: int) -> Iterator[Operation]:
    for query in EXECUTION_FILTERS:
        yield Operation(f"GET /executions?{query}", partial(_get, api, f"/executions?{query}"))
    for query in ("", "status=succeeded", "sort=id", "process_id=bench-01"):
        yield _deep(api, "/executions", query, page_size)
    for query in ("", "sort=created_at"):
        yield _deep(api, "/datapool/purchases/entities", query, page_size)
    for query in DOCUMENT_FILTERS:
        yield Operation(f"GET /documents?{query}", partial(_get, api, f"/documents?{query}"))
    for query in LOG_FILTERS:
        yield Operation(f"GET /logs?{query}", partial(_get, api, f"/logs?{query}"))
    for query in ("", "text=order"):
        yield _deep(api, "/logs", query, page_size)


def _deep(api: httpx.Client, path: str, query: str, limit: int) -> Operation:
    """The same list, `DEPTH` pages further down, or at its last page before that."""
    join = "&" if query else ""
    cursor = ""
    for _ in range(DEPTH):
        answer = _get(api, f"{path}?limit={limit}{join}{query}{cursor}").json()
        if not answer["meta"].get("next_cursor"):
            break
        cursor = f"&cursor={quote(answer['meta']['next_cursor'])}"
    return Operation(f"GET {path}?{query} deep", partial(_get, api, f"{path}?limit=50{join}{query}{cursor}"))


def _pages(stock: Stock) -> Iterator[Operation]:
    running = stock.house.running
    browser = Browser(running)
    browser.sign_in(LOGIN, PASSWORD, TENANT)
    for screen in (*screens(stock.house.things), *(Screen(path.format_map(stock.executions)) for path in FILLED)):
        if not screen.is_on_base:
            yield Operation(f"page {_without_ids(screen.path, stock)}", partial(_open, browser, screen))


def _without_ids(path: str, stock: Stock) -> str:
    """The address with the names of ids, which differ from tenant to tenant."""
    for name, value in (*stock.house.things.items(), *stock.executions.items()):
        if len(value) > SHORTEST_ID:
            path = path.replace(value, f"{{{name}}}")
    return path


def _open(browser: Browser, screen: Screen, _: int) -> None:
    answer = browser.get(browser.at(TENANT, screen.path))
    if answer.is_error and not screen.is_absent:
        raise RuntimeError(f"{screen.path} answered {answer.status_code}")
