"""Failures: the errors of the contract they map to, and what a hostile WSDL or answer cannot make the appliance do."""

import json
import threading
from typing import Any

import pytest
from gos_connector_soap import SoapConnector

from appliance.connectors.contract import (
    AuthError,
    ConfigError,
    ConnectorError,
    Context,
    Json,
    Outcome,
    RateLimited,
    Rejected,
    SystemFailure,
    TransientError,
)
from appliance.connectors.testing import Answer, LoopbackServer, Received, open_context

Shop = Any
PASSWORD = "sésame-'\"<&"
CALL: Json = {"operation": "GetPrice", "input": {"item": "Bolt"}}
ENVELOPE = '<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"><e:Body>{}</e:Body></e:Envelope>'
RIGHT = '<GetPriceResponse xmlns="urn:example:shop"><price>7</price></GetPriceResponse>'
DTD = '<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]>'


def call_error(it: SoapConnector, seconds: float = 20) -> ConnectorError:
    with open_context(seconds=seconds) as ctx, pytest.raises(ConnectorError) as caught:
        it.call("call", CALL, ctx)
    text = caught.value.message + json.dumps(caught.value.details, ensure_ascii=False)
    assert PASSWORD not in text
    assert "root:" not in text
    return caught.value


@pytest.mark.parametrize(
    ("status", "headers", "error", "outcome"),
    [
        (400, {}, Rejected, "not_done"),
        (401, {}, AuthError, "not_done"),
        (403, {}, AuthError, "not_done"),
        (404, {}, ConfigError, "not_done"),
        (307, {"Location": "http://127.0.0.1:1/"}, ConfigError, "not_done"),
        (429, {"Retry-After": "7"}, RateLimited, "not_done"),
        (503, {"Retry-After": "7"}, RateLimited, "not_done"),
        (503, {}, TransientError, "not_done"),
        (500, {}, TransientError, "unknown"),
        (504, {}, TransientError, "unknown"),
    ],
)
def test_statuses_map_to_contract_errors(
    it: SoapConnector, shop: Shop, status: int, headers: dict[str, str], error: type[ConnectorError], outcome: Outcome
) -> None:
    answer = Answer(status, {"Content-Type": "text/html", **headers}, b"<p>The month is closed.</p>")
    shop.server.answers["/shop"] = lambda _: answer
    raised = call_error(it)
    assert (type(raised), raised.outcome, raised.details["status"]) == (error, outcome, status)
    if isinstance(raised, RateLimited):
        assert raised.retry_after == 7
    shop.server.answers["/shop.wsdl"] = lambda _: answer
    load_error = call_error(SoapConnector(shop.settings))
    assert (type(load_error) in (error, TransientError), load_error.outcome) == (True, "not_done")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/shop.wsdl", "http://no-such-host.invalid/shop.wsdl"])
def test_an_unreachable_service_is_transient_and_not_done(url: str) -> None:
    error = call_error(SoapConnector({"wsdl_url": url}))
    assert (type(error), error.outcome) == (TransientError, "not_done")


def test_a_silent_service_leaves_the_outcome_unknown_except_for_reads(shop: Shop) -> None:
    silent = threading.Event()

    def wait(_: Received) -> Answer:
        silent.wait(20)
        return Answer()

    outcomes = []
    for settings in (shop.settings, {**shop.settings, "reads": ["GetPrice"]}):
        it = SoapConnector(settings)
        with open_context() as ctx:
            it.call("describe", {}, ctx)
        shop.server.answers["/shop"] = wait
        error = call_error(it, seconds=1)
        assert type(error) is TransientError
        outcomes.append(error.outcome)
    silent.set()
    assert outcomes == ["unknown", "not_done"]


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"",
        b"<html/>",
        ENVELOPE.format("").encode(),
        ENVELOPE.format("<other/>").encode(),
        ENVELOPE.format(RIGHT.replace("7", "much")).encode(),
        ENVELOPE.format(RIGHT.replace("price", "prize")).encode(),
        (DTD + ENVELOPE.format(RIGHT.replace("7", "&b;"))).encode(),
        (DTD + ENVELOPE.format(RIGHT)).encode("utf-16"),
        b"<a>" * 100_000,
    ],
    ids=range(10),
)
def test_a_malformed_answer_is_a_failure(it: SoapConnector, shop: Shop, body: bytes) -> None:
    shop.server.answer("/shop", 200, body, Content_Type="text/xml")
    error = call_error(it)
    assert (type(error), error.outcome) == (SystemFailure, "unknown")


def test_a_multipart_answer_is_refused(it: SoapConnector, shop: Shop) -> None:
    shop.server.answer("/shop", 200, b"--x\r\n\r\n<a/>\r\n--x--", Content_Type="multipart/related; boundary=x")
    assert "attachments" in call_error(it).message


MALFORMED = {
    "no XML": b"{}",
    "no description": b"<html/>",
    "an entity": (DTD + "<a>&b;</a>").encode(),
    "an outer document type": b'<!DOCTYPE a SYSTEM "http://127.0.0.1:1/x.dtd"><a/>',
    "no service": b'<definitions xmlns="http://schemas.xmlsoap.org/wsdl/" targetNamespace="urn:x"/>',
}


@pytest.mark.parametrize("lie", MALFORMED)
@pytest.mark.parametrize("path", ["/shop.wsdl", "/shop.xsd"])
def test_a_malformed_description_is_reported(shop: Shop, path: str, lie: str) -> None:
    shop.server.answer(path, 200, MALFORMED[lie], Content_Type="text/xml")
    error = call_error(SoapConnector(shop.settings))
    assert type(error) in (SystemFailure, ConfigError)
    assert error.outcome == "not_done"
    assert shop.calls() == []


@pytest.mark.parametrize("place", ["file:///etc/passwd", "/etc/passwd", "ftp://127.0.0.1/x", "http://169.254.169.254/latest"])
def test_a_description_cannot_reach_files_or_forbidden_addresses(shop: Shop, place: str) -> None:
    usual = shop.server.answers["/shop.wsdl"](Received("GET", "/shop.wsdl", {}, b"")).body
    shop.server.answer("/shop.wsdl", 200, usual.replace(b"shop.xsd", place.encode()), Content_Type="text/xml")
    error = call_error(SoapConnector(shop.settings))
    assert error.outcome == "not_done"
    assert isinstance(error, ConfigError)


def test_endless_imports_are_aborted(shop: Shop) -> None:
    def more(request: Received) -> Answer:
        number = int(request.path.partition("?")[2] or "0") + 1
        inner = f'<xs:import namespace="urn:x{number}" schemaLocation="shop.xsd?{number}"/>'
        space = "urn:example:shop" if number == 1 else f"urn:x{number - 1}"
        body = f'<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="{space}">{inner}</xs:schema>'
        return Answer(200, {"Content-Type": "text/xml"}, body.encode())

    shop.server.answers["/shop.xsd"] = more
    assert "more than 100 documents" in call_error(SoapConnector(shop.settings)).message


def test_calls_do_not_follow_the_description_to_another_server(shop: Shop, ctx: Context) -> None:
    other = LoopbackServer()
    other.answer("/else", 200, ENVELOPE.format(RIGHT).encode(), Content_Type="text/xml")
    usual = shop.server.answers["/shop.wsdl"](Received("GET", "/shop.wsdl", {}, b"")).body
    there = f"{other.url}/else"
    shop.server.answer(
        "/shop.wsdl", 200, usual.replace(f"{shop.server.url}/shop".encode(), there.encode()), Content_Type="text/xml"
    )
    error = call_error(SoapConnector(shop.settings))
    assert type(error) is ConfigError
    assert "set `address`" in error.message
    assert other.received == []
    assert SoapConnector({**shop.settings, "address": there}).call("call", CALL, ctx) == {"output": "7"}
    other.close()


def test_credentials_stay_on_the_descriptions_own_server(shop: Shop, ctx: Context) -> None:
    other = LoopbackServer()
    schema = shop.server.answers["/shop.xsd"](Received("GET", "/shop.xsd", {}, b"")).body
    other.answer("/shop.xsd", 200, schema, Content_Type="text/xml")
    usual = shop.server.answers["/shop.wsdl"](Received("GET", "/shop.wsdl", {}, b"")).body
    away = usual.replace(b"shop.xsd", f"{other.url}/shop.xsd".encode())
    shop.server.answer("/shop.wsdl", 200, away, Content_Type="text/xml")
    it = SoapConnector({**shop.settings, "auth": {"kind": "bearer", "token": "t0"}})
    assert it.call("call", CALL, ctx)["output"]
    assert "authorization" not in other.received[0].headers
    assert shop.server.received[0].headers["authorization"] == "Bearer t0"
    other.close()
