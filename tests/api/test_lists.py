"""Lists: pages, cursors, orders and totals over HTTP."""

from typing import Any

import httpx
import pytest

from tests.api.resources import FIELDS, Resources, fresh
from tests.api.test_bodies import error

KEYS = "/api/v1/keys"


@pytest.fixture(scope="module")
def entity_list(ours: Resources) -> tuple[str, list[str]]:
    """The address of a list of seven entities, and their ids as they were made."""
    name = fresh("entity_list")
    ours.ask("POST", "/datapool", {"name": name, "fields": FIELDS})
    ids = [ours.ask("POST", f"/datapool/{name}/entities", {"number": f"n{n}", "total": n % 3})["id"] for n in range(7)]
    return f"/api/v1/datapool/{name}/entities", ids


def walk(client: httpx.Client, path: str, **query: Any) -> list[Any]:
    rows: list[Any] = []
    while True:
        body = client.get(path, params=query).json()
        rows += body["data"]
        if "next_cursor" not in body["meta"]:
            return rows
        assert len(body["data"]) == query["limit"]
        query["cursor"] = body["meta"]["next_cursor"]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 500])
@pytest.mark.parametrize("sort", ["created_at", "-total,number", "total"])
def test_pages_hold_every_row_once(acme: httpx.Client, entity_list: tuple[str, list[str]], limit: int, sort: str) -> None:
    path, expected = entity_list
    ids = [row["id"] for row in walk(acme, path, limit=limit, sort=sort)]
    assert sorted(ids) == sorted(expected)
    if sort == "created_at":
        assert ids == expected


def test_the_total_is_returned_on_request(acme: httpx.Client, entity_list: tuple[str, list[str]]) -> None:
    meta = acme.get(entity_list[0], params={"limit": 2, "count": "exact"}).json()["meta"]
    assert meta["total"] == 7
    assert "total" not in acme.get(entity_list[0], params={"limit": 2}).json()["meta"]


@pytest.mark.parametrize("limit", ["0", "-1", "501", "many", "1.5", "", "9" * 30, "٣"])
def test_a_limit_out_of_bounds_is_refused(acme: httpx.Client, limit: str) -> None:
    for path in (KEYS, "/api/v1/processes", "/api/v1/executions", "/api/v1/logs", "/api/v1/integrations"):
        error(acme.get(path, params={"limit": limit}), 400, "invalid_request")


@pytest.mark.parametrize(
    "query", ["?colour=red", "?limit=1&limit=2", "?sort=digest", "?sort=-", "?count=yes", "?sort=name;drop", "?cursor=%00"]
)
def test_a_wrong_query_is_refused(acme: httpx.Client, query: str) -> None:
    error(acme.get(KEYS + query), 400, "invalid_request")


def test_a_route_without_query_parameters_accepts_none(acme: httpx.Client) -> None:
    error(acme.get("/api/v1/tenant?x=1"), 400, "invalid_request")
    error(acme.post("/api/v1/keys?name=x", json={}), 400, "invalid_request")


def test_a_cursor_belongs_to_its_list_and_order(acme: httpx.Client, entity_list: tuple[str, list[str]]) -> None:
    path, _ = entity_list
    for _ in range(2):
        acme.post(KEYS, json={"name": "n", "scopes": ["logs.read"]})
    cursor = acme.get(path, params={"limit": 2, "sort": "number"}).json()["meta"]["next_cursor"]
    other = acme.get(KEYS, params={"limit": 1, "sort": "name"}).json()["meta"]["next_cursor"]
    for wrong in (cursor[:-2], cursor + "AAAA", cursor[::-1], "x", "é", other):
        error(acme.get(path, params={"limit": 2, "sort": "number", "cursor": wrong}), 400, "invalid_cursor")
    error(acme.get(path, params={"limit": 2, "sort": "-number", "cursor": cursor}), 400, "invalid_cursor")
    error(acme.get(KEYS, params={"cursor": cursor}), 400, "invalid_cursor")


def test_a_foreign_cursor_shows_nothing_foreign(acme: httpx.Client, globex: httpx.Client) -> None:
    for client in (acme, globex):
        for _ in range(3):
            client.post(KEYS, json={"name": "n", "scopes": ["logs.read"]})
    theirs = {row["id"] for row in walk(globex, KEYS, limit=500)}
    cursor = globex.get(KEYS, params={"limit": 1}).json()["meta"]["next_cursor"]
    answer = acme.get(KEYS, params={"cursor": cursor, "limit": 500})
    assert not theirs & {row["id"] for row in answer.json()["data"]}


@pytest.mark.parametrize("text", ["{", '{"nope": 1}', '{"total": {"_like": 1}}', '{"total": {"_gt": "x"}}', '{"_or": {}}'])
def test_a_wrong_filter_is_refused(acme: httpx.Client, entity_list: tuple[str, list[str]], text: str) -> None:
    error(acme.get(entity_list[0], params={"filter": text}), 400, "invalid_filter")
