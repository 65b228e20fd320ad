"""A small HubSpot on loopback with contacts, companies and associations, and the limits and errors of its documentation."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from gos_connector_business.hubspot import HubspotConnector

from appliance.connectors.testing import Answer, LoopbackServer, Received

TOKEN = "pat-na1-'\"%s"
PAGE = 200
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Routes(dict[str, Callable[[Received], Answer]]):
    """Sends every path to one default handler, except those that a test has set."""

    def __init__(self, default_handler: Callable[[Received], Answer]) -> None:
        super().__init__()
        self._default_handler = default_handler

    def get(self, key: str, default: Any = None) -> Callable[[Received], Answer]:
        return super().get(key, self._default_handler)


class Hubspot:
    """Records by type and id, each with the time of its last change."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 21, 10, 0, 0, 123_000, tzinfo=UTC)
        self.records: dict[str, dict[str, dict[str, Any]]] = {"contacts": {}, "companies": {}, "deals": {}}
        self.associations: set[tuple[str, str, str, str]] = set()
        self.refused_ids: list[str] = []
        self.server = LoopbackServer()
        self.server.answers = Routes(self.answer)
        for email in ("ann@example.com", "bea@example.com"):
            self.add("contacts", {"email": email, "firstname": email[:3]})

    def add(self, kind: str, values: dict[str, str]) -> dict[str, Any]:
        number = str(len(self.records[kind]) + 1)
        self.records[kind][number] = {"id": number, "properties": {}, "archived": False}
        return self.change(kind, number, values)

    def change(self, kind: str, number: str, values: dict[str, str]) -> dict[str, Any]:
        assert all(isinstance(value, str) for value in values.values())
        moment = "lastmodifieddate" if kind == "contacts" else "hs_lastmodifieddate"
        changed_at = self.now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self.records[kind][number]["properties"].update(values, hs_object_id=number, **{moment: changed_at})
        return self.records[kind][number]

    def tick(self, seconds: float) -> None:
        """Advance the clock of the system."""
        self.now += timedelta(seconds=seconds)

    # -- the protocol

    def answer(self, request: Received) -> Answer:
        parts = urlsplit(request.path)
        query, body = dict(parse_qsl(parts.query)), json.loads(request.body or b"{}")
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return error_answer(401, "INVALID_AUTHENTICATION", "Authentication credentials not found.")
        match [request.method, *(unquote(part) for part in parts.path.split("/")[1:])]:
            case ["GET", "account-info", "v3", "details"]:
                return json_answer({"portalId": 4711, "timeZone": "Europe/Berlin"})
            case ["GET", "crm", "v3", "properties", kind] if kind in self.records:
                return json_answer({"results": [
                    {"name": "email", "label": "E-mail", "type": "string", "options": [], "hasUniqueValue": True},
                    {"name": "stage", "label": "Stage", "type": "enumeration", "options": [{"label": "Won", "value": "won"}],
                     "modificationMetadata": {"readOnlyValue": True}},
                ]})  # fmt: skip
            case [method, "crm", "v3", "objects", kind, *rest] if kind in self.records:
                return self._objects(method, kind, rest, query, body)
            case [method, "crm", "v4", "objects", *rest]:
                return self._associations(method, rest, query)
        return error_answer(400, "VALIDATION_ERROR", f"Unable to infer object type from: {parts.path}")

    def _objects(self, method: str, kind: str, rest: list[str], query: dict[str, str], body: Any) -> Answer:
        match [method, *rest]:
            case ["POST", "search"]:
                return self._search(kind, body)
            case ["POST", "batch", "upsert"]:
                return self._upsert(kind, body)
            case ["POST"]:
                if any(each["properties"].get("email") == body["properties"].get("email") for each in self.records[kind].values()):
                    return error_answer(409, "CONFLICT", "Contact already exists. Existing ID: 1")
                return json_answer(self.add(kind, body["properties"]), 201)
            case [_, number]:
                return self._one(method, kind, self._find(kind, number, query.get("idProperty")), body)
        return error_answer(405, "", "")

    def _find(self, kind: str, number: str, id_property: str | None) -> str:
        if id_property is None:
            return number
        return next((each for each, record in self.records[kind].items() if record["properties"].get(id_property) == number), "")

    def _one(self, method: str, kind: str, number: str, body: Any) -> Answer:
        if number not in self.records[kind]:
            return error_answer(404, "OBJECT_NOT_FOUND", f"Object not found. objectId are usually numeric. {number}")
        if method == "DELETE":
            del self.records[kind][number]
            return Answer(204, body=b"")
        if method == "PATCH":
            if "nope" in body["properties"]:
                detail = {"message": 'Property "nope" does not exist'}
                return error_answer(400, "VALIDATION_ERROR", "Property values were not valid", errors=[detail])
            self.change(kind, number, body["properties"])
        return json_answer(self.records[kind][number])

    def _search(self, kind: str, body: Any) -> Answer:
        start, size = int(body.get("after", 0)), body["limit"]
        if size > PAGE or start + size > 10_000:
            return error_answer(400, "VALIDATION_ERROR", "Search is limited to 10000 results.")
        groups = body.get("filterGroups", [])
        matches = [
            record for record in self.records[kind].values()
            if not groups or any(all(matches_filter(record["properties"], each) for each in group["filters"]) for group in groups)
        ]  # fmt: skip
        for sort in body.get("sorts", []):
            matches.sort(
                key=lambda record: sort_key(record["properties"].get(sort["propertyName"])),
                reverse=sort["direction"] == "DESCENDING",
            )
        page: dict[str, Any] = {"total": len(matches), "results": [
            {**each, "properties": {name: each["properties"].get(name) for name in [*body["properties"], "hs_object_id"]}}
            for each in matches[start:][:size]
        ]}  # fmt: skip
        if start + size < len(matches):
            page["paging"] = {"next": {"after": str(start + size)}}
        return json_answer(page)

    def _upsert(self, kind: str, body: Any) -> Answer:
        assert len(body["inputs"]) <= 100
        results = []
        for each in body["inputs"]:
            if each["id"] in self.refused_ids:
                continue
            number = self._find(kind, each["id"], each["idProperty"])
            values = {each["idProperty"]: each["id"], **each["properties"]}
            record = self.change(kind, number, values) if number else self.add(kind, values)
            results.append({**record, "new": not number})
        if self.refused_ids:
            errors = [
                {"status": "error", "category": "VALIDATION_ERROR", "message": f"{each} is not an address"}
                for each in self.refused_ids
            ]
            return json_answer({"status": "COMPLETE", "results": results, "numErrors": len(errors), "errors": errors}, 207)
        return json_answer({"status": "COMPLETE", "results": results})

    def _associations(self, method: str, rest: list[str], query: dict[str, str]) -> Answer:
        match [method, *rest]:
            case ["PUT", kind, number, "associations", "default", other, goal]:
                if goal not in self.records[other]:
                    return error_answer(404, "OBJECT_NOT_FOUND", "No such record.")
                self.associations.add((kind, number, other, goal))
                return json_answer({"status": "COMPLETE", "results": []})
            case ["GET", kind, number, "associations", other]:
                goals = sorted(goal for a, b, c, goal in self.associations if (a, b, c) == (kind, number, other))
                start, size = int(query.get("after", 0)), 2
                kinds = [{"category": "HUBSPOT_DEFINED", "typeId": 1, "label": "Primary"}, {"typeId": 2, "label": None}]
                page: dict[str, Any] = {
                    "results": [{"toObjectId": int(each), "associationTypes": kinds} for each in goals[start:][:size]]
                }
                if start + size < len(goals):
                    page["paging"] = {"next": {"after": str(start + size)}}
                return json_answer(page)
        return error_answer(405, "", "")


def matches_filter(properties: dict[str, str], condition: dict[str, Any]) -> bool:
    value, operand = sort_key(properties.get(condition["propertyName"])), sort_key(condition.get("value"))
    match condition["operator"]:
        case "EQ":
            return bool(value == operand)
        case "GT":
            return bool(value > operand)
        case "BETWEEN":
            return bool(operand <= value <= sort_key(condition["highValue"]))
        case "IN":
            return value in [sort_key(each) for each in condition["values"]]
    raise AssertionError(condition)


def sort_key(text: str | None) -> Any:
    """Return the value HubSpot compares: a number, a time in milliseconds, or a lower-case text."""
    if text is None:
        return ""
    if text.isdigit():
        return int(text)
    if text[:4].isdigit() and text.endswith("Z"):
        return (datetime.fromisoformat(text) - EPOCH) // timedelta(milliseconds=1)
    return text.lower()


def json_answer(body: Any, status: int = 200) -> Answer:
    return Answer(status, {"Content-Type": "application/json"}, json.dumps(body).encode())


def error_answer(status: int, category: str, message: str, **more: Any) -> Answer:
    return json_answer({"status": "error", "message": message, "correlationId": "c", "category": category, **more}, status)


@pytest.fixture
def hubspot() -> Iterator[Hubspot]:
    hubspot = Hubspot()
    yield hubspot
    hubspot.server.close()


@pytest.fixture
def settings(hubspot: Hubspot) -> dict[str, Any]:
    return {"base_url": hubspot.server.url, "token": TOKEN}


@pytest.fixture
def it(settings: dict[str, Any]) -> HubspotConnector:
    return HubspotConnector(settings)
