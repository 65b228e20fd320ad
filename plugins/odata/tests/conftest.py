"""A small OData 4 service on loopback that follows its own $metadata and the OASIS protocol."""

import base64
import json
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from gos_connector_odata import OdataConnector

from appliance.connectors.contract import Context
from appliance.connectors.testing import Answer, LoopbackServer, Received, open_context

METADATA = """<?xml version="1.0" encoding="utf-8"?>
<edmx:Edmx Version="4.0" xmlns:edmx="http://docs.oasis-open.org/odata/ns/edmx">
 <edmx:DataServices>
  <Schema Namespace="Example.Shop" Alias="Shop" xmlns="http://docs.oasis-open.org/odata/ns/edm">
   <EntityType Name="Thing" Abstract="true">
    <Key><PropertyRef Name="ID"/></Key>
    <Property Name="ID" Type="Edm.Int32" Nullable="false"/>
   </EntityType>
   <EntityType Name="Product" BaseType="Shop.Thing">
    <Property Name="Name" Type="Edm.String" MaxLength="40"/>
    <Property Name="Price" Type="Edm.Decimal"/>
    <NavigationProperty Name="Lines" Type="Collection(Shop.Line)"/>
   </EntityType>
   <EntityType Name="Line">
    <Key><PropertyRef Name="Order"/><PropertyRef Name="Place"/></Key>
    <Property Name="Order" Type="Edm.Guid" Nullable="false"/>
    <Property Name="Place" Type="Edm.String" Nullable="false"/>
   </EntityType>
   <EntityType Name="Day">
    <Key><PropertyRef Name="Date"/></Key>
    <Property Name="Date" Type="Edm.Date" Nullable="false"/>
   </EntityType>
   <Action Name="Discount" IsBound="true">
    <Parameter Name="it" Type="Shop.Product"/><Parameter Name="percent" Type="Edm.Int32"/>
    <ReturnType Type="Shop.Product"/>
   </Action>
   <Action Name="Restock"/>
   <EntityContainer Name="Container">
    <EntitySet Name="Products" EntityType="Example.Shop.Product"/>
    <EntitySet Name="Lines" EntityType="Shop.Line"/>
    <EntitySet Name="Days" EntityType="Shop.Day"/>
    <ActionImport Name="Restock" Action="Shop.Restock"/>
   </EntityContainer>
  </Schema>
 </edmx:DataServices>
</edmx:Edmx>
"""
PASSWORD = "sésame-'\"%s"
ROOT = "/odata/v4"


class Routes(dict[str, Callable[[Received], Answer]]):
    """Answers every path with one function, except those a test has set."""

    def __init__(self, default: Callable[[Received], Answer]) -> None:
        super().__init__()
        self._default = default

    def get(self, key: str, default: Any = None) -> Callable[[Received], Answer]:
        return super().get(key, self._default)


class Shop:
    """The service: products with versions; lines and days, which only return their keys."""

    def __init__(self) -> None:
        self.products: dict[int, dict[str, Any]] = {}
        self.versions: dict[int, int] = {}
        for number, name in ((1, "Bolt"), (2, "Washer"), (3, "O'Ring & Söhne"), (4, "Bolt"), (5, "Nail")):
            self.store({"ID": number, "Name": name, "Price": 1.25})
        self.credentials = "Basic " + base64.b64encode(f"gos:{PASSWORD}".encode()).decode()
        self.csrf = ""
        self.server = LoopbackServer()
        self.server.answers = Routes(self.answer)

    def store(self, product: dict[str, Any]) -> None:
        self.products[product["ID"]] = product
        self.versions[product["ID"]] = self.versions.get(product["ID"], 0) + 1

    @property
    def url(self) -> str:
        return self.server.url + ROOT

    def last(self) -> Received:
        return self.server.received[-1]

    # -- the protocol

    def answer(self, request: Received) -> Answer:
        parts = urlsplit(request.path)
        path, query = unquote(parts.path).removeprefix(ROOT), parse_qs(parts.query)
        if request.headers.get("authorization") != self.credentials:
            return refuse(401, "NotAuthorized", "Who are you?")
        if path == "/$metadata":
            return Answer(200, {"Content-Type": "application/xml"}, METADATA.encode())
        if path == "/":
            head = {"X-CSRF-Token": self.csrf, "Set-Cookie": "sap=1; expires=Sat, 21-Nov-2026 16:00:00 GMT; path=/, id=2; Secure"}
            return Answer(200, head if self.csrf and request.headers.get("x-csrf-token") == "Fetch" else {}, b'{"value": []}')
        if self.csrf and request.method != "GET":
            session = (request.headers.get("x-csrf-token"), request.headers.get("cookie"))
            if session != (self.csrf, "sap=1; id=2"):
                return refuse(403, "CSRF", "CSRF token required")
        if path == "/Products":
            return self._add(request) if request.method == "POST" else self._page(request, query)
        if match := re.fullmatch(r"/Products\((\d+)\)(/Shop.Discount)?", path):
            return self._discount(request, int(match[1])) if match[2] else self._entity(request, int(match[1]))
        if path == "/Restock" and request.method == "POST":
            return Answer(204, body=b"")
        if path.startswith(("/Lines(", "/Days(")):
            return json_answer({"path": path})
        return refuse(404, "NotFound", "There is nothing here.")

    def _page(self, request: Received, query: dict[str, list[str]]) -> Answer:
        products = list(self.products.values())
        if filters := query.get("$filter"):
            literal = re.fullmatch(r"Name eq '((?:[^']|'')*)'", filters[0])
            if literal is None:
                return refuse(400, "BadFilter", "The filter is not understood.")
            products = [each for each in products if each["Name"] == literal[1].replace("''", "'")]
        size = int(re.findall(r"maxpagesize=(\d+)", request.headers.get("prefer", "maxpagesize=100"))[0])
        size = min(size, 2)
        start = int(query.get("$skiptoken", ["0"])[0])
        page: dict[str, Any] = {
            "@odata.context": "$metadata#Products",
            "value": [self._to_entity(each) for each in products[start:][:size]],
        }
        if "$count" in query:
            page["@odata.count"] = len(products)
        if start + size < len(products):
            query_string = urlsplit(request.path).query.split("&$skiptoken")[0].split("$skiptoken")[0]
            page["@odata.nextLink"] = f"Products?{query_string}{'&' if query_string else ''}$skiptoken={start + size}"
        return json_answer(page)

    def _add(self, request: Received) -> Answer:
        values = json.loads(request.body)
        if len(values.get("Name", "")) > 40:
            return refuse(400, "TooLong", "Name is too long.")
        self.store({"Price": None, **values})
        head = {"Location": f"{self.url}/Products({values['ID']})"}
        return json_answer(self._to_entity(self.products[values["ID"]]), 201, head)

    def _entity(self, request: Received, number: int) -> Answer:
        if number not in self.products:
            return refuse(404, "NotFound", "No such product.")
        condition = request.headers.get("if-match")
        if request.method != "GET" and condition is None:
            return refuse(428, "Precondition", "If-Match is wanted.")
        if condition not in (None, "*", self._etag(number)):
            return refuse(412, "Changed", "Somebody was faster.")
        if request.method == "DELETE":
            del self.products[number]
            return Answer(204, body=b"")
        if request.method == "PATCH":
            self.store({**self.products[number], **json.loads(request.body)})
        return json_answer(self._to_entity(self.products[number]))

    def _discount(self, request: Received, number: int) -> Answer:
        product = self.products[number]
        self.store({**product, "Price": product["Price"] * (100 - json.loads(request.body)["percent"]) / 100})
        return json_answer(self._to_entity(self.products[number]))

    def _to_entity(self, product: dict[str, Any]) -> dict[str, Any]:
        return {"@odata.etag": self._etag(product["ID"]), **product}

    def _etag(self, number: int) -> str:
        return f'W/"{self.versions[number]}"'


def json_answer(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Answer:
    return Answer(status, {"Content-Type": "application/json;odata.metadata=minimal", **(headers or {})}, json.dumps(body).encode())


def refuse(status: int, code: str, message: str) -> Answer:
    return json_answer({"error": {"code": code, "message": message}}, status)


@pytest.fixture
def shop() -> Iterator[Shop]:
    shop = Shop()
    yield shop
    shop.server.close()


@pytest.fixture
def ctx() -> Iterator[Context]:
    with open_context() as ctx:
        yield ctx


@pytest.fixture
def it(shop: Shop) -> OdataConnector:
    return OdataConnector({"base_url": shop.url, "auth": {"kind": "basic", "username": "gos", "password": PASSWORD}})
