"""A SOAP service on loopback that implements its WSDL: prices and orders, with a schema that the WSDL imports."""

import base64
import hashlib
from collections.abc import Iterator
from typing import Any
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape

import pytest
from defusedxml.ElementTree import fromstring
from gos_connector_soap import SoapConnector

from appliance.connectors.contract import Context
from appliance.connectors.testing import Answer, LoopbackServer, Received, open_context

PASSWORD = "sésame-'\"<&"
SHOP = "urn:example:shop"
WSSE = "{http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-secext-1.0.xsd}"
WSU = "{http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-utility-1.0.xsd}"
ENVELOPES = {"11": "http://schemas.xmlsoap.org/soap/envelope/", "12": "http://www.w3.org/2003/05/soap-envelope"}

SCHEMA = f"""<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="{SHOP}" xmlns="{SHOP}"
 elementFormDefault="qualified">
 <xs:element name="GetPrice"><xs:complexType><xs:sequence>
  <xs:element name="item" type="xs:string"/></xs:sequence></xs:complexType></xs:element>
 <xs:element name="GetPriceResponse"><xs:complexType><xs:sequence>
  <xs:element name="price" type="xs:decimal"/></xs:sequence></xs:complexType></xs:element>
 <xs:complexType name="Line"><xs:sequence>
   <xs:element name="item" type="xs:string"/><xs:element name="count" type="xs:int"/>
   <xs:element name="due" type="xs:date" minOccurs="0"/></xs:sequence>
  <xs:attribute name="urgent" type="xs:boolean"/></xs:complexType>
 <xs:element name="Order"><xs:complexType><xs:sequence>
   <xs:element name="line" type="Line" maxOccurs="unbounded"/>
   <xs:element name="note" type="xs:string" minOccurs="0"/>
   <xs:element name="picture" type="xs:base64Binary" minOccurs="0"/></xs:sequence></xs:complexType></xs:element>
 <xs:element name="OrderResponse"><xs:complexType><xs:sequence>
   <xs:element name="number" type="xs:long"/><xs:element name="made" type="xs:dateTime"/>
   <xs:element name="lasts" type="xs:duration"/>
   <xs:element name="picture" type="xs:base64Binary" minOccurs="0"/><xs:element name="line" type="Line" maxOccurs="unbounded"/>
  </xs:sequence></xs:complexType></xs:element>
</xs:schema>"""

WSDL = """<definitions name="Shop" targetNamespace="SHOP" xmlns:tns="SHOP" xmlns="http://schemas.xmlsoap.org/wsdl/"
  xmlns:s11="http://schemas.xmlsoap.org/wsdl/soap/" xmlns:s12="http://schemas.xmlsoap.org/wsdl/soap12/">
 <types><xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">
  <xs:import namespace="SHOP" schemaLocation="shop.xsd"/></xs:schema></types>
 MESSAGES
 <portType name="Shop">OPERATIONS</portType>
 BINDINGS
 <service name="Shop">PORTS</service>
</definitions>"""


def description(address: str) -> str:
    names = ("GetPrice", "Order")
    messages = "".join(
        f'<message name="{name}{side}"><part name="body" element="tns:{name}{side}"/></message>'
        for name in names
        for side in ("", "Response")
    )
    operations = "".join(
        f'<operation name="{name}"><input message="tns:{name}"/><output message="tns:{name}Response"/></operation>'
        for name in names
    )
    bindings = ports = ""
    for version in ("11", "12"):
        operation_bindings = "".join(
            f'<operation name="{name}"><s{version}:operation soapAction="urn:{name}"/>'
            f'<input><s{version}:body use="literal"/></input><output><s{version}:body use="literal"/></output></operation>'
            for name in names
        )
        soap_binding = f'<s{version}:binding style="document" transport="http://schemas.xmlsoap.org/soap/http"/>'
        bindings += f'<binding name="B{version}" type="tns:Shop">{soap_binding}{operation_bindings}</binding>'
        ports += f'<port name="P{version}" binding="tns:B{version}"><s{version}:address location="{escape(address)}"/></port>'
    filled = (
        WSDL.replace("MESSAGES", messages).replace("OPERATIONS", operations).replace("BINDINGS", bindings).replace("PORTS", ports)
    )
    return filled.replace("SHOP", SHOP)


class Shop:
    """The service: checks the UsernameToken, answers and records the orders."""

    def __init__(self) -> None:
        self.orders: list[dict[str, Any]] = []
        self.server = LoopbackServer()
        self.server.answers["/shop.wsdl"] = lambda _: xml(description(f"{self.server.url}/shop"))
        self.server.answers["/shop.xsd"] = lambda _: xml(SCHEMA)
        self.server.answers["/shop"] = self.answer

    @property
    def settings(self) -> dict[str, Any]:
        return {"wsdl_url": f"{self.server.url}/shop.wsdl", "security": {"username": "gos", "password": PASSWORD}}

    def calls(self) -> list[Received]:
        return [each for each in self.server.received if each.path == "/shop"]

    def answer(self, request: Received) -> Answer:
        root = fromstring(request.body)
        version = next(version for version, name in ENVELOPES.items() if root.tag == f"{{{name}}}Envelope")
        if not self._is_authenticated(root):
            return fault(version, "wsse:FailedAuthentication", "Who are you?")
        operation = root.findall(f"{{{ENVELOPES[version]}}}Body/*")[0]
        return envelope(version, {f"{{{SHOP}}}GetPrice": self._price, f"{{{SHOP}}}Order": self._order}[operation.tag](operation))

    def _is_authenticated(self, root: Element) -> bool:
        token = root.find(f".//{WSSE}UsernameToken")
        if token is None:
            return False
        password = token.find(f"{WSSE}Password")
        expected = PASSWORD
        if password is not None and str(password.get("Type", "")).endswith("#PasswordDigest"):
            nonce, created = (token.findtext(name) or "" for name in (f"{WSSE}Nonce", f"{WSU}Created"))
            digest = hashlib.sha1(base64.b64decode(nonce) + created.encode() + PASSWORD.encode(), usedforsecurity=False).digest()
            expected = base64.b64encode(digest).decode()
        return token.findtext(f"{WSSE}Username") == "gos" and password is not None and password.text == expected

    def _price(self, operation: Element) -> str:
        item = operation.findtext(f"{{{SHOP}}}item")
        price = {"Bolt": "1.250000000000000000001", "O'Ring <&>": "7"}.get(item or "", "0")
        return f'<GetPriceResponse xmlns="{SHOP}"><price>{price}</price></GetPriceResponse>'

    def _order(self, operation: Element) -> str:
        lines = [
            {**{part.tag.rpartition("}")[2]: part.text for part in line}, **line.attrib}
            for line in operation.iter(f"{{{SHOP}}}line")
        ]
        self.orders.append(
            {"lines": lines, "note": operation.findtext(f"{{{SHOP}}}note"), "picture": operation.findtext(f"{{{SHOP}}}picture")}
        )
        items = "".join(f'<line urgent="false"><item>{escape(line["item"] or "")}</item><count>1</count></line>' for line in lines)
        return (
            f'<OrderResponse xmlns="{SHOP}"><number>9007199254740993</number><made>2026-11-21T10:00:00+01:00</made>'
            f"<lasts>P1DT2H</lasts><picture>AAH/</picture>{items}</OrderResponse>"
        )


def xml(text: str, status: int = 200) -> Answer:
    return Answer(status, {"Content-Type": "text/xml; charset=utf-8"}, text.encode())


def envelope(version: str, body: str, status: int = 200) -> Answer:
    space = ENVELOPES[version]
    return xml(f'<e:Envelope xmlns:e="{space}" xmlns:wsse="{WSSE[1:-1]}"><e:Body>{body}</e:Body></e:Envelope>', status)


def fault(version: str, code: str, message: str, detail: str = "") -> Answer:
    if version == "11":
        more = f"<detail>{detail}</detail>" if detail else ""
        content = f"<faultcode>{code}</faultcode><faultstring>{message}</faultstring>{more}"
    else:
        below = f"<e:Subcode><e:Value>{code}</e:Value></e:Subcode>"
        more = f"<e:Detail>{detail}</e:Detail>" if detail else ""
        reason = f"<e:Reason><e:Text xml:lang='en'>{message}</e:Text></e:Reason>"
        content = f"<e:Code><e:Value>e:Sender</e:Value>{below}</e:Code>{reason}{more}"
    return envelope(version, f"<e:Fault>{content}</e:Fault>", 500)


@pytest.fixture
def shop() -> Iterator[Shop]:
    shop = Shop()
    yield shop
    shop.server.close()


@pytest.fixture
def ctx() -> Iterator[Context]:
    with open_context(seconds=30) as ctx:
        yield ctx


@pytest.fixture
def it(shop: Shop) -> SoapConnector:
    return SoapConnector(shop.settings)
