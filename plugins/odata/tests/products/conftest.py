"""OData 4 services on loopback, generated from a $metadata document, each with the specifics of a product."""

import base64
import json
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import UUID

import pytest
from gos_connector_odata.model import parse_model

from appliance.connectors.contract import Context
from appliance.connectors.testing import Answer, LoopbackServer, Received, open_context

PASSWORD = "sésame-'\"%s"
SAP_COOKIES = "SAP_SESSIONID_S4H_100=a%3d; path=/; secure, sap-usercontext=sap-client=100"
BASIC = "Basic " + base64.b64encode(f"gos:{PASSWORD}".encode()).decode()


def metadata(namespace: str, **sets: dict[str, str]) -> bytes:
    """A $metadata document with these sets; a property whose type ends in `!` belongs to the key."""
    types, container = [], []
    for name, properties in sets.items():
        key = "".join(f'<PropertyRef Name="{each}"/>' for each, kind in properties.items() if kind.endswith("!"))
        inner = "".join(f'<Property Name="{each}" Type="Edm.{kind.rstrip("!")}"/>' for each, kind in properties.items())
        types.append(f'<EntityType Name="{name}Type"><Key>{key}</Key>{inner}</EntityType>')
        container.append(f'<EntitySet Name="{name}" EntityType="{namespace}.{name}Type"/>')
    return (
        '<edmx:Edmx Version="4.0" xmlns:edmx="http://docs.oasis-open.org/odata/ns/edmx"><edmx:DataServices>'
        f'<Schema Namespace="{namespace}" xmlns="http://docs.oasis-open.org/odata/ns/edm">{"".join(types)}'
        f'<EntityContainer Name="C">{"".join(container)}</EntityContainer></Schema></edmx:DataServices></edmx:Edmx>'
    ).encode()


class Routes(dict[str, Callable[[Received], Answer]]):
    """Answers every path with one function, except those a test has set."""

    def __init__(self, default: Callable[[Received], Answer]) -> None:
        super().__init__()
        self._default = default

    def get(self, key: str, default: Any = None) -> Callable[[Received], Answer]:
        return super().get(key, self._default)


class Product:
    """A service with entities by set and key; subclasses add the specifics of a product."""

    root = "/"
    document = b""
    page = 2

    def __init__(self) -> None:
        self.sets: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in parse_model(self.document).sets}
        self.versions: dict[str, int] = {}
        self.credentials = BASIC
        self.server = LoopbackServer()
        self.server.answers = Routes(self.answer)

    def store(self, entity_set: str, key: str, entity: dict[str, Any]) -> dict[str, Any]:
        entity_path = f"{entity_set}({key})"
        self.versions[entity_path] = self.versions.get(entity_path, 0) + 1
        etag = f'W/"{self.versions[entity_path]}"'
        self.sets[entity_set][key] = {**self.sets[entity_set].get(key, {}), **entity, "@odata.etag": etag}
        return self.sets[entity_set][key]

    def last(self) -> Received:
        return self.server.received[-1]

    # -- the protocol

    def answer(self, request: Received) -> Answer:
        parts = urlsplit(request.path)
        path, query = unquote(parts.path).removeprefix(self.root), parse_qs(parts.query)
        if request.headers.get("authorization") != self.credentials:
            return refuse(401, "Unauthorized", "Who are you?")
        special = self.special(request, path)
        if special is not None:
            return special
        if path == "$metadata":
            return Answer(200, {"Content-Type": "application/xml"}, self.document)
        match = re.fullmatch(r"(\w+)(?:\((.*?)\))?(?:/([\w.]+))?", self.within(path))
        if match is None or match[1] not in self.sets:
            return refuse(404, "NotFound", f"Resource not found for the segment {path!r}.")
        if match[3]:
            return json_answer({"done": match[3]}) if request.method == "POST" else refuse(405, "Method", "POST it.")
        if match[2] is None:
            return self.add(match[1], json.loads(request.body)) if request.method == "POST" else self.list(match[1], request, query)
        return self.one(match[1], match[2], request)

    def special(self, request: Received, path: str) -> Answer | None:
        return None

    def within(self, path: str) -> str:
        return path

    def add(self, entity_set: str, values: dict[str, Any]) -> Answer:
        number = len(self.sets[entity_set]) + 1
        key = str(UUID(int=number)) if self.is_by_id(entity_set) else str(number)
        return json_answer(self.store(entity_set, key, {**values, "id": key}), 201)

    def is_by_id(self, entity_set: str) -> bool:
        kind = parse_model(self.document).sets[entity_set]
        return str(kind.properties[kind.key[0]]["type"]) == "Edm.Guid"

    def list(self, entity_set: str, request: Received, query: dict[str, list[str]]) -> Answer:
        entities = list(self.sets[entity_set].values())
        if filters := query.get("$filter"):
            literal = re.fullmatch(r"(\w+) eq '((?:[^']|'')*)'", filters[0])
            assert literal is not None, filters
            entities = [each for each in entities if each.get(literal[1]) == literal[2].replace("''", "'")]
        start = int(query.get("$skiptoken", ["0"])[0])
        page: dict[str, Any] = {"value": entities[start:][: self.page]}
        if start + self.page < len(entities):
            page["@odata.nextLink"] = f"{self.server.url}{urlsplit(request.path).path}?$skiptoken={start + self.page}"
        return json_answer(page)

    def one(self, entity_set: str, key: str, request: Received) -> Answer:
        condition = request.headers.get("if-match")
        if key not in self.sets[entity_set]:
            return self.missing(entity_set, key, request)
        if request.method == "GET":
            return json_answer(self.sets[entity_set][key])
        if condition not in (None, "*", self.sets[entity_set][key]["@odata.etag"]):
            return self.changed()
        if request.method == "DELETE":
            del self.sets[entity_set][key]
            return Answer(204, body=b"")
        return json_answer(self.store(entity_set, key, json.loads(request.body)))

    def missing(self, entity_set: str, key: str, request: Received) -> Answer:
        return refuse(404, "NotFound", f"{entity_set} {key} does not exist.")

    def changed(self) -> Answer:
        return refuse(412, "Changed", "Somebody was faster.")


def json_answer(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Answer:
    return Answer(
        status, {"Content-Type": "application/json", "OData-Version": "4.0", **(headers or {})}, json.dumps(body).encode()
    )


def refuse(status: int, code: str, message: str, **more: Any) -> Answer:
    return json_answer({"error": {"code": code, "message": message, **more}}, status)


class Dataverse(Product):
    """The Web API of Dataverse 9.2: bearer tokens, definitions of tables, alternate keys, no small $metadata."""

    root = "/api/data/v9.2/"
    document = metadata("Microsoft.Dynamics.CRM", accounts={"accountid": "Guid!", "name": "String", "accountnumber": "String"})

    def __init__(self) -> None:
        super().__init__()
        self.credentials = "Bearer t-1"
        self.server.answers["/token"] = lambda _: Answer(200, {}, b'{"access_token": "t-1", "expires_in": 3600}')
        for number, name in enumerate(("Acme", "Bolt & Söhne", "Acme"), 1):
            self.store("accounts", str(UUID(int=number)), {"name": name, "accountnumber": f"A'{number}"})

    def special(self, request: Received, path: str) -> Answer | None:
        assert (request.headers.get("odata-version"), request.headers.get("odata-maxversion")) == ("4.0", "4.0")
        assert path != "$metadata"
        if path == "WhoAmI":
            return json_answer({"UserId": str(UUID(int=9)), "BusinessUnitId": str(UUID(int=8))})
        if path == "EntityDefinitions":
            account = {"LogicalName": "account", "EntitySetName": "accounts", "PrimaryIdAttribute": "accountid"}
            return json_answer({"value": [account, {"LogicalName": "x", "EntitySetName": None, "PrimaryIdAttribute": None}]})
        if path == "EntityDefinitions(LogicalName='account')/Attributes":
            required = {"Value": "ApplicationRequired", "CanBeChanged": True}
            return json_answer({"value": [
                {"LogicalName": "name", "AttributeType": "String", "RequiredLevel": required, "AttributeOf": None},
                {"LogicalName": "statecode", "AttributeType": "State", "RequiredLevel": {"Value": "None"}},
                {"LogicalName": "statecodename", "AttributeType": "Virtual", "AttributeOf": "statecode"},
            ]})  # fmt: skip
        return None

    def missing(self, entity_set: str, key: str, request: Received) -> Answer:
        alternate = re.fullmatch(r"accountnumber='((?:[^']|'')*)'", key)
        number = alternate[1].replace("''", "'") if alternate else ""
        keys = [each for each, entity in self.sets[entity_set].items() if entity.get("accountnumber") == number]
        if alternate and keys:
            return self.one(entity_set, keys[0], request)
        if request.method == "PATCH" and "if-match" not in request.headers:
            return self.add(entity_set, {**json.loads(request.body), **({"accountnumber": number} if alternate else {})})
        return refuse(404, "0x80040217", f"Entity 'Account' With Id = {key} Does Not Exist")


class BusinessCentral(Product):
    """Business Central: all sets but companies belong to a company, and an outdated etag is answered with 409."""

    root = "/BC/api/v2.0/"
    document = metadata(
        "Microsoft.NAV",
        companies={"id": "Guid!", "name": "String"},
        customers={"id": "Guid!", "displayName": "String"},
        salesInvoices={"id": "Guid!", "number": "String"},
    )
    company = str(UUID(int=77))

    def __init__(self) -> None:
        super().__init__()
        self.store("companies", self.company, {"id": self.company, "name": "CRONUS", "displayName": "CRONUS International"})
        for number, name in enumerate(("Acme", "O'Neil", "Acme"), 1):
            self.store("customers", str(UUID(int=number)), {"displayName": name})
        self.store("salesInvoices", str(UUID(int=1)), {"number": "1001"})

    def within(self, path: str) -> str:
        below = f"companies({self.company})/"
        return path.removeprefix(below) if path.startswith(below) or path == "companies" else "outside of a company"

    def one(self, entity_set: str, key: str, request: Received) -> Answer:
        if request.method != "GET" and "if-match" not in request.headers:
            return refuse(428, "BadRequest", "If-Match is wanted.")
        return super().one(entity_set, key, request)

    def changed(self) -> Answer:
        return refuse(409, "Request_EntityChanged", "Another user has already changed the record.  CorrelationId:  7.")


class Sap(Product):
    """A service of SAP S/4HANA: changes need a CSRF token with its cookies, errors have details, successes have messages."""

    root = "/sap/opu/odata4/sap/api_salesorder/srvd_a2x/sap/salesorder/0001/"
    document = metadata(
        "com.sap.gateway.srvd_a2x.api_sales_order.v0001",
        SalesOrder={"SalesOrder": "String!", "SoldToParty": "String"},
        SalesOrderItem={"SalesOrder": "String!", "SalesOrderItem": "String!"},
    )
    page = 100

    def __init__(self) -> None:
        super().__init__()
        self.store("SalesOrder", "'1'", {"SalesOrder": "1", "SoldToParty": "17100001"})
        self.store("SalesOrderItem", "SalesOrder='1',SalesOrderItem='10'", {"SalesOrder": "1", "SalesOrderItem": "10"})

    def special(self, request: Received, path: str) -> Answer | None:
        if path == "":
            token = {
                "x-csrf-token": "c-1",
                "Set-Cookie": "SAP_SESSIONID_S4H_100=a%3d; path=/; secure, sap-usercontext=sap-client=100",
            }
            return json_answer({"value": []}, 200, token if request.headers.get("x-csrf-token") == "Fetch" else {})
        session = (request.headers.get("x-csrf-token"), request.headers.get("cookie"))
        if request.method != "GET" and session != ("c-1", "SAP_SESSIONID_S4H_100=a%3d; sap-usercontext=sap-client=100"):
            return Answer(403, {"x-csrf-token": "Required"}, b"CSRF token validation failed")
        if request.method == "PATCH" and b"Locked" in request.body:
            return refuse(423, "V1/042", "Sales order 1 is being processed by user MEIER.")
        return None

    def add(self, entity_set: str, values: dict[str, Any]) -> Answer:
        if not values.get("SoldToParty"):
            details = [
                {
                    "code": "V1/312",
                    "message": "Enter the sold-to party.",
                    "target": "SoldToParty",
                    "@SAP__common.numericSeverity": 4,
                }
            ]
            return refuse(400, "V1/311", "The order is not complete.", details=details)
        messages = [{"code": "V1/555", "message": "The credit limit is nearly reached.", "numericSeverity": 3}]
        created = self.store(entity_set, f"'{len(self.sets[entity_set]) + 1}'", values)
        return json_answer(created, 201, {"sap-messages": json.dumps(messages)})


@pytest.fixture(scope="module")
def ctx() -> Iterator[Context]:
    with open_context(seconds=900) as ctx:
        yield ctx


@pytest.fixture
def dataverse() -> Iterator[Dataverse]:
    product = Dataverse()
    yield product
    product.server.close()


@pytest.fixture
def business_central() -> Iterator[BusinessCentral]:
    product = BusinessCentral()
    yield product
    product.server.close()


@pytest.fixture
def sap() -> Iterator[Sap]:
    product = Sap()
    yield product
    product.server.close()
