"""The contract suite, and calls of a service that implements its WSDL."""

from typing import Any

import pytest
from gos_connector_soap import SoapConnector

from appliance.connectors.contract import AuthError, ConfigError, Context, Json, Rejected
from appliance.connectors.testing import ConnectorContract

Shop = Any
PASSWORD = "sésame-'\"<&"
VERSIONS = ["P11", "P12"]
ORDER: Json = {
    "line": [{"item": "Größe <&>", "count": 2, "due": "2026-01-31", "urgent": True}, {"item": "b", "count": 1}],
    "picture": "AAH/",
}


class TestContract(ConnectorContract):
    connector = SoapConnector

    @pytest.fixture
    def settings(self, shop: Shop) -> dict[str, Any]:
        return dict(shop.settings)

    @pytest.fixture
    def broken_settings(self) -> dict[str, Any]:
        return {"wsdl_url": "http://127.0.0.1:1/shop.wsdl"}


@pytest.mark.parametrize("port", VERSIONS)
def test_operations_are_called_in_both_soap_versions(shop: Shop, ctx: Context, port: str) -> None:
    it = SoapConnector({**shop.settings, "port": port})
    priced = it.call("call", {"operation": "GetPrice", "input": {"item": "Bolt"}}, ctx)
    assert priced == {"output": "1.250000000000000000001"}
    assert it.call("call", {"operation": "GetPrice", "input": {"item": "O'Ring <&>"}}, ctx) == {"output": "7"}
    action = shop.calls()[-1].headers["content-type" if port == "P12" else "soapaction"]
    assert "urn:GetPrice" in action


@pytest.mark.parametrize("port", VERSIONS)
def test_structures_lists_and_types_round_trip(shop: Shop, ctx: Context, port: str) -> None:
    it = SoapConnector({**shop.settings, "port": port})
    output = it.call("call", {"operation": "Order", "input": ORDER}, ctx)["output"]
    lines = [{"item": "Größe <&>", "count": "2", "due": "2026-01-31", "urgent": "true"}, {"item": "b", "count": "1"}]
    assert shop.orders == [{"lines": lines, "note": None, "picture": "AAH/"}]
    assert {name: output[name] for name in ("number", "made", "lasts", "picture")} == {
        "number": "9007199254740993",
        "made": "2026-11-21T10:00:00+01:00",
        "lasts": "P1DT2H",
        "picture": "AAH/",
    }
    assert output["line"][0] == {"item": "Größe <&>", "count": 1, "due": None, "urgent": False}


@pytest.mark.parametrize("port", VERSIONS)
@pytest.mark.parametrize("digest", [False, True])
def test_ws_security_by_password_text_or_digest(shop: Shop, ctx: Context, port: str, digest: bool) -> None:
    params = {"operation": "GetPrice", "input": {"item": "Bolt"}}
    security = {"username": "gos", "password": PASSWORD, "digest": digest}
    assert SoapConnector({**shop.settings, "port": port, "security": security}).call("call", params, ctx)["output"]
    assert (b"same-" in shop.calls()[-1].body) is not digest
    wrong = SoapConnector({**shop.settings, "port": port, "security": {**security, "password": "wrong-secret"}})
    with pytest.raises(AuthError, match="Who are you") as caught:
        wrong.call("call", params, ctx)
    assert "wrong-secret" not in caught.value.message + str(caught.value.details)


@pytest.mark.parametrize(
    ("operation", "params", "error"),
    [
        ("GetPrice", {"itm": "a"}, "unexpected keyword argument 'itm'"),
        ("GetPrice", {}, "Missing element item"),
        ("GetPrice", {"item": ["a"]}, "doesn't accept collections"),
        ("GetPrice", {"item": "a\x00b"}, "XML compatible"),
        ("GetPrice", {"item": "a", "_soapheaders": {"x": 1}}, "headers are not supported"),
        ("Order", {"line": [{"item": "a", "count": "many", "colour": 1}]}, "colour"),
        ("Order", {"line": []}, "Missing element line|at least"),
        ("Nothing", {}, "no operation 'Nothing'"),
    ],
)
def test_invalid_input_is_rejected_before_sending(
    it: SoapConnector, shop: Shop, ctx: Context, operation: str, params: Json, error: str
) -> None:
    with pytest.raises(ConfigError, match=error):
        it.call("call", {"operation": operation, "input": params}, ctx)
    assert shop.calls() == []


def test_operations_in_reads_have_the_effect_read(shop: Shop) -> None:
    it = SoapConnector({**shop.settings, "reads": ["GetPrice"]})
    call, describe = it.actions
    assert it.effect_of(call, {"operation": "GetPrice"}) == "read"
    assert it.effect_of(call, {"operation": "Order"}) == "write"
    assert it.effect_of(describe, {}) == "read"


def test_describe_says_what_an_operation_takes_and_gives(it: SoapConnector, ctx: Context) -> None:
    assert it.call("describe", {}, ctx) == {"operations": [{"name": "GetPrice"}, {"name": "Order"}]}
    (order,) = it.call("describe", {"operation": "Order"}, ctx)["operations"]
    line, note, picture = order["takes"]
    assert (line["name"], line["type"], line["required"], line["many"]) == ("line", "Line", True, True)
    assert line["members"][2:] == [
        {"name": "due", "type": "date", "required": False, "many": False},
        {"name": "urgent", "type": "boolean", "required": False, "many": False},
    ]
    assert (note["required"], picture["type"]) == (False, "base64Binary")
    assert [each["name"] for each in order["gives"]] == ["number", "made", "lasts", "picture", "line"]
    with pytest.raises(ConfigError, match="no operation 'Nothing'"):
        it.call("describe", {"operation": "Nothing"}, ctx)


def test_the_description_is_loaded_once(it: SoapConnector, shop: Shop, ctx: Context) -> None:
    for _ in range(3):
        it.call("call", {"operation": "GetPrice", "input": {"item": "Bolt"}}, ctx)
    assert [each.path for each in shop.server.received] == ["/shop.wsdl", "/shop.xsd", "/shop", "/shop", "/shop"]


@pytest.mark.parametrize(
    ("auth", "header"),
    [
        ({"kind": "basic", "username": "gos", "password": "pä"}, ("authorization", "Basic Z29zOnDDpA==")),
        ({"kind": "bearer", "token": "t0"}, ("authorization", "Bearer t0")),
        ({"kind": "header", "name": "X-Key", "value": "k"}, ("x-key", "k")),
    ],
)
def test_http_credentials_are_sent(shop: Shop, ctx: Context, auth: Json, header: tuple[str, str]) -> None:
    it = SoapConnector({**shop.settings, "auth": auth})
    it.call("call", {"operation": "GetPrice", "input": {"item": "Bolt"}}, ctx)
    assert [each.headers.get(header[0]) for each in shop.server.received] == [header[1]] * 3


def test_an_unknown_port_is_reported(shop: Shop, ctx: Context) -> None:
    with pytest.raises(ConfigError, match="no port P13; it has P11, P12"):
        SoapConnector({**shop.settings, "port": "P13"}).check(ctx)


def test_a_fault_carries_the_services_message(it: SoapConnector, shop: Shop, ctx: Context) -> None:
    body = (
        '<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"><e:Body><e:Fault><faultcode>e:Client</faultcode>'
        "<faultstring>The month is closed.</faultstring><detail><why>November</why></detail></e:Fault></e:Body></e:Envelope>"
    )
    for status in (500, 400, 200):
        shop.server.answer("/shop", status, body.encode(), Content_Type="text/xml")
        with pytest.raises(Rejected, match="refused: The month is closed") as caught:
            it.call("call", {"operation": "GetPrice", "input": {"item": "Bolt"}}, ctx)
        assert caught.value.outcome == "not_done"
        assert (caught.value.details["code"], "November" in caught.value.details["detail"]) == ("e:Client", True)
