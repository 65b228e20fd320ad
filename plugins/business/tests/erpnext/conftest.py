"""A small Frappe site on loopback with documents of one type, and the responses and errors of Frappe's documentation."""

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from gos_connector_business.erpnext import ErpnextConnector

from appliance.connectors.testing import Answer, LoopbackServer, Received

KEY, SECRET = "4a7b", "s3cr-'\"%t"
TRACE = "Traceback (most recent call last): secret_line"


class Routes(dict[str, Callable[[Received], Answer]]):
    """Sends every path to one default handler, except those that a test has set."""

    def __init__(self, default_handler: Callable[[Received], Answer]) -> None:
        super().__init__()
        self._default_handler = default_handler

    def get(self, key: str, default: Any = None) -> Callable[[Received], Answer]:
        return super().get(key, self._default_handler)


class Site:
    """Customers by name, each with the time of its last change in the site's local time."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 21, 10, 0, 0, 123_456)  # noqa: DTZ001 - a site does not report its time zone
        self.customers: dict[str, dict[str, Any]] = {}
        self.server = LoopbackServer()
        self.server.answers = Routes(self.answer)
        for name in ("Acme", "O'Neil & Söhne"):
            self.add({"customer_name": name})

    def add(self, values: dict[str, Any]) -> dict[str, Any]:
        name = f"CUST-{len(self.customers) + 1:04}"
        self.customers[name] = {"name": name, "doctype": "Customer", "credit": 0}
        return self.change(name, values)

    def change(self, name: str, values: dict[str, Any]) -> dict[str, Any]:
        self.customers[name] |= {**values, "modified": str(self.now)}
        return self.customers[name]

    def tick(self, seconds: float) -> None:
        """Advance the clock of the system."""
        self.now += timedelta(seconds=seconds)

    # -- the protocol

    def answer(self, request: Received) -> Answer:
        parts = urlsplit(request.path)
        query, body = dict(parse_qsl(parts.query)), json.loads(request.body or b"null")
        if request.headers.get("authorization") != f"token {KEY}:{SECRET}":
            return error_answer(401, "AuthenticationError", "")
        match [request.method, *(unquote(part) for part in parts.path.split("/")[2:])]:
            case ["GET", "method", "frappe.auth.get_logged_user"]:
                return json_answer({"message": "gos@example.com"})
            case ["POST", "method", "frappe.client.get_count"]:
                return json_answer({"message": len(self.customers)}) if body["doctype"] == "Customer" else json_answer({})
            case ["POST", "method", name]:
                return error_answer(403, "PermissionError", f"Function <strong>{name}</strong> is not whitelisted.")
            case ["GET", "resource", "DocType", "Customer"]:
                return json_answer({"data": {"name": "Customer", "fields": [
                    {"fieldname": "customer_name", "fieldtype": "Data", "label": "Customer Name", "reqd": 1, "read_only": 0},
                    {"fieldname": "territory", "fieldtype": "Link", "options": "Territory", "reqd": 0, "read_only": 1},
                ]}})  # fmt: skip
            case ["GET", "resource", "Customer"]:
                return self._list(query)
            case ["POST", "resource", "Customer"]:
                if not body.get("customer_name"):
                    return error_answer(417, "MandatoryError", "Value missing for <b>Customer</b>: Customer Name")
                return json_answer({"data": self.add(body)})
            case [method, "resource", "Customer", name] if name in self.customers:
                return self._one(method, name, body)
            case [_, "resource", kind, name]:
                return error_answer(404, "DoesNotExistError", f"{kind} {name} not found")
        return Answer(404, {"Content-Type": "text/html"}, b"<html>nothing here")

    def _one(self, method: str, name: str, body: Any) -> Answer:
        if method == "DELETE":
            del self.customers[name]
            return json_answer({"message": "ok"}, 202)
        if method == "PUT":
            if body.get("modified", self.customers[name]["modified"]) != self.customers[name]["modified"]:
                return error_answer(417, "TimestampMismatchError", "Document has been modified after you have opened it")
            self.change(name, body)
        return json_answer({"data": self.customers[name]})

    def _list(self, query: dict[str, str]) -> Answer:
        any_filters = json.loads(query.get("or_filters", "[]"))
        matches = [
            each for each in self.customers.values()
            if all(matches_filter(each, *term) for term in json.loads(query["filters"]))
            and (not any_filters or any(matches_filter(each, *term) for term in any_filters))
        ]  # fmt: skip
        for part in reversed(query["order_by"].split(",")):
            field, _, way = part.strip().partition(" ")
            matches.sort(key=lambda each, field=field: each[field], reverse=way == "desc")  # type: ignore[misc]
        start, size = int(query["limit_start"]), int(query["limit_page_length"])
        fields = json.loads(query["fields"])
        return json_answer({"data": [{field: each.get(field) for field in fields} for each in matches[start:][:size]]})


def matches_filter(document: dict[str, Any], field: str, operator: str, operand: Any) -> bool:
    value = document.get(field)
    match operator:
        case "=":
            return bool(value == operand)
        case ">":
            return bool(value > operand)
        case "in":
            return value in operand
    raise AssertionError(operator)


def json_answer(body: Any, status: int = 200) -> Answer:
    return Answer(status, {"Content-Type": "application/json"}, json.dumps(body, default=str).encode())


def error_answer(status: int, kind: str, message: str) -> Answer:
    messages = json.dumps([json.dumps({"message": message, "title": "Message", "indicator": "red"})] if message else [])
    exception = f"frappe.exceptions.{kind}: {message}"
    return json_answer({"exception": exception, "exc_type": kind, "exc": json.dumps([TRACE]), "_server_messages": messages}, status)


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.server.close()


@pytest.fixture
def settings(site: Site) -> dict[str, Any]:
    return {"url": site.server.url, "key": KEY, "secret": SECRET}


@pytest.fixture
def it(settings: dict[str, Any]) -> ErpnextConnector:
    return ErpnextConnector(settings)
