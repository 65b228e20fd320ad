"""A small Odoo on loopback with res.partner over JSON-2 and JSON-RPC, and the errors of Odoo's published source."""

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from gos_connector_business.odoo import OdooConnector

from appliance.connectors.testing import Answer, LoopbackServer, Received

KEY = "6578-key-'\"%s"
PASSWORD = "sésame-'\"%s"
DATABASE, USER, UID = "acme", "gos@example.com", 7
TRACE = "Traceback (most recent call last):\n  File odoo/http.py, line 1, in secret_line"
FIELDS = {
    "id": "integer", "name": "char", "email": "char", "active": "boolean", "is_company": "boolean", "color": "integer",
    "credit": "float", "parent_id": "many2one", "category_id": "many2many", "date": "date", "met": "datetime",
    "write_date": "datetime", "kind": "selection",
}  # fmt: skip


class OdooError(Exception):
    """An exception with the name that Odoo reports."""

    def __init__(self, name: str, message: str, status: int = 422) -> None:
        super().__init__(message)
        self.name, self.message, self.status = name, message, status

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "message": self.message, "arguments": [self.message], "context": {}, "debug": TRACE}


def user_error(message: str, kind: str = "UserError", status: int = 422) -> OdooError:
    return OdooError(f"odoo.exceptions.{kind}", message, status)


class Odoo:
    """Partners, each with the time it was last written."""

    def __init__(self) -> None:
        self.partners: dict[int, dict[str, Any]] = {}
        self.external: dict[str, int] = {}
        self.now = datetime(2026, 11, 21, 10, 0, 0, 250_000, tzinfo=UTC)
        self.fail: OdooError | None = None
        self.server = LoopbackServer()
        self.server.answers["/jsonrpc"] = self.answer_jsonrpc
        self.server.answers["/web/version"] = lambda _: Answer(200, {}, b'{"version": "19.0"}')
        for method in ("search_read", "read", "create", "write", "unlink", "fields_get", "load", "search_count", "nope", "ping"):
            for model in ("res.partner", "no.such"):
                self.server.answers[f"/json/2/{model}/{method}"] = self.answer_json2
        self.server.answers["/json/2/res.users/context_get"] = self.answer_json2
        for name in ("Ann", "Bea & Söhne", "Cid"):
            self.add({"name": name})

    def add(self, values: dict[str, Any]) -> int:
        number = max(self.partners, default=0) + 1
        empty: dict[str, Any] = {name: [] if kind == "many2many" else False for name, kind in FIELDS.items()}
        self.partners[number] = {**empty, "active": True, "id": number}
        self.write([number], values)
        return number

    def write(self, ids: list[int], values: dict[str, Any]) -> bool:
        for name in values:
            if name not in FIELDS:
                raise OdooError("builtins.ValueError", f"Invalid field {name!r} in 'res.partner'", 500)
        if values.get("name", "x") is False:
            raise user_error("A name is needed.", "ValidationError")
        for number in ids:
            changed = {name: self._to_stored(FIELDS[name], value) for name, value in values.items()}
            self._get_partner(number).update(changed, write_date=self.now)
        return True

    def last_body(self) -> Any:
        return json.loads(self.server.received[-1].body)

    def error(self, name: str, message: str, status: int) -> OdooError:
        return OdooError(name, message, status)

    def tick(self, seconds: float) -> None:
        """Advance the clock of the system."""
        self.now += timedelta(seconds=seconds)

    # -- the protocols

    def answer_json2(self, request: Received) -> Answer:
        if request.headers.get("authorization", "") != f"bearer {KEY}":
            return _json_answer(OdooError("werkzeug.exceptions.Unauthorized", "Invalid apikey", 401).to_json(), 401)
        if request.headers.get("x-odoo-database", DATABASE) != DATABASE:
            return Answer(404, {"Content-Type": "text/html"}, b"<title>404 Not Found</title>")
        _, _, _, model, method = request.path.split("/")
        args = json.loads(request.body)
        ids, _context = args.pop("ids", []), args.pop("context", {})
        try:
            return _json_answer(self.run(model, method, ids, args))
        except OdooError as error:
            return _json_answer(error.to_json(), error.status)
        except TypeError:
            failure = OdooError("werkzeug.exceptions.UnprocessableEntity", "missing a required argument: 'domain'")
            return _json_answer(failure.to_json(), 422)

    def answer_jsonrpc(self, request: Received) -> Answer:
        body = json.loads(request.body)
        params = body["params"]
        envelope: dict[str, Any] = {"jsonrpc": "2.0", "id": body["id"]}
        try:
            result = self._serve(params["service"], params["method"], params["args"])
        except OdooError as error:
            return _json_answer({**envelope, "error": {"code": 0, "message": "Odoo Server Error", "data": error.to_json()}})
        # Like Odoo, leave out a result that is None.
        return _json_answer({**envelope, **({} if result is None else {"result": result})})

    def _serve(self, service: str, method: str, args: list[Any]) -> Any:
        if (service, method) == ("common", "version"):
            return {"server_version": "17.0", "server_serie": "17.0", "protocol_version": 1}
        if args[0] != DATABASE:
            raise OdooError("psycopg2.OperationalError", f'FATAL:  database "{args[0]}" does not exist')
        if (service, method) == ("common", "authenticate"):
            return UID if args[1:3] == [USER, PASSWORD] else False
        _, uid, password, model, name, positional, kwargs = args
        if (uid, password) != (UID, PASSWORD):
            raise user_error("Access Denied", "AccessDenied")
        kwargs.pop("context", None)
        ids = positional.pop(0) if positional and name != "create" else []
        if positional:
            kwargs["vals_list"] = positional.pop(0)
        try:
            return self.run(model, name, ids, kwargs)
        except TypeError as error:
            raise OdooError("builtins.TypeError", "search_count() missing 1 required positional argument: 'domain'") from error

    # -- the model

    def run(self, model: str, method: str, ids: list[int], args: dict[str, Any]) -> Any:
        if self.fail is not None and method != "fields_get":
            raise self.fail
        if model == "res.users":
            return {"lang": "en_US", "tz": False, "uid": UID}
        if model != "res.partner":
            raise OdooError("werkzeug.exceptions.NotFound", f"the model {model!r} does not exist", 404)
        methods: dict[str, Callable[..., Any]] = {
            "search_read": self._search, "read": lambda fields: [self._to_view(self._get_partner(each), fields) for each in ids],
            "create": lambda vals_list: [self.add(each) for each in vals_list], "write": lambda vals: self.write(ids, vals),
            "unlink": lambda: [self.partners.pop(self._get_partner(each)["id"]) for each in ids] and True,
            "fields_get": _fields_get,
            "load": self._load, "search_count": lambda domain: len(self._find_partners(domain)), "ping": lambda: None,
        }  # fmt: skip
        if method not in methods:
            raise OdooError("builtins.AttributeError", f"The method 'res.partner.{method}' does not exist", 404)
        return methods[method](**args)

    def _get_partner(self, number: int) -> dict[str, Any]:
        if number not in self.partners:
            raise user_error("Record does not exist or has been deleted.", "MissingError", 404)
        return self.partners[number]

    def _to_stored(self, kind: str, value: Any) -> Any:
        if kind == "datetime" and isinstance(value, str):
            return datetime.strptime(value, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
        return value[0][2] if kind == "many2many" and value and value[0][0] == 6 else value

    def _find_partners(self, domain: list[Any]) -> list[dict[str, Any]]:
        return [each for each in self.partners.values() if all(_matches(each, *term) for term in domain)]

    def _search(
        self, domain: list[Any], fields: list[str], offset: int = 0, limit: int | None = None, order: str = "id"
    ) -> list[dict[str, Any]]:
        matches = self._find_partners(domain)
        for part in reversed(order.split(",")):
            name, _, way = part.strip().partition(" ")
            matches.sort(key=lambda record: record[name], reverse=way == "desc")
        return [self._to_view(each, fields) for each in matches[offset:][:limit]]

    def _to_view(self, record: dict[str, Any], fields: list[str]) -> dict[str, Any]:
        view: dict[str, Any] = {"id": record["id"]}
        for name in fields:
            if name not in FIELDS:
                raise OdooError("builtins.ValueError", f"Invalid field {name!r} on model 'res.partner'", 500)
            value = record[name]
            if FIELDS[name] == "datetime" and value:
                value = value.strftime("%Y-%m-%d %H:%M:%S")
            if FIELDS[name] == "many2one" and value:
                value = [value, self.partners[value]["name"]]
            view[name] = value
        return view

    def _load(self, fields: list[str], data: list[list[str]]) -> dict[str, Any]:
        for cells in data:
            if not all(isinstance(cell, str) for cell in cells):
                raise OdooError("builtins.AttributeError", "'int' object has no attribute 'strip'", 500)
        rows = [dict(zip(fields, cells, strict=True)) for cells in data]
        for number, row in enumerate(rows):
            if row.get("kind", "a") not in ("a", "b", ""):
                message = f"Value {row['kind']!r} not found in selection field 'Kind'"
                return {
                    "ids": False,
                    "messages": [{"type": "error", "message": message, "record": number, "field": "kind"}],
                    "nextrow": 0,
                }
        ids = []
        for row in rows:
            external = row.pop("id")
            values = dict(_parse_cell(*cell) for cell in row.items())
            if external not in self.external:
                self.external[external] = self.add(values)
            else:
                self.write([self.external[external]], values)
            ids.append(self.external[external])
        return {"ids": ids, "messages": [], "nextrow": 0}


def _parse_cell(column: str, cell: str) -> tuple[str, Any]:
    name = column.removesuffix("/.id")
    match FIELDS[name]:
        case "many2one":
            return name, int(cell)
        case "many2many":
            return name, [[6, 0, [int(each) for each in cell.split(",")]]]
        case "boolean":
            return name, cell == "1"
        case "integer" | "float":
            return name, float(cell)
    return name, cell or False


def _fields_get(attributes: list[str]) -> dict[str, Any]:
    assert "type" in attributes
    return {
        name: {
            "type": kind, "string": name.capitalize(), "required": name == "name", "readonly": name in ("id", "write_date"),
            **({"relation": "res.partner"} if kind == "many2one" else {}),
            **({"selection": [["a", "A"]]} if name == "kind" else {}),
        }
        for name, kind in FIELDS.items()
    }  # fmt: skip


def _matches(record: dict[str, Any], name: str, operator: str, operand: Any) -> bool:
    value = record[name]
    if FIELDS[name] == "datetime" and isinstance(operand, str):
        operand = datetime.strptime(operand, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    match operator:
        case "=":
            return bool(value == operand)
        case "!=":
            return bool(value != operand)
        case "in":
            return value in operand
        case "ilike":
            return re.search(re.escape(operand), value or "", re.IGNORECASE) is not None
        case ">":
            return bool(value > operand)
        case ">=":
            return bool(value >= operand)
        case "<":
            return bool(value < operand)
    raise OdooError("builtins.ValueError", f"Invalid leaf {(name, operator)}", 500)


def _json_answer(body: Any, status: int = 200) -> Answer:
    return Answer(status, {"Content-Type": "application/json; charset=utf-8"}, json.dumps(body, default=str).encode())


@pytest.fixture
def odoo() -> Iterator[Odoo]:
    odoo = Odoo()
    yield odoo
    odoo.server.close()


@pytest.fixture
def settings(odoo: Odoo) -> dict[str, Any]:
    return {"base_url": odoo.server.url, "key": KEY}


@pytest.fixture
def old_settings(odoo: Odoo) -> dict[str, Any]:
    return {"base_url": odoo.server.url, "protocol": "jsonrpc", "database": DATABASE, "user": USER, "password": PASSWORD}


@pytest.fixture(params=["json2", "jsonrpc"])
def it(request: pytest.FixtureRequest, settings: dict[str, Any], old_settings: dict[str, Any]) -> OdooConnector:
    """The connector, once for each protocol."""
    return OdooConnector(settings if request.param == "json2" else old_settings)
