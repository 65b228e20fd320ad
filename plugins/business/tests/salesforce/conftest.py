"""A small Salesforce on loopback with accounts and contacts over REST, and as much SOQL as the tests need."""

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from gos_connector_business.salesforce import SalesforceConnector

from appliance.connectors.testing import Answer, LoopbackServer, Received

TOKEN = "00D-'\"%s"
ROOT = "/services/data/v62.0/"
PAGE = 100
SOQL = re.compile(r"SELECT ([\w, ]+?) FROM (\w+)(?: WHERE (.*?))?(?: ORDER BY ([\w, ]+?))?(?: LIMIT (\d+))?", re.DOTALL)
TERM = re.compile(r"(\w+) (=|>|IN) ('(?:[^'\\]|\\.)*'|\([^)]*\)|[\w:.-]+)", re.DOTALL)


class Routes(dict[str, Callable[[Received], Answer]]):
    """Sends every path to one default handler, except those that a test has set."""

    def __init__(self, default_handler: Callable[[Received], Answer]) -> None:
        super().__init__()
        self._default_handler = default_handler

    def get(self, key: str, default: Any = None) -> Callable[[Received], Answer]:
        return super().get(key, self._default_handler)


class Salesforce:
    """Records by type and id, and the queries whose next pages can still be requested."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 21, 10, tzinfo=UTC)
        self.records: dict[str, dict[str, dict[str, Any]]] = {"Account": {}, "Contact": {}}
        self.open_queries: list[list[dict[str, Any]]] = []
        self.token = TOKEN
        self.server = LoopbackServer()
        self.server.answers = Routes(self.answer)
        self.server.answers["/services/oauth2/token"] = self.answer_token
        for name in ("Acme", "O'Neil \\ Söhne"):
            self.add("Account", {"Name": name})

    def add(self, kind: str, values: dict[str, Any]) -> str:
        number = f"{'001' if kind == 'Account' else '003'}{len(self.records[kind]) + 1:012}AAA"
        self.records[kind][number] = {"Id": number}
        self.change(kind, number, values)
        return number

    def change(self, kind: str, number: str, values: dict[str, Any]) -> None:
        stamp = self.now.strftime("%Y-%m-%dT%H:%M:%S.000+0000")
        self.records[kind][number] |= {**values, "SystemModstamp": stamp}

    def tick(self, seconds: int) -> None:
        """Advance the clock of the system."""
        self.now += timedelta(seconds=seconds)

    def answer_token(self, request: Received) -> Answer:
        form = dict(parse_qsl(request.body.decode()))
        if (form["grant_type"], form["client_secret"]) != ("client_credentials", "s3cret"):
            return json_answer({"error": "invalid_client"}, 400)
        # Salesforce does not report when a token expires.
        return json_answer({"access_token": self.token, "instance_url": "https://elsewhere.example", "token_type": "Bearer"})

    # -- the protocol

    def answer(self, request: Received) -> Answer:
        parts = urlsplit(request.path)
        params, body = dict(parse_qsl(parts.query)), json.loads(request.body or b"null")
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return error_answer(401, "INVALID_SESSION_ID", "Session expired or invalid")
        return self.serve(request.method, [unquote(part) for part in parts.path.removeprefix(ROOT).split("/")], params, body)

    def serve(self, method: str, path: list[str], params: dict[str, str], body: Any) -> Answer:
        match [method, *path]:
            case ["GET", "limits"]:
                return json_answer({"DailyApiRequests": {"Max": 15000, "Remaining": 14998}})
            case ["GET", "query" | "queryAll"]:
                return self._query(params["q"])
            case ["GET", "query" | "queryAll", place]:
                return self._page(int(place.split("-")[0]), int(place.split("-")[1]))
            case ["POST", "composite"]:
                return self._composite(body["compositeRequest"])
            case ["GET", "sobjects", kind, "describe"] if kind in self.records:
                return json_answer({"name": kind, "fields": [
                    {"name": "Name", "type": "string", "label": "Name", "createable": True, "updateable": True, "nillable": False},
                    {"name": "Number__c", "type": "string", "nillable": True, "updateable": True, "externalId": True},
                    {"name": "Stage", "type": "picklist", "label": "Stage", "nillable": True, "picklistValues": [{"value": "Won"}]},
                    {"name": "OwnerId", "type": "reference", "label": "Owner", "defaultedOnCreate": True, "referenceTo": ["User"]},
                ]})  # fmt: skip
            case [_, "sobjects", kind, *rest] if kind in self.records:
                return self._record(method, kind, rest, body)
        return error_answer(404, "NOT_FOUND", "The requested resource does not exist")

    def _record(self, method: str, kind: str, rest: list[str], body: Any) -> Answer:
        match [method, *rest]:
            case ["POST"]:
                if "Name" in body and not body["Name"]:
                    return error_answer(400, "REQUIRED_FIELD_MISSING", "Required fields are missing: [Name]", fields=["Name"])
                return json_answer({"id": self.add(kind, body), "success": True, "errors": []}, 201)
            case ["PATCH", field, value]:
                matches = [number for number, record in self.records[kind].items() if record.get(field) == value]
                if len(matches) > 1:
                    return json_answer([f"{ROOT}sobjects/{kind}/{number}" for number in matches], 300)
                number = matches[0] if matches else self.add(kind, {field: value})
                self.change(kind, number, body)
                return json_answer({"id": number, "success": True, "errors": [], "created": not matches}, 200 if matches else 201)
            case [_, number] if number not in self.records[kind]:
                return error_answer(404, "NOT_FOUND", "Provided external ID field does not exist or is not accessible: x")
            case ["GET", number]:
                return json_answer({"attributes": {"type": kind}, **self.records[kind][number]})
            case ["PATCH", number]:
                self.change(kind, number, body)
            case ["DELETE", number]:
                del self.records[kind][number]
        return Answer(204, body=b"")

    def _composite(self, requests: list[dict[str, Any]]) -> Answer:
        before = json.dumps(self.records)
        done: list[dict[str, Any]] = []
        for each in requests:
            text = json.dumps(each)
            for part in done:
                text = text.replace(f"@{{{part['referenceId']}.id}}", str((part["body"] or {}).get("id")))
            request = json.loads(text)
            answer = self.serve(request["method"], request["url"].removeprefix(ROOT).split("/"), {}, request.get("body"))
            body = json.loads(answer.body or b"null")
            done.append({"referenceId": each["referenceId"], "httpStatusCode": answer.status, "body": body})
        if all(part["httpStatusCode"] < 300 for part in done):
            return json_answer({"compositeResponse": done})
        self.records = json.loads(before)
        halted = [{"errorCode": "PROCESSING_HALTED", "message": "The transaction was rolled back"}]
        return json_answer({"compositeResponse": [
            part if part["httpStatusCode"] >= 300 else {**part, "httpStatusCode": 400, "body": halted} for part in done
        ]})  # fmt: skip

    def _query(self, soql: str) -> Answer:
        match = re.fullmatch(
            r"SELECT ([\w, ]+?) FROM (\w+)(?: WHERE (.*?))?(?: ORDER BY ([\w, ]+?))?(?: LIMIT (\d+))?", soql, re.DOTALL
        )
        if match is None or match[2] not in self.records:
            return error_answer(400, "MALFORMED_QUERY", "unexpected token: '<EOF>'")
        rows = [
            each
            for each in self.records[match[2]].values()
            if all(matches_term(each, *term) for term in TERM.findall(match[3] or ""))
        ]
        for part in reversed((match[4] or "Id").split(", ")):
            name, _, way = part.partition(" ")
            rows.sort(key=lambda row, name=name: row[name], reverse=way == "DESC")  # type: ignore[misc]
        names = match[1].split(", ")
        records = [{"attributes": {"type": match[2]}, **{name: row.get(name) for name in names}} for row in rows]
        self.open_queries.append(records[: int(match[5] or 50_000)])
        return self._page(len(self.open_queries) - 1, 0)

    def _page(self, number: int, start: int) -> Answer:
        rows = self.open_queries[number]
        page: dict[str, Any] = {"totalSize": len(rows), "done": start + PAGE >= len(rows), "records": rows[start:][:PAGE]}
        if not page["done"]:
            page["nextRecordsUrl"] = f"{ROOT}query/{number}-{start + PAGE}"
        return json_answer(page)


def matches_term(row: dict[str, Any], name: str, operator: str, literal: str) -> bool:
    if operator == "IN":
        return row.get(name) in [value_of(each) for each in re.findall(r"'(?:[^'\\]|\\.)*'", literal)]
    value, operand = row.get(name), value_of(literal)
    if name == "SystemModstamp":
        value, operand = datetime.fromisoformat(str(value)), datetime.fromisoformat(operand)
    return bool(value == operand if operator == "=" else value > operand)


def value_of(literal: str) -> Any:
    return json.loads('"' + literal[1:-1].replace("\\'", "'") + '"') if literal.startswith("'") else literal


def json_answer(body: Any, status: int = 200) -> Answer:
    return Answer(status, {"Content-Type": "application/json"}, json.dumps(body).encode())


def error_answer(status: int, code: str, message: str, **more: Any) -> Answer:
    return json_answer([{"message": message, "errorCode": code, **more}], status)


@pytest.fixture
def salesforce() -> Iterator[Salesforce]:
    salesforce = Salesforce()
    yield salesforce
    salesforce.server.close()


@pytest.fixture
def settings(salesforce: Salesforce) -> dict[str, Any]:
    return {"url": salesforce.server.url, "auth": {"kind": "bearer", "token": TOKEN}}


@pytest.fixture
def it(settings: dict[str, Any]) -> SalesforceConnector:
    return SalesforceConnector(settings)
