"""A small Pipedrive on loopback with deals and persons in the API v2, and the responses of its documentation."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from gos_connector_business.pipedrive import PipedriveConnector

from appliance.connectors.testing import Answer, LoopbackServer, Received

TOKEN = "5adb-'\"%s"
ROOT = "/api/v2/"


class Routes(dict[str, Callable[[Received], Answer]]):
    """Sends every path to one default handler, except those that a test has set."""

    def __init__(self, default_handler: Callable[[Received], Answer]) -> None:
        super().__init__()
        self._default_handler = default_handler

    def get(self, key: str, default: Any = None) -> Callable[[Received], Answer]:
        return super().get(key, self._default_handler)


class Pipedrive:
    """Records by kind and id."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 21, 10, tzinfo=UTC)
        self.records: dict[str, dict[int, dict[str, Any]]] = {"deals": {}, "persons": {}}
        self.server = LoopbackServer()
        self.server.answers = Routes(self.answer)
        for title in ("Bolts", "Nails"):
            self.add("deals", {"title": title, "status": "open"})
        self.add("persons", {"name": "Ann", "email": "ann@example.com"})

    def add(self, kind: str, values: dict[str, Any]) -> dict[str, Any]:
        number = len(self.records[kind]) + 1
        self.records[kind][number] = {"id": number}
        return self.change(kind, number, values)

    def change(self, kind: str, number: int, values: dict[str, Any]) -> dict[str, Any]:
        self.records[kind][number] |= {**values, "update_time": self.now.strftime("%Y-%m-%dT%H:%M:%SZ")}
        return self.records[kind][number]

    def tick(self, seconds: int) -> None:
        """Advance the clock of the system."""
        self.now += timedelta(seconds=seconds)

    # -- the protocol

    def answer(self, request: Received) -> Answer:
        parts = urlsplit(request.path)
        query, body = dict(parse_qsl(parts.query)), json.loads(request.body or b"null")
        if request.headers.get("x-api-token") != TOKEN:
            return error_answer(401, "unauthorized access")
        match [request.method, *parts.path.removeprefix(ROOT).split("/")]:
            case ["GET", *_, "users", "me"]:
                return json_answer({"id": 7, "name": "Gos", "company_name": "Acme"})
            case ["GET", "dealFields"]:
                stage = {
                    "field_code": "status",
                    "field_name": "Status",
                    "field_type": "enum",
                    "options": [{"id": 1, "label": "Won"}],
                }
                title = {"field_code": "title", "field_name": "Title", "field_type": "varchar", "options": None}
                return json_answer([title, stage])
            case ["GET", kind, "search"] if kind in self.records:
                matches = [each for each in self.records[kind].values() if query["term"] in each.values()]
                page = self._page([{"result_score": 1.0, "item": each} for each in matches], query, 100)
                return json_answer({"items": page[0]}, next_cursor=page[1])
            case ["GET", kind] if kind in self.records:
                return self._list(kind, query)
            case ["POST", kind] if kind in self.records:
                if not body.get("title", "x"):
                    return error_answer(400, "Deal title was not given.")
                return json_answer(self.add(kind, body), 201)
            case [method, kind, number] if kind in self.records:
                return self._one(method, kind, int(number), body)
        return error_answer(404, "Not found")

    def _one(self, method: str, kind: str, number: int, body: Any) -> Answer:
        if number not in self.records[kind]:
            return error_answer(404, "Deal not found")
        if method == "DELETE":
            del self.records[kind][number]
            return json_answer({"id": number})
        return json_answer(self.change(kind, number, body) if method == "PATCH" else self.records[kind][number])

    def _list(self, kind: str, query: dict[str, str]) -> Answer:
        matches = [
            each for each in self.records[kind].values()
            if each["update_time"] >= query.get("updated_since", "") and each["update_time"] < query.get("updated_until", "9")
            and each.get("status") == query.get("status", each.get("status"))
        ]  # fmt: skip
        matches.sort(key=lambda each: each[query.get("sort_by", "id")], reverse=query.get("sort_direction") == "desc")
        page, next_cursor = self._page(matches, query, 500)
        # Pipedrive returns null for a list without entries.
        return json_answer(page or None, next_cursor=next_cursor)

    def _page(self, records: list[Any], query: dict[str, str], most: int) -> tuple[list[Any], str | None]:
        start, size = int(query.get("cursor", 0)), int(query["limit"])
        assert size <= most
        return records[start:][:size], str(start + size) if start + size < len(records) else None


def json_answer(data: Any, status: int = 200, *, next_cursor: str | None = None) -> Answer:
    body = {"success": True, "data": data, "additional_data": {"next_cursor": next_cursor}}
    return Answer(status, {"Content-Type": "application/json"}, json.dumps(body).encode())


def error_answer(status: int, message: str, **more: Any) -> Answer:
    body = {"success": False, "error": message, "error_info": "Please check the documentation.", "data": None, **more}
    return Answer(status, {"Content-Type": "application/json"}, json.dumps(body).encode())


@pytest.fixture
def pipedrive() -> Iterator[Pipedrive]:
    pipedrive = Pipedrive()
    yield pipedrive
    pipedrive.server.close()


@pytest.fixture
def settings(pipedrive: Pipedrive) -> dict[str, Any]:
    return {"base_url": pipedrive.server.url, "token": TOKEN}


@pytest.fixture
def it(settings: dict[str, Any]) -> PipedriveConnector:
    return PipedriveConnector(settings)
